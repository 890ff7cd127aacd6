"""A whole backend in one small file: one SQLite file, one thread, every call done before it returns.

It stands on nothing but what docs/backends.md describes, and passes the contract. It is an example of the protocol, not
of speed: nothing is remembered between commits, and a look at one instant opens a connection.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TypeVar

import apsw

from tenuto.errors import InvalidInput, StoreContended, StoredDataCorrupt, StoreFull, StoreUnusable, Unsupported
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.home import Home
from tenuto.store.backends.signals import GuardMissed
from tenuto.store.backends.sql import migrations, queries
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.rules.plan import Plan, Row

F = TypeVar("F")
T = TypeVar("T")

_UNIQUE = (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID)
_BUSY_MILLISECONDS = 10_000


def _lease_now(*_: object) -> int:
    return time.time_ns() // 1000


class Database:
    """One file, and who watches its sessions; all backends on it share this."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.wakeups = Wakeups()

    def connect(self) -> apsw.Connection:
        """Open the file, with its tables made."""
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(_BUSY_MILLISECONDS)
        connection.create_scalar_function("lease_now", _lease_now, 0)
        connection.pragma("journal_mode", "wal")
        steps = migrations("sqlite")
        if connection.pragma("user_version") < len(steps):
            connection.execute("BEGIN IMMEDIATE")
            for step in steps[connection.pragma("user_version") :]:
                connection.execute(step.sql)
            connection.pragma("user_version", len(steps))
            connection.execute("COMMIT")
        return connection


class SmallBackend:
    """Keeps rows in one SQLite file, as `tenuto.store.backend.Backend` asks."""

    name = "small"

    def __init__(self, database: Database) -> None:
        self.probe: Callable[[str], None] | None = None
        self._home = Home(self)
        self._database = database
        self._connection = database.connect()

    async def transact(
        self, read: Reading[F], decide: Callable[[F], Plan[T]], lock: Lock, *, size: int = 0, warm: Warm | None = None
    ) -> T:
        """Hold the file's write lock from the first read to the last write, so that what was found still stands."""
        await asyncio.sleep(0)  # a caller that was cancelled stops here; nothing is awaited from here on
        self._home.check()
        with self._transaction() as connection:
            plan = decide(self._found(connection, read))
            for name, rows, must in plan.writes:
                self._probe(name)
                before = connection.total_changes()
                for row in rows:
                    connection.execute(queries("sqlite")[name], row)
                if must and connection.total_changes() - before != len(rows):
                    raise GuardMissed(name)
        return plan.result

    async def write(self, name: str, *params: object) -> list[Row]:
        """Run one statement in its own transaction."""
        await asyncio.sleep(0)
        self._home.check()
        with self._transaction() as connection:
            return self._rows(connection, name, params)

    async def read(self, name: str, *params: object) -> list[Row]:
        """Run one statement, which sees one instant by itself."""
        await asyncio.sleep(0)
        self._home.check()
        with _translated():
            return self._rows(self._connection, name, params)

    glance = read

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator["SmallView"]:
        """Read in one transaction, on a connection that nobody else uses."""
        self._home.check()
        connection = self._database.connect()
        try:
            connection.execute("BEGIN")
            yield SmallView(self, connection)
        finally:
            connection.close()

    def watch(self, key: SessionKey) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Wait for `announce`."""
        self._home.check()
        return self._database.wakeups.watch(key)

    def announce(self, key: SessionKey) -> None:
        """Wake those who watch the session, through whichever backend."""
        self._database.wakeups.wake(key)

    def check_use(self) -> None:
        """Refuse use once closed, and outside the event loop that this was made in."""
        self._home.check()

    async def sibling(self) -> "SmallBackend":
        """Return another backend on the file, for the event loop that asks."""
        return SmallBackend(self._database)

    async def vacuum(self, pages: int) -> tuple[int, int]:
        """Refuse: this backend lacks `Capability.VACUUM`."""
        raise Unsupported("This backend keeps its free pages.")

    async def aclose(self) -> None:
        """Close the connection, and wake whoever watches to learn of it."""
        if self._home.close():
            self._connection.close()
            self._database.wakeups.wake_all()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        connection = self._connection
        try:
            with _translated():
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except GuardMissed as missed:
            raise missed.as_error() from missed  # another look would find the same: nobody else could write meanwhile
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _found(self, connection: apsw.Connection, read: Reading[F]) -> F:
        script, rows = read(), None
        try:
            while True:
                name, params = next(script) if rows is None else script.send(rows)
                rows = self._rows(connection, name, params)
        except StopIteration as stop:
            found: F = stop.value
            return found

    def _rows(self, connection: apsw.Connection, name: str, params: Row) -> list[Row]:
        self._probe(name)
        table = name.removeprefix("dump_")
        return list(connection.execute(queries("sqlite")[name] if table == name else f"SELECT * FROM {table}", params))

    def _probe(self, name: str) -> None:
        if self.probe is not None:
            self.probe(name)


class SmallView:
    """A look at one instant."""

    def __init__(self, backend: SmallBackend, connection: apsw.Connection) -> None:
        self._backend = backend
        self._connection = connection

    async def read(self, name: str, *params: object) -> list[Row]:
        """Run one statement of the look."""
        await asyncio.sleep(0)
        self._backend.check_use()
        with _translated():
            return self._backend._rows(self._connection, name, params)


@contextmanager
def _translated() -> Iterator[None]:
    """Let no error of the driver through."""
    try:
        yield
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) in _UNIQUE:
            raise GuardMissed(str(error), taken=str(error).rpartition(": ")[2]) from error
        raise StoreUnusable(f"The tables refuse this; remove what is not ours. ({error})") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreContended(f"Others kept the file busy for too long; repeat. ({error})") from error
    except apsw.FullError as error:
        raise StoreFull(f"The disk is full; make room and repeat. ({error})") from error
    except UnicodeDecodeError as error:
        raise StoredDataCorrupt(f"Stored text is not UTF-8; restore the file. ({error})") from error
    except apsw.Error as error:
        raise StoreUnusable(f"The file cannot be used; check it. ({error})") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"A value given cannot be stored: {error}.") from error
