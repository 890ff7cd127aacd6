"""Opening a store by its address."""

from collections.abc import Generator
from typing import Any
from urllib.parse import unquote, urlsplit

from tenuto.clock import Clock
from tenuto.errors import InvalidInput, StoreUnusable
from tenuto.model.commit import Budget
from tenuto.store.backends.address import masked
from tenuto.store.backends.options import check_known
from tenuto.store.store import Store


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
        if self._budget is not None and not isinstance(self._budget, Budget):
            raise InvalidInput(f"budget must be a Budget, got {type(self._budget).__name__}.")
        if self._clock is not None and not callable(getattr(self._clock, "now", None)):
            raise InvalidInput(f"clock must have a `now`, got {type(self._clock).__name__}.")
        backend = await _backend(self._url, dict(self._options))
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
    match scheme_of(url):
        case "memory":
            from tenuto.store.backends.memory.backend import MemoryBackend

            check_known(options, ("migrate",), "a memory store")
            return MemoryBackend(urlsplit(url).netloc)
        case "sqlite":
            from tenuto.store.backends.sqlite.backend import OPTIONS, SqliteBackend

            check_known(options, OPTIONS, "SQLite")
            return await SqliteBackend.open(sqlite_path(url), **options)
        case _:
            try:
                from tenuto.store.backends.postgres.backend import PostgresBackend
            except ImportError as error:
                raise StoreUnusable("PostgreSQL needs its driver: pip install 'tenuto[postgres]'.") from error
            return await PostgresBackend.open(url, **options)


def scheme_of(url: object) -> str:
    """Return which backend an address leads to: `memory`, `sqlite` or `postgresql`."""
    if not isinstance(url, str):
        raise InvalidInput(
            f"A store's address is text, got {type(url).__name__}; write sqlite:///file.db, or f'sqlite:///{{path}}'."
        )
    scheme = url.partition(":")[0]
    if scheme in {"memory", "sqlite", "postgresql"}:
        return scheme
    if scheme == "postgres":
        return "postgresql"
    plain = scheme.strip().lower().partition("+")[0]
    if plain in {"memory", "sqlite", "postgresql", "postgres"} and ":" in url:
        plain = "postgresql" if plain == "postgres" else plain
        raise StoreUnusable(f"{masked(url)!r} is not a store address; write {plain}:// without {_extra(scheme)}.")
    raise StoreUnusable(
        f"{masked(url)!r} is not a store address; use sqlite:///file.db, postgresql://... or memory://."
    )


def _extra(scheme: str) -> str:
    _, plus, driver = scheme.partition("+")
    return f"+{driver}" if plus else "capitals or spaces"


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
