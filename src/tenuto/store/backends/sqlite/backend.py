"""The SQLite backend: one file, one writer thread, readers beside it, several processes at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.home import Home
from tenuto.store.backends.signals import GuardMissed
from tenuto.store.backends.sqlite.database import Database, Settings, checked, open_database, open_memory
from tenuto.store.backends.sqlite.execution import Execution
from tenuto.store.backends.sqlite.faults import shown, translated
from tenuto.store.backends.sqlite.view import SqliteView
from tenuto.store.backends.sqlite.writer import Writer
from tenuto.store.backends.threads import Threads, in_thread
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.backends.warm_rows import RowMemory
from tenuto.store.rules.plan import Plan, Row

F = TypeVar("F")
T = TypeVar("T")

_READERS = 4
_POLL_SECONDS = 0.02
_TRIES = 3
_CLOSE_SECONDS = 30.0


class SqliteBackend:
    """Keeps rows in one SQLite file."""

    name = "sqlite"

    def __init__(self, database: Database) -> None:
        self.path = database.settings.path
        self.lock_timeout = database.settings.lock_timeout
        self._home = Home(self)
        self._database = database
        self._file = database.file
        self._execution = Execution(self.path)
        self._writer = Writer(database.writer, self.path, self.lock_timeout, database.file)
        self._readers: list[apsw.Connection] = []
        self._glancing: apsw.Connection | None = None
        self._reading = asyncio.Semaphore(_READERS)
        self._threads = Threads(_READERS, f"tenuto-reader {self.path}")
        self._wakeups = Wakeups()
        self._memory = RowMemory()
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: str, **options: Any) -> "SqliteBackend":
        """Open a file; the options are those of `Settings`."""
        settings = checked(Settings(path, **options))
        return cls(await in_thread(partial(open_database, settings)))

    @property
    def probe(self) -> Callable[[str], None] | None:
        """A test's function that is called with the name of each statement before it is executed."""
        return self._execution.probe

    @probe.setter
    def probe(self, probe: Callable[[str], None] | None) -> None:
        self._execution.probe = probe

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
                    await self._writer.submit(partial(self._execution.apply, plan.writes), size)
                    self._memory.keep(warm.key, plan)
                    return plan.result
                except GuardMissed:
                    pass  # the memory was stale: look
        last = GuardMissed("")
        for _ in range(_TRIES):
            try:
                found: Plan[T] = await self._writer.submit(partial(self._execution.transact, read, decide), size)
                self._memory.note(found, warm)
                return found.result
            except GuardMissed as missed:
                last = missed
        raise last.as_error() from last

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        self._home.check()

        def work(connection: apsw.Connection) -> list[Row]:
            self._execution.begins(name)
            return self._execution.rows(connection, name, params)

        try:
            rows: list[Row] = await self._writer.submit(work)
        except GuardMissed as missed:
            raise missed.as_error() from missed
        return rows

    async def glance(self, name: str, *params: object) -> list[Row]:
        """See `Backend.glance`.

        A row by its key is read here and now: that is quicker than handing it to a thread, and a reader never waits for
        a writer. Where it would wait all the same, a thread does. The path is not checked: a row that is glanced at is
        confirmed by the commit, or the longer read, that follows on it, and those check it.
        """
        self._home.check()
        self._execution.begins(name)
        try:
            if self._glancing is None:
                self._glancing = self._database.open_reader()
            return self._execution.rows(self._glancing, name, params)
        except apsw.BusyError:
            async with self.view() as view:
                return await view.read(name, *params)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise shown(error, self.path) from error

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
            connection = self._readers.pop() if self._readers else self._database.open_reader()
            view = SqliteView(self._home, self._database.settings, self._execution, self._threads, connection)
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
                # The version from before the watcher's first read: whatever changes after it is noticed.
                connection = self._database.open_reader()
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
        settings = self._database.settings
        if settings.memory is not None:
            settings.memory.hold()
            return SqliteBackend(await in_thread(partial(open_memory, settings.memory)))
        return SqliteBackend(await in_thread(partial(open_database, settings._replace(migrate=False))))

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
        self._database.close()

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
            # Whoever watches reads for itself, and gets the error; a new watcher tries again.
            self._wakeups.wake_all()
        finally:
            with suppress(apsw.Error):
                connection.close()
