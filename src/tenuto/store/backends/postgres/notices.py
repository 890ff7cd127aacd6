"""Waking readers in other processes: one coalesced NOTIFY after commits, polling as the truth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from tenuto.codec import encode, loads
from tenuto.errors import StoredDataCorrupt
from tenuto.model.session import Kind, SessionKey
from tenuto.store.backends.postgres.pool import Pool
from tenuto.store.backends.wakeups import Wakeups

_COALESCE_SECONDS = 0.02
_UNHEARD_SECONDS = 0.1
_POLL_SECONDS = 1.0
_PAYLOAD_BYTES = 7000
_EVERYONE = "*"

_LISTENING = "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))"
_NOTIFY = "SELECT pg_notify($1, $2) WHERE NOT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
"""Says something, and that it did, unless nobody is there to hear it."""


class Notices:
    """Tells other processes which streams grew, and hears of it.

    A NOTIFY inside a commit would make commits queue for one lock, so it is sent by itself, for everything of the
    last 20 ms. Who listens shares a lock that says so: while nobody does, nothing is sent, and it is looked for a
    listener five times less often.
    """

    def __init__(self, url: str, schema: str, pool: Pool) -> None:
        self._url = url
        self._channel = f"tenuto_{schema}"
        self._pool = pool
        self._wakeups = Wakeups()
        self._grown: set[SessionKey] = set()
        self._is_heard = False
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def announce(self, key: SessionKey) -> None:
        """Wake this process's readers now, the others' soon."""
        self._wakeups.wake(key)
        self._grown.add(key)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send())

    @asynccontextmanager
    async def watch(self, key: SessionKey) -> AsyncIterator[AsyncIterator[None]]:
        """Yield whenever the stream may have grown."""
        async with self._wakeups.watch(key) as changes:
            if self._listener is None or self._listener.done():
                self._listener = asyncio.create_task(self._listen())
            yield changes

    async def aclose(self) -> None:
        """Send what is due, stop listening, and let those who wait see that the store is closed."""
        self._wakeups.wake_all()
        if self._sender and not self._sender.done():
            with suppress(Exception):
                await self._sender
        if self._listener:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener

    async def _send(self) -> None:
        await asyncio.sleep(_COALESCE_SECONDS if self._is_heard else _UNHEARD_SECONDS)
        grown, self._grown = self._grown, set()
        payload = encode(sorted([key.tenant, key.kind, key.session_id] for key in grown))
        if len(payload.encode()) > _PAYLOAD_BYTES:
            payload = _EVERYONE
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            # A lost notice costs its readers one poll interval, nothing more.
            self._is_heard = bool(await self._pool.fetch(_NOTIFY, self._channel, payload))

    async def _listen(self) -> None:
        """Hear notices while anyone watches; reconnect when the connection is lost, and poll meanwhile."""
        connection: Any = None
        try:
            while self._wakeups:
                if connection is None or connection.is_closed():
                    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                        connection = await asyncpg.connect(self._url)
                        await connection.add_listener(self._channel, self._heard)
                        await connection.execute(_LISTENING, self._channel)
                await asyncio.sleep(_POLL_SECONDS)
                self._wakeups.wake_all()
        finally:
            if connection is not None:
                connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == _EVERYONE:
            self._wakeups.wake_all()
            return
        with suppress(StoredDataCorrupt, ValueError):
            for tenant, kind, session_id in loads(payload, "notice"):
                self._wakeups.wake(SessionKey(session_id, tenant=tenant, kind=Kind(kind)))
