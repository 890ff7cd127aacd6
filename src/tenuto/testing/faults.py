"""A backend that fails on request, to test users of a store: lost calls, lost replies, slow and cut connections.

    faults = FaultyBackend(inner)
    store = Store(faults)
    faults.lose_reply()                          # the next transaction lands, its caller gets StoreUnavailable
    with pytest.raises(StoreUnavailable):
        await store.commit(commit)
    assert (await store.commit(commit)).replayed

Works with any `Backend`, yours included.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from tenuto.errors import StoreUnavailable
from tenuto.model.session import SessionKey
from tenuto.store.backend import Backend, Lock, Reading, View, Warm
from tenuto.store.rules.plan import Plan, Row

F = TypeVar("F")
T = TypeVar("T")


class FaultyBackend:
    """Wraps a backend and fails the calls that a test asks it to fail; otherwise it only counts.

    A call is a transaction, a write, a read of a view, a watch begun, or a vacuum. `delay` seconds pass before each.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.calls = 0
        self.transactions = 0
        self.delay = 0.0
        self._failing: dict[int, Exception] = {}
        self._losing: dict[int, Exception] = {}
        self._lines = {"cut": False}

    def fail_call(self, nth: int = 1, error: Exception | None = None) -> None:
        """Fail the n-th call from now, before it does anything; later and earlier ones go through."""
        self._failing[self.calls + nth] = error or StoreUnavailable("A call was failed on request.")

    def lose_reply(self, nth: int = 1, error: Exception | None = None) -> None:
        """Let the n-th transaction from now land, and then fail it for its caller.

        A transaction that is refused has its refusal lost the same way: the caller cannot know which it was.
        """
        self._losing[self.transactions + nth] = error or StoreUnavailable("A reply was lost on request.")

    def cut(self) -> None:
        """Cut the connection: every call fails from now on; one under way lands, and its reply is lost."""
        self._lines["cut"] = True

    def heal(self) -> None:
        """Let calls through again, and forget every fault that has not struck yet."""
        self._lines["cut"] = False
        self._failing.clear()
        self._losing.clear()

    async def transact(
        self, read: Reading[F], decide: Callable[[F], Plan[T]], lock: Lock, *, size: int = 0, warm: Warm | None = None
    ) -> T:
        """See `Backend.transact`."""
        await self._before()
        self.transactions += 1
        lost = self._losing.pop(self.transactions, None)
        try:
            done = await self.inner.transact(read, decide, lock, size=size, warm=warm)
        except Exception:  # a cancelled caller gets only its cancellation
            self._after(lost)
            raise
        self._after(lost)
        return done

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        await self._before()
        self.transactions += 1
        lost = self._losing.pop(self.transactions, None)
        try:
            rows = await self.inner.write(name, *params)
        except Exception:
            self._after(lost)
            raise
        self._after(lost)
        return rows

    async def glance(self, name: str, *params: object) -> list[Row]:
        """See `Backend.glance`."""
        await self._before()
        return await self.inner.glance(name, *params)

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `Backend.read`."""
        await self._before()
        return await self.inner.read(name, *params)

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator[View]:
        """See `Backend.view`."""
        self._check_line()
        async with self.inner.view(at_one_instant=at_one_instant) as view:
            yield _FaultyView(self, view)

    @asynccontextmanager
    async def watch(self, key: SessionKey) -> AsyncIterator[AsyncIterator[None]]:
        """See `Backend.watch`."""
        await self._before()
        async with self.inner.watch(key) as changes:
            yield changes

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`; a cut connection does not carry it."""
        if not self._lines["cut"]:
            self.inner.announce(key)

    def check_use(self) -> None:
        """See `Backend.check_use`."""
        self.inner.check_use()

    async def sibling(self) -> "FaultyBackend":
        """Return a sibling of the wrapped backend, with the same line: cut for one is cut for both."""
        other = FaultyBackend(await self.inner.sibling())
        other._lines = self._lines
        return other

    async def vacuum(self, pages: int) -> tuple[int, int]:
        """See `Backend.vacuum`."""
        await self._before()
        return await self.inner.vacuum(pages)

    async def aclose(self) -> None:
        """Close the wrapped backend, whatever faults are set."""
        await self.inner.aclose()

    async def _before(self) -> None:
        self.calls += 1
        error = self._failing.pop(self.calls, None)
        if self.delay:
            await asyncio.sleep(self.delay)
        self._check_line()
        if error is not None:
            raise error

    def _after(self, lost: Exception | None) -> None:
        self._check_line()
        if lost is not None:
            raise lost

    def _check_line(self) -> None:
        if self._lines["cut"]:
            raise StoreUnavailable("The connection is cut on request; repeat with the same operation id.")


class _FaultyView:
    def __init__(self, backend: FaultyBackend, inner: View) -> None:
        self._backend = backend
        self._inner = inner

    async def read(self, name: str, *params: object) -> list[Row]:
        await self._backend._before()
        return await self._inner.read(name, *params)
