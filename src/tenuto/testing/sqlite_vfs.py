"""A disk for SQLite that counts syncs, fills up, and loses power.

    with SimulatedDisk() as disk:
        store = await open_store("sqlite:////tmp/test.db", vfs=disk.name)
        ...
        disk.power_cut()                         # what was not synced is gone, as after a real one
        await store.aclose()                     # the connections of before can do nothing any more
    store = await open_store("sqlite:////tmp/test.db")

Writes go to the real files at once, so that all connections see them. Beside that the disk keeps what each file holds
*durably*: its content at its last sync. The wal-index (`-shm`) is shared memory and never survives. Other processes
must not use the files meanwhile, since their syncs are not seen.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TypeAlias

import apsw

from tenuto.ids import new_id

SECTOR = 512
"""What a disk writes whole or not at all, in bytes."""

_BASE = ""  # the platform's own VFS


class FileKind(StrEnum):
    """What SQLite keeps in a file."""

    DATABASE = "database"
    WAL = "wal"
    JOURNAL = "journal"
    OTHER = "other"


_KINDS = (
    (apsw.SQLITE_OPEN_MAIN_DB, FileKind.DATABASE),
    (apsw.SQLITE_OPEN_WAL, FileKind.WAL),
    (apsw.SQLITE_OPEN_MAIN_JOURNAL, FileKind.JOURNAL),
)


@dataclass(frozen=True, slots=True)
class _Written:
    offset: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        if len(image) < self.offset:
            image.extend(bytes(self.offset - len(image)))
        image[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, chance: random.Random) -> "list[_Written]":
        parts, at = [], 0
        while at < len(self.data):
            # Sectors lie at multiples of their size in the file, wherever the write begins.
            end = min(len(self.data), at + SECTOR - (self.offset + at) % SECTOR)
            if chance.random() < 0.5:
                parts.append(_Written(self.offset + at, self.data[at:end]))
            at = end
        return parts


@dataclass(frozen=True, slots=True)
class _Cut:
    size: int

    def apply(self, image: bytearray) -> None:
        del image[self.size :]


_Change: TypeAlias = _Written | _Cut


@dataclass(slots=True)
class _Stored:
    """A file's durable side: its content at the last sync, if it had one, and what was done to it since."""

    kind: FileKind
    image: bytearray | None
    unsynced: list[_Change] = field(default_factory=list)
    deleted: bool = False
    size: int = 0


class SimulatedDisk(apsw.VFS):
    """A VFS with a unique name; pass `disk.name` to `open_store(..., vfs=)`.

    `syncs` and `writes` count calls by kind of file. `limit`, where set, is the number of bytes that all files
    together may have: growing beyond it is a full disk. `on_io` is called with "write", "truncate", "sync" or "delete"
    before each of them, in the thread that does it.
    """

    def __init__(self) -> None:
        self.name = f"tenuto-disk-{new_id()}"
        self.syncs: Counter[FileKind] = Counter()
        self.writes: Counter[FileKind] = Counter()
        self.limit: int | None = None
        self.on_io: Callable[[str], None] | None = None
        self.powered = True
        self._files: dict[str, _Stored] = {}
        self._lock = RLock()
        super().__init__(self.name, _BASE)

    def __enter__(self) -> "SimulatedDisk":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def used(self) -> int:
        """Return how many bytes the files have now."""
        with self._lock:
            return sum(file.size for file in self._files.values() if not file.deleted)

    def survivors(self, chance: random.Random | None = None) -> dict[Path, bytes]:
        """Return the files a power cut would leave at this moment, without cutting.

        Nothing unsynced survives; with `chance`, any sector of it may, in any combination, as on a disk that had
        begun to write its cache.
        """
        with self._lock:
            found = {Path(path): _surviving(file, chance) for path, file in self._files.items()}
        return {path: content for path, content in found.items() if content is not None}

    def power_cut(self, chance: random.Random | None = None) -> None:
        """Leave in place what survives and fail all further input and output.

        Close the connections of before, then open the file with the normal VFS.
        """
        with self._lock:
            self.powered = False
            left = self.survivors(chance)
            for name in self._files:
                # New files, not new content: what is still open on the old ones can harm nobody.
                for gone in (Path(name), Path(f"{name}-shm")):
                    gone.unlink(missing_ok=True)
            for path, content in left.items():
                path.touch(0o600)
                path.write_bytes(content)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """Open a file, and from the first time on keep its durable side."""
        if name is None:
            return apsw.VFSFile(_BASE, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._lock:
            self.check_power()
            present = Path(path).exists()
            opened = _File(self, path, name, flags)
            self._remember(path, present, flags[0])
            return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file; without `syncdir` it comes back with the power, unless its folder is synced before."""
        with self._lock:
            if not self.powered:
                return
            self.tell("delete")
            super().xDelete(filename, syncdir)
            file = self._files.get(filename)
            if file is None:
                return
            file.deleted, file.size = True, 0
            if syncdir:
                del self._files[filename]

    def write(self, path: str, data: bytes, offset: int, done: Callable[[], None]) -> None:
        """Note a write and do it, unless the disk is full."""
        with self._lock:
            self.check_power()
            self.tell("write")
            file = self._files[path]
            size = max(file.size, offset + len(data))
            if self.limit is not None and size > file.size and self.used() - file.size + size > self.limit:
                raise apsw.FullError(f"{path}: the simulated disk is full")
            done()
            file.size = size
            file.unsynced.append(_Written(offset, data))
            self.writes[file.kind] += 1

    def truncate(self, path: str, size: int, done: Callable[[], None]) -> None:
        """Note a truncation and do it."""
        with self._lock:
            self.check_power()
            self.tell("truncate")
            done()
            file = self._files[path]
            file.size = min(file.size, size)
            file.unsynced.append(_Cut(size))

    def sync(self, path: str) -> None:
        """Make a file's content durable; the real disk need not be bothered."""
        with self._lock:
            self.check_power()
            self.tell("sync")
            file = self._files[path]
            self.syncs[file.kind] += 1
            if file.image is None:
                file.image = bytearray()
                self._sync_folder()
            for change in file.unsynced:
                change.apply(file.image)
            file.unsynced.clear()

    def check_power(self) -> None:
        """Fail what is done after the power cut."""
        if not self.powered:
            raise apsw.IOError("the simulated disk has no power")

    def tell(self, what: str) -> None:
        """Call `on_io`, if anyone listens."""
        if self.on_io is not None:
            self.on_io(what)

    def _remember(self, path: str, present: bool, flags: int) -> None:
        file = self._files.get(path)
        if file is None:
            kind = next((kind for flag, kind in _KINDS if flags & flag), FileKind.OTHER)
            # What was there before the disk was is taken as durable.
            image = bytearray(Path(path).read_bytes()) if present else None
            self._files[path] = _Stored(kind, image, size=len(image or b""))
        elif file.deleted:
            file.deleted = False
            if file.image is not None:
                file.unsynced = [_Cut(0)]
            else:
                file.unsynced = []

    def _sync_folder(self) -> None:
        # SQLite syncs the folder with the first sync of a journal it made; that makes earlier deletions durable too.
        for path in [path for path, file in self._files.items() if file.deleted]:
            del self._files[path]


class _File(apsw.VFSFile):
    def __init__(self, disk: SimulatedDisk, path: str, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__(_BASE, name, flags)
        self._disk = disk
        self._path = path

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.check_power()
        return super().xRead(amount, offset)

    def xWrite(self, data: "bytes | bytearray | memoryview[int]", offset: int) -> None:  # noqa: N802
        copy, write = bytes(data), super().xWrite
        self._disk.write(self._path, copy, offset, lambda: write(copy, offset))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        truncate = super().xTruncate
        self._disk.truncate(self._path, newsize, lambda: truncate(newsize))

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802
        self._disk.sync(self._path)


def _surviving(file: _Stored, chance: random.Random | None) -> bytes | None:
    if file.image is None:
        if chance is None or file.deleted or chance.random() < 0.5:
            return None
        image = bytearray()
    else:
        image = bytearray(file.image)
        if file.deleted and chance is not None and chance.random() < 0.5:
            return None
    if chance is not None:
        for change in file.unsynced:
            kept: list[_Change] = []
            if isinstance(change, _Written):
                kept.extend(change.torn(chance))
            elif chance.random() < 0.5:
                kept.append(change)
            for part in kept:
                part.apply(image)
    return bytes(image)
