"""A session's handle: the verbs of one session."""

from collections.abc import AsyncGenerator, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, overload

from pydantic import BaseModel

from tenuto.argument import check_flag, check_word, word_of
from tenuto.errors import InvalidInput, SessionNotFound
from tenuto.messages.message import Message, Sendable
from tenuto.model.effect import Effect
from tenuto.model.input import Boundary as InputBoundary
from tenuto.model.input import Input, InputStatus, NewInput
from tenuto.model.lane import Lane
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopReply
from tenuto.model.schedule import Schedule
from tenuto.model.session import Page, SessionHead, SessionKey
from tenuto.model.token_usage import UsageReport
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.runtime.change.action import DeleteSession, ForkSession, RewindSession, SendMessage, StopRun, WriteMetadata
from tenuto.runtime.change.fork import NewFork
from tenuto.runtime.change.pipeline import NeedsLane
from tenuto.runtime.change.rewind import going_back
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.conversation.scheduled_message import new_schedule
from tenuto.runtime.lifetime import Lifetime
from tenuto.runtime.queue.sender import within_life
from tenuto.runtime.run.live_turns import run_to_stop, session_of_run
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.session.action_protocol import Action, Verb
from tenuto.runtime.session.info import RunView, head_of, messages_of, runs_of
from tenuto.runtime.session.outcome import Outcome, OutT_co
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.reader import StreamItem, session_stream
from tenuto.runtime.tree.answer import Answered
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store.held_lanes import refuse_nested
from tenuto.words import JSON, Boundary, Cancelled, MissedOccurrences, Seconds, StopKind, WhenBusy, WhenWaiting


class Session(Generic[OutT_co]):
    """One session: all its verbs. It holds nothing open, and is not read before a verb is called.

    A missing session raises `SessionNotFound`.
    """

    __slots__ = ("_key", "_lifetime")

    def __init__(self, lifetime: Lifetime, key: SessionKey) -> None:
        self._lifetime = lifetime
        self._key = key

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}{f', tenant={self.tenant!r}' if self.tenant else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and (other._lifetime, other._key) == (self._lifetime, self._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self._key.session_id

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self._key.tenant

    async def send(
        self, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None
    ) -> Outcome[OutT_co]:
        """Send a message, wait for the turn, and return its outcome; the same key again returns the same outcome.

        After a turn that failed for a transient reason and is still the session's last, the same key resumes it.

        `when_busy` decides what happens if the session is busy: `reject` (`LaneBusy`), `queue` (for the next turn),
        `interrupt` (stop the running turn first) or `rollback` (stop it and roll it back). A message is durable before
        its turn runs; a failed turn keeps it. The outcome of a failed, interrupted or suspended turn is returned, not
        raised; `outcome.result()` raises.
        """
        policy = self._policy(when_busy)
        if policy == "queue":  # its turn begins only once the turn that would wait for it has ended
            refuse_nested(self._lifetime.parts().store, self._key, "Call `start` or `enqueue`, which do not wait.")
        return await self._finish(await self._begin(message, key, policy), policy)

    async def start(
        self, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None
    ) -> RunHandle[OutT_co]:
        """Begin a turn and return as soon as its message is durable; the turn continues in the background."""
        policy = self._policy(when_busy)
        begun = await self._begin(message, key, policy)
        return RunHandle(self._lifetime, begun, self._lifetime.spawn(self._finish(begun, policy)))

    async def _begin(self, message: Any, key: str | None, policy: WhenBusy) -> TurnContext | Input:
        parts, said = self._lifetime.parts(), as_message(message)
        try:
            return await parts.sender.begin(self._key, said, input_key=key, body={"message": said}, when_busy=policy)
        except Exception as error:
            await parts.failures.verb(self._key, SendMessage.__name__, error)
            raise

    async def _finish(self, begun: TurnContext | Input, policy: WhenBusy) -> Outcome[OutT_co]:
        parts = self._lifetime.parts()
        if isinstance(begun, TurnContext):
            return await within_life(parts.store, self._key, begun.replica.life, parts.dispatcher.run(begun))
        if begun.status is InputStatus.OPEN:
            settled = parts.sender.settled(self._key, begun.input_id, policy)
        else:
            settled = parts.repeated.outcome(begun, policy)
        return await within_life(parts.store, self._key, begun.life, settled)

    def _policy(self, when_busy: WhenBusy | None) -> WhenBusy:
        if when_busy is None:
            return self._lifetime.options.when_busy or "reject"
        return check_word(when_busy, WhenBusy, "when_busy")

    async def enqueue(
        self,
        message: Sendable | Action | Verb,
        key: str | None = None,
        *,
        boundary: Boundary | None = None,
        due_at: datetime | None = None,
        delay: Seconds | None = None,
    ) -> str:
        """Queue a message or an action durably and return its input id; a worker, or the next sender, takes it.

        A message with a `boundary` is for the running turn: after its current step, or before it completes.
        """
        parts = self._lifetime.parts()
        kind, body, key = parts.commands.queued(message, key)
        bound = None if boundary is None else word_of(InputBoundary, boundary, "boundary")
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        new = NewInput(kind=kind, body=body, key=key, boundary=bound, due_at=due_at, delay=seconds)
        return (await parts.store.inbox.enqueue(self._key, new)).input.input_id

    async def cancel(self, *input_ids: str) -> dict[str, Cancelled]:
        """Cancel queued input and return the result for each id."""
        found = await self._lifetime.parts().store.inbox.cancel(self._key, input_ids)
        return {input_id: each.value for input_id, each in found.items()}

    async def schedule(
        self,
        name: str,
        message: Sendable,
        *,
        every: Seconds | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        missed: MissedOccurrences = "latest",
        when_waiting: WhenWaiting = "hold",
    ) -> Schedule:
        """Send a message again and again: `every` so many seconds, or at the local times of a `cron` expression.

        Workers send it. The same words again change nothing; others replace the schedule of that name. What an outage
        `missed` is sent once, for the `latest` occurrence, for `all` (at most 100), or for `none`. While the session
        waits for something, an occurrence is held, skipped, or abandons that.
        """
        given = new_schedule(name, message, every=every, cron=cron, tz=tz, missed=missed, when_waiting=when_waiting)
        return await self._lifetime.parts().store.schedules.declare(self._key, given)

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule and return whether there was one; what it has sent already stays."""
        return await self._lifetime.parts().store.schedules.remove(self._key, name)

    async def schedules(self) -> Sequence[Schedule]:
        """Return the session's schedules by name, each with its next occurrence, or why it is paused."""
        await head_of(store := self._lifetime.parts().store, self._key)
        return await store.schedules.of_session(self._key)

    async def pause_schedule(self, name: str, reason: str = "It was paused.") -> Schedule:
        """Let a schedule not send until it is resumed; an unknown one raises `ScheduleNotFound`."""
        return await self._lifetime.parts().store.schedules.pause(self._key, name, reason)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule send again, from its next occurrence on."""
        return await self._lifetime.parts().store.schedules.resume(self._key, name)

    async def resume(self) -> Outcome[OutT_co]:
        """Resume the session's interrupted or failed run, without a new message."""
        parts = self._lifetime.parts()
        return await parts.dispatcher.run(await parts.resume(self._key))

    async def regenerate(
        self,
        run_id: str | None = None,
        key: str | None = None,
        *,
        fork: bool = False,
        when_busy: WhenBusy | None = None,
    ) -> Outcome[OutT_co]:
        """Roll the last turn back, begin another one with its message, and return the outcome of that.

        Its calls are made again; input that it took in while it ran is not. `run_id` says which turn it must be. With
        `fork=True` it may be an earlier one: the other turn begins on a fork, and this session is unchanged. The key of
        the message leads to the new outcome, with `regenerated`; the same `key` again returns the same outcome.
        """
        parts, policy = self._lifetime.parts(), self._policy(when_busy)
        if check_flag(fork, "fork"):
            return await parts.regenerate_on_fork(self._key, run_id, key)
        return await self._finish(await parts.regenerate(self._key, run_id, key, policy), policy)

    async def stop(
        self, kind: StopKind = "interrupt", reason: str | None = None, run_id: str | None = None, *, tree: bool = False
    ) -> StopReply:
        """Ask the session's run to stop and return at once; the request is durable and applies to that run alone.

        `run_id` names a run of this session or, with `tree=True`, of a session below it; any other is unknown
        (`RunNotLive`).
        """
        parts, key = self._lifetime.parts(), self._key
        check_word(kind, StopKind, "stop")
        if run_id is None:
            run_id = await run_to_stop(parts.store, key)
        elif tree:
            key = await session_of_run(parts.store, key, run_id)
        return await parts.live.request_stop(key, run_id, kind, reason)

    async def withdraw_stop(self, run_id: str) -> StopReply:
        """Withdraw a stop from a run, as long as the run has not seen it."""
        return await self._lifetime.parts().store.runs.withdraw_stop(run_id, session=self._key)

    async def waits(self, *, children: bool = True) -> Sequence[Wait]:
        """Return what the session waits for, then what its `children` wait for, and theirs, down the tree.

        All of it can be answered here.
        """
        await head_of(store := self._lifetime.parts().store, self._key)
        own = await store.waits.of_session(self._key)
        return [*own, *await store.waits.below(self._key)] if check_flag(children, "children") else own

    async def answer(
        self,
        wait: str | Wait,
        value: JSON | BaseModel = None,
        *,
        error: JSON = None,
        key: str | None = None,
        run: bool = True,
    ) -> Answered[OutT_co]:
        """Answer what this session, or one below it, waits for; see `Sessions.answer`."""
        return await self._lifetime.parts().give_answer(
            wait, value, tenant=self.tenant, error=error, key=key, session=self._key, run=run
        )

    async def abandon_waits(self) -> int:
        """Abandon every open wait of the session's suspended run; later answers are refused as late."""
        return await self._lifetime.parts().answers.abandon_last(self._key)

    @overload
    async def execute(self, action: SendMessage) -> Outcome[OutT_co]: ...
    @overload
    async def execute(self, action: ForkSession) -> "Forked[OutT_co]": ...
    @overload
    async def execute(self, action: StopRun) -> StopReply: ...
    @overload
    async def execute(self, action: DeleteSession) -> DeleteReport: ...
    @overload
    async def execute(self, action: RewindSession | Action) -> SessionView: ...
    async def execute(self, action: Any) -> Any:
        """Execute an action: apply its change under the lane, in one commit, or call the verb it names.

        Returns the changed session, or what the verb returns.
        """
        parts = self._lifetime.parts()
        verb: Coroutine[Any, Any, Any]
        match action:
            case SendMessage():  # this verb and the next write their own notices
                return await self.send(action.message, action.key)
            case RewindSession():
                return await self.rewind(action.to)
            case ForkSession(at, target, message, fork_key):
                verb = self.fork(at=at, session_id=target, message=message, key=fork_key)
            case StopRun(kind, reason, run_id):
                verb = self.stop(kind, reason, run_id)
            case DeleteSession(cascade):
                verb = self.delete(cascade=cascade)
            case WriteMetadata() if type(action) is WriteMetadata:
                return await self._described(action)
            case Action() if not isinstance(action, type):
                return await self._changed(action)
            case _:
                raise InvalidInput(f"{quote(action)} is not an action: it needs an async `apply(session)`.")
        return await parts.pipeline.perform(self._key, type(action).__name__, verb)

    async def _described(self, action: WriteMetadata) -> SessionView:
        """Write metadata without the lane, also while a turn runs; wait for the lane only if a hook changes more."""
        parts = self._lifetime.parts()
        try:
            replica, _ = await parts.factory.load(self._key)
            return await parts.pipeline.execute(replica, None, action)
        except NeedsLane:
            return await self._changed(action)
        except Exception as error:
            await parts.failures.verb(self._key, type(action).__name__, error)
            raise

    async def _changed(self, action: Action | RewindSession) -> SessionView:
        parts, name = self._lifetime.parts(), type(action).__name__

        async def work(replica: Replica, lane: Lane) -> SessionView:
            change = await going_back(parts.store, replica, action.to) if isinstance(action, RewindSession) else action
            return await parts.pipeline.execute(replica, lane, change, name=name)

        try:
            return await parts.dispatcher.act(self._key, work)
        except Exception as error:
            await parts.failures.verb(self._key, name, error)
            raise

    async def get(self) -> SessionView:
        """Return the session with its state; nothing changes."""
        return await self._lifetime.parts().view(self._key)

    async def info(self) -> SessionHead:
        """Return the session's head, without its state: one row."""
        return await head_of(self._lifetime.parts().store, self._key)

    async def messages(self, *, after: str | None = None, limit: int = 100) -> Page[Message]:
        """Return a page of the conversation, oldest message first; its `next` is the `after` of the following page."""
        return await messages_of(self._lifetime.parts().store, self._key, after=after, limit=limit)

    async def runs(self, *, limit: int = 100, before: int | None = None) -> Sequence[RunView]:
        """Return the session's turns, newest first, each with what it waits for and what it cost."""
        parts = self._lifetime.parts()
        return await runs_of(parts.store, self._key, limit=limit, before=before)

    async def usage(self, *, cascade: bool = True) -> UsageReport:
        """Return what the session's model calls cost, its children's included."""
        return await self._lifetime.parts().store.usage.report(self._key, cascade=cascade)

    def events(self, *, after: int = 0, run: str | None = None, live: bool = True) -> AsyncGenerator[StreamItem, None]:
        """Yield the session's stream after a cursor: stored events, `caught_up`, then new ones; see `read_stream`."""
        return session_stream(self._lifetime.parts().store, self._key, after=after, run=run, live=live)

    async def effects_in_doubt(self) -> Sequence[Effect]:
        """Return the session's calls in doubt: it is unknown whether they were carried out."""
        return await self._lifetime.parts().in_doubt.of_session(self._key)

    async def settle_effect(self, effect: Effect, *, result: JSON = None, error: JSON = None) -> None:
        """Settle one of the session's calls in doubt with its result or error.

        A run that waits for it resumes with that, on a worker; otherwise the call is settled on record, and the next
        turn reports it to the model once. A call that is no longer in doubt raises `EffectNotOpen`.
        """
        if not isinstance(effect, Effect) or effect.key != self._key:
            raise InvalidInput(f"{quote(effect)} is not a call in doubt of {self._key}; see `effects_in_doubt`.")
        await self._lifetime.parts().in_doubt.settle(effect, result=result, error=error)

    async def fork(
        self,
        *,
        at: str | int | None = None,
        session_id: str | None = None,
        message: Sendable | None = None,
        key: str | None = None,
    ) -> "Forked[OutT_co]":
        """Create a session from this one's state: the current one, that after a run, or that at a checkpoint's commit.

        With a `message`, the fork's first turn begins with it: the transaction that creates the fork also queues the
        message, so there is never one without the other, and `outcome` is that turn's. Repeated under its `key`, the
        call returns the same fork and outcome; the message has that key too. Inside an open call nothing can be forked.
        """
        said = None if message is None else as_message(message)
        named = None if session_id is None else SessionKey(session_id, tenant=self.tenant)
        new = NewFork(source=self._key, at=at, target=named, message=said, key=key)
        fork, outcome = await self._lifetime.parts().fork(new)
        return Forked(self._lifetime, fork, outcome)

    async def rewind(self, to: str | int) -> SessionView:
        """Rewind the session to before a run, or to a checkpoint's commit, in one commit that copies nothing."""
        return await self._changed(RewindSession(to))

    async def delete(self, *, cascade: bool = False) -> DeleteReport:
        """Delete the session and everything it owns; a running turn cannot write any more.

        A worker reports the failure to a parent that waits for it. `cascade` deletes its children's tree too: if that
        is cut off, repeat the call (even if the session itself is gone), or let `store.upkeep.gc` finish it.
        """
        report = await self._lifetime.parts().store.delete(self._key, cascade=cascade)
        if not report.sessions:
            raise SessionNotFound(f"There is no {self._key} to delete.", key=self._key)
        return report


class Forked(Session[OutT_co]):
    """A fork, and the outcome of its first turn, if it was created with a message."""

    __slots__ = ("outcome",)

    def __init__(self, lifetime: Lifetime, key: SessionKey, outcome: Outcome[OutT_co] | None) -> None:
        super().__init__(lifetime, key)
        self.outcome = outcome
