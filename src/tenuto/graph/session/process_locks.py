"""Locks for a store that has none: they guard a session within this process, and nowhere else."""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import Any

_guard = threading.Lock()
_lines: dict[tuple[int, str], "deque[asyncio.Future[None]]"] = {}
"""Who waits for each session, by its store and its id; the first of each line holds the lock."""


class ProcessLocks:
    """The two methods of a store that can lock. Runs are served in order of arrival, also those of other threads."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def acquire_lock(self, session_id: str) -> None:
        """Wait until this run is the first in line; cancelled while it waits, it leaves the line."""
        place, turn = (id(self._store), session_id), asyncio.get_running_loop().create_future()
        with _guard:
            line = _lines.setdefault(place, deque())
            line.append(turn)
            if line[0] is turn:
                turn.set_result(None)
        try:
            await turn
        except asyncio.CancelledError:
            _leave(place, turn)
            raise

    async def release_lock(self, session_id: str) -> None:
        """Let the next one in line run."""
        place = (id(self._store), session_id)
        _leave(place, _lines[place][0])


def _leave(place: tuple[int, str], turn: "asyncio.Future[None]") -> None:
    with _guard:
        line = _lines[place]
        line.remove(turn)
        if not line:
            del _lines[place]
            return
        following = line[0]
    with suppress(RuntimeError):  # its loop was closed, and with it the run that waits
        following.get_loop().call_soon_threadsafe(_begin, following)


def _begin(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
