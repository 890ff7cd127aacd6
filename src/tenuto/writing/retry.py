"""Asking the store again while it is not known whether a write has landed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenuto.errors import StoreError

T = TypeVar("T")

_TRIES = 5
_FIRST_PAUSE = 0.05


async def ask_again(error: StoreError, again: Callable[[], Awaitable[T | None]]) -> T:
    """Return what a write returns that the store failed for now, asking `again` five times with growing pauses.

    `again` repeats the same write under its operation id, so that it cannot be done twice; None means that there is
    nothing to repeat, and the error stands. An error that is not retryable is raised at once.
    """
    pause = _FIRST_PAUSE
    for _ in range(_TRIES):
        if not error.retryable:
            break
        await asyncio.sleep(pause)
        pause *= 2
        try:
            found = await again()
        except StoreError as failure:
            error = failure
        else:
            if found is None:
                break
            return found
    raise error
