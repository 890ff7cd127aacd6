"""A pool of connections that costs nothing to pass through, and in which nobody waits without end.

The driver's own pool makes a task for every release, which on a one-round-trip commit is a good part of the whole. Its
timeouts make a timer for every statement, and do not cover all it waits for. Here one timer finds whoever got no
answer for too long, and cuts the connection.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from time import monotonic
from typing import Any

import asyncpg

from tenuto.errors import InvalidInput, StoreContended, StoreUnavailable, StoreUnusable
from tenuto.store.backends.address import scrubbed
from tenuto.store.backends.postgres.faults import leaves_idle, translate

_HEAL_SECONDS = 1.0
"""How long a connection whose call was cancelled may take to be of use again; making a new one takes about as long."""

_GOODBYE_SECONDS = 1.0
_LOOKS_PER_SILENCE = 8

_AT_ONCE = nullcontext()
"""A connection is free: nothing is waited for, and a limit would only cost."""

_KEEPALIVE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class Pool:
    """At most `size` connections, made when they are needed and kept until the end.

    A connection that has not answered a statement within `silence` seconds is cut, and with it every idle one, which
    went the same way. `connect_within` is for making one, and `silence` also for waiting for one to be free.
    """

    def __init__(self, url: str, size: int, options: dict[str, Any], *, silence: float, connect_within: float) -> None:
        self.silence = silence
        self._url = url
        self._size = size
        self._options = options
        self._connect_within = connect_within
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._all: set[Any] = set()
        self._lent: set[Use] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._healing: set[asyncio.Task[None]] = set()

    def use(self) -> "Use":
        """Borrow a connection: `async with pool.use() as connection`."""
        return Use(self)

    async def fetch(self, query: str, *params: object) -> list[Any]:
        """Run one statement on some connection."""
        async with self.use() as connection:
            rows: list[Any] = await connection.fetch(query, *params)
            return rows

    async def connect(self) -> Any:
        """Make a connection that is not one of the pool's, with the same options."""
        try:
            async with asyncio.timeout(self._connect_within):
                connection = await asyncpg.connect(self._url, **self._options)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"PostgreSQL did not let us connect within {self._connect_within:g} s; repeat the call once it can be "
                "reached."
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            # A password in a malformed address may be part of the text.
            text = scrubbed(str(error), self._url, self._options)
            kind = StoreUnusable if isinstance(error, ValueError) else InvalidInput
            raise kind(f"The PostgreSQL address or an option is not usable: {text}.") from None
        _keep_alive(connection)
        return connection

    async def aclose(self, *, within: float = 10.0) -> None:
        """Wait for what is under way, then close everything; what does not end in time is cut."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for _ in range(self._size):
                    await self._free.acquire()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within, _GOODBYE_SECONDS)):
                await asyncio.gather(*(each.close() for each in self._idle), return_exceptions=True)
        for connection in list(self._all):
            connection.terminate()
        self.forget()
        if self._looking is not None:
            self._looking.cancel()

    def forget(self) -> None:
        """Release connections whose event loop is closed, which cannot be ended properly."""
        self._all.clear()
        self._idle.clear()

    async def take(self) -> Any:
        """Return a connection that is nobody else's."""
        await self._room()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._all.discard(connection)
            connection = await self.connect()
        except BaseException:
            self._free.release()
            raise
        self._all.add(connection)
        return connection

    def lend(self, use: "Use") -> None:
        """Watch over a connection in use."""
        self._lent.add(use)
        if self._looking is None:
            self._look_later()

    def give(self, use: "Use", connection: Any, error: BaseException | None) -> None:
        """Take a connection back; one that may be in the middle of something is brought to its end, or cut."""
        self._lent.discard(use)
        if leaves_idle(error) and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append(connection)
            self._free.release()
        elif isinstance(error, asyncio.CancelledError) and not connection.is_closed():
            task = asyncio.get_running_loop().create_task(self._heal(connection))
            self._healing.add(task)
            task.add_done_callback(self._healing.discard)
        else:
            self._cut(connection)
            self._free.release()

    async def _room(self) -> None:
        """Wait until one of the connections is free, but not without end."""
        try:
            async with asyncio.timeout(self.silence) if self._free.locked() else _AT_ONCE:
                await self._free.acquire()
        except TimeoutError as error:
            raise StoreContended(
                f"All {self._size} connections to PostgreSQL were in use for {self.silence:g} s; repeat the call, or "
                "open the store with a larger pool_size."
            ) from error

    async def _heal(self, connection: Any) -> None:
        """End what a cancelled call left under way, so that the connection can be used again."""
        try:
            async with asyncio.timeout(_HEAL_SECONDS):
                await connection.execute("ROLLBACK")
            self._idle.append(connection)
        except Exception:
            self._cut(connection)
        except BaseException:
            self._cut(connection)
            raise
        finally:
            self._free.release()

    def _cut(self, connection: Any) -> None:
        self._all.discard(connection)
        connection.terminate()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(self.silence / _LOOKS_PER_SILENCE, self._look) if self._lent else None

    def _look(self) -> None:
        now = monotonic()
        silent = [use for use in self._lent if now - use.asked > self.silence and use.is_silent()]
        for use in silent:
            self._cut(use.cut())
        if silent:
            while self._idle:
                self._cut(self._idle.pop())
        self._look_later()


class Use:
    """One borrowing of a connection."""

    __slots__ = ("_connection", "_is_cut", "_pool", "_suspected", "asked")

    def __init__(self, pool: Pool) -> None:
        self.asked = 0.0
        self._pool = pool
        self._connection: Any = None
        self._suspected = 0.0
        self._is_cut = False

    async def __aenter__(self) -> "Use":
        self._connection = await self._pool.take()
        self.asked = monotonic()
        self._pool.lend(self)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._pool.give(self, self._connection, error)
        if self._is_cut and error is not None and not isinstance(error, asyncio.CancelledError):
            raise StoreUnavailable(
                f"PostgreSQL did not answer within {self._pool.silence:g} s, so its connection was cut; repeat "
                "the call, which makes a new one."
            ) from error

    def fetch(self, query: str, *params: object) -> Any:
        """Run a statement; await its rows."""
        self.asked = monotonic()
        return self._connection.fetch(query, *params)

    def execute(self, query: str, *params: object) -> Any:
        """Run a statement that returns nothing, or a script of them."""
        self.asked = monotonic()
        return self._connection.execute(query, *params)

    @asynccontextmanager
    async def transaction(self, how: str = "") -> AsyncIterator[None]:
        """Make one transaction of what is done within; a connection that is stuck is left for the pool to cut."""
        await self.execute(f"BEGIN {how}")
        try:
            yield
        except Exception as error:
            if leaves_idle(error) or translate(error) is error:
                await self.execute("ROLLBACK")
            raise
        await self.execute("COMMIT")

    def is_silent(self) -> bool:
        """Return whether the last look found the same: a loop that was held up has to read its answers first."""
        suspected, self._suspected = self._suspected, self.asked
        return suspected == self.asked

    def cut(self) -> Any:
        """Return the connection to be cut; whoever waits for its answer gets an error."""
        self._is_cut = True
        return self._connection


def _keep_alive(connection: Any) -> None:
    """Have the kernel find out, within 35 s, that the other side is gone."""
    transport = getattr(connection, "_transport", None)
    line = transport.get_extra_info("socket") if transport is not None else None
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
