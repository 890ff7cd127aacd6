"""Connections to PostgreSQL: opened with our settings, their errors translated, our tables brought up to date."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from tenuto.errors import (
    SchemaMismatch,
    StoreContended,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from tenuto.store.backends.missed import Missed
from tenuto.store.backends.postgres.pool import Pool
from tenuto.store.backends.sql import migrations

GUARD_MISSED = "TN001"
"""What `require` raises, see the first migration."""

_CONTENDED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
)
_REFUSED = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
)
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@contextmanager
def translated() -> Iterator[None]:
    """Turn driver errors into ours; a broken constraint means that what was found no longer stands."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        raise Missed(str(error)) from error
    except _CONTENDED as error:
        raise StoreContended(f"PostgreSQL: {error}; repeat unchanged.") from error
    except _REFUSED as error:
        raise StoreUnusable(f"PostgreSQL refuses: {error}; check the address, the rights and the tables.") from error
    except asyncpg.DiskFullError as error:
        raise StoreFull(f"PostgreSQL's disk is full: {error}; make room and repeat.") from error
    except asyncpg.PostgresError as error:
        if error.sqlstate == GUARD_MISSED:
            raise Missed(str(error)) from error
        raise _unavailable(error) from error
    except (TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError) as error:
        raise _unavailable(error) from error


def _unavailable(error: BaseException) -> StoreError:
    return StoreUnavailable(
        f"PostgreSQL cannot be reached or gave up: {error or type(error).__name__}; repeat with the same operation id."
    )


def check_schema(name: str) -> str:
    """Return a schema name that needs no quoting, or refuse it."""
    if not _NAME.fullmatch(name):
        raise StoreUnusable(f"{name!r} is not a usable schema name: lower-case letters, digits and _, at most 48.")
    return name


def make_pool(url: str, schema: str, size: int, options: dict[str, Any]) -> Pool:
    """Return a pool whose connections have our settings; nothing is connected yet."""
    settings = {
        "search_path": schema,
        "application_name": "tenuto",
        "lock_timeout": "10s",
        "statement_timeout": "30s",
        "jit": "off",
    }
    given = dict(options)
    given["server_settings"] = settings | given.get("server_settings", {})
    return Pool(url, size, given)


async def migrate(pool: Pool, schema: str) -> None:
    """Bring the tables up to date in one transaction; of several processes one does it and the others wait."""
    steps = migrations("postgres")
    with translated():
        async with pool.use() as connection:
            if await version_of(connection) == len(steps):
                return  # so that a role without the right to change the schema can open what is ready
        async with pool.use() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"tenuto {schema}")
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
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
        present = await connection.fetchval("SELECT to_regclass('schema_version')")
        version = int(await connection.fetchval("SELECT version FROM schema_version") or 0) if present else 0
    expected = len(migrations("postgres"))
    if version > expected:
        raise SchemaMismatch(
            f"The database has tables of version {version}, newer than this code's {expected}; upgrade tenuto.",
            found=version,
            expected=expected,
        )
    return version
