"""The tables of a store as they are, read with the database's own driver and our own SQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import apsw
import asyncpg

Row: TypeAlias = dict[str, Any]
Tables: TypeAlias = dict[str, list[Row]]
Query: TypeAlias = Callable[[str], Awaitable[list[Row]]]

AUDITOR = "auditor"
"""The name under which a server knows who only looks."""

_OURS = ("meta", "schema_version", "boot_clock")
"""What is no part of any session: the numbers new ids begin above, the migrations done, and a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a store is: its file, or a server and a schema."""

    path: str | None = None
    url: str | None = None
    schema: str | None = None

    @property
    def store(self) -> str:
        """The name of its backend."""
        return "sqlite" if self.path else "postgres"


def _named(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Row:
    return dict(zip((column[0] for column in cursor.get_description()), row, strict=True))


@asynccontextmanager
async def connected(site: Site) -> AsyncIterator[Query]:
    """Yield what answers a query with rows by column name."""
    if site.path is not None:
        file = apsw.Connection(site.path, flags=apsw.SQLITE_OPEN_READWRITE)
        file.set_busy_timeout(5000)

        async def ask_file(sql: str) -> list[Row]:
            cursor = file.cursor()
            cursor.row_trace = _named
            return list(cursor.execute(sql))

        try:
            yield ask_file
        finally:
            file.close()
        return
    server = await asyncpg.connect(
        site.url, server_settings={"search_path": str(site.schema), "application_name": AUDITOR}
    )

    async def ask_server(sql: str) -> list[Row]:
        return [dict(row) for row in await server.fetch(sql)]

    try:
        yield ask_server
    finally:
        await server.close()


async def table_names(site: Site, ask: Query) -> list[str]:
    """Return the names of the store's tables, whichever there are."""
    if site.path is not None:
        rows = await ask("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    else:
        rows = await ask(f"SELECT tablename AS name FROM pg_tables WHERE schemaname = '{site.schema}'")
    return sorted(row["name"] for row in rows if row["name"] not in _OURS)


async def read_tables(site: Site) -> Tables:
    """Return every row of every table."""
    async with connected(site) as ask:
        return {name: await ask(f'SELECT * FROM "{name}"') for name in await table_names(site, ask)}
