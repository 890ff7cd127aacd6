"""Opening a store by its address."""

from collections.abc import Generator
from typing import Any
from urllib.parse import unquote, urlsplit

from tenuto.clock import Clock
from tenuto.errors import StoreUnusable
from tenuto.model.commit import Budget
from tenuto.store.port import Store


class Opening:
    """A store about to be opened: `async with open_store(url) as store`, or `store = await open_store(url)`."""

    def __init__(self, url: str, budget: Budget | None, clock: Clock | None, options: dict[str, Any]) -> None:
        self._url = url
        self._budget = budget
        self._clock = clock
        self._options = options
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store:
            await self._store.aclose()

    async def _open(self) -> Store:
        backend = await _backend(self._url, self._options)
        return Store(backend, budget=self._budget, clock=self._clock)


def open_store(url: str, *, budget: Budget | None = None, clock: Clock | None = None, **options: Any) -> Opening:
    """Open `sqlite:///path` (four slashes for an absolute path), `postgresql://...` or `memory://[name]`.

    Our tables are made or migrated on the way, unless `migrate=False`. Other options are the backend's. `clock`
    replaces the database's clock, for tests.
    """
    return Opening(url, budget, clock, options)


def memory_store() -> Store:
    """Return a new store in memory, at once and of its own."""
    from tenuto.store.backends.memory.backend import MemoryBackend

    return Store(MemoryBackend(""))


async def _backend(url: str, options: dict[str, Any]) -> Any:
    scheme = url.partition(":")[0]
    match scheme:
        case "memory":
            from tenuto.store.backends.memory.backend import MemoryBackend

            options.pop("migrate", None)
            return MemoryBackend(urlsplit(url).netloc, **options)
        case "sqlite":
            from tenuto.store.backends.sqlite.backend import SqliteBackend

            return await SqliteBackend.open(sqlite_path(url), **options)
        case "postgresql" | "postgres":
            try:
                from tenuto.store.backends.postgres.backend import PostgresBackend
            except ImportError as error:
                raise StoreUnusable("PostgreSQL needs its driver: pip install 'tenuto[postgres]'.") from error
            return await PostgresBackend.open(url, **options)
        case _:
            raise StoreUnusable(
                f"{url!r} is not a store address; use sqlite:///file.db, postgresql://... or memory://.",
                url=url,
            )


def sqlite_path(url: str) -> str:
    """Return the file a `sqlite:` address names."""
    rest = url.removeprefix("sqlite://")
    if rest == url or not rest.startswith("/") or len(rest) < 2:
        raise StoreUnusable(f"{url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db.", url=url)
    return unquote(rest[1:])
