"""Warnings of the compiler and of runs: the graph works, but perhaps not as intended."""

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)


def outside() -> int:
    """Return the `stacklevel` at which the caller's warning points at the first line outside the engine."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    return level


class GraphCompileWarning(UserWarning):
    """A graph was compiled that may not do what it seems to; `category` says why."""

    def __init__(self, category: str, message: str) -> None:
        super().__init__(message)
        self.category = category


class SessionStateDoubled(UserWarning):
    """The caller passed entries that the session has already, in a field that is appended to."""


class SessionNotGuarded(UserWarning):
    """Two processes that run on one session may overwrite each other, since the user's own store cannot prevent it."""


class SessionNotKept(UserWarning):
    """A run names a session, but its graph has no session store."""


class SessionStateUndeclared(UserWarning):
    """A session keeps the whole state, since its graph does not declare which fields it is to keep."""
