"""The PostgreSQL backend: many workers, one database, a commit in one round trip where it can be.

A transaction reads without locking, decides, and applies its plan as one guarded statement; a guard that misses means
another look. After a few misses, and for collections, it locks first. A session's own last commit is remembered, so
that the next one under the same lane needs no read at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from tenuto.errors import SchemaMismatch, StoreClosed, StoreContended, Unsupported
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, Reading, Warm
from tenuto.store.backends.missed import Missed
from tenuto.store.backends.postgres.connection import check_schema, make_pool, migrate, translated, version_of
from tenuto.store.backends.postgres.notices import Notices
from tenuto.store.backends.postgres.statements import compose, statement
from tenuto.store.backends.sql import migrations
from tenuto.store.backends.warm import WarmMemory
from tenuto.store.rules.found import Plan, Row, Script, Write

F = TypeVar("F")
T = TypeVar("T")

_OPTIMISTIC_TRIES = 3
_TRIES = 20


class PostgresBackend:
    """Keeps rows in one schema of a PostgreSQL database."""

    name = "postgres"

    def __init__(self, url: str, schema: str, pool: "asyncpg.Pool[Any]") -> None:
        self.schema = schema
        self.probe: Callable[[str], None] | None = None
        self._pool = pool
        self._notices = Notices(url, schema, pool)
        self._memory = WarmMemory()
        self._closed = False

    @classmethod
    async def open(
        cls, url: str, *, migrate: bool = True, schema: str = "tenuto", pool_size: int = 16, **options: Any
    ) -> "PostgresBackend":
        """Connect; with `migrate=False` tables that are not up to date are refused instead of brought up to date."""
        pool = await make_pool(url, check_schema(schema), pool_size, options)
        try:
            await _prepare(pool, schema, migrate)
        except BaseException:
            pool.terminate()
            raise
        return cls(url, schema, pool)

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
        self._check_open()
        if warm:
            plan = self._memory.plan(warm, decide)
            if plan is not None:
                with suppress(Missed):
                    await self._apply_alone(plan.writes)
                    self._memory.keep(warm.key, plan)
                    return plan.result
        for attempt in range(_TRIES):
            try:
                plan = await self._attempt(read, decide, lock, locking=lock.at_once or attempt >= _OPTIMISTIC_TRIES)
            except Missed:
                continue
            if warm:
                self._memory.keep(warm.key, plan)
            return plan.result
        raise StoreContended("Others kept changing the session; repeat unchanged.")

    async def write(self, name: str, *params: object) -> list[Row]:
        """See `Backend.write`."""
        self._check_open()
        self._before(name)
        with translated():
            return [tuple(row) for row in await self._pool.fetch(statement(name), *params)]

    @asynccontextmanager
    async def view(self) -> AsyncIterator["PostgresView"]:
        """See `Backend.view`."""
        self._check_open()
        with translated():
            connection = await self._pool.acquire()
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    yield PostgresView(self, connection)
            finally:
                await self._pool.release(connection)

    def watch(self, key: SessionKey) -> Any:
        """See `Backend.watch`."""
        return self._notices.watch(key)

    def announce(self, key: SessionKey) -> None:
        """See `Backend.announce`."""
        self._notices.announce(key)

    async def vacuum(self, pages: int) -> tuple[int, int]:  # noqa: ARG002
        """See `Backend.vacuum`."""
        raise Unsupported("PostgreSQL vacuums its tables by itself.")

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        if self._closed:
            return
        self._closed = True
        await self._notices.aclose()
        try:
            await asyncio.wait_for(self._pool.close(), timeout=10)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _attempt(self, read: Reading[F], decide: Callable[[F], Plan[T]], lock: Lock, *, locking: bool) -> Plan[T]:
        with translated():
            async with self._pool.acquire() as connection:
                if not locking:
                    plan = decide(await self._gather(connection, read()))
                    await self._apply(connection, plan.writes)
                    return plan
                async with connection.transaction():
                    await connection.fetch(statement(lock.name), *lock.params)
                    plan = decide(await self._gather(connection, read()))
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

    async def _apply_alone(self, writes: list[Write]) -> None:
        with translated():
            async with self._pool.acquire() as connection:
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

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("The store is closed; open it again.")


class PostgresView:
    """A read-only transaction that sees one instant."""

    def __init__(self, backend: PostgresBackend, connection: Any) -> None:
        self._backend = backend
        self._connection = connection

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `View.read`."""
        self._backend._before(name)
        with translated():
            return [tuple(row) for row in await self._connection.fetch(statement(name), *params)]


async def _prepare(pool: "asyncpg.Pool[Any]", schema: str, migrating: bool) -> None:
    if migrating:
        await migrate(pool, schema)
        return
    async with pool.acquire() as connection:
        found = await version_of(connection)
    expected = len(migrations("postgres"))
    if found < expected:
        raise SchemaMismatch(
            f"The schema {schema!r} has tables of version {found}, this code needs {expected}; migrate it first.",
            found=found,
            expected=expected,
        )
