"""Connections to PostgreSQL: opened with our settings, our tables brought up to date."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import asyncpg

from tenuto.errors import InvalidInput, StoreUnusable
from tenuto.store.backends.address import check_known, positive, whole
from tenuto.store.backends.postgres.faults import translated
from tenuto.store.backends.postgres.pool import Pool
from tenuto.store.backends.sql import check_columns, check_version, migrations

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")

_SETTINGS = {"application_name": "tenuto", "lock_timeout": "10s", "statement_timeout": "30s", "jit": "off"}

_NOT_YOURS = {"dsn", "loop", "record_class"}

OPTIONS = ("migrate", "schema", "pool_size", *sorted(set(inspect.signature(asyncpg.connect).parameters) - _NOT_YOURS))
"""What `open_store` takes for PostgreSQL: ours, and what `asyncpg.connect` takes."""

DEFAULT_SCHEMA = "tenuto"

_COLUMNS = """
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(quote_ident($1))
    AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""


def check_schema(name: object) -> str:
    """Return a schema name that our tables may live in, or refuse it."""
    if not isinstance(name, str):
        raise InvalidInput(f"schema must be text, got {type(name).__name__}.")
    if not _NAME.fullmatch(name):
        raise StoreUnusable(f"{name!r} is not a usable schema name: lower-case letters, digits and _, at most 48.")
    if name == "information_schema" or name.startswith("pg_"):
        raise StoreUnusable(f"The schema {name!r} belongs to PostgreSQL itself; name another one.")
    return name


def make_pool(url: str, schema: str, size: object, options: Mapping[str, Any]) -> Pool:
    """Return a pool whose connections have our settings; nothing is connected yet."""
    check_known(options, OPTIONS, "PostgreSQL")
    given = dict(options)
    silence = positive(given.pop("command_timeout", 35.0), "command_timeout")
    connect_within = positive(given.pop("timeout", 10.0), "timeout")
    for name in ("user", "database"):
        if not isinstance(given.get(name), str | None):
            raise InvalidInput(f"{name} must be text, got {type(given[name]).__name__}.")
    settings = given.pop("server_settings", None) or {}
    if not isinstance(settings, Mapping) or not all(
        isinstance(text, str) for item in settings.items() for text in item
    ):
        raise InvalidInput("server_settings must map names to text.")
    if any(name.lower() == "search_path" for name in settings):
        raise InvalidInput("server_settings cannot set search_path, which leads to our tables; give `schema` instead.")
    given["server_settings"] = _SETTINGS | dict(settings) | {"search_path": schema}
    # The driver's own limit would come late; it is there for what it does behind our back.
    given["timeout"] = connect_within + 1
    return Pool(url, whole(size, "pool_size"), given, silence=silence, connect_within=connect_within)


async def migrate(pool: Pool, schema: str) -> None:
    """Bring the tables up to date in one transaction; of several processes one does it and the others wait."""
    steps = migrations("postgres")
    with translated():
        async with pool.use() as connection:
            if await version_of(connection) == len(steps):
                return  # so that a role without the right to change the schema can open what is ready
        async with pool.use() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"tenuto {schema}")
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            found = await version_of(connection)
            for step in steps[found:]:
                await connection.execute(step.sql)
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
            if found < len(steps):
                await connection.execute("DELETE FROM schema_version")
                await connection.execute("INSERT INTO schema_version VALUES ($1)", len(steps))


async def version_of(connection: Any) -> int:
    """Return the version of the tables, 0 if there are none; refuse those newer than this code."""
    with translated():
        ((present,),) = await connection.fetch("SELECT to_regclass('schema_version')")
        found = [row[0] for row in await connection.fetch("SELECT version FROM schema_version")] if present else []
    version = found[0] if found else 0
    if len(found) > 1 or not isinstance(version, int):
        raise StoreUnusable(
            "The table schema_version in this schema is not ours, or was changed: it must have one row with a whole "
            "number; restore it, or name another schema."
        )
    return check_version(version, "postgres", "The database")


async def check_tables(pool: Pool, schema: str) -> None:
    """Refuse tables in our schema that are not as we made them."""
    with translated():
        found = [tuple(row) for row in await pool.fetch(_COLUMNS, schema)]
    check_columns(found, f"The schema {schema!r}")
