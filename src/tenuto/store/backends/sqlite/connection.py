"""A connection to the database file: opened with our settings, its errors translated, its tables brought up to date."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from tenuto.errors import (
    SchemaMismatch,
    StoreContended,
    StoredDataCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from tenuto.store.backends.missed import Missed
from tenuto.store.backends.sql import migrations

T = TypeVar("T")

_CONFIGURE_SECONDS = 10.0

APPLICATION_ID = 0x54454E55
"""Marks a file as ours ("TENU")."""

_IDENTITY = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version
"""

_TRANSLATION: tuple[tuple[type[apsw.Error], type[StoreError], str], ...] = (
    (apsw.FullError, StoreFull, "The disk is full; make room and repeat."),
    (apsw.BusyError, StoreContended, "Others kept the database busy for too long; repeat."),
    (apsw.LockedError, StoreContended, "The database is locked; repeat."),
    (apsw.NotADBError, StoreUnusable, "The file is not a database; choose another path."),
    (apsw.CorruptError, StoredDataCorrupt, "The database file is damaged; restore it from a backup."),
    (apsw.ReadOnlyError, StoreUnusable, "The database file cannot be written; check its permissions."),
    (
        apsw.CantOpenError,
        StoreUnusable,
        "The database file cannot be opened; check the path and its permissions.",
    ),
    (apsw.PermissionsError, StoreUnusable, "The database file cannot be opened; check its permissions."),
    (apsw.IOError, StoreUnavailable, "The disk reported an error; check it and repeat."),
)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn driver errors into ours."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: BaseException, path: str) -> BaseException:
    """Return our error for a driver's; a broken constraint means that what was found no longer stands."""
    if isinstance(error, apsw.ConstraintError):
        return Missed(str(error))
    if not isinstance(error, apsw.Error):
        return error
    for kind, ours, advice in _TRANSLATION:
        if isinstance(error, kind):
            return ours(f"{path}: {advice} ({error})", path=path)
    return StoreUnavailable(f"{path}: {error}", path=path)


def connect(path: str, *, synchronous: str = "FULL", vfs: str | None = None, readonly: bool = False) -> apsw.Connection:
    """Open the file, creating it readable by its owner only."""
    _make_private(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translated(path):
        connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=256)
        try:
            # No busy handler: it backs off to long sleeps and starves short writes. `patiently` retries in its place,
            # here while another process switches a new file to WAL.
            connection.set_busy_timeout(0)
            patiently(partial(_configure, connection, path, synchronous), _CONFIGURE_SECONDS)
            if readonly:
                connection.pragma("query_only", True)
        except BaseException:
            connection.close()
            raise
    return connection


def patiently(work: Callable[[], T], timeout: float) -> T:
    """Do something that others may keep busy, trying again every millisecond or less until it succeeds."""
    deadline = None
    while True:
        try:
            return work()
        except apsw.BusyError:
            deadline = deadline or time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0002, 0.001))


def begin(connection: apsw.Connection, timeout: float) -> None:
    """Start a write transaction."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        patiently(partial(connection.execute, "BEGIN IMMEDIATE"), timeout)


def migrate(connection: apsw.Connection, path: str, timeout: float) -> None:
    """Bring the tables up to date, one transaction per step; refuse a newer or a foreign database."""
    steps = migrations("sqlite")
    while True:
        with translated(path):
            version = patiently(partial(check_version, connection, path), timeout)
            if version == len(steps):
                return
            begin(connection, timeout)
            try:
                # Another process may have got here first.
                version = check_version(connection, path)
                if version < len(steps):
                    connection.execute(steps[version].sql)
                    connection.pragma("application_id", APPLICATION_ID)
                    connection.pragma("user_version", version + 1)
                connection.execute("COMMIT")
            except BaseException:
                rollback(connection)
                raise


def check_version(connection: apsw.Connection, path: str) -> int:
    """Return the version of the tables, or refuse a database that is foreign or newer than this code."""
    # One statement, so that another process's migration is seen whole or not at all.
    ((application, version, tables),) = connection.execute(_IDENTITY)
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreUnusable(f"{path} is a database of another program; choose another path.", path=path)
    expected = len(migrations("sqlite"))
    if version > expected:
        raise SchemaMismatch(
            f"{path} has tables of version {version}, newer than this code's {expected}; upgrade tenuto.",
            found=version,
            expected=expected,
        )
    return int(version)


def rollback(connection: apsw.Connection) -> None:
    """End a transaction that failed, unless the failure already did."""
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _configure(connection: apsw.Connection, path: str, synchronous: str) -> None:
    # Nothing is changed before the file is known to be ours or new.
    check_version(connection, path)
    if not connection.pragma("user_version"):
        connection.pragma("auto_vacuum", "INCREMENTAL")
    if connection.pragma("journal_mode") != "wal":
        connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    # Without it SQLite looks at the bound values and plans anew on every execution, at many times the cost.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _make_private(path: str) -> None:
    try:
        if Path(path).is_dir():
            raise StoreUnusable(f"{path} is a directory; name a file in it.", path=path)
        # Only ever a new file: closing a descriptor of one that is open ends this process's locks on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreUnusable(f"{path} cannot be opened: it must be readable and writable.", path=path) from None
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be opened: {error.strerror}.", path=path) from error
