"""The commits of a turn of the runtime: what each takes along, and how it lands though its reply is lost."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenuto.errors import StoreError, TenutoError
from tenuto.model.commit import EndRun, OpenWait, Receipt
from tenuto.model.event import EventType, NewEvent
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.writing.changes import CheckpointDraft, LogChange, Save

if TYPE_CHECKING:
    from tenuto.runtime.program.turn import Turn

_TRIES = 5
_FIRST_PAUSE = 0.05


class TurnCommits:
    """Writes what a turn has pending, and rides with every commit of it (`writes.Rider`).

    Whoever has something written has the writer's `writing`. `is_boundary` says that the commit under way, or the next
    one, is a boundary of the stream: the chunks before it stand for something that is written.
    """

    __slots__ = ("_ends_step", "_head", "_saves", "_turn", "is_boundary", "last_receipt")

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._head: Mapping[str, LogChange] = {}
        self._saves = False
        self._ends_step: bool | None = None
        self.is_boundary = False
        self.last_receipt: Receipt | None = None

    def let_go(self) -> None:
        """Let go of the turn, which is over; the two would keep each other in memory."""
        del self._turn

    async def write(self, end: EndRun | None, waits: tuple[OpenWait, ...]) -> Receipt:
        """Write what is pending; a reply that was lost is asked for again under the same operation."""
        await self._resolve()
        if self._turn.chunks.is_heavy:
            await self._turn.chunks.lighten()
        # What is pending is looked up only here: a commit that was under way, of a tool beside, took its part.
        pending, writer = self._turn.pending, self._turn.writer
        logs, ahead = pending.logs(), pending.ahead
        save = pending.save(logs)
        self._head, self._saves = logs, save is not None
        stored: Mapping[str, LogChange] = logs
        if ahead is not None:
            stored = ahead.stored(logs, pending.copy.logs)
        elif save is not None and writer.ahead:
            stored = writer.put_back(logs)
        return await self._land(ahead.point if ahead else None, stored, save, end, waits)

    async def leave(self, point: CheckpointDraft, logs: Mapping[str, LogChange]) -> Receipt:
        """Leave a checkpoint of an engine of its own; the head stays."""
        await self._resolve()
        turn = self._turn
        assert turn.pending.ahead is None
        self._head, self._saves, self.is_boundary = {}, False, True
        turn.pending.steps = turn.steps
        return await self._land(point, logs, None, None, ())

    async def _land(
        self,
        point: CheckpointDraft | None,
        logs: Mapping[str, LogChange],
        save: Save | None,
        end: EndRun | None,
        waits: tuple[OpenWait, ...],
    ) -> Receipt:
        writer = self._turn.writer
        try:
            try:
                return await writer.write_next(point=point, logs=logs, save=save, end=end, waits=waits)
            except StoreError as error:
                if not error.retryable:
                    raise
                return await self._again(error)
        except asyncio.CancelledError:
            # It may have landed all the same: what this turn writes next has to know.
            with suppress(TenutoError):
                await writer.write_again()
            raise

    async def _resolve(self) -> None:
        """Find out what became of whatever was written last, before anything else is."""
        if self._turn.writer.in_doubt:
            await self._turn.writer.write_again()
        await self._turn.chunks.resolve()

    async def _again(self, error: TenutoError) -> Receipt:
        pause = _FIRST_PAUSE
        for _ in range(_TRIES):
            await asyncio.sleep(pause)
            pause *= 2
            try:
                receipt = await self._turn.writer.write_again()
                assert receipt is not None
                return receipt
            except StoreError as failure:
                if not failure.retryable:
                    raise
                error = failure
        self._turn.note_store(error)
        raise error

    def parts(self, waits: tuple[OpenWait, ...], end: EndRun | None) -> dict[str, Any]:
        """See `Rider.parts`."""
        turn = self._turn
        pending, chunks = turn.pending, turn.chunks
        pending.events.extend(chunks.take())
        if end is None and chunks.unmarked and (self.is_boundary or _has_reply(self._head)):
            self.is_boundary = True
            pending.events.append(NewEvent(type=EventType.REPLY_SAVED, data={"step": turn.step}))
        else:
            self.is_boundary = False
        pending.excused = turn.journal.open_calls() | turn.waits.open_calls()
        for wait in waits:
            if wait.timeout is not None or wait.deadline is not None:
                body = {"run_id": turn.run_id}
                delay = wait.timeout if wait.deadline is None else None
                wake = NewOutgoing(kind=OutboxKind.WAKE, target=turn.key, body=body, due_at=wait.deadline, delay=delay)
                pending.outgoing.append(wake)
        parts = pending.parts(self._head, waits, saves=self._saves)
        if turn.loops and end is None:
            self._ends_step = pending.ends_step(turn.step_over)
            if self._ends_step is not turn.step_over:
                parts.setdefault("steps", turn.steps + self._ends_step)
        return parts

    def landed(self, receipt: Receipt) -> None:
        """See `Rider.landed`."""
        self._turn.pending.landed(receipt)
        self.last_receipt = receipt
        if self._ends_step is not None:
            self._turn.step_over, self._ends_step = self._ends_step, None
        if self._turn.following is not None:
            self._turn.follower = self._turn.following.begun(receipt)
        if self.is_boundary:
            self.is_boundary = False
            self._turn.chunks.mark(receipt.event_seq)


def _has_reply(logs: Mapping[str, LogChange]) -> bool:
    change = logs.get(MESSAGES)
    return change is not None and any(_role(each) == "assistant" for each in change.items)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None
