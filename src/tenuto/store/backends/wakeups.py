"""Waking the readers of a stream within this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tenuto.model.session import SessionKey

_LONGEST_SECONDS = 10.0
"""After so long a watcher looks for itself, so that a wake that got lost is not missed for good."""


class Wakeups:
    """Who watches which session. Waking is cheap when nobody does, and several wakes before a read count as one."""

    def __init__(self) -> None:
        self._watchers: dict[SessionKey, set[Callable[[], None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._watchers)

    @asynccontextmanager
    async def watch(self, key: SessionKey) -> AsyncIterator[AsyncIterator[None]]:
        """Register for a session's wakes; what is woken before the first read is not lost."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        async def changes() -> AsyncIterator[None]:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_SECONDS):
                        await changed.wait()
                changed.clear()
                yield

        self._watchers.setdefault(key, set()).add(wake)
        iterator = changes()
        try:
            yield iterator
        finally:
            watchers = self._watchers[key]
            watchers.discard(wake)
            if not watchers:
                del self._watchers[key]

    def wake(self, key: SessionKey) -> None:
        """Wake everyone who watches this session."""
        for wake in tuple(self._watchers.get(key, ())):
            wake()

    def wake_all(self) -> None:
        """Wake everyone, when it is not known which session changed."""
        for key in tuple(self._watchers):
            self.wake(key)
