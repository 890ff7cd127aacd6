"""The PostgreSQL backend: many workers, one database, a commit in one round trip where it can be.

A transaction reads without locking, decides, and applies its plan as one guarded statement; after a guard that
misses, it reads again. After a few misses, and for collections, it locks first. A session's own last commit is
remembered, so that the next one under the same lane needs no read at all.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from tenuto.errors import TenutoError, Unsupported
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, View, Warm
from tenuto.store.backends.address import yes_or_no
from tenuto.store.backends.home import Home
from tenuto.store.backends.postgres.connection import (
    DEFAULT_SCHEMA,
    check_schema,
    check_tables,
    make_pool,
    migrate,
    version_of,
)
from tenuto.store.backends.postgres.faults import translated
from tenuto.store.backends.postgres.notify import Notices
from tenuto.store.backends.postgres.pool import Pool
from tenuto.store.backends.postgres.statements import compose, statement
from tenuto.store.backends.signals import GuardMissed, Refused
from tenuto.store.backends.sql import check_version
from tenuto.store.backends.warm_rows import RowMemory
from tenuto.store.rules.plan import Plan, Row, Script, Write

F = TypeVar("F")
T = TypeVar("T")

_OPTIMISTIC_TRIES = 3
_TRIES = 20
_AT_ONE_INSTANT = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresBackend:
    """Keeps rows in one schema of a PostgreSQL database."""

    name = "postgres"

    def __init__(self, url: str, schema: str, pool: Pool, options: dict[str, Any]) -> None:
        self.schema = schema
        self._url = url
        self._options = options
        self.probe: Callable[[str], None] | None = None
        self._pool = pool
        self._home = Home(self)
        self._notices = Notices(schema, pool)
        self._memory = RowMemory()

    @classmethod
    async def open(
        cls, url: str, *, migrate: bool = True, schema: str = DEFAULT_SCHEMA, pool_size: int = 16, **options: Any
    ) -> "PostgresBackend":
        """Connect; with `migrate=False` tables that are not up to date are refused instead of brought up to date."""
        yes_or_no(migrate, "migrate")
        pool = make_pool(url, check_schema(schema), pool_size, options)
        try:
            await _prepare(pool, schema, migrate)
        except BaseException:
            await pool.aclose(within=0)
            raise
        return cls(url, schema, pool, options)

    async def transact(
        self,
        read: Reading[F],
        decide: Callable[[F], Plan[T]],
        lock: Lock,
        *,
        size: int = 0,  # noqa: ARG002
        warm: Warm | None = None,
    ) -> T:
        """See `Backend.transact`."""
        self._home.check()
        if warm:
            plan = self._memory.plan(warm, decide)
            if plan is not None:
                with suppress(GuardMissed):
                    await self._apply_alone(plan.writes)
                    self._memory.keep(warm.key, plan)
                    return plan.result
        locking = lock.at_once
        last = GuardMissed("")
        for attempt in range(_TRIES):
            try:
                plan = await self._attempt(read, decide, lock, locking=locking)
            except GuardMissed as missed:
                if locking and missed.taken and missed.taken == last.taken:
                    raise missed.as_error() from missed  # looked for with the lock held: it is another's
                last = missed if locking else last
                locking = locking or attempt + 1 >= _OPTIMISTIC_TRIES
            except Refused as refusal:
                # Without the lock the reads were of several instants, and a commit may have landed between them.
                if locking:
                    raise refusal.error from None
                locking = True
            else:
                self._memory.note(plan, warm)
                return plan.result
        raise last.as_error()

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `Backend.read`; a statement alone is a transaction, so `glance` and `write` are the same."""
        return await self._fetch(self._pool, name, params)

    glance = write = read

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator[View]:
        """See `Backend.view`."""
        self._home.check()
        if not at_one_instant:
            yield self
            return
        with translated():
            async with self._pool.use() as connection, connection.transaction(_AT_ONE_INSTANT):
                yield PostgresView(self, connection)

    def watch(self, key: SessionKey) -> Any:
        """See `Backend.watch`."""
        self._home.check()
        return self._notices.watch(key)

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`."""
        self._notices.announce(key)

    def check_use(self) -> None:
        """See `Backend.check_use`."""
        self._home.check()

    async def sibling(self) -> "PostgresBackend":
        """See `Backend.sibling`."""
        return await PostgresBackend.open(self._url, migrate=False, schema=self.schema, pool_size=1, **self._options)

    async def vacuum(self, pages: int) -> tuple[int, int]:  # noqa: ARG002
        """See `Backend.vacuum`."""
        raise Unsupported("PostgreSQL vacuums its tables by itself.")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        if not self._home.close():
            return
        if self._home.is_over:
            self._pool.forget()
            return
        await self._notices.aclose()
        await self._pool.aclose()

    async def _attempt(self, read: Reading[F], decide: Callable[[F], Plan[T]], lock: Lock, *, locking: bool) -> Plan[T]:
        with translated():
            async with self._pool.use() as connection:
                if not locking:
                    return await self._look_and_write(connection, read, decide)
                async with connection.transaction():
                    await connection.fetch(statement(lock.name), *lock.params)
                    return await self._look_and_write(connection, read, decide)

    async def _look_and_write(self, connection: Any, read: Reading[F], decide: Callable[[F], Plan[T]]) -> Plan[T]:
        found = await self._gather(connection, read())
        try:
            plan = decide(found)
        except TenutoError as error:
            raise Refused(error) from error
        await self._apply(connection, plan.writes)
        return plan

    async def _gather(self, connection: Any, script: Script[F]) -> F:
        try:
            name, params = next(script)
            while True:
                self._before(name)
                rows = await connection.fetch(statement(name), *params)
                name, params = script.send([tuple(row) for row in rows])
        except StopIteration as stop:
            found: F = stop.value
            return found

    async def _fetch(self, source: Any, name: str, params: tuple[object, ...]) -> list[Row]:
        self._home.check()
        self._before(name)
        try:
            with translated():
                return [tuple(row) for row in await source.fetch(statement(name), *params)]
        except GuardMissed as missed:
            raise missed.as_error() from missed

    async def _apply_alone(self, writes: list[Write]) -> None:
        with translated():
            async with self._pool.use() as connection:
                await self._apply(connection, writes)

    async def _apply(self, connection: Any, writes: list[Write]) -> None:
        if not writes:
            return
        for write in writes:
            self._before(write.name)
        text, parameters = compose(writes)
        await connection.fetch(text, *parameters)

    def _before(self, name: str) -> None:
        if self.probe is not None:
            self.probe(name)


class PostgresView:
    """A read-only transaction that sees one instant."""

    def __init__(self, backend: PostgresBackend, connection: Any) -> None:
        self._backend = backend
        self._connection = connection

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `View.read`."""
        return await self._backend._fetch(self._connection, name, params)


async def _prepare(pool: Pool, schema: str, migrating: bool) -> None:
    try:
        with translated():
            if migrating:
                await migrate(pool, schema)
            else:
                async with pool.use() as connection:
                    check_version(await version_of(connection), "postgres", f"The schema {schema!r}", ready=True)
            await check_tables(pool, schema)
    except GuardMissed as missed:
        raise missed.as_error() from missed
