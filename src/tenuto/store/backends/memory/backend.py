"""The memory backend: the same rows and rules in dicts, for tests and demonstrations.

`memory://` is a store of its own; `memory://name` is shared by everything in the process that opens the name.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tenuto.errors import StoreClosed, StoreContended, Unsupported
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.memory.reads import Reads
from tenuto.store.backends.memory.tables import Tables
from tenuto.store.backends.memory.writes import Writes
from tenuto.store.backends.signals import GuardMissed
from tenuto.store.rules.plan import Plan, Row, Script

F = TypeVar("F")
T = TypeVar("T")

_shared: dict[str, Tables] = {}


class MemoryBackend:
    """Keeps rows in dicts. Nothing is awaited inside a transaction or a view, so each is atomic.

    The lock is for the one other thread there is, which renews lanes.
    """

    name = "memory"

    def __init__(self, name: str = "") -> None:
        self.tables = _shared.setdefault(name, Tables()) if name else Tables()
        self.probe: Callable[[str], None] = lambda _: None
        self._reads = Reads(self.tables)
        self._writes = Writes(self.tables)
        self._closed = False

    async def transact(
        self,
        read: Reading[F],
        decide: Callable[[F], Plan[T]],
        lock: Lock,  # noqa: ARG002 - nothing can come between
        *,
        size: int = 0,  # noqa: ARG002
        warm: Warm | None = None,  # noqa: ARG002
    ) -> T:
        """See `Backend.transact`."""
        self._check_open()
        try:
            with self.tables.lock, self.tables.transaction():
                plan = decide(self._run(read()))
                for name, rows, must in plan.writes:
                    self.probe(name)
                    verb = getattr(self._writes, name)
                    hits = sum(verb(*row) for row in rows)
                    if must and hits != len(rows):
                        raise GuardMissed(name)
        except GuardMissed as error:
            raise StoreContended(f"What was found changed under the write {error}; repeat it.") from error
        await asyncio.sleep(0)
        return plan.result

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        self._check_open()
        with self.tables.lock, self.tables.transaction():
            self.probe(name)
            return list(getattr(self._writes, name)(*params))

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator["MemoryBackend"]:  # noqa: ARG002
        """See `Backend.view`."""
        self._check_open()
        yield self

    async def glance(self, name: str, *params: object) -> list[Row]:
        """See `Backend.glance`."""
        return await self.read(name, *params)

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `Backend.read`."""
        self._check_open()
        self.probe(name)
        with self.tables.lock:
            return list(getattr(self._reads, name)(*params))

    def watch(self, key: SessionKey) -> Any:
        """See `Backend.watch`."""
        return self.tables.wakeups.watch(key)

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`."""
        self.tables.wakeups.wake(key)

    def check_use(self) -> None:
        """See `Backend.check_use`; nothing here belongs to an event loop."""
        self._check_open()

    async def sibling(self) -> "MemoryBackend":
        """See `Backend.sibling`."""
        other = MemoryBackend()
        other.tables, other._reads, other._writes = self.tables, self._reads, self._writes
        return other

    async def vacuum(self, pages: int) -> tuple[int, int]:  # noqa: ARG002
        """See `Backend.vacuum`."""
        raise Unsupported("A memory store has no file to vacuum.")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        self._closed = True
        self.tables.wakeups.wake_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("The store is closed; open it again.")

    def _run(self, script: Script[F]) -> F:
        rows: list[Row] | None = None
        try:
            while True:
                name, params = script.send(rows) if rows is not None else next(script)
                self.probe(name)
                rows = list(getattr(self._reads, name)(*params))
        except StopIteration as stop:
            result: F = stop.value
            return result
