"""The file behind open connections, which somebody may delete, rename or replace meanwhile."""

import os
from collections import Counter

from tenuto.errors import StoreMisused, StoreUnusable

Identity = tuple[int, int]

_open: Counter[Identity] = Counter()
_inherited: set[Identity] = set()


class DatabaseFile:
    """A file known by its device and inode; with a VFS of the user's own, which may keep it elsewhere, nothing is."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self._path = path
        self._identity = _identity(path) if vfs is None else None
        if self._identity in _inherited:
            raise StoreMisused(
                f"{path} was open in the process of which this one is a fork, and SQLite cannot keep the two apart; "
                "close the store before forking, or start processes by spawning them.",
                path=path,
            )

    def opened(self) -> None:
        """Take note that this process has it open."""
        if self._identity is not None:
            _open[self._identity] += 1

    def closed(self) -> None:
        """Take note that this process has closed it."""
        if self._identity is not None:
            _open[self._identity] -= 1

    def check(self) -> None:
        """Refuse to continue when the path leads to another file, or to none: what is written now would be lost."""
        if lost := self.lost():
            raise lost

    def lost(self) -> StoreUnusable | None:
        """Return why the store cannot continue, if it cannot."""
        if self._identity is None:
            return None
        try:
            found = os.stat(self._path)  # noqa: PTH116 - on every commit
        except FileNotFoundError:
            return self._replaced("deleted or renamed")
        except OSError:
            return None
        return None if (found.st_dev, found.st_ino) == self._identity else self._replaced("replaced")

    def _replaced(self, how: str) -> StoreUnusable:
        return StoreUnusable(
            f"{self._path} was {how} under the open store, so nothing more is kept or read; put the file back, or "
            "close the store and open it again.",
            path=self._path,
        )


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _after_fork() -> None:
    _inherited.update(identity for identity, count in _open.items() if count > 0)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
