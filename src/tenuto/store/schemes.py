"""The addresses a store may have: one table of schemes, each of which opens a backend and knows its migrations."""

from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from tenuto.errors import InvalidInput, StoreUnusable
from tenuto.store.backend import Backend
from tenuto.store.backends.address import check_known, masked, yes_or_no
from tenuto.store.backends.sql import Migration, migrations
from tenuto.store.backends.threads import in_thread


class Scheme(Protocol):
    """What an address of one kind leads to."""

    async def open(self, url: str, options: dict[str, Any]) -> Backend:
        """Open the backend at an address."""

    async def version(self, url: str, options: dict[str, Any]) -> tuple[tuple[Migration, ...], int]:
        """Return all migrations of the tables at an address, and how many of them are done; change nothing."""


class _Memory:
    async def open(self, url: str, options: dict[str, Any]) -> Backend:
        from tenuto.store.backends.sqlite.backend import SqliteBackend
        from tenuto.store.backends.sqlite.database import open_memory
        from tenuto.store.backends.sqlite.memory_file import memory_file

        check_known(options, ("migrate",), "a memory store")
        yes_or_no(options.get("migrate", True), "migrate")
        return SqliteBackend(await in_thread(partial(open_memory, memory_file(urlsplit(url).netloc))))

    async def version(self, url: str, options: dict[str, Any]) -> tuple[tuple[Migration, ...], int]:  # noqa: ARG002
        return (), 0  # it is made when it is opened


class _Sqlite:
    async def open(self, url: str, options: dict[str, Any]) -> Backend:
        from tenuto.store.backends.sqlite.backend import SqliteBackend
        from tenuto.store.backends.sqlite.database import OPTIONS

        check_known(options, OPTIONS, "SQLite")
        return await SqliteBackend.open(sqlite_path(url), **options)

    async def version(self, url: str, options: dict[str, Any]) -> tuple[tuple[Migration, ...], int]:  # noqa: ARG002
        return migrations("sqlite"), await in_thread(partial(_sqlite_version, sqlite_path(url)))


class _Postgres:
    async def open(self, url: str, options: dict[str, Any]) -> Backend:
        try:
            from tenuto.store.backends.postgres.backend import PostgresBackend
        except ImportError as error:
            raise StoreUnusable("PostgreSQL needs its driver: pip install 'tenuto[postgres]'.") from error
        return await PostgresBackend.open(url, **options)

    async def version(self, url: str, options: dict[str, Any]) -> tuple[tuple[Migration, ...], int]:
        from tenuto.store.backends.postgres.connection import DEFAULT_SCHEMA, check_schema, make_pool, version_of
        from tenuto.store.backends.postgres.faults import translated

        given = {name: value for name, value in options.items() if name not in {"migrate", "schema", "pool_size"}}
        async with aclosing(make_pool(url, check_schema(options.get("schema", DEFAULT_SCHEMA)), 1, given)) as pool:
            with translated():
                async with pool.use() as connection:
                    return migrations("postgres"), await version_of(connection)


_SCHEMES: dict[str, Scheme] = {"memory": _Memory(), "sqlite": _Sqlite(), "postgresql": _Postgres()}
_ALIASES = {"postgres": "postgresql"}


def scheme_of(url: object) -> Scheme:
    """Return what an address leads to; refuse one that cannot be an address, without showing its password."""
    if not isinstance(url, str):
        raise InvalidInput(
            f"A store's address is text, got {type(url).__name__}; write sqlite:///file.db, or f'sqlite:///{{path}}'."
        )
    word = url.partition(":")[0]
    known = _ALIASES.get(word, word)
    if known in _SCHEMES:
        return _SCHEMES[known]
    plain = word.strip().lower().partition("+")[0]
    plain = _ALIASES.get(plain, plain)
    if plain in _SCHEMES and ":" in url:
        raise StoreUnusable(f"{masked(url)!r} is not a store address; write {plain}:// without {_extra(word)}.")
    raise StoreUnusable(
        f"{masked(url)!r} is not a store address; use sqlite:///file.db, postgresql://... or memory://."
    )


def sqlite_path(url: str) -> str:
    """Return the file a `sqlite:` address names."""
    rest = url.removeprefix("sqlite://")
    if rest == url or not rest.startswith("/") or len(rest) < 2:
        raise StoreUnusable(
            f"{masked(url)!r} does not name a file; write sqlite:///relative.db or sqlite:////absolute.db."
        )
    path = unquote(rest[1:])
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise StoreUnusable(f"{path!r} cannot name a file; choose another path.")
    return path


def _extra(word: str) -> str:
    _, plus, driver = word.partition("+")
    return f"+{driver}" if plus else "capitals or spaces"


def _sqlite_version(path: str) -> int:
    import apsw

    from tenuto.store.backends.sqlite.connection import version_of
    from tenuto.store.backends.sqlite.faults import translated

    if not Path(path).exists():
        return 0
    with translated(path), closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return version_of(connection, path)
