"""The session runtime: create sessions, talk to them, and have their turns survive requests, restarts and workers."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, TypeVar

from tenuto.codec import JSON
from tenuto.errors import (
    EffectNotOpen,
    InvalidInput,
    LaneBusy,
    ProgramNotRegistered,
    RunNotLive,
    SessionNotFound,
    StatusRefused,
    TenutoError,
    WaitNotOpen,
)
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.effect import Effect, SettleEffect
from tenuto.model.inbox import Boundary, Cancelled, Input, InputKind, NewInput
from tenuto.model.lane import Lane, Owner
from tenuto.model.outbox import NewOutgoing, OutgoingStatus
from tenuto.model.report import DeleteReport
from tenuto.model.run import Run, RunStatus, StopKind, StopReply, Wait
from tenuto.model.session import Key, Profile, SessionHead, SessionKey, SessionPage, SessionStatus, as_key
from tenuto.model.usage import UsageReport
from tenuto.session.actions import Action, Deed, RewindSession, SendMessage, as_message
from tenuto.session.answers import Answered, Answers, error_data
from tenuto.session.beginning import Beginnings
from tenuto.session.commands import Commands
from tenuto.session.copy import Copy
from tenuto.session.definition import Definition
from tenuto.session.deliveries import Deliveries
from tenuto.session.dispatch import Dispatcher, WhenBusy
from tenuto.session.effects import InDoubt, Place
from tenuto.session.ending import given_up
from tenuto.session.endings import Endings
from tenuto.session.forking import commit_after, point_before, refuse_open
from tenuto.session.handle import RunHandle, SessionHandle
from tenuto.session.hooks import Controller, HookStack
from tenuto.session.lanes import DEFAULT_LANE_WAIT, this_owner
from tenuto.session.live import DEFAULT_STEPS, LiveTurn
from tenuto.session.notices import EffectSettled, Listener, Listeners, SessionActionExecuted
from tenuto.session.outcome import Outcome
from tenuto.session.outcomes import Outcomes
from tenuto.session.pipeline import Pipeline, new_session
from tenuto.session.program import Program, Programs, declared_by
from tenuto.session.rewinding import GoBack, logs_at
from tenuto.session.runner import Runner
from tenuto.session.sending import WAKE
from tenuto.session.stopping import StopWatch
from tenuto.session.streams import StreamFrame, read_stream
from tenuto.session.tools import IN_DOUBT
from tenuto.session.value import Session
from tenuto.session.warm import DEFAULT_BYTES
from tenuto.session.worker import POLL_SECONDS, Worker
from tenuto.store.opening import memory_store
from tenuto.store.port import Store

_log = logging.getLogger("tenuto.session")
W = TypeVar("W", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One turn of a session: its record, the kinds of what it still waits for, its cost, and the session's trace."""

    run: Run
    wait_kinds: tuple[str, ...]
    budget: int
    usage: UsageReport
    trace_id: str | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    @property
    def status(self) -> RunStatus:
        """How the run went, or goes."""
        return self.run.status


class SessionRuntime:
    """Holds sessions: one identity, one state, one conversation each, and the turns of their programs.

    Every verb takes a session's id, or its full key. A session that is not there is `SessionNotFound`. Without a store
    it keeps them in memory, and says so. `owner` names this runner to others, for hosts that serialise by themselves;
    by default it is this process. `in_doubt` says what becomes of a tool call whose outcome was lost with its runner.
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
            _log.warning("No store was given: sessions are kept in memory and end with this process.")
        programs, listeners, actions = tuple(programs), tuple(listeners), tuple(actions)
        if type(steps) is not int or steps < 1:
            raise InvalidInput(f"A turn needs a budget of 1 step or more, got {steps!r}.")
        self.store = store
        self.programs = Programs(programs)
        self.listeners = Listeners(listeners)
        self._budget = steps
        self._when_busy = _word(WhenBusy, when_busy, "when_busy")
        self._commands = Commands(actions)
        hooks = controller = _controller(hooks)
        self._pipeline = Pipeline(store, controller, self.listeners)
        endings = Endings(store, self.listeners, controller)
        self._runner = Runner(self.programs, endings)
        self._beginnings = Beginnings(
            store=store,
            programs=self.programs,
            listeners=self.listeners,
            hooks=controller,
            ending=endings,
            in_doubt=_word(InDoubt, in_doubt, "in_doubt"),
            budget=steps,
        )
        self._dispatcher = Dispatcher(
            store,
            self._beginnings,
            self._runner,
            self._pipeline,
            self._commands,
            owner=owner or this_owner(),
            warm_bytes=warm_bytes,
            lane_wait=lane_wait,
        )
        self._outcomes = Outcomes(store)
        self._answers = Answers(store, self.listeners)
        self._deliveries = Deliveries(store, self._dispatcher, self._answers, self._create_child)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops = StopWatch(store, self._runner)
        self._runner.on_live = self._stops.watch
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

    async def __aenter__(self) -> "SessionRuntime":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for the turns that were started here; the store stays open. A second call does nothing."""
        while under_way := [*self._tasks, *self._dispatcher.background]:
            await asyncio.gather(*under_way, return_exceptions=True)
        self._stops.end()

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
        """Create a session of a program, under the caller's id or a minted one; a live id is `SessionExists`.

        `seed` is its first state: `messages`, and whatever `logs` names, are logs, all else is document. A prompt in
        the definition goes before the seed's `system_prompt`. A child has its parent's root and trace. Repeated with
        its id and its `operation_id`, it is the same create.
        """
        if isinstance(tags, str) or not isinstance(metadata, Mapping | None):
            raise InvalidInput("The tags of a session are a list of texts, its metadata is a mapping.")
        definition = self._definition(program)
        owner = None if parent is None else as_key(parent)
        minted = SessionKey(new_id(), tenant=owner.tenant if owner else "")
        key = minted if session_id is None else as_key(session_id)
        links = await self._links(owner, key) if owner else {"trace": {"trace_id": _trace_id(key, operation_id)}}
        profile = Profile(
            user_id=user_id,
            tags=tuple(tags),
            metadata=dict(metadata or {}),
            title=title,
            expires_at=expires_at,
            **links,
        )
        declared = declared_by(self.programs.of(definition))
        session = new_session(
            key,
            definition,
            seed=seed,
            logs=logs if isinstance(logs, str) else declared.logs.union(logs),
            profile=profile,
            schema_version=declared.schema_version,
        )
        return await self._pipeline.create(session, operation_id or new_id(), judges=declared.is_conversation)

    def _definition(self, program: str | Definition) -> Definition:
        if isinstance(program, Definition):
            self.programs.of(program)
            return program
        found = self.programs.latest(program)
        known = getattr(found, "definition", None)
        if isinstance(known, Definition):
            return known
        return Definition(name=found.name, version=found.version)

    async def _links(self, parent: SessionKey, child: SessionKey) -> dict[str, Any]:
        if parent.tenant != child.tenant:
            raise InvalidInput(f"{child} and its parent {parent} have to be of one tenant.")
        head = await self.store.head(parent)
        if head is None:
            raise SessionNotFound(f"There is no {parent} to be a parent.", key=parent)
        root = head.profile.root or parent.session_id
        return {"parent": parent.session_id, "root": root, "trace": head.profile.trace}

    async def _create_child(self, program: str, key: SessionKey, *, parent: str, operation_id: str) -> None:
        if await self.store.exists(key):
            return
        await self.create(
            program, session_id=key, parent=SessionKey(parent, tenant=key.tenant), operation_id=operation_id
        )

    async def send(
        self,
        session_id: Key,
        message: str | Mapping[str, Any],
        key: str | None = None,
        when_busy: WhenBusy | str | None = None,
    ) -> Outcome:
        """Say something to a session and return how the turn went; the same key again returns the same outcome.

        A session that is busy is treated as `when_busy` says: `reject` (`LaneBusy`), `queue` (the next turn),
        `interrupt` (the turn under way is stopped first) or `rollback` (stopped and taken back). A message is durable
        before its turn runs; a failed turn keeps it. The outcome of a failed, interrupted or suspended turn is returned
        as such, not raised; `outcome.result()` raises.
        """
        name, policy = as_key(session_id), _word(WhenBusy, when_busy or self._when_busy, "when_busy")
        body = {"message": as_message(message)}
        begun = await self._begin(name, body, key, policy)
        if isinstance(begun, LiveTurn):
            return await self._dispatcher.run(begun)
        return await self._dispatcher.settled(name, begun.input_id)

    async def start(
        self,
        session_id: Key,
        message: str | Mapping[str, Any],
        key: str | None = None,
        when_busy: WhenBusy | str | None = None,
    ) -> RunHandle:
        """Begin a turn and return as soon as its message is durable; the turn goes on in the background."""
        name, policy = as_key(session_id), _word(WhenBusy, when_busy or self._when_busy, "when_busy")
        body = {"message": as_message(message)}
        begun = await self._begin(name, body, key, policy)
        if isinstance(begun, LiveTurn):
            run_id: str | None = begun.run_id
            input_id, after = begun.invocation.input_id, begun.writer.event_seq - 2
            task = asyncio.create_task(self._dispatcher.run(begun))
        else:
            run_id, input_id, after = begun.run_id, begun.input_id, begun.seq - 2
            task = asyncio.create_task(self._dispatcher.settled(name, begun.input_id))
        self._keep(task)
        return RunHandle(self, name, task, run_id, input_id=input_id, after=max(after, 0))

    async def _begin(
        self, name: SessionKey, body: dict[str, Any], key: str | None, policy: WhenBusy
    ) -> LiveTurn | Input:
        try:
            return await self._dispatcher.begin(name, body["message"], input_key=key, body=body, when_busy=policy)
        except (SessionNotFound, StatusRefused, ProgramNotRegistered) as error:
            await self._pipeline.deed_failed(name, SendMessage.__name__, error)
            raise

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

        A message with a `boundary` is for the turn under way: after its step, or before it completes.
        """
        body: JSON
        if isinstance(message, Action):
            kind, body = InputKind.COMMAND, self._commands.record(message)
        else:
            kind, body = InputKind.MESSAGE, {"message": as_message(message)}
        new = NewInput(
            kind=kind,
            body=body,
            key=key,
            boundary=None if boundary is None else _word(Boundary, boundary, "boundary"),
            due_at=due_at,
            delay=delay,
        )
        return (await self.store.inbox.enqueue(as_key(session_id), new)).input.input_id

    async def cancel(self, session_id: Key, *input_ids: str) -> dict[str, Cancelled]:
        """Take queued input back; what became of each is told."""
        return await self.store.inbox.cancel(as_key(session_id), input_ids)

    async def outcome(self, input_id: str) -> Outcome:
        """Return where an input stands, or how its turn went; any process may ask."""
        return await self._outcomes.of_input(input_id)

    async def execute(self, session_id: Key, action: Any) -> Any:
        """Execute an action on a session: change it under its lane, in one commit, or do what the action does.

        Returns the session as it is then, or what the action gives.
        """
        key = as_key(session_id)
        if isinstance(action, type) or not isinstance(action, Action | Deed):
            raise InvalidInput(f"{action!r} is no action: it needs an async `apply(session)`.")
        if isinstance(action, Action):
            return await self._changed(key, lambda copy, lane: self._pipeline.execute(copy, lane, action))
        if isinstance(action, SendMessage | RewindSession):
            return await action.perform(self.open(key), self)  # the verbs tell of these by themselves
        return await self._performed(key, action)

    async def _performed(self, key: SessionKey, action: Deed) -> Any:
        name = type(action).__name__
        try:
            before = await self.info(key)
            done = await action.perform(self.open(key), self)
        except Exception as error:
            await self._pipeline.deed_failed(key, name, error)
            raise
        after = await self.store.head(key)
        notice = SessionActionExecuted(
            key=key,
            action=name,
            before_version=before.version,
            before_status=str(before.status),
            after_status=str(after.status if after else SessionStatus.DELETED),
        )
        await self.listeners.tell(notice)
        return done

    async def _changed(self, key: SessionKey, work: Callable[[Copy, Lane], Awaitable[Session]]) -> Session:
        try:
            return await self._dispatcher.act(key, work)
        except SessionNotFound as error:
            await self._pipeline.load_failed(key, error)
            raise

    def open(self, session_id: Key, store: Store | None = None) -> SessionHandle:
        """Return a handle on a session; a `store` of its own is used instead of the runtime's."""
        runtime = self if store is None else self._with_store(store)
        return SessionHandle(runtime, as_key(session_id))

    async def get(self, session_id: Key) -> Session:
        """Return a session with its state; nothing changes."""
        key = as_key(session_id)
        try:
            copy, _ = await self._beginnings.load(key)
        except TenutoError as error:
            await self._pipeline.load_failed(key, error)
            raise
        return await self._pipeline.look(copy)

    async def info(self, session_id: Key) -> SessionHead:
        """Return what a session is without its state: one row."""
        key = as_key(session_id)
        head = await self.store.head(key)
        if head is None:
            raise SessionNotFound(f"There is no {key}; create it first.", key=key)
        return head

    async def list(self, filter: Any = None, *, limit: int | None = None, after: str | None = None) -> SessionPage:  # noqa: A002
        """Return summaries of sessions; see `Store.list`."""
        return await self.store.list(filter, limit=limit, after=after)

    async def runs(self, session_id: Key, *, limit: int = 100, before: int | None = None) -> "Sequence[RunInfo]":
        """Return a session's turns, newest first, each with what it waits for and what it cost."""
        head = await self.info(session_id)
        trace: Any = head.profile.trace or {}
        found = []
        for run in await self.store.runs.of_session(head.key, limit=limit, before=before):
            waits = await self.store.waits.of_session(head.key, run_id=run.run_id)
            usage = await self.store.usage.report(head.key, run_id=run.run_id)
            kinds = tuple(wait.kind for wait in waits)
            info = RunInfo(run=run, wait_kinds=kinds, budget=self._budget, usage=usage, trace_id=trace.get("trace_id"))
            found.append(info)
        return found

    async def waits(self, session_id: Key) -> "Sequence[Wait]":
        """Return what a session waits for."""
        return await self.store.waits.of_session(as_key(session_id))

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

        `kind`, `run_id` and `session_id` (the session's own, or the root of its tree) are checked if given. If nothing
        else is waited for, the session goes on: here and now, or, with `run=False` or where its program is not
        registered, on a worker. Unknown, foreign, repeated and late answers are `WaitUnknown`, `AnswerMismatch`,
        `AlreadyAnswered` and `LateAnswer`.
        """
        session = None if session_id is None else as_key(session_id)
        answered, wakes = await self._answers.give(
            wait_id, value, error=error, kind=kind, run_id=run_id, session=session
        )
        if not (run and answered.continues):
            return answered
        wait = await self.store.waits.get(wait_id)
        assert wait is not None
        try:
            worked = await self.advance(wait.key)
        except (TenutoError, LaneBusy):
            return answered
        if not worked:
            return answered
        for wake in wakes:
            await self._spend(wake)
        runs = await self.store.runs.of_invocation((await self._run_of(wait)).invocation_id, tenant=wait.key.tenant)
        return replace(answered, outcome=await self._outcomes.of_run(runs[-1]))

    async def _run_of(self, wait: Wait) -> Run:
        run = await self.store.runs.get(wait.run_id)
        assert run is not None
        return run

    async def _spend(self, outbox_id: str) -> None:
        """Mark a wake that is not needed any more."""
        try:
            await self.store.outbox.mark(outbox_id, OutgoingStatus.DONE)
        except TenutoError:
            return

    async def cancel_waits(self, session_id: Key) -> int:
        """Give up everything a session's suspended run waits for; later answers come too late."""
        key = as_key(session_id)
        run = await self.store.runs.current(key)
        waits = await self.store.waits.of_session(key, run_id=run.run_id if run else None)
        if run is None or not waits:
            return 0
        settled, owed = given_up(waits, key.tenant)
        commit = Commit(
            key=key, operation_id=new_id(), life=run.life, settle_waits=tuple(settled), outgoing=tuple(owed)
        )
        try:
            await self.store.commit(commit)
        except WaitNotOpen:  # answered at this very moment: it is not given up any more
            return await self.cancel_waits(key)
        return len(settled)

    async def resume(self, session_id: Key) -> Outcome:
        """Go on with a session's interrupted or failed run, without a new message."""
        key = as_key(session_id)

        async def work(copy: Copy, lane: Lane) -> LiveTurn:
            run = await self.store.runs.current(key)
            if run is None or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
                state = "has never run" if run is None else f"is {run.status}"
                raise StatusRefused(
                    f"The last run of {key} {state}; there is nothing to go on with.", key=key, found=state
                )
            return await self._beginnings.resume(copy, lane, run)

        live = await self._dispatcher.act(key, work, keeps_lane=True)
        return await self._dispatcher.run(live)

    async def stop(
        self,
        session_id: Key,
        *,
        kind: StopKind | str = StopKind.INTERRUPT,
        reason: str | None = None,
        run_id: str | None = None,
    ) -> StopReply:
        """Ask a session's run to stop and return at once; the request is durable, and of that run alone."""
        key = as_key(session_id)
        if run_id is None:
            run = await self.store.runs.current(key)
            if run is None:
                await self.info(key)
                raise RunNotLive(f"{key} has never run; there is nothing to stop.", key=key, run_id="", found="none")
            run_id = run.run_id
        return await self._dispatcher.stop(run_id, _word(StopKind, kind, "stop"), reason)

    async def withdraw_stop(self, run_id: str) -> StopReply:
        """Take a stop back, as long as the run has not seen it."""
        return await self.store.runs.withdraw_stop(run_id)

    async def effects_in_doubt(self, session_id: Key) -> tuple[Effect, ...]:
        """Return the calls of a session of which nobody knows whether they were carried out."""
        return await self.store.effects.list(as_key(session_id), in_doubt=True)

    async def settle_effect(self, effect: Effect, *, result: JSON = None, error: JSON = None) -> None:
        """Say what became of a call in doubt.

        A run that asks for it goes on with that, on a worker; any other call is settled on record, and the model is
        told once, with the next turn. One that is in doubt no more is `EffectNotOpen`.
        """
        place = Place(effect.namespace, effect.step, effect.effect_key)
        outcome = "done" if error is None else "failed"
        said = {"outcome": outcome, "result": result} if error is None else {"outcome": outcome, "error": error}
        wait = await self._asking_about(effect, place)
        if wait is not None:
            await self.answer(wait.wait_id, said, kind=wait.kind, run=False)
            return
        if not any(_is_same(each, effect) for each in await self.effects_in_doubt(effect.key)):
            raise EffectNotOpen(
                f"The effect {place} of {effect.key} is not in doubt: it came back, was settled, or is under way.",
                key=effect.key,
                place=place,
                found="not in doubt",
            )
        notice = EffectSettled(key=effect.key, effect=str(place), outcome=outcome)
        settle = SettleEffect(
            key=place.key,
            step=place.step,
            namespace=place.namespace,
            origin_id=effect.origin_id,
            result=result,
            error=None if error is None else error_data(error),
        )
        text = f"The call {effect.call_id or effect.effect_key!r}, whose outcome was unknown, turned out {outcome}."
        told = {"text": text, "effect": place.record(), "result": result, "error": error}
        commit = Commit(
            key=effect.key,
            operation_id=new_id(),
            life=effect.life,
            effects=(settle,),
            events=(notice.event(),),
            outgoing=(NewOutgoing(kind=WAKE, target=effect.key, body={"notice": told}),),
        )
        receipt = await self.store.commit(commit)
        await self.listeners.tell(notice)
        sent = await self.store.outbox.get(receipt.outgoing_ids[0])
        if sent is not None:
            await self._deliveries.deliver(sent)

    async def _asking_about(self, effect: Effect, place: Place) -> Wait | None:
        """Return the open wait of a run that was suspended because of this effect."""
        for wait in await self.store.waits.of_session(effect.key):
            if wait.kind == IN_DOUBT and wait.metadata.get("effect") == place.record():
                run = await self._run_of(wait)
                return wait if run.origin_id == effect.origin_id else None
        return None

    async def usage_report(self, session_id: Key, *, cascade: bool = True) -> UsageReport:
        """Return what a session's model calls cost, its children's included."""
        return await self.store.usage.report(as_key(session_id), cascade=cascade)

    def events(
        self, session_id: Key, *, after: int = 0, run: str | None = None, live: bool = True
    ) -> AsyncIterator[StreamFrame]:
        """Yield a session's stream after a cursor: what is stored, `caught_up`, then what comes; see `read_stream`."""
        return read_stream(self.store, as_key(session_id), after=after, run=run, live=live)

    async def fork(self, session_id: Key, *, at: str | int | None = None, target: Key | None = None) -> Session:
        """Begin another session with the state of this one: now, as it was after a run, or at a checkpoint's commit."""
        source = as_key(session_id)
        fork = SessionKey(new_id(), tenant=source.tenant) if target is None else as_key(target)
        commit = await commit_after(self.store, source, at) if isinstance(at, str) else at
        await self.store.fork(source, fork, at=commit)
        copy, _ = await self._beginnings.load(fork)
        if copy.history.open:
            await self.store.delete(fork)
            raise await refuse_open(self.store, source, commit, copy.history)
        return await self._pipeline.look(copy)

    async def rewind(self, session_id: Key, to: str | int) -> Session:
        """Take a session back to before a run, or to a checkpoint's commit, in one commit that copies nothing."""
        key = as_key(session_id)

        async def work(copy: Copy, lane: Lane) -> Session:
            point = await point_before(self.store, key, to)
            back = GoBack(point, await logs_at(self.store, copy, point))
            return await self._pipeline.execute(copy, lane, back, name=RewindSession.__name__)

        return await self._changed(key, work)

    async def delete(self, session_id: Key, *, cascade: bool = False) -> DeleteReport:
        """End a session for good; a turn under way can write nothing more."""
        key = as_key(session_id)
        if not await self.store.exists(key):
            raise SessionNotFound(f"There is no {key} to delete.", key=key)
        await self._deliveries.tell_deleted(key)
        return await self.store.delete(key, cascade=cascade)

    async def advance(self, session_id: Key, *, go_on: Callable[[], bool] | None = None) -> bool:
        """Do what is due for one session, if nobody else has it; return whether anything was done.

        `go_on` is asked before each turn: on no, the rest is left to others.
        """
        return await self._dispatcher.advance(as_key(session_id), go_on=go_on)

    async def deliver(self) -> int:
        """Hand over what sessions sent each other and is due; return how many items there were."""
        return await self._deliveries.deliver_due()

    async def work(self, concurrency: int = 8, *, poll: float = POLL_SECONDS) -> None:
        """Be a worker: do what is due in any session, until cancelled."""
        await Worker(self, concurrency=concurrency, poll=poll).work()

    async def drain(self, concurrency: int = 8) -> None:
        """Do everything that is due now, in any session, and return."""
        await Worker(self, concurrency=concurrency).work(until_idle=True)

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_same(one: Effect, other: Effect) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("origin_id", "namespace", "step", "effect_key"))


def _controller(hooks: Controller | Iterable[Controller] | None) -> Controller | None:
    if hooks is None:
        return None
    return HookStack(hooks if isinstance(hooks, Iterable) else [hooks])


def _trace_id(key: SessionKey, operation_id: str | None) -> str:
    """Return a new trace id: the same for each repeat of one create, so that it is known again."""
    if operation_id is None:
        return secrets.token_hex(16)
    return sha256(f"{key.tenant}\0{key.session_id}\0{operation_id}".encode()).hexdigest()[:32]


def _word(kind: type[W], word: str, what: str) -> W:
    """Return a word of a closed set; any other is refused."""
    if word not in list(kind):
        raise InvalidInput(f"{what} is one of {', '.join(kind)}, got {word!r}.")
    return kind(word)
