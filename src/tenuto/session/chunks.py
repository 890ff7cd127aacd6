"""Chunks of a reply under way: flushed to the session's stream in small batches, each one stored before it is seen."""

import asyncio
from contextlib import suppress
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import StoreError, TenutoError
from tenuto.model.event import CHUNK, NewEvent
from tenuto.model.run import RunRef
from tenuto.session.turn import Turn

REWOUND = "rewound"
REPLY_SAVED = "reply_saved"

BOUNDARIES = frozenset({"run_started", REPLY_SAVED, REWOUND})
"""The events of a run behind which its chunks stand for something that is written, or are taken back."""

FLUSH_SECONDS = 0.05
FLUSH_CHUNKS = 64


class Chunks:
    """The chunks of one turn. The first is flushed at once, then every 50 ms or 64 chunks; a commit takes them along.

    Each names attempt, step and its own number, so that a batch whose reply was lost is found again by reading.
    """

    def __init__(self, writer: Turn) -> None:
        self._writer = writer
        self._waiting: list[NewEvent] = []
        self._count = 0
        self._marked = 0
        self._flushed = False
        self._flush: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._closing = False
        self.boundary = 0

    def add(self, step: int, chunk: JSON) -> None:
        """Take a chunk; it is flushed by itself."""
        data = {"n": self._count, "attempt": self._writer.attempt, "step": step, "chunk": chunk}
        self._count += 1
        self._waiting.append(NewEvent(type=CHUNK, data=data))
        if len(self._waiting) >= FLUSH_CHUNKS:
            self._full.set()
        if self._flush is None and not self._closing:
            self._flush = asyncio.create_task(self._flushing())

    @property
    def unmarked(self) -> bool:
        """Whether something was emitted since the last boundary."""
        return self._count > self._marked

    def mark(self, event_seq: int) -> None:
        """Note a boundary: what was emitted up to here stays."""
        self._marked = self._count
        self.boundary = event_seq

    def take(self) -> list[NewEvent]:
        """Hand over what waits, for a commit to take along."""
        waiting, self._waiting = self._waiting, []
        self._full.clear()
        return waiting

    async def _flushing(self) -> None:
        try:
            while self._waiting:
                if self._flushed and len(self._waiting) < FLUSH_CHUNKS:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._full.wait(), FLUSH_SECONDS)
                if self._closing:
                    return
                self._flushed = True
                await self._write()
        except TenutoError:
            return  # the next commit takes them along, or fails for the same reason
        finally:
            self._flush = None

    async def _write(self) -> None:
        async with self._writer.writing:
            batch = self.take()
            if not batch or self._writer.ended or self._writer.lane is None:
                return
            try:
                await self._append(batch)
            except BaseException:
                self._waiting = batch + self._waiting
                raise

    async def _append(self, batch: list[NewEvent]) -> None:
        writer = self._writer
        run = RunRef(run_id=writer.run_id, attempt=writer.attempt)
        assert writer.lane is not None
        try:
            await writer.store.events.append(writer.lane, batch, run=run)
        except StoreError:
            last: Any = batch[-1].data
            if not await self._is_stored(last["n"]):
                raise

    async def _is_stored(self, number: int) -> bool:
        """Tell whether a chunk of this attempt is in the stream."""
        after = self.boundary
        writer = self._writer
        while True:
            page = await writer.store.events.read(writer.key, after=after, run_id=writer.run_id)
            for event in page.events:
                data: Any = event.data
                if event.type == CHUNK and (data["attempt"], data["n"]) == (writer.attempt, number):
                    return True
            if page.next == after or page.next >= page.tail:
                return False
            after = page.next

    async def settle(self) -> None:
        """Stop flushing; whatever still waits is left to the commit that ends the turn."""
        self._closing = True
        if self._flush is not None:
            self._full.set()
            await self._flush
