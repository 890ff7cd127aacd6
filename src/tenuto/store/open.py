"""Opening a store by its address."""

from collections.abc import Generator
from contextlib import AsyncExitStack
from typing import Any

from tenuto.clock import Clock
from tenuto.errors import InvalidInput
from tenuto.model.commit import Budget
from tenuto.model.lane import LaneTiming
from tenuto.store.schemes import scheme_of
from tenuto.store.store import Store


class Opening:
    """A store about to be opened: `async with open_store(url) as store`, or `store = await open_store(url)`.

    It can be opened any number of times, each time as another store, and be handed to a runtime instead of a store.
    """

    def __init__(
        self, url: str, budget: Budget | None, clock: Clock | None, lanes: LaneTiming | None, options: dict[str, Any]
    ) -> None:
        self.url = url
        self.lanes = lanes
        self._budget = budget
        self._clock = clock
        self._options = options
        self._stack = AsyncExitStack()

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        return await self._stack.enter_async_context(await self._open())

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def but(self, *, lanes: LaneTiming | None = None, **options: Any) -> "Opening":
        """Return the same opening with other options; None changes nothing."""
        given = {name: value for name, value in options.items() if value is not None}
        return Opening(self.url, self._budget, self._clock, lanes or self.lanes, {**self._options, **given})

    async def _open(self) -> Store:
        if self._budget is not None and not isinstance(self._budget, Budget):
            raise InvalidInput(f"budget must be a Budget, got {type(self._budget).__name__}.")
        if self._clock is not None and not callable(getattr(self._clock, "now", None)):
            raise InvalidInput(f"clock must have a `now`, got {type(self._clock).__name__}.")
        if self.lanes is not None and not isinstance(self.lanes, LaneTiming):
            raise InvalidInput(f"lanes must be a LaneTiming, got {type(self.lanes).__name__}.")
        backend = await scheme_of(self.url).open(self.url, dict(self._options))
        return Store(backend, budget=self._budget, clock=self._clock, lanes=self.lanes)


def open_store(
    url: str,
    *,
    budget: Budget | None = None,
    clock: Clock | None = None,
    lanes: LaneTiming | None = None,
    **options: Any,
) -> Opening:
    """Open `sqlite:///path` (four slashes for an absolute path), `postgresql://...` or `memory://[name]`.

    `memory://` keeps nothing: its file lies in a temporary folder and goes with the store. All who open `memory://name`
    in one process share it, and it goes with the last of them.

    Our tables are made or migrated on the way, unless `migrate=False`. `lanes` says for how long sessions are leased to
    their runners. Other options are the backend's. `clock` replaces the database's clock, for tests.
    """
    return Opening(url, budget, clock, lanes, options)


def memory_store() -> Store:
    """Return a new store like that of `memory://`, at once; it belongs to the first event loop that uses it."""
    from tenuto.store.backends.sqlite.backend import SqliteBackend
    from tenuto.store.backends.sqlite.database import open_memory
    from tenuto.store.backends.sqlite.memory_file import memory_file

    return Store(SqliteBackend(open_memory(memory_file(""))))
