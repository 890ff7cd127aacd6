"""Opening a database file: its settings checked, its tables brought up to date, its clock read."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import apsw

from tenuto.errors import InvalidInput
from tenuto.store.backends.address import positive, yes_or_no
from tenuto.store.backends.signals import GuardMissed
from tenuto.store.backends.sql import check_version
from tenuto.store.backends.sqlite.connection import check_tables, connect, migrate, patiently, version_of
from tenuto.store.backends.sqlite.faults import translated
from tenuto.store.backends.sqlite.file import DatabaseFile
from tenuto.store.backends.sqlite.lease_clock import LeaseClock
from tenuto.store.backends.sqlite.memory_file import MemoryFile

OPTIONS = ("migrate", "synchronous", "lock_timeout", "vfs")
"""What `open_store` takes for SQLite."""

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Settings(NamedTuple):
    """How a file is opened; `memory` is the file that stands in for memory, if it is one."""

    path: str
    migrate: bool = True
    synchronous: str = "FULL"
    lock_timeout: float = 10.0
    vfs: str | None = None
    memory: MemoryFile | None = None


class Database(NamedTuple):
    """An open file: its writing connection, and how to open readers beside it."""

    settings: Settings
    writer: apsw.Connection
    file: DatabaseFile
    open_reader: Callable[[], apsw.Connection]

    def close(self) -> None:
        """Write the log back into the file and release it."""
        with suppress(apsw.Error):
            self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with suppress(apsw.Error):
            self.writer.close()
        self.file.closed()
        if self.settings.memory is not None:
            self.settings.memory.release()


def checked(settings: Settings) -> Settings:
    """Return settings with an absolute path; refuse those that mean nothing."""
    yes_or_no(settings.migrate, "migrate")
    positive(settings.lock_timeout, "lock_timeout")
    given: object = settings.synchronous
    word = given.upper() if isinstance(given, str) else given
    if word not in _SYNCHRONOUS:
        raise InvalidInput(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, got {given!r}.")
    if settings.vfs is not None and settings.vfs not in apsw.vfs_names():
        raise InvalidInput(f"vfs must be one that is registered with SQLite ({', '.join(apsw.vfs_names())}).")
    path = os.path.abspath(settings.path)  # noqa: PTH100 - links stay; the working directory may change
    return settings._replace(path=path, synchronous=str(word))


def open_database(settings: Settings) -> Database:
    """Open a file; without `migrate`, tables that are not up to date are refused."""
    path, vfs, timeout = settings.path, settings.vfs, settings.lock_timeout
    clock = LeaseClock()
    connecting = partial(connect, path, lease_now=clock.now, synchronous=settings.synchronous, vfs=vfs)
    DatabaseFile(path, vfs)  # refused before anything is opened
    connection = connecting()
    try:
        file = DatabaseFile(path, vfs)
        with translated(path):
            if settings.migrate:
                migrate(connection, path, timeout)
            else:
                check_version(version_of(connection, path), "sqlite", path, ready=True)
            patiently(partial(check_tables, connection, path), timeout)
            clock.anchor(connection, timeout)
    except BaseException as error:
        with suppress(apsw.Error):
            connection.close()
        if isinstance(error, GuardMissed):
            raise error.as_error() from error
        raise
    file.opened()
    return Database(settings, connection, file, partial(connecting, readonly=True))


def open_memory(file: MemoryFile) -> Database:
    """Open a file that stands in for memory and is held; nothing is synced, since nothing is to outlive the process."""
    try:
        return open_database(Settings(file.path, synchronous="OFF", memory=file))
    except BaseException:
        file.release()
        raise
