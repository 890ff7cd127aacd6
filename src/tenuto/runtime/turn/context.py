"""A running turn: its parts, its progress, and the one path by which it is written.

What a program does collects in `pending`; `commit` writes it. Everything a program may do is built on this, in
`runtime.calls` and `runtime.program`; `runtime.run` begins and ends turns.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from tenuto.argument import MAPPING
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, StoreError, TenutoError
from tenuto.messages.message_form import calls_of
from tenuto.model.commit import EndRun, OpenWait, Receipt, SettleWait
from tenuto.model.event import EventType, NewEvent
from tenuto.model.input import Boundary, InputKind
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.run import RunStatus, Stop, StopKind
from tenuto.model.session import SessionKey
from tenuto.runtime.conversation.history import message_input
from tenuto.runtime.session.session_view import MESSAGES, SessionView
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.stream.chunks import Chunks
from tenuto.runtime.stream.moments import InlineListeners, WaitsOpened
from tenuto.runtime.turn.effect_journal import EffectJournal, Place
from tenuto.runtime.turn.invocation import Invocation, TurnStopped
from tenuto.runtime.turn.invocation_waits import InvocationWaits
from tenuto.runtime.turn.key_ledger import KeyLedger
from tenuto.runtime.turn.pending_changes import Pending
from tenuto.runtime.turn.replica import Replica
from tenuto.runtime.turn.step_additions import StepAdditions
from tenuto.words import InDoubt
from tenuto.writing.changes import CheckpointDraft, LogChange, RunWrite
from tenuto.writing.lost_reply import ask_again
from tenuto.writing.run_ids import RunIds
from tenuto.writing.run_writer import RunWriter

_calling: ContextVar["tuple[TurnContext, Place, object] | None"] = ContextVar("calling", default=None)
"""The effect whose call is being made, with its turn and this making; a call may lead to turns of other sessions."""

DEFAULT_STEPS = 50
"""How many steps a turn may take."""


@dataclass(slots=True)
class TurnContext:
    """The state of one turn and its commits.

    A step that made tool calls is over with the commit that answers the last of them (`step_over`), though its body
    continues: a runner that resumes the run begins with the next step. A turn that never began a step stays in its
    first. `is_boundary` marks the next commit as a boundary of the stream: the chunks before it belong to something
    that is stored. `engine` belongs to a program that resumes from its own checkpoints, `typed` to one that declares a
    model. `handed_to` returns the session with another program, `as_input` kind, body and key of what a program
    queues, of which `queued` counts those without a key by step. The program runs in `task`, and the events of this
    run follow `stream_start` in the stream.
    """

    replica: Replica
    writer: RunWriter
    invocation: Invocation
    journal: EffectJournal
    pending: Pending
    traits: ProgramTraits = field(default_factory=ProgramTraits)
    in_doubt: InDoubt = "ask"
    budget: int = DEFAULT_STEPS
    ends_guarded: bool = False
    handed_to: Callable[[SessionView, str], SessionView] = lambda session, _: session
    as_input: Callable[[Any, str | None], tuple[InputKind, JSON, str | None]] = message_input
    inline: InlineListeners | None = None
    chunks: Chunks = field(init=False)
    waits: InvocationWaits = field(init=False)
    first_entry: dict[str, int] = field(init=False)
    stop: Stop | None = None
    closed: bool = False
    steps: int = 0
    in_step: bool = False
    step_over: bool = False
    said: str = ""
    cut: bool = False
    store_failure: StoreError | None = None
    tools_under_way: int = 0
    keys: KeyLedger = field(default_factory=KeyLedger)
    additions: StepAdditions = field(default_factory=StepAdditions)
    queued: Counter[tuple[str, int]] = field(default_factory=Counter)
    engine: Any = None
    typed: Any = None
    is_boundary: bool = False
    stream_start: int = 0
    last_receipt: Receipt | None = None
    _ends_step: bool | None = None
    _adding: dict[str, JSON] | None = None
    task: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        self.chunks = Chunks(self.writer, self.replica.note_events)
        self.waits = InvocationWaits(self.invocation.waits)
        self.mark_start()

    def mark_start(self) -> None:
        """Count the current entries of the logs as entries from before this turn."""
        self.first_entry = {name: len(items) for name, items in self.replica.logs.items()}

    @property
    def key(self) -> SessionKey:
        """The session's full name."""
        return self.replica.key

    @property
    def run_id(self) -> str:
        """The id of this turn's run."""
        return self.writer.run_id

    @property
    def attempt(self) -> int:
        """The number of this run's runner: 1, or more after a takeover."""
        return self.writer.attempt

    @property
    def ids(self) -> RunIds:
        """The ids of this turn, for log records and observers."""
        key, turn, program = self.key, self.invocation, self.replica.definition
        called = None if program is None else f"{program.name}@{program.version}"
        of_turn = (turn.invocation_id, turn.correlation_id, self.attempt, called)
        return RunIds(key.session_id, key.tenant, self.run_id, *of_turn)

    @property
    def resumed(self) -> bool:
        """Whether an earlier run, or an earlier runner of this run, already made progress."""
        return self.invocation.resumes is not None or self.attempt > 1

    @property
    def step(self) -> int:
        """The current step, counted over all turns of the invocation, from 1."""
        return self.invocation.steps_before + self.steps + 1

    @property
    def loops(self) -> bool:
        """Whether the program is in a step of its loop; a program with its own engine counts by itself."""
        return self.in_step and not self.traits.resumes

    @property
    def open_calls(self) -> list[Mapping[str, Any]]:
        """The tool calls of the conversation that have no result yet."""
        waiting = self.pending.open_calls()
        if not waiting:
            return []
        return [call for message in self.replica.messages for call in calls_of(message) if call["id"] in waiting]

    @property
    def room(self) -> int:
        """The limit for a request or a result, in bytes: a commit may contain it up to four times."""
        return self.writer.store.budget.max_bytes // 4

    async def commit(
        self, *, end: EndRun | None = None, waits: tuple[OpenWait, ...] = (), settled: Iterable[SettleWait] = ()
    ) -> Receipt:
        """Write everything pending in one commit; a lost reply is resolved under the same operation id."""
        self.pending.settled.extend(settled)
        async with self.writer.writing:
            self.check_open()
            return await self._write_pending(end, waits)

    async def save(self) -> None:
        """Write everything pending in one commit; write nothing if nothing is pending."""
        async with self.writer.writing:
            self.check_open()
            if not self.pending.is_empty:
                await self._write_pending(None, ())

    async def leave(self, point: CheckpointDraft, logs: Mapping[str, LogChange]) -> Receipt:
        """Write a checkpoint of a program's own engine, for a caller that holds `writing`; the head does not move."""
        await self._resolve()
        assert self.pending.handover is None
        self.is_boundary, self.pending.steps = True, self.steps
        return await self._write(point, logs, {}, None, (), saves=False)

    async def resolve(self) -> Receipt | None:
        """Find out whether a commit whose reply was lost landed; if so, count it as written and return its receipt."""
        async with self.writer.writing:  # a commit that is being written concurrently is not in doubt
            receipt = await self.writer.resolve()
            if receipt is not None:
                self._landed(receipt)
            return receipt

    async def _write_pending(self, end: EndRun | None, waits: tuple[OpenWait, ...]) -> Receipt:
        await self._resolve()
        if self.chunks.is_heavy:
            await self.chunks.lighten()
        # Pending changes are collected only here: a concurrent tool's commit may have written some of them.
        logs, handover = self.pending.logs(), self.pending.handover
        point, saves = handover.point if handover else None, self.pending.saves(logs)
        return await self._write(point, self.pending.run_logs(logs), logs, end, waits, saves=saves)

    async def _write(
        self,
        point: CheckpointDraft | None,
        stored: Mapping[str, LogChange],
        head: Mapping[str, LogChange],
        end: EndRun | None,
        waits: tuple[OpenWait, ...],
        *,
        saves: bool,
    ) -> Receipt:
        """Write one commit: `stored` are the changes of the run's logs, `head` those of the session's logs."""
        save = self.pending.save() if saves else None
        parts = self._parts(head, waits, end, saves=saves)
        writer = self.writer
        try:
            try:
                receipt = await writer.write_next(RunWrite(point, stored, save, end, waits), parts)
            except StoreError as error:
                receipt = await ask_again(error, writer.write_again)
        except asyncio.CancelledError:
            # It may have landed after all, and the turn's next write must know that.
            with suppress(TenutoError):
                await self._write_again()
            raise
        except StoreError as error:
            self.note_store_failure(error)
            raise
        self._landed(receipt)
        if waits and self.inline is not None:
            opened = zip(receipt.wait_ids, waits, strict=True)
            self.inline.mark(WaitsOpened(ids=self.ids, waits=[(name, w.kind, w.signal_id) for name, w in opened]))
        return receipt

    async def _write_again(self) -> None:
        receipt = await self.writer.write_again()
        if receipt is not None:
            self._landed(receipt)

    async def _resolve(self) -> None:
        """Find out whether the last commit and the last batch of chunks landed, before anything else is written."""
        if self.writer.in_doubt:
            await self._write_again()
        await self.chunks.resolve()

    def _parts(
        self, head: Mapping[str, LogChange], waits: tuple[OpenWait, ...], end: EndRun | None, *, saves: bool
    ) -> dict[str, Any]:
        """Return a commit's parts besides logs and document; raise `InvalidHistory` if it breaks the conversation."""
        pending, chunks = self.pending, self.chunks
        pending.events.extend(chunks.take())
        if end is None and chunks.unmarked and (self.is_boundary or _has_reply(head)):
            self.is_boundary = True
            pending.events.append(NewEvent(type=EventType.REPLY_SAVED, data={"step": self.step}))
        else:
            self.is_boundary = False
        pending.covered_calls = self.journal.open_calls() | self.waits.open_calls()
        pending.outgoing.extend(self._wake(wait) for wait in waits if (wait.timeout, wait.deadline) != (None, None))
        parts = pending.parts(head, waits, saves=saves)
        if self.loops and end is None:
            self._ends_step = pending.ends_step(self.step_over)
            if self._ends_step is not self.step_over:
                parts.setdefault("steps", self.steps + self._ends_step)
        if end is None and (head or waits or pending.document or pending.steps is not None or pending.outgoing):
            self.journal.went_past()
        if end is None or end.status is not RunStatus.COMPLETED:
            over = self.step_over or bool(self._ends_step) or parts.get("steps", 0) > self.steps
            if (added := self.additions.unwritten(step_over=over)) is not None:
                self._adding = parts["additions"] = added
        return parts

    def _wake(self, wait: OpenWait) -> NewOutgoing:
        """Return the outgoing item that wakes the session when a wait is overdue."""
        delay = wait.timeout if wait.deadline is None else None
        body: JSON = {"run_id": self.run_id}
        return NewOutgoing(kind=OutboxKind.WAKE, target=self.key, body=body, due_at=wait.deadline, delay=delay)

    def _landed(self, receipt: Receipt) -> None:
        self.pending.landed(receipt)
        self.last_receipt = receipt
        if self._ends_step is not None:
            self.step_over, self._ends_step = self._ends_step, None
        if self._adding is not None:
            self.additions.landed(self._adding)
            self._adding = None
        if self.is_boundary:
            self.is_boundary = False
            self.chunks.mark(receipt.event_seq)

    def call_under_way(self) -> Place | None:
        """Return the effect of this turn whose call is being made, if any; inside a call the turn cannot suspend."""
        found = _calling.get()
        return found[1] if found is not None and found[0] is self else None

    def enter_call(self, place: Place) -> "Token[tuple[TurnContext, Place, object] | None]":
        """Count everything until `leave_call` as part of an effect's call."""
        return _calling.set((self, place, object()))

    @property
    def caller(self) -> object:
        """What calls effects here: the program, or one making of the call of another effect."""
        found = _calling.get()
        return found[2] if found is not None and found[0] is self else self

    @property
    def namespace(self) -> str:
        """The namespace of effects called here: empty, or that of the call being made."""
        outer = self.call_under_way()
        return "" if outer is None else outer.inner

    def may_be_steered(self, boundary: Boundary) -> bool:
        """Return whether input for a boundary may have arrived, as of the last commit; a guarded end checks again."""
        return not (self.replica.no_steering and (boundary is Boundary.AFTER_STEP or self.ends_guarded))

    def discard(self) -> None:
        """Undo changes that are not written yet; the results of calls to the outside stay."""
        self.pending.effects = self.journal.undo(self.pending.effects)
        self.pending.discard()
        self.additions.discard(self.pending.written)

    def discard_chunks(self) -> None:
        """Mark chunks since the last finished step as superseded."""
        self.chunks.take_back()
        self.said = ""

    def count_step(self) -> None:
        """Finish the current step; the next commit records it."""
        self.steps += 1
        self.in_step = self.step_over = False
        self.pending.steps = self.steps
        self.additions.clear()

    async def open_waits(self, waits: Sequence[OpenWait], note: Callable[[], None] | None = None) -> None:
        """Open waits now, in one commit with everything pending and what `note` adds, while the turn continues."""
        async with self.writer.writing:
            self.check_open()
            if note is not None:
                note()
            receipt = await self._write_pending(None, tuple(waits))
        for wait_id, opened in zip(receipt.wait_ids, waits, strict=True):
            self.waits.opened(wait_id, opened, self.key, self.run_id, self.invocation.invocation_id, receipt)

    def ask_to_stop(self, stop: Stop) -> None:
        """Stop the program: at once, or, for an interrupt while tools are running, when they are done."""
        self.stop = stop
        soft = stop.kind is StopKind.INTERRUPT and self.tools_under_way
        if self.task is not None and not soft and not self.closed and not self.cut:
            self.cut = True
            self.task.cancel()

    def runs_in(self, task: "asyncio.Task[Any] | None") -> None:
        """Set the task that the program runs in, which a stop cancels; None while it cannot be stopped."""
        self.task = task
        self.writer.runs_in(task)

    def run_again(self) -> None:
        """Prepare to run the program again from what it had written, because its stop was withdrawn."""
        self.stop, self.cut = None, False
        self.discard()
        if self.step_over:
            self.count_step()
        self.pending.extras.pop("sees_stop", None)
        self.pending.settled.clear()
        self.waits.ask_again()
        self.keys = KeyLedger()
        self.queued.clear()
        self.journal.disown()
        self.discard_chunks()

    def close(self) -> None:
        """Close the turn; further calls raise `InvalidInput`."""
        self.closed = True
        self.writer.release()
        self.keys = KeyLedger()

    def note_store_failure(self, error: BaseException) -> None:
        """Note a transient failure of the turn's own store; the same error from elsewhere is the program's."""
        if isinstance(error, StoreError) and error.retryable:
            self.store_failure = error

    def check_stop(self) -> None:
        """Raise `TurnStopped` if the run was asked to stop."""
        if self.stop is not None:
            raise TurnStopped

    def check_open(self) -> None:
        """Raise `InvalidInput` if the turn is over."""
        if self.closed:
            raise InvalidInput(f"This turn of {self.key} is over; it cannot be used any more.")


def leave_call(entered: "Token[tuple[TurnContext, Place, object] | None]") -> None:
    """End the call that `TurnContext.enter_call` began."""
    _calling.reset(entered)


Continuation = Callable[[], bool]
"""Called before each turn; False leaves the rest to other workers."""


def _has_reply(logs: Mapping[str, LogChange]) -> bool:
    fresh = logs[MESSAGES].items if MESSAGES in logs else ()
    return any(isinstance(each, MAPPING) and each.get("role") == "assistant" for each in fresh)
