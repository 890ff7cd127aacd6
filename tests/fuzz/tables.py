"""The rows of a database, read past the store, to tell whether a call has changed anything."""

from typing import Any, Protocol

import apsw
import asyncpg

Rows = dict[str, list[Any]]

LANE = frozenset({"generation", "armed", "nonce", "holder", "lane_expires_at"})
"""What a verb that has to take the lane leaves on the session's row, whatever becomes of it."""


class Tables(Protocol):
    """Reads all rows."""

    async def read(self) -> Rows:
        """Return every row of every table, without what a lane leaves."""
        ...

    async def close(self) -> None:
        """Let go of the database."""
        ...


class SqliteTables:
    """The rows of a file, over a connection of its own."""

    def __init__(self, path: str) -> None:
        self._file = apsw.Connection(path)
        self._file.set_busy_timeout(5000)
        names = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        self._tables = {
            name: [column for _, column, *_ in self._file.execute(f"PRAGMA table_info({name})")]
            for name in sorted(name for (name,) in names)
        }

    async def read(self) -> Rows:
        """See `Tables.read`."""
        found: Rows = {}
        for table, columns in self._tables.items():
            rows = self._file.execute(f"SELECT * FROM {table}").fetchall()
            found[table] = [_without(dict(zip(columns, row, strict=True)), table) for row in rows]
        return found

    async def close(self) -> None:
        """See `Tables.close`."""
        self._file.close()


class PostgresTables:
    """The rows of a schema; all but the sessions' in one statement."""

    def __init__(self, server: "asyncpg.Connection[Any]", tables: list[str]) -> None:
        self._server = server
        tables = [table for table in tables if table != "session"]
        rows = "array_agg(md5(t::text) ORDER BY md5(t::text))"
        texts = (f"(SELECT {rows} FROM {table} t) AS {table}" for table in tables)
        self._statement = f"SELECT {', '.join(texts)}"

    async def read(self) -> Rows:
        """See `Tables.read`."""
        row = await self._server.fetchrow(self._statement)
        assert row is not None
        found: Rows = {name: list(rows or ()) for name, rows in row.items()}
        sessions = await self._server.fetch("SELECT * FROM session ORDER BY sid")
        found["session"] = [_without(dict(each), "session") for each in sessions]
        return found

    async def close(self) -> None:
        """See `Tables.close`."""
        await self._server.close()

    @classmethod
    async def open(cls, address: str, schema: str) -> "PostgresTables":
        """Connect to a database of ours."""
        server = await asyncpg.connect(address, server_settings={"search_path": schema})
        names = await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        return cls(server, sorted(name for (name,) in names))


def _without(row: dict[str, Any], table: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in LANE} if table == "session" else row
