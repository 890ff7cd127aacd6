"""The verbs of sessions, asked within one tenant: create, send, answer, stop, fork and the rest."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tenuto.argument import check_kind, word_of
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, ProgramNotRegistered, SessionNotFound, StatusRefused, TenutoError
from tenuto.model.effect import Effect
from tenuto.model.input import Boundary, Cancelled, Input, NewInput
from tenuto.model.lane import Lane
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopKind, StopReply
from tenuto.model.session import Key, SessionHead, SessionKey, SessionPage
from tenuto.model.token_usage import UsageReport
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.runtime.change import fork as forking
from tenuto.runtime.change.actions import Action, DeleteSession, ForkSession, RewindSession, SendMessage, StopRun
from tenuto.runtime.change.create import NewSession
from tenuto.runtime.change.fork import Forked, NewFork
from tenuto.runtime.change.rewind import going_back
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.handle import RunHandle
from tenuto.runtime.machinery import Machinery
from tenuto.runtime.queue.dispatcher import Progress
from tenuto.runtime.queue.sender import WhenBusy, within_life
from tenuto.runtime.run.live_turns import run_to_stop, session_of_run
from tenuto.runtime.run.refusal import Declined
from tenuto.runtime.run.resume import find_stopped, resume_run
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.info import RunInfo, head_of, runs_of
from tenuto.runtime.session.outcome import Outcome, Outcomes
from tenuto.runtime.session.session_view import Session
from tenuto.runtime.session.tenancy import Tenancy
from tenuto.runtime.stream.reader import StreamFrame, read_stream
from tenuto.runtime.tree.answer import Answered
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store

_log = logging.getLogger("tenuto.runtime")


class Sessions:
    """The verbs of sessions; see `SessionRuntime`, whose face this is.

    Every verb takes a session's id, or its full key. A session that does not exist is `SessionNotFound`. A plain id
    belongs to the tenant asked in, and so do ids of runs, waits and inputs: another tenant's are unknown.
    """

    def __init__(self, parts: Machinery, tenancy: Tenancy) -> None:
        self._parts = parts
        self._tenancy = tenancy
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def store(self) -> Store:
        """The store the sessions are in."""
        return self._parts.store

    def _key(self, session_id: Key) -> SessionKey:
        return self._tenancy.key(session_id)

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
        return await self._parts.creator.create(new)

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
            return await self._parts.sender.begin(
                key, said, input_key=input_key, body={"message": said}, when_busy=policy
            )
        except (SessionNotFound, StatusRefused, ProgramNotRegistered) as error:
            await self._parts.pipeline.deed_failed(key, SendMessage.__name__, error)
            raise

    async def _finish(self, begun: TurnContext | Input, when_busy: WhenBusy | str | None) -> Outcome:
        if isinstance(begun, TurnContext):
            return await within_life(self.store, begun.key, begun.replica.life, self._parts.dispatcher.run(begun))
        settled = self._parts.sender.settled(begun.key, begun.input_id, self._policy(when_busy))
        return await within_life(self.store, begun.key, begun.life, settled)

    def _policy(self, when_busy: WhenBusy | str | None) -> WhenBusy:
        return word_of(WhenBusy, when_busy or self._parts.options.when_busy, "when_busy")

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
        kind, body = self._parts.commands.queued(message)
        bound = None if boundary is None else word_of(Boundary, boundary, "boundary")
        new = NewInput(kind=kind, body=body, key=key, boundary=bound, due_at=due_at, delay=delay)
        return (await self.store.inbox.enqueue(self._key(session_id), new)).input.input_id

    async def cancel(self, session_id: Key, *input_ids: str) -> dict[str, Cancelled]:
        """Cancel queued input and return the result for each id."""
        return await self.store.inbox.cancel(self._key(session_id), input_ids)

    async def outcome(self, input_id: str) -> Outcome:
        """Return the status of an input of the tenant, or the outcome of its turn; any process may call this."""
        return await Outcomes(self.store).of_input(input_id, self._tenancy.tenant)

    async def execute(self, session_id: Key, action: Any) -> Any:
        """Execute an action on a session: apply its change under the lane, in one commit, or call its `perform`.

        Returns the changed session, or what `perform` returns.
        """
        key = self._key(session_id)
        verb: Coroutine[Any, Any, Any]
        match action:
            case SendMessage():  # this verb and the next report by themselves
                return await self.send(key, action.message, key=action.key)
            case RewindSession():
                return await self.rewind(key, action.to)
            case ForkSession(at, target, message, fork_key):
                verb = self.fork(key, at=at, target=target, message=message, key=fork_key)
            case StopRun(kind, reason, run_id):
                verb = self.stop(key, kind=kind, reason=reason, run_id=run_id)
            case DeleteSession(cascade):
                verb = self.delete(key, cascade=cascade)
            case Action() if not isinstance(action, type):
                return await self._changed(key, lambda copy, lane: self._parts.pipeline.execute(copy, lane, action))
            case _:
                raise InvalidInput(f"{quote(action)} is not an action: it needs an async `apply(session)`.")
        return await self._parts.pipeline.perform(key, type(action).__name__, verb)

    async def _changed(self, key: SessionKey, work: Callable[[Replica, Lane], Awaitable[Session]]) -> Session:
        try:
            return await self._parts.dispatcher.act(key, work)
        except SessionNotFound as error:
            await self._parts.pipeline.load_failed(key, error)
            raise

    async def get(self, session_id: Key) -> Session:
        """Return a session with its state; nothing changes."""
        key = self._key(session_id)
        try:
            copy, _ = await self._parts.factory.load(key)
        except TenutoError as error:
            await self._parts.pipeline.load_failed(key, error)
            raise
        return await self._parts.pipeline.look(copy)

    async def info(self, session_id: Key) -> SessionHead:
        """Return a session's head, without its state: one row."""
        return await head_of(self.store, self._key(session_id))

    async def list(self, filter: Any = None, *, limit: int | None = None, after: str | None = None) -> SessionPage:  # noqa: A002
        """Return summaries of the tenant's sessions; see `Store.list`."""
        return await self.store.list(self._tenancy.filter(filter), limit=limit, after=after)

    async def runs(self, session_id: Key, *, limit: int = 100, before: int | None = None) -> "Sequence[RunInfo]":
        """Return a session's turns, newest first, each with what it waits for and what it cost."""
        return await runs_of(
            self.store, self._key(session_id), budget=self._parts.options.steps, limit=limit, before=before
        )

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
        stored = await self._parts.answers.give(
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
                progress = await self._parts.dispatcher.advance(stored.key)
            except Exception as error:  # the answer stands: what cannot be done here is left to a worker
                _log.info("%s does not continue here: %s", stored.key, error)
        if not progress.worked:
            return stored.answered
        return await self._parts.answers.with_outcome(stored, progress.outcome_of(stored.invocation_id))

    async def cancel_waits(self, session_id: Key) -> int:
        """Abandon every open wait of a session's suspended run; later answers are refused as late."""
        return await self._parts.answers.abandon_last(self._key(session_id))

    async def resume(self, session_id: Key) -> Outcome:
        """Resume a session's interrupted or failed run, without a new message."""

        async def work(copy: Replica, lane: Lane) -> TurnContext:
            try:
                return await resume_run(self._parts.factory, copy, lane, await find_stopped(self.store, copy.key))
            except Declined as declined:
                raise declined.error from None

        return await self._parts.dispatcher.run(
            await self._parts.dispatcher.act(self._key(session_id), work, keeps_lane=True)
        )

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
        return await self._parts.live.request_stop(key, stopped, wanted, reason)

    async def withdraw_stop(self, run_id: str) -> StopReply:
        """Withdraw a stop from a run of the tenant, as long as the run has not seen it."""
        return await self.store.runs.withdraw_stop(run_id, tenant=self._tenancy.tenant)

    async def effects_in_doubt(self, session_id: Key) -> tuple[Effect, ...]:
        """Return a session's calls in doubt: it is unknown whether they were carried out."""
        return await self._parts.in_doubt.of_session(self._key(session_id))

    async def settle_effect(self, effect: Effect, *, result: JSON = None, error: JSON = None) -> None:
        """Settle a call in doubt with its result or error.

        A run that waits for it resumes with that, on a worker; otherwise the call is settled on record, and the next
        turn reports it to the model once. A call that is no longer in doubt raises `EffectNotOpen`.
        """
        self._key(check_kind(effect, Effect, "effect").key)
        await self._parts.in_doubt.settle(effect, result=result, error=error)

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
        receipt = await forking.fork(self.store, new, fork, self._parts.factory.load, partial(self._admit, said))
        outcome = None
        if said is not None:
            settled = self._parts.sender.settled(fork, receipt.input_ids[0])
            outcome = await within_life(self.store, fork, receipt.life, settled)
        copy, _ = await self._parts.factory.load(fork)
        return Forked.of(await self._parts.pipeline.look(copy), outcome)

    def _admit(self, message: JSON, copy: Replica) -> None:
        """Refuse a first message that the program of the forked session does not accept."""
        if message is not None:
            self._parts.programs.of(copy.definition)
            self._parts.factory.traits_of(copy.definition).item(message)

    async def rewind(self, session_id: Key, to: str | int) -> Session:
        """Rewind a session to before a run, or to a checkpoint's commit, in one commit that copies nothing."""

        async def work(copy: Replica, lane: Lane) -> Session:
            back = await going_back(self.store, copy, to)
            return await self._parts.pipeline.execute(copy, lane, back, name=RewindSession.__name__)

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
