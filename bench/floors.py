"""The raw floors: what a turn costs with the bare driver, prepared statements, one transaction, one round trip.

They write what a turn has to leave behind (two entries, the session's row with head and document, a run, a receipt)
into tables with the keys and indexes that finding these rows again needs, guarded by the lane's generation, and
nothing else. Written once; not to be touched to make a bar hold.
"""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import apsw
import asyncpg

_TABLES = """
CREATE TABLE session (
    sid {integer} PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    generation {integer} NOT NULL,
    version {integer} NOT NULL,
    head TEXT NOT NULL,
    document TEXT NOT NULL,
    current_run TEXT,
    updated_at {integer} NOT NULL
);
CREATE TABLE entry (
    session {integer} NOT NULL,
    position {integer} NOT NULL,
    version {integer} NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, position)
);
CREATE TABLE run (
    run_id TEXT PRIMARY KEY,
    session {integer} NOT NULL,
    invocation_id TEXT NOT NULL UNIQUE,
    number {integer} NOT NULL,
    status TEXT NOT NULL,
    generation {integer} NOT NULL,
    started_at {integer} NOT NULL,
    ended_at {integer}
);
CREATE INDEX run_session ON run (session, number);
CREATE TABLE receipt (
    session {integer} NOT NULL,
    operation_id TEXT NOT NULL,
    version {integer} NOT NULL,
    ends TEXT NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY (session, operation_id)
){keyed};
INSERT INTO session VALUES (1, 'session-1', 1, 0, '0', '{{}}', NULL, 0);
"""

_SQLITE_MOVE = """
UPDATE session SET version = ?, head = ?, document = ?, current_run = ?, updated_at = ? WHERE sid = ? AND generation = ?
"""
_SQLITE_ENTRIES = "INSERT INTO entry VALUES (?,?,?,?),(?,?,?,?)"
_SQLITE_RUN = "INSERT INTO run VALUES (?,?,?,?,?,?,?,?)"
_SQLITE_RECEIPT = "INSERT INTO receipt VALUES (?,?,?,?,?)"

_POSTGRES_TURN = """
WITH moved AS (
    UPDATE session SET version = $3, head = $4, document = $5, current_run = $6, updated_at = $7
    WHERE sid = $1 AND generation = $2 RETURNING sid
), entries AS (
    INSERT INTO entry
    SELECT sid, position, $3, body FROM moved, (VALUES ($8::BIGINT, $9), ($10, $11)) new (position, body)
), run AS (
    INSERT INTO run SELECT $6, sid, $12, $13, 'completed', $2, $7, $7 FROM moved
), receipt AS (
    INSERT INTO receipt SELECT sid, $14, $3, $4, $7 FROM moved
)
SELECT count(*) FROM moved
"""


class SqliteFloor:
    """One session in one file, written through one connection on the caller's own thread."""

    def __init__(self, path: Path, *, synchronous: str) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", synchronous)
        self._connection.execute(_TABLES.format(integer="INTEGER", keyed=" WITHOUT ROWID"))
        self._version = 0
        self._position = 0

    def turn(self, messages: Sequence[dict[str, Any]], document: dict[str, Any]) -> None:
        """Write one turn of two messages."""
        execute = self._connection.execute
        first, second = (json.dumps(message) for message in messages)
        self._version = version = self._version + 1
        position = self._position
        self._position = position + 2
        head, now = str(position + 2), time.time_ns() // 1000
        run_id, operation_id = str(uuid4()), str(uuid4())
        execute("BEGIN IMMEDIATE")
        execute(_SQLITE_MOVE, (version, head, json.dumps(document), run_id, now, 1, 1))
        if self._connection.changes() != 1:
            raise RuntimeError("The floor's guard missed.")
        execute(_SQLITE_ENTRIES, (1, position, version, first, 1, position + 1, version, second))
        execute(_SQLITE_RUN, (run_id, 1, f"inv-{run_id}", version, "completed", 1, now, now))
        execute(_SQLITE_RECEIPT, (1, operation_id, version, head, now))
        execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class AwaitedSqliteFloor:
    """The same turn for an asyncio caller: one thread owns the connection, the leanest way there and back.

    A caller's event loop must not block while a disk syncs, so this is the floor of anything one can await.
    """

    def __init__(self, path: Path, *, synchronous: str) -> None:
        self._path = path
        self._synchronous = synchronous
        self._work: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def turn(self, messages: Sequence[dict[str, Any]], document: dict[str, Any]) -> None:
        """Write one turn of two messages and wait until it is written."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._work.put((messages, document, loop, future))
        await future

    def close(self) -> None:
        """Close the file."""
        self._work.put(None)
        self._thread.join()

    def _serve(self) -> None:
        floor = SqliteFloor(self._path, synchronous=self._synchronous)
        while (work := self._work.get()) is not None:
            messages, document, loop, future = work
            floor.turn(messages, document)
            loop.call_soon_threadsafe(future.set_result, None)
        floor.close()


def read_sqlite(path: Path) -> list[Any]:
    """Read all messages of a floor's file with a separate connection."""
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT body FROM entry WHERE session = ? ORDER BY position", (1,))
        return [json.loads(body) for (body,) in rows]
    finally:
        connection.close()


class PostgresFloor:
    """One session in its own schema, written through one connection by one prepared statement."""

    def __init__(self, connection: "asyncpg.Connection[Any]", statement: Any) -> None:
        self._connection = connection
        self._statement = statement
        self._version = 0
        self._position = 0

    @classmethod
    async def open(cls, url: str) -> "PostgresFloor":
        """Connect, make the tables and prepare the statement."""
        connection = await asyncpg.connect(url, server_settings={"search_path": "floor", "jit": "off"})
        await connection.execute("CREATE SCHEMA floor")
        await connection.execute(_TABLES.format(integer="BIGINT", keyed=""))
        return cls(connection, await connection.prepare(_POSTGRES_TURN))

    async def turn(self, messages: Sequence[dict[str, Any]], document: dict[str, Any]) -> None:
        """Write one turn of two messages: one statement, one round trip, one transaction."""
        first, second = (json.dumps(message) for message in messages)
        self._version = version = self._version + 1
        position = self._position
        self._position = position + 2
        head, now = str(position + 2), time.time_ns() // 1000
        run_id, operation_id = str(uuid4()), str(uuid4())
        moved = await self._statement.fetchval(
            *(1, 1, version, head, json.dumps(document), run_id, now),
            *(position, first, position + 1, second),
            *(f"inv-{run_id}", version, operation_id),
        )
        if moved != 1:
            raise RuntimeError("The floor's guard missed.")

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()
