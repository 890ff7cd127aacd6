"""A pool of connections that costs nothing to pass through.

The driver's own pool makes a task for every release, which on a one-round-trip commit is a good part of the whole.
"""

import asyncio
from typing import Any

import asyncpg

from tenuto.errors import StoreUnusable, TenutoError
from tenuto.store.backends.missed import Missed, Refused

_LOST = ("08", "57")
"""SQLSTATE classes after which a connection is no good: connection exceptions, and the server going away."""


class Pool:
    """At most `size` connections, made when they are needed and kept until the end."""

    def __init__(self, url: str, size: int, options: dict[str, Any]) -> None:
        self._url = url
        self._size = size
        self._options = options
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._all: set[Any] = set()

    def use(self) -> "Use":
        """Borrow a connection: `async with pool.use() as connection`."""
        return Use(self)

    async def fetch(self, query: str, *params: object) -> list[Any]:
        """Run one statement on some connection."""
        async with self.use() as connection:
            rows: list[Any] = await connection.fetch(query, *params)
            return rows

    async def aclose(self, *, within: float = 10.0) -> None:
        """Wait for what is under way, then close everything; what does not end in time is cut."""
        try:
            async with asyncio.timeout(within):
                for _ in range(self._size):
                    await self._free.acquire()
                for connection in list(self._idle):
                    await connection.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass
        for connection in list(self._all):
            connection.terminate()
        self._all.clear()
        self._idle.clear()

    async def take(self) -> Any:
        """Return a connection that is nobody else's."""
        await self._free.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._all.discard(connection)
            connection = await self._connect()
        except BaseException:
            self._free.release()
            raise
        self._all.add(connection)
        return connection

    def give(self, connection: Any, error: BaseException | None) -> None:
        """Take a connection back; one that may be in the middle of something is cut instead."""
        if _is_sound(connection, error):
            self._idle.append(connection)
        else:
            self._all.discard(connection)
            connection.terminate()
        self._free.release()

    async def _connect(self) -> Any:
        try:
            return await asyncpg.connect(self._url, **self._options)
        except ValueError as error:
            raise StoreUnusable(f"The PostgreSQL address is not usable: {error}.") from error


class Use:
    """One borrowing of a connection."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._pool.give(self._connection, error)


def _is_sound(connection: Any, error: BaseException | None) -> bool:
    if connection.is_closed() or connection.is_in_transaction():
        return False
    if isinstance(error, asyncpg.PostgresError):
        return not (error.sqlstate or "").startswith(_LOST)
    return error is None or isinstance(error, TenutoError | Missed | Refused)
