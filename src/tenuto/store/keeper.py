"""The keeper: renews the lanes and runs this process holds, from its own thread and connection.

A node may block the event loop for a minute; its lane is renewed all the same. A renewal that fails is tried again
until what is held would have lapsed. What is lost is reported to its holder, once, on the holder's event loop.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tenuto.clock import since_boot
from tenuto.errors import TenutoError
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.model.session import ANY_TENANT
from tenuto.store.backends.threads import in_thread
from tenuto.store.facets.lanes import Lanes

_RETRY_EVERY = 0.5
_PATIENCE = 2.0
"""How long one renewal may take before it counts as failed."""

_END_SECONDS = 30.0
"""How long the thread may take to end; it is left behind then, and ends with the process."""


class Renewing(Protocol):
    """What the keeper needs of a store: to renew its lanes, from another thread and event loop."""

    @property
    def lanes(self) -> Lanes:
        """The store's lanes."""

    async def sibling(self) -> "Renewing":
        """Open the same data once more."""

    async def aclose(self) -> None:
        """Release it."""


class Holding:
    """Something this process holds: a lane, or a run without one; `lost` is called on its event loop if it is lost.

    `cause` is then what kept it from being renewed until it lapsed; without one, somebody else has it.
    """

    def __init__(self, held: Lane | RunRef, lost: Callable[[], None], ttl: float) -> None:
        self.held = held
        self.expires = since_boot() + ttl
        self.cause: Exception | None = None
        self._lost = lost
        self._loop = asyncio.get_running_loop()

    @property
    def has_lapsed(self) -> bool:
        """Whether it was not renewed in time, by this process's own clock: somebody else may have it."""
        return self.expires <= since_boot()

    def tell_lost(self) -> None:
        """Report to the holder; a loop that is closed has none left."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._lost)


class Keeper:
    """Keeps what is held alive. The thread starts with the first holding and ends with `close`."""

    def __init__(self, store: Renewing, *, ttl: float, every: float) -> None:
        self.ttl = ttl
        self._every = every
        self._store = store
        self._holdings: set[Holding] = set()
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._wake: asyncio.Event | None = None

    def hold(self, held: Lane | RunRef, lost: Callable[[], None]) -> Holding:
        """Renew this from now on; `lost` is called once if that fails for good."""
        holding = Holding(held, lost, self.ttl)
        with self._guard:
            self._holdings.add(holding)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="tenuto-keeper", daemon=True)
                self._thread.start()
        return holding

    def release(self, holding: Holding) -> None:
        """Stop renewing it; a second call does nothing."""
        with self._guard:
            self._holdings.discard(holding)

    async def confirm(self, holding: Holding) -> bool:
        """Renew something that has lapsed, here and now, and return whether it is still held."""
        asked = since_boot()
        await self._renew(self._store, [holding], asked)
        return holding.expires > asked

    async def aclose(self) -> None:
        """End the thread and its connection."""
        if os.getpid() != self._pid:
            return  # a forked child has neither, and perhaps a lock that nobody there will release
        with self._guard:
            self._closing = True
            self._holdings.clear()
            thread, loop, wake = self._thread, self._loop, self._wake
        if thread is None:
            return
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(wake.set)
        await in_thread(partial(thread.join, _END_SECONDS))

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        with self._guard:
            self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        sibling: Renewing | None = None
        pause = self._every
        try:
            while not self._closing:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
                    break
                with self._guard:
                    due = list(self._holdings)
                if not due:
                    continue
                asked = since_boot()
                try:
                    async with asyncio.timeout(_PATIENCE):
                        sibling = sibling or await self._store.sibling()
                        await self._renew(sibling, due, asked)
                    pause = self._every
                except (TenutoError, TimeoutError, OSError) as error:
                    pause = min(_RETRY_EVERY, self._every)
                    lapsed = [holding for holding in due if holding.expires <= since_boot()]
                    for holding in lapsed:
                        holding.cause = error
                    self._give_up(lapsed)
        finally:
            if sibling is not None:
                with contextlib.suppress(TenutoError):
                    await sibling.aclose()

    async def _renew(self, store: Renewing, due: list[Holding], asked: float) -> None:
        lanes = [holding.held for holding in due if isinstance(holding.held, Lane)]
        runs = [holding.held for holding in due if isinstance(holding.held, RunRef)]
        renewal = await store.lanes.renew(lanes, ttl=self.ttl, runs=runs, tenant=ANY_TENANT)
        gone = []
        for holding in due:
            held = holding.held
            lost = held.key in renewal.lost if isinstance(held, Lane) else held.run_id in renewal.lost_runs
            if lost:
                gone.append(holding)
            else:
                holding.expires = asked + self.ttl
        self._give_up(gone)

    def _give_up(self, gone: list[Holding]) -> None:
        for holding in gone:
            with self._guard:
                still = holding in self._holdings
                self._holdings.discard(holding)
            if still:
                holding.tell_lost()
