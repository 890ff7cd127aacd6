"""A runtime's options, and the parts that are built from them for an open store."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from tenuto.argument import check_flag, check_items, check_word
from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.model.input import Input
from tenuto.model.lane import LaneTiming
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.runtime.change import fork as forking
from tenuto.runtime.change.action import Commands
from tenuto.runtime.change.create import SessionCreator
from tenuto.runtime.change.fork import NewFork
from tenuto.runtime.change.hooks import Hook, Hooks
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.queue.dispatcher import Dispatcher, Progress
from tenuto.runtime.queue.input_handler import InputHandler
from tenuto.runtime.queue.repeated_input import RepeatedInput
from tenuto.runtime.queue.sender import Sender, within_life
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.end import TurnEnder
from tenuto.runtime.run.first_message import to_regenerate
from tenuto.runtime.run.live_turns import LiveTurns
from tenuto.runtime.run.predecessor import turn_to_fork
from tenuto.runtime.run.resume import resume_stopped
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.session.outcome import Outcome, Outcomes
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.failures import Failures
from tenuto.runtime.stream.notices import Listener, Listeners
from tenuto.runtime.tree.answer import AnswerDesk, Answered
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.runtime.tree.graph_pause import GraphPauses
from tenuto.runtime.tree.in_doubt import InDoubtCalls
from tenuto.runtime.turn.context import DEFAULT_STEPS, TurnContext
from tenuto.store.bounds import check_key, check_name, check_text
from tenuto.store.held_lanes import refuse_nested
from tenuto.store.store import Store
from tenuto.words import InDoubt, RetryFailed, WhenBusy
from tenuto.writing.lane_claim import this_owner
from tenuto.writing.lru import DEFAULT_BYTES

_log = logging.getLogger("tenuto.runtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a runtime, see `SessionRuntime`, checked once, when it is declared."""

    programs: Programs
    hooks: Hooks
    listeners: Listeners
    commands: Commands
    in_doubt: InDoubt = "ask"
    when_busy: WhenBusy | None = None
    retry_failed: RetryFailed = "retryable"
    steps: int = DEFAULT_STEPS
    lanes: LaneTiming | None = None
    cache_bytes: int = DEFAULT_BYTES
    tracebacks: bool = True
    worker_name: str | None = None

    @classmethod
    def checked(
        cls,
        programs: Program[Any] | Iterable[Program[Any]],
        hooks: Iterable[Hook],
        listeners: Iterable[Listener],
        actions: Iterable[type[Any]],
        **given: Any,
    ) -> "Options":
        """Return the options that a caller gave, or raise `InvalidInput` for one that cannot be."""
        found = cls(
            programs=Programs([programs] if isinstance(programs, Program) else check_items(programs, "programs")),
            hooks=Hooks(hooks),
            listeners=Listeners(check_items(listeners, "listeners")),
            commands=Commands(check_items(actions, "actions")),
            **given,
        )
        for name, least in (("steps", 1), ("cache_bytes", 0)):
            if type(value := getattr(found, name)) is not int or value < least:
                raise InvalidInput(f"`{name}` must be an integer of {least} or more, got {quote(value)}.")
        if found.when_busy is not None:
            check_word(found.when_busy, WhenBusy, "when_busy")
        check_word(found.in_doubt, InDoubt, "in_doubt")
        check_word(found.retry_failed, RetryFailed, "retry_failed")
        check_flag(found.tracebacks, "tracebacks")
        if found.worker_name is not None:
            check_name(found.worker_name, "worker_name")
        if not isinstance(found.lanes, LaneTiming | None):
            raise InvalidInput(f"`lanes` must be a LaneTiming, got {quote(found.lanes)}.")
        return found


class Machinery:
    """The parts of an open runtime."""

    def __init__(self, store: Store, options: Options) -> None:
        self.store, self.options = store, options
        hooks, self.programs, self.listeners = options.hooks, options.programs, options.listeners
        self.commands, self.live = options.commands, LiveTurns(store)
        self.failures = Failures(store, self.listeners)
        self.pipeline = Pipeline(store, self.programs, hooks, self.listeners, self.failures)
        ender = TurnEnder(store, self.listeners, self.failures, hooks, options.tracebacks)
        self.factory = TurnFactory(
            store,
            self.programs,
            self.listeners,
            self.failures,
            hooks,
            ender,
            options.in_doubt,
            options.steps,
            self.commands,
        )
        self.dispatcher = Dispatcher(
            store,
            self.factory,
            Runner(self.programs, ender, self.live),
            InputHandler(store, self.factory, self.pipeline, self.commands),
            owner=this_owner(options.worker_name),
            cache_bytes=options.cache_bytes,
            lane_wait=(options.lanes or store.timing).wait,
        )
        self.outcomes = Outcomes(store, self.programs)
        self.sender = Sender(store, self.dispatcher, self.live, self.outcomes)
        self.repeated = RepeatedInput(
            store, self.factory, self.dispatcher, self.sender, self.outcomes, options.retry_failed
        )
        self.answers = AnswerDesk(store, self.listeners, GraphPauses(store, self.programs), self.outcomes)
        self.creator = SessionCreator(store, self.programs, self.pipeline)
        self.deliveries = Deliveries(store, self.live, self.answers, self.creator)
        self.in_doubt = InDoubtCalls(store, self.listeners, self.answers, self.deliveries)

    async def view(self, key: SessionKey) -> SessionView:
        """Return a session with its state, as the `after_load` hooks leave it."""
        try:
            replica, _ = await self.factory.load(key)
        except Exception as error:
            await self.failures.load(key, error, streams=False)
            raise
        return await self.pipeline.look(replica)

    async def fork(self, new: NewFork) -> tuple[SessionKey, Outcome[Any] | None]:
        """Fork a session, and wait for the outcome of its first turn, if it has a first message."""
        fork, said = new.begins(), new.message
        receipt = await forking.fork(self.store, new, fork, self.factory.load, partial(self.factory.admit, said))
        if said is None:
            return fork, None
        settled = self.sender.settled(fork, receipt.input_ids[0])
        return fork, await within_life(self.store, fork, receipt.life, settled)

    async def resume(self, key: SessionKey) -> TurnContext:
        """Begin the run that resumes a session's interrupted or failed one."""
        try:
            return await self.dispatcher.act(key, partial(resume_stopped, self.factory), keeps_lane=True)
        except Exception as error:
            await self.failures.verb(key, "ResumeRun", error)
            raise

    async def regenerate(
        self, key: SessionKey, run_id: str | None, again: str | None, policy: WhenBusy
    ) -> TurnContext | Input:
        """Begin a turn in place of the last one, with its message, or queue that."""
        if policy == "queue":
            refuse_nested(self.store, key, "Regenerate it from outside its turns.")
        first = to_regenerate(None if run_id is None else check_name(run_id, "run_id"), again)
        waits: WhenBusy = "interrupt" if policy == "rollback" else policy  # the turn under way is rolled back anyway
        try:
            return await self.sender.begin_with(key, first, waits)
        except Exception as error:
            await self.failures.verb(key, "RegenerateTurn", error)
            raise

    async def regenerate_on_fork(self, key: SessionKey, run_id: str | None, again: str | None) -> Outcome[Any]:
        """Begin a turn with the message of an earlier one, on a fork of the session from before it."""
        replica, _ = await self.factory.load(key)
        log = self.factory.traits_of(replica.definition).input_log
        point, message = await turn_to_fork(self.store, key, run_id, log)
        new = NewFork(source=key, at=point.commit_number, target=None, message=message, key=again)
        _, outcome = await self.fork(new)
        assert outcome is not None
        return outcome

    async def give_answer(
        self,
        wait: str | Wait,
        value: JSON | BaseModel,
        *,
        tenant: str,
        error: JSON,
        key: str | None,
        session: SessionKey | None,
        run: bool,
    ) -> Answered[Any]:
        """Store an answer, and resume its session if that was the last; see `Sessions.answer`."""
        named: dict[str, Any] = {"kind": wait.kind, "run_id": wait.run_id} if isinstance(wait, Wait) else {}
        wait_id = wait.wait_id if isinstance(wait, Wait) else wait
        stored = await self.answers.give(
            wait_id,
            value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value,
            tenant=tenant,
            error=error,
            session=session,
            here=run,
            operation_id=None if key is None else _operation_of(wait_id, key),
            **named,
        )
        progress = Progress()
        if run and stored.answered.continues == "worker":
            try:
                progress = await self.dispatcher.advance(stored.key)
            except Exception as failure:  # the answer is stored; a worker resumes the session
                _log.info("%s cannot be resumed here and is left to a worker: %s", stored.key, failure)
        if not progress.worked:
            return stored.answered
        return await self.answers.with_outcome(stored, progress.outcome_of(stored.invocation_id))


def _operation_of(wait_id: str, key: str) -> str:
    """Return the id of the commit that stores the answer a client gives under a key."""
    return f"answer:{check_text(wait_id, 'wait_id')}:{sha256(check_key(key).encode()).hexdigest()}"
