"""How turns begin: with a message, in one commit. The factory also builds the turns that resume an earlier run."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tenuto.argument import MAPPING
from tenuto.codec import JSON
from tenuto.errors import (
    ClaimLost,
    LaneLost,
    ProgramNotRegistered,
    SessionDeleted,
    SessionNotFound,
    StatusRefused,
    StoreError,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import NewCheckpoint, NextRun, Receipt
from tenuto.model.input import Consume, Input, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.change.action import Commands
from tenuto.runtime.change.hooks import Hooks
from tenuto.runtime.change.program_state import carry_over, handed_over, take_changes
from tenuto.runtime.change.rewind import own_fields
from tenuto.runtime.program.program import Programs, traits_of
from tenuto.runtime.run.end import TurnEnder
from tenuto.runtime.run.first_message import FirstMessage, plain_first_message, sent_before
from tenuto.runtime.run.next_turn import NextTurn, leaves_plain_session
from tenuto.runtime.run.predecessor import abandon_former, regenerated, roll_back
from tenuto.runtime.run.refusal import Declined, declines
from tenuto.runtime.run.turn_moments import ahead, ahead_after
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.stream.failures import Failures
from tenuto.runtime.stream.notices import Listeners, Notice, RunStarted, SessionLoaded
from tenuto.runtime.turn.context import DEFAULT_STEPS, TurnContext
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.runtime.turn.invocation import Invocation
from tenuto.runtime.turn.pending_changes import Pending
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.words import InDoubt
from tenuto.writing.run_writer import RunWriter, begin_run

TAKES_TURNS = frozenset({SessionStatus.ACTIVE})
"""The statuses a session may have when a turn begins."""

_MOVED_ON = (LaneLost, VersionConflict, StatusRefused, SessionDeleted, ClaimLost)


class ReplicaStale(Exception):
    """The session has changed since its replica was made; nothing was written, and it has to be loaded again."""


@dataclass(slots=True)
class TurnFactory:
    """Loads sessions, and builds and begins their turns, for a caller that holds the lane."""

    store: Store
    programs: Programs
    listeners: Listeners
    failures: Failures
    hooks: Hooks
    ender: TurnEnder
    in_doubt: InDoubt = "ask"
    budget: int = DEFAULT_STEPS
    commands: Commands = field(default_factory=Commands)

    async def load(self, key: SessionKey) -> tuple[Replica, Run | None]:
        """Load a session and its last run; raise `SessionNotFound` if there is no session."""
        found = await self.store.load_with_run(key)
        if found is None:
            raise SessionNotFound(f"There is no {key}; create it first.", key=key)
        record, run = found
        assert record.head is not None
        definition = Definition.read(record.head.profile.definition)
        traits = self.traits_of(definition)
        return Replica.of(record, definition, run, traits), run

    def traits_of(self, definition: Definition | None) -> ProgramTraits:
        """Return how a session's program stores it; a program that is not registered here has the default traits."""
        try:
            return traits_of(self.programs.of(definition))
        except ProgramNotRegistered:
            return ProgramTraits()

    def admit(self, message: JSON, replica: Replica, point: Checkpoint | None) -> None:
        """Refuse a fork, at a point of its source, if its program does not accept the first message or the state."""
        traits = self.traits_of(replica.definition)
        if message is not None:
            self.programs.of(replica.definition)
            traits.item(message)
        if traits.state is not None:
            version = replica.schema_version if point is None else point.schema_version
            traits.state.check(replica.document if point is None else own_fields(point), version)

    async def begin(self, replica: Replica, lane: Lane, first: FirstMessage, *, warm: bool) -> TurnContext:
        """Begin a turn with a message, in one commit that also abandons the last run's waits, with results for calls.

        With `warm`, that commit re-arms the lane if the session has not changed since its replica was made, and raises
        `ReplicaStale` if it has. A message that was not queued begins only if no input arrived since then; otherwise
        `VersionConflict` is raised.
        """
        store, known = self.store, replica.acknowledges
        if warm:
            writer = RunWriter.rearming(store, lane, replica.commit_number, known)
        else:
            writer = RunWriter.under(store, lane, known)
        turn: TurnContext | None = None
        try:
            self.check_takes_turns(replica)
            await replica.catch_up(store)
            if first.regenerates:
                await self._refuse_known(replica.key, first, warm=warm)
                first = await regenerated(store, replica, first, self.traits_of(replica.definition).input_log)
            writer.stand(replica.base)
            invocation = _invocation_of(first, _input_id(first, writer))
            turn = self.build(replica, writer, invocation, EffectJournal(run_id=writer.run_id))
            invocation_id = invocation.invocation_id
            writer.begins(invocation_id=invocation_id, correlation_id=invocation_id, budget=turn.budget)
            return await self._begun(turn, first, warm=warm)
        except BaseException as error:
            await self.ender.release(turn, writer, error)
            if isinstance(error, Declined) and first.queued is None:
                raise error.error from None
            raise

    async def _refuse_known(self, key: SessionKey, first: FirstMessage, *, warm: bool) -> None:
        """Refuse a request whose key is known, as its commit would: what it asked for may not be there any more."""
        if first.queued is None and (known := await sent_before(self.store, key, first)) is not None:
            if warm:
                raise ReplicaStale
            input_id = known.input_id
            raise ClaimLost(f"{key} has {input_id} already.", key=key, input_id=input_id, found=known.status)

    async def _begun(self, turn: TurnContext, first: FirstMessage, *, warm: bool) -> TurnContext:
        replica, pending = turn.replica, turn.pending
        log = turn.traits.input_log
        entry = first.message if first.regenerates else _entry(turn.traits, first.message)
        notices: list[Notice] = [await self.run_load_hooks(turn, streams=first.queued is None)]
        if first.rolls_back is not None:
            await roll_back(self.store, turn, first.rolls_back, regenerates=first.regenerates)
            carry_over(self.programs, turn)
        elif replica.last_run is not None and replica.last_run[1] is RunStatus.SUSPENDED:
            await abandon_former(self.store, turn, replica.last_run[0])
        item = pending.add(log, [entry])
        if first.queued is not None:
            pending.consume.append(Consume(input_id=first.queued.input_id, log=log, item=item, spent=True))
        elif first.key is not None:
            arrived = NewInput(
                kind=InputKind.MESSAGE,
                body=first.body,
                key=first.key,
                log=log,
                item=item,
                input_id=turn.invocation.input_id,
                spent=True,
            )
            pending.inputs.append(arrived)
        if first.queued is None:  # it must not overtake input that arrived after the queue was read
            pending.extras["expected_events"] = replica.event_seq
        notices.append(run_started(turn, first.queued.input_id if first.queued else None))
        try:
            await write_start(turn, notices)
        except _MOVED_ON as error:
            if not warm:
                raise
            raise ReplicaStale from error
        except StoreError as error:
            await self.failures.save(turn.key, error)
            raise
        if first.queued is not None:
            replica.pop_queue(first.queued)
        if self.listeners:
            await self.listeners.tell(*notices)
        return turn

    def plan_next(self, turn: TurnContext, queued: Input) -> NextTurn | None:
        """Return the turn that begins with a queued message in the commit that ends another; None if it cannot.

        It cannot if something has to happen between the two, or if the message has to be refused.
        """
        replica, traits, first = turn.replica, turn.traits, plain_first_message(queued)
        if first is None or self.hooks or traits.resumes or not leaves_plain_session(turn):
            return None
        if self.traits_of(replica.definition) != traits:
            return None  # the session was handed to a program that stores it in another way
        try:
            entry = traits.item(first.message)
            if traits.input_log in traits.message_logs:
                replica.history.judged([entry])  # no call is open or pending, so it fits after pending messages too
        except Exception:
            return None  # refused when it is taken by itself
        run_id, invocation = new_id(), _invocation_of(first, queued.input_id)
        invocation_id = invocation.invocation_id
        notices = (
            SessionLoaded(key=replica.key, version=replica.version + 1, status=str(replica.status)),
            RunStarted(key=replica.key, run_id=run_id, invocation_id=invocation_id, input_id=invocation.input_id),
        )
        trace = None if turn.inline is None else turn.inline.trace_ahead(ahead_after(turn, run_id, invocation))
        part = NextRun(
            begin=begin_run(self.store, run_id, invocation_id, invocation_id, budget=turn.traits.steps or self.budget),
            input_id=queued.input_id,
            log=traits.input_log,
            item=entry,
            cursor=_cursor(invocation, trace),
            events=tuple(notice.event() for notice in notices),
        )

        def begun(receipt: Receipt) -> TurnContext:
            writer = RunWriter.after(turn.writer, run_id, receipt)
            next_turn = self.build(replica, writer, invocation, EffectJournal(run_id=run_id))
            replica.add(part.log, [entry])
            replica.pop_queue(queued)
            mark_running(next_turn, receipt, len(notices))
            return next_turn

        return NextTurn(part, begun, notices)

    def check_takes_turns(self, replica: Replica) -> None:
        """Refuse a session that is not active, or whose program or state version is unknown here."""
        self.check_known(replica)
        if replica.status is not SessionStatus.ACTIVE:
            raise StatusRefused(
                f"{replica.key} is {replica.status}; it takes no messages. Resume it first.",
                key=replica.key,
                found=replica.status,
            )

    def check_known(self, replica: Replica) -> None:
        """Refuse a session whose program is not registered here, or cannot read the state as it is stored."""
        traits = traits_of(self.programs.of(replica.definition))
        if traits.reads is not None:
            traits.reads(replica.schema_version)
        if traits.state is not None:
            traits.state.check_logs(replica.logs)
            if replica.schema_version != traits.state.version:
                traits.state.check(replica.document, replica.schema_version)

    def build(self, replica: Replica, writer: RunWriter, invocation: Invocation, journal: EffectJournal) -> TurnContext:
        """Return a turn that has not written anything yet."""
        traits = self.traits_of(replica.definition)
        turn = TurnContext(
            replica=replica,
            writer=writer,
            invocation=invocation,
            journal=journal,
            pending=Pending(replica, writer.logs, message_logs=traits.message_logs),
            traits=traits,
            in_doubt=self.in_doubt,
            budget=traits.steps or self.budget,
            ends_guarded=not self.hooks,
            handed_to=partial(handed_over, self.programs),
            as_input=self.commands.queued,
            inline=self.listeners.inline,
        )
        if traits.state is not None or not self.programs.has(replica.definition):
            carry_over(self.programs, turn)
        return turn

    async def run_load_hooks(self, turn: TurnContext, *, streams: bool = True) -> SessionLoaded:
        """Pass the loaded session through the hooks, and return its notice; raise `Declined` if a hook refuses it."""
        replica = turn.replica
        if self.hooks:
            try:
                before = replica.value()
                after = await self.hooks.on_stage("after_load", before)
                take_changes(turn, before, after)
            except Exception as error:
                await self.failures.load(turn.key, error, "after_load", streams=streams)
                raise _declined(error) from error
            try:
                self.check_takes_turns(replica)
            except StatusRefused as error:  # it was active when it was loaded, so a hook closed it
                raise Declined(error) from error
        return SessionLoaded(key=replica.key, version=replica.version, status=str(replica.status))


async def write_start(turn: TurnContext, notices: list[Notice]) -> None:
    """Write the commit that begins a turn's run, with the run's start point and these notices as events."""
    pending, inline = turn.pending, turn.inline
    trace = None if inline is None else inline.trace_ahead(ahead(turn))
    pending.extras |= {
        "statuses": TAKES_TURNS,
        "checkpoint": NewCheckpoint(step=0, cursor=_cursor(turn.invocation, trace), before=True),
    }
    pending.events.extend(notice.event() for notice in notices)
    events = len(pending.events)
    mark_running(turn, await turn.commit(), events)


def mark_running(turn: TurnContext, receipt: Receipt, events: int) -> None:
    """Note that a turn's run has begun, by a commit that wrote this number of events for it."""
    turn.replica.last_run = (turn.run_id, RunStatus.RUNNING)
    turn.chunks.boundary = receipt.event_seq
    turn.stream_start = receipt.event_seq - events


def run_started(turn: TurnContext, input_id: str | None = None) -> RunStarted:
    """Return the notice that a turn's run has begun."""
    return RunStarted(
        key=turn.key,
        run_id=turn.run_id,
        invocation_id=turn.invocation.invocation_id,
        attempt=turn.attempt,
        input_id=input_id,
        resumes=turn.invocation.resumes,
    )


def _cursor(invocation: Invocation, trace: str | None = None) -> JSON:
    """Return the cursor of a run's start point: whom its result is for, its trace context, and its base."""
    found: dict[str, JSON] = {} if invocation.reply_to is None else {"for": invocation.reply_to}
    if trace is not None:
        found["trace"] = trace
    if invocation.base is not None:
        found["base"] = invocation.base
    return found or None


def _entry(traits: ProgramTraits, message: JSON) -> JSON:
    try:
        return message if traits.entry is None else traits.entry(message)
    except Exception as error:
        raise _declined(error) from error


def _declined(error: Exception) -> Exception:
    return Declined(error) if declines(error) else error


def _invocation_of(first: FirstMessage, input_id: str) -> Invocation:
    invocation_id = new_id()
    return Invocation(
        invocation_id=invocation_id,
        origin_id=invocation_id,
        correlation_id=invocation_id,
        input=first.message,
        input_id=input_id,
        queued_at=_due_since(first.queued),
        reply_to=first.body.get("for") if isinstance(first.body, MAPPING) else None,
    )


def _due_since(queued: Input | None) -> datetime | None:
    """Return since when a queued input has waited for its turn."""
    if queued is None:
        return None
    return queued.created_at if queued.due_at is None else max(queued.created_at, queued.due_at)


def _input_id(first: FirstMessage, writer: RunWriter) -> str:
    """Return the input id of a message; one without a key that begins its turn at once has the id of its run."""
    if first.queued is not None:
        return first.queued.input_id
    return writer.run_id if first.key is None else new_id()
