"""A connection to the database file: opened with our settings, its tables brought up to date."""

import logging
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from tenuto.errors import StoreUnusable
from tenuto.store.backends.sql import check_columns, check_version, migrations
from tenuto.store.backends.sqlite.faults import lacks_descriptors, no_descriptors, translated
from tenuto.store.rules.rows import TABLES

T = TypeVar("T")

_CONFIGURE_SECONDS = 10.0

APPLICATION_ID = 0x54454E55
"""Marks a file as ours ("TENU")."""

_log = logging.getLogger("tenuto.store")
_warned: set[str] = set()

_COLUMNS = f"""
SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name IN ({", ".join(f"'{table}'" for table in TABLES)}) ORDER BY t.name, c.cid
"""

_IDENTITY = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version
"""


def connect(
    path: str, *, lease_now: Callable[..., int], synchronous: str, vfs: str | None, readonly: bool = False
) -> apsw.Connection:
    """Open the file, creating it readable by its owner only; its statements ask `lease_now` for the time of leases."""
    _make_private(path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translated(path):
        connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=256)
        try:
            # No busy handler: it backs off to long sleeps and starves short writes. `patiently` retries in its place,
            # here while another process switches a new file to WAL.
            connection.set_busy_timeout(0)
            connection.create_scalar_function("lease_now", lease_now, 0)
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
            version = patiently(partial(version_of, connection, path), timeout)
            if version == len(steps):
                return
            begin(connection, timeout)
            try:
                # Another process may have got here first.
                version = version_of(connection, path)
                if version < len(steps):
                    connection.execute(steps[version].sql)
                    connection.pragma("application_id", APPLICATION_ID)
                    connection.pragma("user_version", version + 1)
                connection.execute("COMMIT")
            except BaseException:
                rollback(connection)
                raise


def version_of(connection: apsw.Connection, path: str) -> int:
    """Return the version of the tables, or refuse a database that is foreign or newer than this code."""
    # One statement, so that another process's migration is seen whole or not at all.
    ((application, version, tables),) = connection.execute(_IDENTITY)
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreUnusable(f"{path} is a database of another program; choose another path.", path=path)
    return check_version(int(version), "sqlite", path)


def check_tables(connection: apsw.Connection, path: str) -> None:
    """Refuse tables that are not as we made them."""
    check_columns(list(connection.execute(_COLUMNS)), path)


def rollback(connection: apsw.Connection) -> None:
    """End a transaction that failed, unless the failure already did."""
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _configure(connection: apsw.Connection, path: str, synchronous: str) -> None:
    # Nothing is changed before the file is known to be ours or new.
    version_of(connection, path)
    if not connection.pragma("user_version"):
        connection.pragma("auto_vacuum", "INCREMENTAL")
    if connection.pragma("journal_mode") != "wal":
        connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    # Without it SQLite looks at the bound values and plans again on every execution, at many times the cost.
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
        _warn_of_others(path)
    except OSError as error:
        if lacks_descriptors(error):
            raise no_descriptors(path) from error
        raise StoreUnusable(f"{path} cannot be opened: {error.strerror}.", path=path) from error


def _warn_of_others(path: str) -> None:
    """Say, once, that everybody may read the file; it is not changed, since somebody may have meant it so."""
    if os.name == "posix" and path not in _warned and os.stat(path).st_mode & 0o006:  # noqa: PTH116
        _warned.add(path)
        _log.warning("%s can be read or written by every user of this machine; chmod 600 keeps it yours.", path)
