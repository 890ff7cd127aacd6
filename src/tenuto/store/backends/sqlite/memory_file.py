"""Files that stand in for memory: each in its own temporary folder, removed with the last store on it."""

import os
import shutil
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from tenuto.errors import StoreMisused

_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "tenuto-memory-"
_SETTLED_SECONDS = 60.0

_guard = threading.Lock()
_named: "dict[str, MemoryFile]" = {}
_inherited: set[str] = set()


class MemoryFile:
    """A database file that is removed when everyone who held it has released it, or else at the process's exit."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        _sweep()
        folder = mkdtemp(prefix=_PREFIX, dir=_folder())
        self.path = f"{folder}/store.db"
        self._holders = 0
        # Also for a store that nobody closed; a forked child must leave the file to the process that made it.
        self._remove = weakref.finalize(self, _remove, folder, _locked(folder), os.getpid())

    def hold(self) -> None:
        """Keep the file for one store more."""
        with _guard:
            self._holders += 1

    def release(self) -> None:
        """Release the file for one store; the last one removes it."""
        with _guard:
            self._holders -= 1
            if self._holders:
                return
            if _named.get(self._name) is self:
                del _named[self._name]
        self._remove()


def memory_file(name: str) -> MemoryFile:
    """Return this process's file of a name, or, without a name, a new one; it is held already."""
    if not name:
        file = MemoryFile()
        file.hold()
        return file
    with _guard:
        if name in _inherited:
            raise StoreMisused(
                f"memory://{name} was open in the process of which this one is a fork, and is not shared with it; "
                "use a file or PostgreSQL for several processes, or another name."
            )
        file = _named.get(name) or _named.setdefault(name, MemoryFile(name))
        file._holders += 1
        return file


def _folder() -> Path:
    """Return a folder that is kept in memory, if this machine has one we may write to, or else that for such files."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else Path(gettempdir())


def _remove(folder: str, lock: int | None, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep() -> None:
    """Remove what killed processes have left: a folder that nobody has locked, though there was time to."""
    settled = time.time() - _SETTLED_SECONDS
    for folder in _folder().glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_mtime > settled:
                continue
            lock = _locked(folder)
            if lock is not None:
                shutil.rmtree(folder)
                os.close(lock)


def _locked(folder: str | Path) -> int | None:
    """Lock a folder for as long as this process lives, and return what holds the lock; None where that cannot be."""
    if sys.platform == "win32":
        return None
    import fcntl

    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _after_fork() -> None:
    global _guard  # another thread may have held it
    _guard = threading.Lock()
    _inherited.update(_named)
    _named.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
