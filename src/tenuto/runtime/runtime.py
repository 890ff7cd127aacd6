"""The session runtime: create sessions and run their turns, which survive requests, restarts and workers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any

from tenuto.argument import check_kind, refuse, word_of
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, ProgramNotRegistered, SessionNotFound, StatusRefused, TenutoError
from tenuto.model.effect import Effect
from tenuto.model.input import Boundary, Cancelled, Input, NewInput
from tenuto.model.lane import Lane, Owner
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopKind, StopReply
from tenuto.model.session import Key, SessionHead, SessionKey, SessionPage, Tenant
from tenuto.model.token_usage import UsageReport
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.change import fork as forking
from tenuto.runtime.change.actions import Action, Deed, RewindSession, SendMessage
from tenuto.runtime.change.create import NewSession, SessionCreator
from tenuto.runtime.change.fork import Forked, NewFork
from tenuto.runtime.change.hooks import Controller, as_controller
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.change.rewind import going_back
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.handle import RunHandle, SessionHandle
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.queue.commands import Commands
from tenuto.runtime.queue.dispatcher import Dispatcher, Progress
from tenuto.runtime.queue.input_handler import InputHandler
from tenuto.runtime.queue.sender import Sender, WhenBusy, within_life
from tenuto.runtime.queue.worker import POLL_SECONDS, Worker
from tenuto.runtime.run.begin import TurnFactory
from tenuto.runtime.run.end import TurnEnder
from tenuto.runtime.run.live_turns import LiveTurns, run_to_stop, session_of_run
from tenuto.runtime.run.refusal import Declined
from tenuto.runtime.run.resume import find_stopped, resume_run
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.info import RunInfo, head_of, runs_of
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.outcomes import Outcomes
from tenuto.runtime.session.session_view import Session
from tenuto.runtime.session.tenancy import Tenancy
from tenuto.runtime.stream.notices import Listener, Listeners
from tenuto.runtime.stream.reader import StreamFrame, read_stream
from tenuto.runtime.tree.answer import AnswerDesk, Answered
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.runtime.tree.in_doubt import InDoubtCalls
from tenuto.runtime.turn.context import DEFAULT_STEPS, Continuation, TurnContext
from tenuto.runtime.turn.effect_journal import InDoubt
from tenuto.store.open import memory_store
from tenuto.store.store import Store, check_whole_store
from tenuto.writing.lane_claim import DEFAULT_LANE_WAIT, this_owner
from tenuto.writing.lru import DEFAULT_BYTES

_log = logging.getLogger("tenuto.runtime")


class SessionRuntime:
    """Holds sessions: one identity, one state, one conversation each, and the turns of their programs.

    Every verb takes a session's id, or its full key. A missing session raises `SessionNotFound`. Without a store it
    keeps sessions in memory and logs a warning. `owner` names this runner to others, for hosts that serialise turns
    themselves; by default it is this process. `in_doubt` decides about tool calls whose result was lost with a runner.

    Plain ids belong to the default tenant, and so do ids of runs, waits and inputs: another tenant's are unknown.
    `for_tenant` returns the same runtime as a tenant's callers are to see it.
    """

    def __init__(
        self,
        store: Store | None = None,
        programs: Iterable[Program] = (),
        hooks: Controller | Iterable[Controller] | None = None,
        listeners: Iterable[Listener] = (),
        *,
        in_doubt: InDoubt | str = InDoubt.ASK,
        owner: Owner | None = None,
        steps: int = DEFAULT_STEPS,
        actions: Iterable[type[Any]] = (),
        when_busy: WhenBusy | str = WhenBusy.REJECT,
        lane_wait: float = DEFAULT_LANE_WAIT,
        warm_bytes: int = DEFAULT_BYTES,
    ) -> None:
        if store is None:
            store = memory_store()
            _log.warning("No store was passed: sessions are kept in memory and are lost when this process ends.")
        check_whole_store(store, "A runtime's sessions")
        programs, listeners, actions = tuple(programs), tuple(listeners), tuple(actions)
        if type(steps) is not int or steps < 1:
            raise InvalidInput(f"`steps` must be an integer of 1 or more, got {quote(steps)}.")
        self.store = store
        self.programs = Programs(programs)
        self.listeners = Listeners(listeners)
        self._budget = steps
        self._when_busy = word_of(WhenBusy, when_busy, "when_busy")
        self._commands = Commands(actions)
        hooks = controller = as_controller(hooks)  # an iterator can be read only once
        self._pipeline = Pipeline(store, controller, self.listeners)
        live, ender = LiveTurns(store), TurnEnder(store, self.listeners, controller)
        doubt, me = word_of(InDoubt, in_doubt, "in_doubt"), owner or this_owner()
        self._factory = TurnFactory(store, self.programs, self.listeners, controller, ender, doubt, steps)
        inputs = InputHandler(store, self._factory, self._pipeline, self._commands)
        self._dispatcher = Dispatcher(
            store,
            self._factory,
            Runner(self.programs, ender, live),
            inputs,
            owner=me,
            cache_bytes=warm_bytes,
            lane_wait=lane_wait,
        )
        self._sender = Sender(store, self._dispatcher, live)
        self._outcomes = Outcomes(store)
        self._answers = AnswerDesk(store, self.listeners)
        self._creations = SessionCreator(store, self.programs, self._pipeline)
        self._deliveries = Deliveries(store, live, self._answers, self._creations)
        self._in_doubt_calls = InDoubtCalls(store, self.listeners, self._answers, self._deliveries)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tenancy = Tenancy()
        self._live = live
        self._with_store: Callable[[Store], SessionRuntime] = lambda other: SessionRuntime(
            other,
            programs,
            hooks,
            listeners,
            in_doubt=in_doubt,
            owner=owner,
            steps=steps,
            actions=actions,
            when_busy=when_busy,
            lane_wait=lane_wait,
            warm_bytes=warm_bytes,
        )

    def for_tenant(self, tenant: Tenant) -> "SessionRuntime":
        """Return a view of this runtime whose verbs read and write within one tenant.

        Plain ids are resolved in it, a key of another tenant raises `InvalidInput`, and whatever belongs to another
        tenant is refused exactly like something that does not exist. The view shares this runtime's cached sessions,
        tasks and listeners, and is closed with it. `ANY_TENANT`, for operators, finds any tenant's runs, waits, inputs.
        """
        tenancy = self._tenancy.narrowed(tenant)
        if tenancy == self._tenancy:
            return self
        view = copy(self)
        view._tenancy = tenancy
        return view

    def _key(self, session_id: Key) -> SessionKey:
        return self._tenancy.key(session_id)

    async def __aenter__(self) -> "SessionRuntime":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for the turns that this runtime has started; the store stays open. A second call does nothing.

        A tenant's view is closed with its runtime.
        """
        if self._tenancy != Tenancy():
            return
        while under_way := [*self._tasks, *self._sender.background]:
            await asyncio.gather(*under_way, return_exceptions=True)
        self._live.close()

    async def create(
        self,
        program: str | Definition,
        seed: Mapping[str, JSON] | None = None,
        session_id: Key | None = None,
        *,
        user_id: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, JSON] | None = None,
        title: str | None = None,
        expires_at: datetime | None = None,
        parent: Key | None = None,
        logs: Iterable[str] = (),
        operation_id: str | None = None,
    ) -> Session:
        """Create a session of a program, under the caller's id or a minted one; an id in use raises `SessionExists`.

        `seed` is its first state: `messages`, and the fields named by `logs`, are logs; the others are the document. A
        prompt in the definition takes precedence over the seed's `system_prompt`. A child has its parent's root and
        trace. Repeated with the same id and `operation_id`, the call creates nothing and returns the session.
        """
        new = NewSession(
            program=program,
            seed=seed,
            session_id=None if session_id is None else self._key(session_id),
            tenant=self._tenancy.home,
            user_id=user_id,
            tags=tags,
            metadata=metadata,
            title=title,
            expires_at=expires_at,
            parent=None if parent is None else self._key(parent),
            logs=logs,
            operation_id=operation_id,
        )
        return await self._creations.create(new)

    async def send(
        self,
        session_id: Key,
        message: str | Mapping[str, Any],
        key: str | None = None,
        when_busy: WhenBusy | str | None = None,
    ) -> Outcome:
        """Send a message, wait for the turn, and return its outcome; the same key again returns the same outcome.

        `when_busy` decides what happens if the session is busy: `reject` (`LaneBusy`), `queue` (for the next turn),
        `interrupt` (stop the running turn first) or `rollback` (stop it and roll it back). A message is durable before
        its turn runs; a failed turn keeps it. The outcome of a failed, interrupted or suspended turn is returned, not
        raised; `outcome.result()` raises.
        """
        return await self._finish(await self._begin(session_id, message, key, when_busy), when_busy)

    async def start(
        self,
        session_id: Key,
        message: str | Mapping[str, Any],
        key: str | None = None,
        when_busy: WhenBusy | str | None = None,
    ) -> RunHandle:
        """Begin a turn and return as soon as its message is durable; the turn continues in the background."""
        begun = await self._begin(session_id, message, key, when_busy)
        task = asyncio.create_task(self._finish(begun, when_busy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return RunHandle(self, begun, task)

    async def _begin(
        self, session_id: Key, message: Any, input_key: str | None, when_busy: WhenBusy | str | None
    ) -> TurnContext | Input:
        key, policy = self._key(session_id), self._policy(when_busy)
        said = as_message(message)
        try:
            return await self._sender.begin(key, said, input_key=input_key, body={"message": said}, when_busy=policy)
        except (SessionNotFound, StatusRefused, ProgramNotRegistered) as error:
            await self._pipeline.deed_failed(key, SendMessage.__name__, error)
            raise

    async def _finish(self, begun: TurnContext | Input, when_busy: WhenBusy | str | None) -> Outcome:
        if isinstance(begun, TurnContext):
            return await within_life(self.store, begun.key, begun.replica.life, self._dispatcher.run(begun))
        settled = self._sender.settled(begun.key, begun.input_id, self._policy(when_busy))
        return await within_life(self.store, begun.key, begun.life, settled)

    def _policy(self, when_busy: WhenBusy | str | None) -> WhenBusy:
        return word_of(WhenBusy, when_busy or self._when_busy, "when_busy")

    async def enqueue(
        self,
        session_id: Key,
        message: str | Mapping[str, Any] | Action,
        key: str | None = None,
        *,
        boundary: Boundary | str | None = None,
        due_at: datetime | None = None,
        delay: float | None = None,
    ) -> str:
        """Queue a message or an action durably and return its input id; a worker, or the next sender, takes it.

        A message with a `boundary` is for the running turn: after its current step, or before it completes.
        """
        kind, body = self._commands.queued(message)
        bound = None if boundary is None else word_of(Boundary, boundary, "boundary")
        new = NewInput(kind=kind, body=body, key=key, boundary=bound, due_at=due_at, delay=delay)
        return (await self.store.inbox.enqueue(self._key(session_id), new)).input.input_id

    async def cancel(self, session_id: Key, *input_ids: str) -> dict[str, Cancelled]:
        """Cancel queued input and return the result for each id."""
        return await self.store.inbox.cancel(self._key(session_id), input_ids)

    async def outcome(self, input_id: str) -> Outcome:
        """Return the status of an input of the tenant, or the outcome of its turn; any process may call this."""
        return await self._outcomes.of_input(input_id, self._tenancy.tenant)

    async def execute(self, session_id: Key, action: Any) -> Any:
        """Execute an action on a session: apply its change under the lane, in one commit, or call its `perform`.

        Returns the changed session, or what `perform` returns.
        """
        key = self._key(session_id)
        if isinstance(action, type) or not isinstance(action, Action | Deed):
            raise InvalidInput(f"{quote(action)} is not an action: it needs an async `apply(session)`.")
        if isinstance(action, Action):
            return await self._changed(key, lambda copy, lane: self._pipeline.execute(copy, lane, action))
        if isinstance(action, SendMessage | RewindSession):
            return await action.perform(self.open(key), self)  # the verbs themselves write the notices of these
        return await self._pipeline.perform(key, type(action).__name__, lambda: action.perform(self.open(key), self))

    async def _changed(self, key: SessionKey, work: Callable[[Replica, Lane], Awaitable[Session]]) -> Session:
        try:
            return await self._dispatcher.act(key, work)
        except SessionNotFound as error:
            await self._pipeline.load_failed(key, error)
            raise

    def open(self, session_id: Key, store: Store | None = None) -> SessionHandle:
        """Return a handle on a session; if `store` is passed, it is used instead of the runtime's."""
        runtime = self if store is None else self._with_store(store)
        if runtime is not self:
            runtime._tenancy = self._tenancy
        return SessionHandle(runtime, self._key(session_id))

    async def get(self, session_id: Key) -> Session:
        """Return a session with its state; nothing changes."""
        key = self._key(session_id)
        try:
            copy, _ = await self._factory.load(key)
        except TenutoError as error:
            await self._pipeline.load_failed(key, error)
            raise
        return await self._pipeline.look(copy)

    async def info(self, session_id: Key) -> SessionHead:
        """Return a session's head, without its state: one row."""
        return await head_of(self.store, self._key(session_id))

    async def list(self, filter: Any = None, *, limit: int | None = None, after: str | None = None) -> SessionPage:  # noqa: A002
        """Return summaries of the tenant's sessions; see `Store.list`."""
        return await self.store.list(self._tenancy.filter(filter), limit=limit, after=after)

    async def runs(self, session_id: Key, *, limit: int = 100, before: int | None = None) -> "Sequence[RunInfo]":
        """Return a session's turns, newest first, each with what it waits for and what it cost."""
        return await runs_of(self.store, self._key(session_id), budget=self._budget, limit=limit, before=before)

    async def waits(self, session_id: Key) -> "Sequence[Wait]":
        """Return what a session waits for."""
        return await self.store.waits.of_session(self._key(session_id))

    async def answer(
        self,
        wait_id: str,
        value: JSON = None,
        *,
        error: JSON = None,
        kind: str | None = None,
        run_id: str | None = None,
        session_id: Key | None = None,
        run: bool = True,
    ) -> Answered:
        """Answer what a run waits for; the answer is durable when this returns, and counts once.

        `kind`, `run_id` and `session_id` (the session's own, or that of an ancestor) are checked if passed. If no other
        wait is open, the session resumes: in this call, or, with `run=False` or if its program is not registered here,
        on a worker. Unknown, mismatched, repeated and late answers raise `WaitUnknown`, `AnswerMismatch`,
        `AlreadyAnswered` and `LateAnswer`. Another tenant's wait is unknown.
        """
        session = None if session_id is None else self._key(session_id)
        stored = await self._answers.give(
            wait_id,
            value,
            tenant=session.tenant if session else self._tenancy.tenant,
            error=error,
            kind=kind,
            run_id=run_id,
            session=session,
        )
        progress = Progress()
        if run and stored.answered.continues:
            try:
                progress = await self._dispatcher.advance(stored.key)
            except Exception as error:  # the answer is stored; a worker resumes the session
                _log.info("%s cannot be resumed here and is left to a worker: %s", stored.key, error)
        if not progress.worked:
            return stored.answered
        return await self._answers.with_outcome(stored, progress.outcome_of(stored.invocation_id))

    async def cancel_waits(self, session_id: Key) -> int:
        """Abandon every open wait of a session's suspended run; later answers are refused as late."""
        return await self._answers.abandon_last(self._key(session_id))

    async def resume(self, session_id: Key) -> Outcome:
        """Resume a session's interrupted or failed run, without a new message."""

        async def work(copy: Replica, lane: Lane) -> TurnContext:
            try:
                return await resume_run(self._factory, copy, lane, await find_stopped(self.store, copy.key))
            except Declined as declined:
                raise declined.error from None

        return await self._dispatcher.run(await self._dispatcher.act(self._key(session_id), work, keeps_lane=True))

    async def stop(
        self,
        session_id: Key,
        *,
        kind: StopKind | str = StopKind.INTERRUPT,
        reason: str | None = None,
        run_id: str | None = None,
        tree: bool = False,
    ) -> StopReply:
        """Ask a session's run to stop and return at once; the request is durable and applies to that run alone.

        `run_id` names a run of this session or, with `tree=True`, of a session below it; any other is unknown
        (`RunNotLive`).
        """
        key, wanted = self._key(session_id), word_of(StopKind, kind, "stop")
        stopped = await run_to_stop(self.store, key) if run_id is None else run_id
        if tree and run_id is not None:
            key = await session_of_run(self.store, key, run_id)
        return await self._live.request_stop(key, stopped, wanted, reason)

    async def withdraw_stop(self, run_id: str) -> StopReply:
        """Withdraw a stop from a run of the tenant, as long as the run has not seen it."""
        return await self.store.runs.withdraw_stop(run_id, tenant=self._tenancy.tenant)

    async def effects_in_doubt(self, session_id: Key) -> tuple[Effect, ...]:
        """Return a session's calls in doubt: it is unknown whether they were carried out."""
        return await self._in_doubt_calls.of_session(self._key(session_id))

    async def settle_effect(self, effect: Effect, *, result: JSON = None, error: JSON = None) -> None:
        """Settle a call in doubt with its result or error.

        A run that waits for it resumes with that, on a worker; otherwise the call is settled on record, and the next
        turn reports it to the model once. A call that is no longer in doubt raises `EffectNotOpen`.
        """
        self._key(check_kind(effect, Effect, "effect").key)
        await self._in_doubt_calls.settle(effect, result=result, error=error)

    async def usage_report(self, session_id: Key, *, cascade: bool = True) -> UsageReport:
        """Return what a session's model calls cost, its children's included."""
        return await self.store.usage.report(self._key(session_id), cascade=cascade)

    def events(
        self, session_id: Key, *, after: int = 0, run: str | None = None, live: bool = True
    ) -> AsyncIterator[StreamFrame]:
        """Yield a session's stream after a cursor: stored events, `caught_up`, then new ones; see `read_stream`."""
        return read_stream(self.store, self._key(session_id), after=after, run=run, live=live)

    async def fork(
        self,
        session_id: Key,
        *,
        at: str | int | None = None,
        target: Key | None = None,
        message: str | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Forked:
        """Create a session from this one's state: the current one, that after a run, or that at a checkpoint's commit.

        With a `message`, the fork's first turn begins with it: the transaction that creates the fork also queues the
        message, so there is never one without the other, and `outcome` is that turn's. Repeated under its `key`, the
        call returns the same fork and outcome; the message has that key too. Inside an open call nothing can be forked.
        """
        source, said = self._key(session_id), None if message is None else as_message(message)
        named = None if target is None else Tenancy(source.tenant, bound=True).key(target)
        new = NewFork(source=source, at=at, target=named, message=said, key=key)
        fork = new.begins()
        receipt = await forking.fork(self.store, new, fork, self._factory.load, partial(self._admit, said))
        outcome = None
        if said is not None:
            settled = self._sender.settled(fork, receipt.input_ids[0])
            outcome = await within_life(self.store, fork, receipt.life, settled)
        copy, _ = await self._factory.load(fork)
        return Forked.of(await self._pipeline.look(copy), outcome)

    def _admit(self, message: JSON, copy: Replica) -> None:
        """Refuse a first message that the program of the forked session does not accept."""
        if message is not None:
            self.programs.of(copy.definition)
            self._factory.traits_of(copy.definition).item(message)

    async def rewind(self, session_id: Key, to: str | int) -> Session:
        """Rewind a session to before a run, or to a checkpoint's commit, in one commit that copies nothing."""

        async def work(copy: Replica, lane: Lane) -> Session:
            back = await going_back(self.store, copy, to)
            return await self._pipeline.execute(copy, lane, back, name=RewindSession.__name__)

        return await self._changed(self._key(session_id), work)

    async def delete(self, session_id: Key, *, cascade: bool = False) -> DeleteReport:
        """Delete a session and everything it owns; a running turn cannot write any more.

        A worker reports the failure to a parent that waits for it. `cascade` deletes its children's tree too: if that
        is cut off, repeat the call (even if the session itself is gone), or let `store.upkeep.gc` finish it.
        """
        key = self._key(session_id)
        report = await self.store.delete(key, cascade=cascade)
        if not report.sessions:
            raise SessionNotFound(f"There is no {key} to delete.", key=key)
        return report

    async def advance(self, session_id: Key, *, should_continue: Continuation | None = None) -> bool:
        """Do what is due for one session, unless another runner holds it; return whether anything was done.

        `should_continue` is called before each turn; False leaves the rest to other workers.
        """
        if should_continue is not None and not callable(should_continue):
            refuse("should_continue", "a function", should_continue)
        return (await self._dispatcher.advance(self._key(session_id), should_continue=should_continue)).worked

    async def deliver(self) -> int:
        """Deliver the items that sessions sent each other and that are due; return how many there were."""
        self._tenancy.check_everywhere("deliver")
        return await self._deliveries.deliver_due()

    async def work(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> None:
        """Run as a worker: do what is due in any session of any tenant, until cancelled."""
        self._tenancy.check_everywhere("work")
        await self.worker(concurrency, poll=poll).work()

    async def drain(self, concurrency: int = 8) -> None:
        """Do everything that is due now, in any session of any tenant, and return."""
        self._tenancy.check_everywhere("drain")
        await self.worker(concurrency).work(until_idle=True)

    def worker(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> Worker:
        """Return a worker of this runtime, for a host that shuts it down with `finish`."""
        return Worker(self.store, self._dispatcher, self._deliveries, concurrency=concurrency, poll=poll)
