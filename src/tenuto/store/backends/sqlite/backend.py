"""The SQLite backend: one file, one writer thread, readers beside it, several processes at once."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from tenuto.errors import InvalidInput, SchemaMismatch, TenutoError
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.home import Home
from tenuto.store.backends.options import positive, yes_or_no
from tenuto.store.backends.signals import GuardMissed, Refused
from tenuto.store.backends.sql import migrations, queries
from tenuto.store.backends.sqlite.connection import check_tables, check_version, connect, migrate, patiently
from tenuto.store.backends.sqlite.faults import translate, translated, unstorable
from tenuto.store.backends.sqlite.file import DatabaseFile
from tenuto.store.backends.sqlite.lease_clock import LeaseClock
from tenuto.store.backends.sqlite.writer import Writer
from tenuto.store.backends.threads import Threads, in_thread
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.backends.warm_rows import RowMemory
from tenuto.store.rules.plan import Plan, Row, Write

F = TypeVar("F")
T = TypeVar("T")

_READERS = 4
_POLL_SECONDS = 0.02
_ROWS_PER_INSERT = 32
_TRIES = 3
_CLOSE_SECONDS = 30.0

OPTIONS = ("migrate", "synchronous", "lock_timeout", "vfs")
"""What `open_store` takes for SQLite."""

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_UNSTORABLE = (TypeError, ValueError, OverflowError)


class SqliteBackend:
    """Keeps rows in one SQLite file."""

    name = "sqlite"

    def __init__(
        self,
        path: str,
        writer: apsw.Connection,
        file: DatabaseFile,
        open_connection: Callable[[], apsw.Connection],
        timeout: float,
        options: dict[str, Any],
    ):
        self.path = path
        self._home = Home(self)
        self._file = file
        self._options = options
        self.lock_timeout = timeout
        self.probe: Callable[[str], None] | None = None
        self._sql = Statements()
        self._connection = writer
        self._open = open_connection
        self._writer = Writer(writer, path, timeout, file)
        self._readers: list[apsw.Connection] = []
        self._glancing: apsw.Connection | None = None
        self._reading = asyncio.Semaphore(_READERS)
        self._threads = Threads(_READERS, f"tenuto-reader {path}")
        self._wakeups = Wakeups()
        self._memory = RowMemory()
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        migrate: bool = True,
        synchronous: str = "FULL",
        lock_timeout: float = 10.0,
        vfs: str | None = None,
    ) -> "SqliteBackend":
        """Open the file; with `migrate=False` tables that are not up to date are refused instead."""
        yes_or_no(migrate, "migrate")
        positive(lock_timeout, "lock_timeout")
        synchronous = _word(synchronous)
        _check_vfs(vfs)
        path = os.path.abspath(path)  # noqa: ASYNC240, PTH100 - links stay; the working directory may change
        clock = LeaseClock()
        writer, file = await in_thread(partial(_open_writer, path, clock, migrate, synchronous, lock_timeout, vfs))
        return cls(
            path,
            writer,
            file,
            partial(connect, path, lease_now=clock.now, synchronous=synchronous, vfs=vfs, readonly=True),
            lock_timeout,
            {"synchronous": synchronous, "lock_timeout": lock_timeout, "vfs": vfs},
        )

    async def transact(
        self,
        read: Reading[F],
        decide: Callable[[F], Plan[T]],
        lock: Lock,  # noqa: ARG002 - the file has one writer at a time
        *,
        size: int = 0,
        warm: Warm | None = None,
    ) -> T:
        """See `Backend.transact`."""
        self._home.check()
        if warm:
            plan = self._memory.plan(warm, decide)
            if plan is not None:
                try:
                    await self._writer.submit(partial(self._apply_all, plan.writes), size)
                    self._memory.keep(warm.key, plan)
                    return plan.result
                except GuardMissed:
                    pass  # the memory was stale: look
        last = GuardMissed("")
        for _ in range(_TRIES):
            try:
                found: Plan[T] = await self._writer.submit(partial(self._transact, read, decide), size)
                if warm:
                    self._memory.keep(warm.key, found)
                else:
                    self._memory.note(found)
                return found.result
            except GuardMissed as missed:
                last = missed
        raise last.as_error() from last

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        self._home.check()

        def work(connection: apsw.Connection) -> list[Row]:
            self._before(name)
            return self._rows(connection, name, params)

        try:
            rows: list[Row] = await self._writer.submit(work)
        except GuardMissed as missed:
            raise missed.as_error() from missed
        return rows

    async def glance(self, name: str, *params: object) -> list[Row]:
        """See `Backend.glance`.

        A row by its key is read here and now: that is quicker than handing it to a thread, and a reader never waits for
        a writer. Where it would wait all the same, a thread does.
        """
        self._home.check()
        self._before(name)
        self._file.check()
        try:
            if self._glancing is None:
                self._glancing = self._open()
            return self._rows(self._glancing, name, params)
        except apsw.BusyError:
            async with self.view() as view:
                return await view.read(name, *params)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _shown(error, self.path) from error

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `Backend.read`."""
        async with self.view() as view:
            return await view.read(name, *params)

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator["SqliteView"]:  # noqa: ARG002
        """See `Backend.view`."""
        self._home.check()
        async with self._reading:
            self._home.check()
            self._file.check()
            connection = self._readers.pop() if self._readers else self._open()
            view = SqliteView(self, connection)
            try:
                yield view
            finally:
                if view.end() and not self._home.closed:
                    self._readers.append(connection)
                else:
                    connection.close()

    @asynccontextmanager
    async def watch(self, key: SessionKey) -> AsyncIterator[AsyncIterator[None]]:
        """See `Backend.watch`."""
        self._home.check()
        async with self._wakeups.watch(key) as changes:
            if self._poll is None or self._poll.done():
                # The version from before the watcher's first look: whatever changes after it is noticed.
                connection = self._open()
                with translated(self.path):
                    seen = connection.pragma("data_version")
                self._poll = asyncio.create_task(self._watch_file(connection, seen))
            yield changes

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`."""
        self._wakeups.wake(key)

    def check_use(self) -> None:
        """See `Backend.check_use`."""
        self._home.check()

    async def sibling(self) -> "SqliteBackend":
        """See `Backend.sibling`."""
        return await SqliteBackend.open(self.path, migrate=False, **self._options)

    async def vacuum(self, pages: int) -> tuple[int, int]:
        """See `Backend.vacuum`."""

        def work(connection: apsw.Connection) -> tuple[int, int]:
            before = int(connection.pragma("freelist_count"))
            list(connection.execute(f"PRAGMA incremental_vacuum({pages})"))
            left = int(connection.pragma("freelist_count"))
            return before - left, left

        self._home.check()
        freed: tuple[int, int] = await self._writer.submit(work)
        return freed

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        if not self._home.close():
            return
        if self._poll and not self._home.is_over:
            self._wakeups.wake_all()
            self._poll.cancel()
            await asyncio.wait({self._poll}, timeout=_CLOSE_SECONDS)
        await in_thread(self._close)

    def _close(self) -> None:
        self._threads.close(_CLOSE_SECONDS)
        for connection in (*self._readers, self._glancing):
            if connection is not None:
                with suppress(apsw.Error):
                    connection.close()
        self._readers.clear()
        self._writer.close()
        with suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with suppress(apsw.Error):
            self._connection.close()
        self._file.closed()

    def _transact(self, read: Reading[F], decide: Callable[[F], Plan[T]], connection: apsw.Connection) -> Plan[T]:
        try:
            plan = decide(self._gather(read, connection))
        except TenutoError as error:
            raise Refused(error) from error
        self._apply_all(plan.writes, connection)
        return plan

    def _gather(self, read: Reading[F], connection: apsw.Connection) -> F:
        script = read()
        try:
            name, params = next(script)
            while True:
                self._before(name)
                name, params = script.send(self._rows(connection, name, params))
        except StopIteration as stop:
            found: F = stop.value
            return found

    def _apply_all(self, writes: list[Write], connection: apsw.Connection) -> None:
        for name, rows, must in writes:
            if self.probe is not None:
                self.probe(name)
            before = connection.total_changes() if must else 0
            self._apply(connection, name, rows)
            if must and connection.total_changes() - before != len(rows):
                raise GuardMissed(name)

    def _apply(self, connection: apsw.Connection, name: str, rows: Sequence[Row]) -> None:
        try:
            if len(rows) == 1:
                connection.execute(self._sql[name], rows[0])
            elif self._sql.takes_many(name):
                for start in range(0, len(rows), _ROWS_PER_INSERT):
                    chunk = rows[start : start + _ROWS_PER_INSERT]
                    connection.execute(self._sql.many(name, len(chunk)), [value for row in chunk for value in row])
            else:
                connection.executemany(self._sql[name], rows)
        except _UNSTORABLE as error:
            raise unstorable(error, self.path) from error

    def _rows(self, connection: apsw.Connection, name: str, params: Sequence[object]) -> list[Row]:
        try:
            return list(connection.execute(self._sql[name], params))
        except _UNSTORABLE as error:
            raise unstorable(error, self.path) from error

    def _before(self, name: str) -> None:
        if self.probe is not None:
            self.probe(name)

    async def _watch_file(self, connection: apsw.Connection, seen: Any) -> None:
        """Wake readers when another connection has changed the file; ends when nobody watches."""
        try:
            while self._wakeups:
                await asyncio.sleep(_POLL_SECONDS)
                try:
                    version = connection.pragma("data_version")
                except apsw.BusyError:
                    continue
                if version != seen:
                    seen = version
                    self._wakeups.wake_all()
        except apsw.Error:
            # Whoever watches reads for itself, and hears what is wrong; a new watcher tries again.
            self._wakeups.wake_all()
        finally:
            with suppress(apsw.Error):
                connection.close()


class SqliteView:
    """A read transaction on a connection of its own."""

    def __init__(self, backend: SqliteBackend, connection: apsw.Connection) -> None:
        self._backend = backend
        self._connection = connection

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `View.read`."""
        self._backend._home.check()
        work = self._backend._threads.run(partial(self._read, name, params))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread still uses the connection: nobody else may have it before it is done.
            while not work.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({work})
            if not work.cancelled():
                work.exception()
            raise

    def end(self) -> bool:
        """End the look; tell whether the connection is of use for another. What was read stands in any case."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except apsw.Error:
            return False
        return True

    def _read(self, name: str, params: Row) -> list[Row]:
        try:
            self._backend._before(name)
            # A reader waits only while another process recovers the WAL or switches a new file to it.
            return patiently(partial(self._fetch, name, params), self._backend.lock_timeout)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _shown(error, self._backend.path) from error

    def _fetch(self, name: str, params: Row) -> list[Row]:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")
        return self._backend._rows(self._connection, name, params)


class Statements(dict[str, str]):
    """The named statements, and the forms of an insert that takes several rows at once."""

    def __init__(self) -> None:
        super().__init__(queries("sqlite"))
        self._many: dict[tuple[str, int], str] = {}

    def __missing__(self, name: str) -> str:
        if not name.startswith("dump_"):
            raise KeyError(name)
        self[name] = f"SELECT * FROM {name.removeprefix('dump_')}"
        return self[name]

    def takes_many(self, name: str) -> bool:
        """Tell whether a statement is an insert whose values may be repeated."""
        text = self[name]
        return text.startswith("INSERT") and text.endswith("?)")

    def many(self, name: str, rows: int) -> str:
        """Return an insert for several rows."""
        text = self._many.get((name, rows))
        if text is None:
            base = self[name]
            values = base[base.rindex("(") :]
            text = self._many[name, rows] = base + f",{values}" * (rows - 1)
        return text


def _open_writer(
    path: str, clock: LeaseClock, migrating: bool, synchronous: str, timeout: float, vfs: str | None
) -> tuple[apsw.Connection, DatabaseFile]:
    DatabaseFile(path, vfs)  # refused before anything is opened
    connection = connect(path, lease_now=clock.now, synchronous=synchronous, vfs=vfs)
    try:
        file = DatabaseFile(path, vfs)
        if migrating:
            migrate(connection, path, timeout)
        else:
            with translated(path):
                found = check_version(connection, path)
            if found < len(migrations("sqlite")):
                raise SchemaMismatch(
                    f"{path} has tables of version {found}, this code needs {len(migrations('sqlite'))}; migrate it.",
                    found=found,
                    expected=len(migrations("sqlite")),
                )
        with translated(path):
            patiently(partial(check_tables, connection, path), timeout)
            clock.anchor(connection, timeout)
    except BaseException as error:
        with suppress(apsw.Error):
            connection.close()
        if isinstance(error, GuardMissed):
            raise error.as_error() from error
        raise
    file.opened()
    return connection, file


def _shown(error: BaseException, path: str) -> BaseException:
    """Return our error for a driver's where no transaction is run that could look again."""
    ours = translate(error, path)
    return ours.as_error() if isinstance(ours, GuardMissed) else ours


def _word(synchronous: object) -> str:
    word = synchronous.upper() if isinstance(synchronous, str) else synchronous
    if word not in _SYNCHRONOUS:
        raise InvalidInput(f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, got {synchronous!r}.")
    return str(word)


def _check_vfs(vfs: object) -> None:
    if vfs is not None and vfs not in apsw.vfs_names():
        raise InvalidInput(f"vfs must be one that is registered with SQLite ({', '.join(apsw.vfs_names())}).")
