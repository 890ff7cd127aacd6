"""How turns begin: with a message, in one commit. What every turn is put up with is here too."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tenuto.argument import MAPPING
from tenuto.codec import JSON
from tenuto.errors import (
    ClaimLost,
    LaneLost,
    ProgramNotRegistered,
    SessionDeleted,
    SessionNotFound,
    StatusRefused,
    TenutoError,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.commit import NewCheckpoint, Receipt
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.change.hooks import Controller, Stage
from tenuto.runtime.program.program import Programs, traits_of
from tenuto.runtime.program.turn import DEFAULT_STEPS, Turn
from tenuto.runtime.run.abandon import give_up, roll_back
from tenuto.runtime.run.end import TurnEnder
from tenuto.runtime.run.first_message import FirstMessage
from tenuto.runtime.run.refusal import Declined, declines
from tenuto.runtime.session.session_view import changes_between
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.stream.notices import Listeners, LoadFailed, Notice, RunStarted, SessionLoaded, failure
from tenuto.runtime.turn.effect_journal import EffectJournal, InDoubt
from tenuto.runtime.turn.invocation import Invocation
from tenuto.runtime.turn.pending import Pending
from tenuto.store.store import Store
from tenuto.writing.run_writer import RunWriter

TAKES_TURNS = frozenset({SessionStatus.ACTIVE})
"""The statuses a session may have when a turn begins."""

_MOVED_ON = (LaneLost, VersionConflict, StatusRefused, SessionDeleted, ClaimLost)


class ReplicaStale(Exception):
    """The session is not what its copy in memory was; nothing was written, and it has to be loaded."""


@dataclass(slots=True)
class TurnFactory:
    """Begins turns of sessions that its caller has the lane of, and puts up those that go on with a former run."""

    store: Store
    programs: Programs
    listeners: Listeners
    hooks: Controller | None
    ending: TurnEnder
    in_doubt: InDoubt = InDoubt.ASK
    budget: int = DEFAULT_STEPS

    async def load(self, key: SessionKey) -> tuple[Replica, Run | None]:
        """Load a session and its last run, or say that there is none."""
        found = await self.store.load_with_run(key)
        if found is None:
            raise SessionNotFound(f"There is no {key}; create it first.", key=key)
        copy = Replica.of(found[0])
        copy.judge_as(conversation=self.declared(copy).is_conversation)
        return copy, found[1]

    def declared(self, copy: Replica) -> ProgramTraits:
        """Return how a session's program keeps it; one that is not registered here says nothing."""
        try:
            return traits_of(self.programs.of(copy.definition))
        except ProgramNotRegistered:
            return ProgramTraits()

    async def begin(self, copy: Replica, lane: Lane, given: FirstMessage, *, warm: bool) -> Turn:
        """Begin a turn with a message, in one commit: waits of the last run are given up first, results before it.

        With `warm`, that commit takes the lane back, if nothing happened to the session since it was copied. A message
        that was not queued itself begins only if nothing came in since then: else that is a `VersionConflict`.
        """
        store = self.store
        writer = RunWriter.rearming(store, lane, copy.commit_number) if warm else RunWriter.under(store, lane)
        writer.heard = copy.heard
        live: Turn | None = None
        try:
            self.check_takes_turns(copy)
            writer.stand(copy.base)
            invocation = invocation_of(given, _input_id(given, writer))
            writer.begins(invocation_id=invocation.invocation_id, correlation_id=invocation.invocation_id)
            live = self.put_up(copy, writer, invocation, EffectJournal())
            return await self._begun(live, given, warm=warm)
        except BaseException as error:
            await self.let_go(live, writer, error)
            if isinstance(error, Declined) and given.queued is None:
                raise error.error from None
            raise

    async def _begun(self, live: Turn, given: FirstMessage, *, warm: bool) -> Turn:
        copy, pending = live.copy, live.pending
        log, entry = live.declared.input_log, _entry(live.declared, given.message)
        notices: list[Notice] = [await self.told_load(live)]
        if given.rolls_back is not None:
            await roll_back(self.store, live, given.rolls_back)
        elif copy.last_run is not None and copy.last_run[1] is RunStatus.SUSPENDED:
            await give_up(self.store, live, copy.last_run[0])
        item = pending.add(log, [entry])
        if given.queued is not None:
            pending.consume.append(Consume(input_id=given.queued.input_id, log=log, item=item, spent=True))
        elif given.key is not None:
            arrived = NewInput(
                kind=InputKind.MESSAGE,
                body=given.body,
                key=given.key,
                log=log,
                item=item,
                input_id=live.invocation.input_id,
                spent=True,
            )
            pending.inputs.append(arrived)
        pending.further["statuses"] = TAKES_TURNS
        if given.queued is None:  # nothing may be overtaken that came in since this one looked
            pending.further["expected_events"] = copy.event_seq
        leave_point(live)
        notices.append(started_notice(live, given.queued.input_id if given.queued else None))
        pending.events.extend(notice.event() for notice in notices)
        try:
            receipt = await live.commit()
        except _MOVED_ON as error:
            if not warm:
                raise
            raise ReplicaStale from error
        if given.queued is not None:
            copy.took(given.queued)
        note_live(live, receipt)
        if self.listeners:
            await self.listeners.tell(*notices)
        return live

    def check_takes_turns(self, copy: Replica) -> None:
        """Refuse a session whose program, or the way to its version of the state, is not known here, or not active."""
        self.check_known(copy)
        if copy.status is not SessionStatus.ACTIVE:
            raise StatusRefused(
                f"{copy.key} is {copy.status}; it takes no messages. Resume it first.", key=copy.key, found=copy.status
            )

    def check_known(self, copy: Replica) -> None:
        """Refuse a session whose program is not registered here, or cannot read the version its state is stored in."""
        declared = traits_of(self.programs.of(copy.definition))
        if declared.reads is not None:
            declared.reads(copy.schema_version)

    def put_up(self, copy: Replica, writer: RunWriter, invocation: Invocation, journal: EffectJournal) -> Turn:
        """Put up a turn that has not written anything yet."""
        declared = self.declared(copy)
        return Turn(
            copy=copy,
            writer=writer,
            invocation=invocation,
            journal=journal,
            pending=Pending(copy, message_logs=declared.message_logs),
            declared=declared,
            in_doubt=self.in_doubt,
            budget=self.budget,
            programs=self.programs,
            ends_guarded=self.hooks is None,
        )

    async def told_load(self, live: Turn) -> SessionLoaded:
        """Let the controllers see the loaded session, and return the notice of it; their refusal is `Declined`."""
        copy = live.copy
        if self.hooks is not None:
            try:
                before = copy.value()
                after = await self.hooks.on_stage(Stage.AFTER_LOAD, before)
                live.pending.take(changes_between(before, after), after)
            except Exception as error:
                await self.listeners.tell(LoadFailed(key=live.key, stage=str(Stage.AFTER_LOAD), **failure(error)))
                raise _declined(error) from error
            try:
                self.check_takes_turns(copy)
            except StatusRefused as error:  # it was active when it was loaded
                raise Declined(error) from error
        return SessionLoaded(key=copy.key, version=copy.version, status=str(copy.status))

    async def let_go(self, live: Turn | None, writer: RunWriter, error: BaseException) -> None:
        """Let go of a turn that will not be run: if its caller went away as its run began, that is ended."""
        try:
            if isinstance(error, asyncio.CancelledError) and live is not None and writer.begun and not writer.ended:
                with suppress(asyncio.CancelledError, TenutoError):
                    await self.ending.cut_off(live, error)
        finally:
            await writer.abandon()


def _entry(declared: ProgramTraits, message: JSON) -> JSON:
    try:
        return declared.item(message)
    except Exception as error:
        raise _declined(error) from error


def _declined(error: Exception) -> Exception:
    return Declined(error) if declines(error) else error


def invocation_of(given: FirstMessage, input_id: str) -> Invocation:
    """Return what a turn executes that begins with a message."""
    invocation_id = new_id()
    return Invocation(
        invocation_id=invocation_id,
        origin_id=invocation_id,
        correlation_id=invocation_id,
        input=given.message,
        input_id=input_id,
        reply_to=given.body.get("for") if isinstance(given.body, MAPPING) else None,
    )


def _input_id(given: FirstMessage, writer: RunWriter) -> str:
    """Return the id a message is known by; one that begins its turn at once, without a key, is known by its run."""
    if given.queued is not None:
        return given.queued.input_id
    return writer.run_id if given.key is None else new_id()


def started_notice(live: Turn, input_id: str | None = None) -> RunStarted:
    """Return the notice that a turn's run has begun."""
    return RunStarted(
        key=live.key,
        run_id=live.run_id,
        invocation_id=live.invocation.invocation_id,
        attempt=live.attempt,
        input_id=input_id,
        resumes=live.invocation.resumes,
    )


def leave_point(live: Turn) -> None:
    """Leave the session as it is before this turn, to be rewound to and forked from, and whom the turn is for."""
    live.pending.further["checkpoint"] = NewCheckpoint(step=0, cursor=point_cursor(live.invocation), before=True)


def point_cursor(invocation: Invocation) -> JSON:
    """Return what the point before a turn says of whom it is for."""
    return None if invocation.reply_to is None else {"for": invocation.reply_to}


def note_live(live: Turn, receipt: Receipt) -> None:
    """Note that a turn's run has begun."""
    live.copy.last_run = (live.run_id, RunStatus.RUNNING)
    live.chunks.boundary = receipt.event_seq
