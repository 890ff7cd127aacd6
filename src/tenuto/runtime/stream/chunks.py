"""Chunks of a reply in progress: flushed to the session's stream in small batches, stored before readers see them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import StoreError, TenutoError
from tenuto.model.event import EventType, NewEvent
from tenuto.model.run import RunRef
from tenuto.writing.lost_reply import ask_again
from tenuto.writing.run_writer import RunWriter

BOUNDARIES = frozenset({EventType.RUN_STARTED, EventType.REPLY_SAVED, EventType.REWOUND})
"""The events of a run after which its earlier chunks belong to something that is stored, or are superseded."""

FLUSH_SECONDS = 0.05
FLUSH_CHUNKS = 64
FLUSH_BYTES = 1024 * 1024

_MOST_ALONG = 1000
"""How many chunks a commit includes at most."""


class Chunks:
    """The chunks of one turn. The first is flushed at once, then every 50 ms or 64 chunks, or by the next commit.

    Each has attempt, step and its own number, so that a batch whose reply was lost can be looked up in the stream.
    """

    def __init__(self, writer: RunWriter, on_flush: Callable[[int, int], None]) -> None:
        self._writer = writer
        self._on_flush = on_flush
        self._waiting: list[NewEvent] = []
        self._sizes: list[int] = []
        self._size = 0
        self._unsure: list[NewEvent] = []
        self._count = 0
        self._taken = 0
        self._marked = 0
        self._flushed = False
        self._flush: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._most = min(FLUSH_BYTES, writer.store.budget.max_bytes // 4)
        self._closing = False
        self.boundary = 0

    def add(self, step: int, chunk: JSON, size: int = 0) -> None:
        """Add a chunk of that size; it is flushed in the background."""
        self._add(EventType.CHUNK, {"step": step, "chunk": chunk}, size)

    def take_back(self) -> None:
        """Mark the chunks since the last boundary as superseded; later chunks come after the mark."""
        self._add(EventType.REWOUND, {"from": self.boundary})

    def _add(self, kind: str, data: dict[str, JSON], size: int = 0) -> None:
        self._sizes.append(size)
        self._size += size
        self._waiting.append(NewEvent(type=kind, data={"n": self._count, "attempt": self._writer.attempt, **data}))
        self._count += 1
        if len(self._waiting) >= FLUSH_CHUNKS or self._size >= self._most:
            self._full.set()
        if self._flush is None and not self._closing:
            self._flush = asyncio.create_task(self._flushing())

    @property
    def unmarked(self) -> bool:
        """Whether chunks were emitted since the last boundary."""
        return self._count > self._marked

    def mark(self, event_seq: int) -> None:
        """Note a boundary: the chunks that were passed to its commit are final."""
        self._marked = self._taken
        self.boundary = event_seq

    def take(self) -> list[NewEvent]:
        """Remove and return the waiting chunks, for a commit to include."""
        waiting, self._waiting = self._waiting, []
        self._sizes, self._size = [], 0
        self._taken = self._count
        self._full.clear()
        return waiting

    @property
    def is_heavy(self) -> bool:
        """Whether more chunks are waiting than a commit should include."""
        return self._size > self._most or len(self._waiting) > _MOST_ALONG

    async def lighten(self) -> None:
        """Flush until a commit can include the rest, for a caller that holds the writer's `writing`."""
        while self.is_heavy:
            await self.resolve()
            await self._append(self._batch())

    def _batch(self) -> list[NewEvent]:
        """Remove and return the waiting chunks that one flush writes."""
        if not self.is_heavy:
            return self.take()
        size = count = 0
        while count < min(len(self._waiting), _MOST_ALONG) and size < self._most:
            size += self._sizes[count]
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._sizes, self._size = self._sizes[count:], self._size - size
        self._taken = self._count - len(self._waiting)
        return batch

    async def _flushing(self) -> None:
        try:
            while self._waiting:
                if self._flushed and len(self._waiting) < FLUSH_CHUNKS and self._size < self._most:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._full.wait(), FLUSH_SECONDS)
                if self._closing:
                    return
                self._flushed = True
                await self._write()
        except TenutoError:
            return  # the next commit includes them, or fails for the same reason
        finally:
            self._flush = None

    async def _write(self) -> None:
        async with self._writer.writing:
            await self.resolve()
            await self._append(self._batch())

    async def _append(self, batch: list[NewEvent]) -> None:
        if not batch or self._writer.ended or self._writer.lane is None:
            return
        run = RunRef(run_id=self._writer.run_id, attempt=self._writer.attempt)
        try:
            self._on_flush(len(batch), await self._writer.store.events.append(self._writer.lane, batch, run=run))
        except StoreError:
            self._unsure = batch  # the next write resolves whether it landed
        except asyncio.CancelledError:
            self._unsure = batch
            raise

    @property
    def in_doubt(self) -> bool:
        """Whether it is still unknown if the last batch landed."""
        return bool(self._unsure)

    async def resolve(self) -> None:
        """Find out whether a batch whose reply was lost landed, for a caller that holds the writer's `writing`.

        A batch that did not land waits again, before the other chunks.
        """
        if not self._unsure:
            return
        last: Any = self._unsure[-1].data
        try:
            stored = await self._is_stored(last["n"])
        except StoreError as error:
            stored = await ask_again(error, lambda: self._is_stored(last["n"]))
        lost = [] if stored else self._unsure
        self._unsure, self._waiting = [], lost + self._waiting
        self._sizes = [0] * len(lost) + self._sizes

    async def _is_stored(self, number: int) -> bool:
        """Return whether the chunk or mark of that number and this attempt is in the stream."""
        after = self.boundary
        writer = self._writer
        while True:
            page = await writer.store.events.read(writer.key, after=after, run_id=writer.run_id)
            for event in page.events:
                data: Any = event.data
                if event.type in (EventType.CHUNK, EventType.REWOUND) and (data["attempt"], data.get("n")) == (
                    writer.attempt,
                    number,
                ):
                    return True
            if page.next == after or page.next >= page.tail:
                return False
            after = page.next

    async def settle(self) -> None:
        """Stop flushing; chunks that still wait are left to the commit that ends the turn."""
        self._closing = True
        if self._flush is not None:
            self._full.set()
            await self._flush
        self._closing = False
