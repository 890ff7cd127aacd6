"""Measure how long a node takes."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tenuto.graph.engine.cause import category_of, derived_category
from tenuto.graph.engine.node import Next, Update
from tenuto.graph.engine.scope import scope_variable


class TimingRecord(NamedTuple):
    """How long a node took, and how it ended."""

    node_name: str
    duration_ms: float
    outcome: str
    exception_category: str | None


class Timing:
    """Pass a record of each call to `on_complete`, and await what it returns if it can be awaited."""

    def __init__(
        self,
        on_complete: Callable[[TimingRecord], Awaitable[None] | None],
        clock: Callable[[], float] = time.monotonic,
        node_name: str | None = None,
    ) -> None:
        self._on_complete = on_complete
        self._clock = clock
        self._node_name = node_name

    async def __call__(self, state: Any, following: Next) -> Update:
        """See `Middleware`."""
        start = self._clock()
        try:
            update = await following(state)
        except Exception as error:
            await self._report(start, "exception", derived_category(error) or category_of(error))
            raise
        await self._report(start, "success", None)
        return update

    async def _report(self, start: float, outcome: str, category: str | None) -> None:
        scope = scope_variable.get()
        name = self._node_name or (scope.namespace[-1] if scope and scope.namespace else "")
        record = TimingRecord(name, (self._clock() - start) * 1000, outcome, category)
        if (waiting := self._on_complete(record)) is not None:
            await waiting
