"""Where a store is at home: the event loop, thread and process that opened it."""

import asyncio
import os
from typing import Any
from weakref import WeakSet

from tenuto.errors import StoreClosed, StoreMisused

_open: "WeakSet[Any]" = WeakSet()


class Home:
    """Refuses a backend's work anywhere but where it was opened; a check only asks which loop is running.

    A backend that was opened outside any event loop is at home in the first one that uses it.
    """

    def __init__(self, backend: object) -> None:
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = asyncio._get_running_loop()
        self._pid = os.getpid()
        _open.add(backend)

    def check(self) -> None:
        """Refuse work for a closed store, and from another loop, thread or process."""
        if self.closed:
            raise StoreClosed("The store is closed; open it again.")
        if asyncio._get_running_loop() is not self._loop:
            self._settle()

    def close(self) -> bool:
        """Take note that the store is closed; return whether its connections are to be closed now.

        A second time, and in a forked child, they are not; from another event loop it is refused while its own is open.
        """
        if self.closed:
            return False
        if not self.is_forked and not self.is_over and asyncio._get_running_loop() is not self._loop:
            self._settle()
        self.closed = True
        return not self.is_forked

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that opened the store, where it must not be touched at all."""
        return os.getpid() != self._pid

    @property
    def is_over(self) -> bool:
        """Whether the event loop that opened the store is closed, so that its tasks and streams are gone."""
        return self._loop is not None and self._loop.is_closed()

    def _settle(self) -> None:
        """Be at home in the running event loop, if this is nowhere at home yet."""
        if self._loop is not None or self.is_forked:
            raise self._refusal()
        self._loop = asyncio._get_running_loop()

    def _refusal(self) -> StoreMisused:
        if self.is_forked:
            return StoreMisused(
                f"This store was opened by process {self._pid}, of which this one is a fork; open a store after the "
                "fork, or start processes by spawning them."
            )
        return StoreMisused(
            "This store belongs to another event loop, in which it was opened; open one store per event loop, or get "
            "one for this loop by `await store.sibling()`."
        )


def _forsake() -> None:
    """Never release, in a forked child, connections that are the parent's: the collector would close them.

    To close an inherited SQLite connection can remove the parent's log, and to close a PostgreSQL one ends it for both.
    """
    import ctypes

    for backend in list(_open):
        # Modules are cleared at exit; a reference that nobody holds is not.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forsake)
