"""When a runtime is open, and where: what a declaration holds between `async with` and its end."""

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tenuto.errors import InvalidInput, NotOpen, WrongLoop
from tenuto.quote import quote
from tenuto.runtime.machinery import Machinery, Options
from tenuto.store.open import Opening, open_store
from tenuto.store.store import Store, check_whole_store

T = TypeVar("T")

_log = logging.getLogger("tenuto.runtime")

_ELSEWHERE = "open the same declaration a second time there: `async with runtime.using(url) as other`"


class Lifetime:
    """Opens and closes what a declaration describes, and hands it to the verbs.

    It is open in one event loop at a time. Opening it again in that loop counts, and the last exit closes it. It can be
    opened again afterwards, in any loop. A store that was passed open stays open; an address is opened and closed.
    """

    def __init__(self, store: str | Opening | Store | None, options: Options) -> None:
        self.store, self.options = _checked(store, options), options
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turnstile = asyncio.Lock()
        self._pid = 0
        self._users = 0
        self._machinery: Machinery | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_open(self) -> bool:
        """Whether the runtime is open in some event loop of this process."""
        return self._machinery is not None and self._pid == os.getpid()

    def parts(self) -> Machinery:
        """Return the parts of the open runtime; raise `NotOpen`, or `WrongLoop` if it is open elsewhere."""
        if self._machinery is None:
            raise NotOpen("This runtime is not open; use it inside `async with runtime:`, or `runtime.blocking()`.")
        if asyncio._get_running_loop() is not self._loop:
            raise self._elsewhere()
        return self._machinery

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Do some work in the background; closing waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def enter(self) -> None:
        """Open the runtime in this event loop, or count one more user of it."""
        with self._guard:  # two threads may open one declaration at once; never held while something is awaited
            if self._loop is None or (self._loop.is_closed() and self._pid == os.getpid()):
                self._loop, self._pid, self._users = asyncio.get_running_loop(), os.getpid(), 0
                self._turnstile, self._machinery, self._tasks = asyncio.Lock(), None, set()
            elif self._loop is not asyncio.get_running_loop():
                raise self._elsewhere()
            self._users += 1
        try:
            async with self._turnstile:
                if self._machinery is None:
                    self._machinery = await self._opened()
        except BaseException:
            self._forget_user()
            raise

    async def leave(self) -> None:
        """Let one user of the runtime go; the last one closes it. Without any, nothing happens."""
        if self._loop is None or self._loop.is_closed():
            return
        if self._loop is not asyncio.get_running_loop():
            raise self._elsewhere()
        async with self._turnstile:
            machinery = self._machinery
            if machinery is None:
                return
            if self._users > 1:
                self._users -= 1
                return
            try:
                await self._close(machinery)
            finally:
                self._machinery = None
                self._forget_user()

    def _forget_user(self) -> None:
        with self._guard:
            self._users -= 1
            if not self._users:
                self._loop = None

    async def _opened(self) -> Machinery:
        store = self.store
        if isinstance(store, Store):
            store.backend.check_use()
            return Machinery(store, self.options)
        if store is None:
            _log.warning("No store was passed: sessions are kept in memory and are lost when the runtime is closed.")
            store = open_store("memory://")
        lanes = self.options.lanes
        return Machinery(await store.but(lanes=lanes), self.options)

    async def _close(self, machinery: Machinery) -> None:
        """Wait for the turns that were started here; if that is cancelled, they are left for others to take over."""
        try:
            while under_way := [*self._tasks, *machinery.sender.background]:
                await asyncio.gather(*under_way, return_exceptions=True)
        finally:
            machinery.live.close()
            if not isinstance(self.store, Store):
                await asyncio.shield(machinery.store.aclose())

    def _elsewhere(self) -> WrongLoop:
        if self._pid != os.getpid():
            return WrongLoop(
                f"This runtime was opened by process {self._pid}, of which this one is a fork; nothing that is open "
                "survives a fork. Open it after the fork instead, or start processes by spawning them."
            )
        return WrongLoop(f"This runtime is open in another event loop or thread; {_ELSEWHERE}.")


def _checked(store: str | Opening | Store | None, options: Options) -> Opening | Store | None:
    """Return what a runtime keeps its sessions in: an opening, a store that is open, or None for memory."""
    if store is None or isinstance(store, Opening):
        return store
    if isinstance(store, str):
        return open_store(store)
    check_whole_store(store, "A runtime's sessions")
    if options.lanes is not None and (options.lanes.ttl, options.lanes.renew) != (store.timing.ttl, store.timing.renew):
        raise InvalidInput(
            f"The lanes of a store that is open already are timed as it was opened ({quote(store.timing.ttl)} s); pass "
            "`lanes` to open_store, or the store's address to the runtime."
        )
    return store
