"""Waking readers in other processes: one coalesced NOTIFY after commits, polling as the truth."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tenuto.codec import encode, loads
from tenuto.errors import StoredDataCorrupt
from tenuto.model.session import Kind, SessionKey
from tenuto.store.backends.postgres.faults import translated
from tenuto.store.backends.postgres.pool import Pool
from tenuto.store.backends.wakeups import Wakeups

_COALESCE_SECONDS = 0.02
_UNHEARD_SECONDS = 0.1
_POLL_SECONDS = 1.0
_POLLS_PER_CHECK = 15
_ANSWER_SECONDS = 10.0
_LAST_WORD_SECONDS = 2.0
_PAYLOAD_BYTES = 7000
_EVERYONE = "*"

_LOG = logging.getLogger("tenuto.store")

_LISTENING = "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))"
_NOTIFY = "SELECT pg_notify($1, $2) WHERE NOT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
"""Notifies, and returns a row for it, unless nobody listens."""


class Notices:
    """Notifies other processes of streams that grew, and receives their notices.

    A NOTIFY inside a commit would make commits queue for one lock, so it is sent by itself, for everything of the
    last 20 ms. Who listens shares a lock that says so: while nobody does, nothing is sent, and it is looked for a
    listener five times less often.
    """

    def __init__(self, schema: str, pool: Pool) -> None:
        self._channel = f"tenuto_{schema}"
        self._pool = pool
        self._wakeups = Wakeups()
        self._grown: set[SessionKey] = set()
        self._is_heard = False
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._has_warned = False

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
        """Send what is due, stop listening, and wake all readers, so that they see that the store is closed."""
        self._wakeups.wake_all()
        tasks = {task for task in (self._sender, self._listener) if task and not task.done()}
        if self._listener:
            self._listener.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_LAST_WORD_SECONDS)
            for task in late:
                task.cancel()

    async def _send(self) -> None:
        await asyncio.sleep(_COALESCE_SECONDS if self._is_heard else _UNHEARD_SECONDS)
        grown, self._grown = self._grown, set()
        payload = encode(sorted([key.tenant, key.kind, key.session_id] for key in grown))
        if len(payload.encode()) > _PAYLOAD_BYTES:
            payload = _EVERYONE
        with suppress(Exception):
            # A lost notice costs its readers one poll interval, nothing more.
            self._is_heard = bool(await self._pool.fetch(_NOTIFY, self._channel, payload))

    async def _listen(self) -> None:
        """Receive notices while anyone watches; whatever fails the connection, open another, with growing pauses.

        Beside that, poll.
        """
        connection: Any = None
        pause, rest = 1, 0
        try:
            while self._wakeups:
                try:
                    if rest <= 0 or (connection is not None and connection.is_closed()):
                        connection = await self._listening(connection)
                        pause, rest = 1, _POLLS_PER_CHECK
                except Exception as error:
                    _let_go(connection)
                    connection, rest = None, pause
                    pause = min(2 * pause, _POLLS_PER_CHECK)
                    if not self._has_warned:
                        self._has_warned = True
                        _LOG.warning("Changes by other processes are noticed once a second only: %s", error)
                await asyncio.sleep(_POLL_SECONDS)
                rest -= 1
                self._wakeups.wake_all()
        finally:
            _let_go(connection)

    async def _listening(self, connection: Any) -> Any:
        """Return a connection that listens: this one if it answers, since a line that went silent does not say so."""
        if connection is None or connection.is_closed():
            return await self._ear()
        async with asyncio.timeout(_ANSWER_SECONDS):
            await connection.execute("SELECT 1")
        return connection

    async def _ear(self) -> Any:
        """Return a connection that listens."""
        with translated():
            connection = await self._pool.connect()
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await connection.add_listener(self._channel, self._heard)
                    await connection.execute(_LISTENING, self._channel)
            except BaseException:
                _let_go(connection)
                raise
        return connection

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == _EVERYONE:
            self._wakeups.wake_all()
            return
        with suppress(StoredDataCorrupt, ValueError):
            for tenant, kind, session_id in loads(payload, "notice"):
                self._wakeups.wake(SessionKey(session_id, tenant=tenant, kind=Kind(kind)))


def _let_go(connection: Any) -> None:
    """End a connection, if there is one; a driver that has lost count of its own state cannot even do that."""
    if connection is not None:
        with suppress(Exception):
            connection.terminate()
