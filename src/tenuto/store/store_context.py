"""What the store and its facets work with: a backend, a budget, and the time."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tenuto.clock import Clock
from tenuto.model.commit import Budget
from tenuto.store.backend import Backend, session_lock
from tenuto.store.rules.plan import Ask, Found, Plan, gather

T = TypeVar("T")


class StoreContext:
    """A backend, how much one commit may hold, and the clock, if a test has set one."""

    def __init__(self, backend: Backend, budget: Budget, clock: Clock | None) -> None:
        self.backend = backend
        self.budget = budget
        self._clock = clock

    def now(self) -> int | None:
        """Return the time a test has set; None means that the database's clock decides."""
        return self._clock.now() if self._clock else None


async def transact(store: StoreContext, ask: Ask, decide: Callable[[Found], Plan[T]], size: int = 0) -> T:
    """Have a rule decide about one session, in its own transaction."""
    read = partial(gather, ask, store.now())
    return await store.backend.transact(read, decide, session_lock(ask.key), size=size)
