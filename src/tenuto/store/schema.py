"""Migrations of our own tables, for deployments that do not let a program change its schema by itself."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.store.backends.sql import Migration, migrations
from tenuto.store.backends.threads import in_thread
from tenuto.store.open import open_store, scheme_of, sqlite_path


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """Which version the tables have, which this code needs, and the SQL of the steps between."""

    found: int
    expected: int
    pending: tuple[str, ...]
    sql: str

    @property
    def ready(self) -> bool:
        """Whether this code can open the store as it is."""
        return self.found == self.expected


async def migrate(url: str, mode: str = "apply", **options: Any) -> MigrationReport:
    """Bring a store's tables up to date (`apply`), or only say what is to do (`check`; `print` adds the SQL).

    Only `apply` changes anything. The report describes the store before. Tables newer than this code are
    `SchemaMismatch`.
    """
    if mode not in {"apply", "check", "print"}:
        raise InvalidInput(f"Unknown mode {mode!r}; use apply, check or print.", mode=mode)
    steps, found = await _look(url, options)
    report = MigrationReport(
        found=found,
        expected=len(steps),
        pending=tuple(step.name for step in steps[found:]),
        sql="" if mode == "check" else "\n".join(f"-- {step.name}\n{step.sql}" for step in steps[found:]),
    )
    if mode == "apply" and not report.ready:
        async with open_store(url, **options):
            pass
    return report


async def _look(url: str, options: dict[str, Any]) -> tuple[tuple[Migration, ...], int]:
    match scheme_of(url):
        case "memory":
            return (), 0
        case "sqlite":
            return migrations("sqlite"), await in_thread(partial(_sqlite_version, sqlite_path(url)))
        case _:
            return migrations("postgres"), await _postgres_version(url, options)


def _sqlite_version(path: str) -> int:
    import apsw

    from tenuto.store.backends.sqlite.connection import check_version
    from tenuto.store.backends.sqlite.faults import translated

    if not Path(path).exists():
        return 0
    with translated(path):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return check_version(connection, path)
        finally:
            connection.close()


async def _postgres_version(url: str, options: dict[str, Any]) -> int:
    from tenuto.store.backends.postgres.connection import DEFAULT_SCHEMA, check_schema, make_pool, version_of
    from tenuto.store.backends.postgres.faults import translated

    given = {name: value for name, value in options.items() if name not in {"migrate", "schema", "pool_size"}}
    pool = make_pool(url, check_schema(options.get("schema", DEFAULT_SCHEMA)), 1, given)
    try:
        with translated():
            async with pool.use() as connection:
                return await version_of(connection)
    finally:
        await pool.aclose()
