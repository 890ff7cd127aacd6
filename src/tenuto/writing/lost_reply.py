"""Retries of a write while it is unknown whether it has landed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenuto.errors import StoreError

T = TypeVar("T")

_TRIES = 5
_FIRST_PAUSE = 0.05


async def ask_again(error: StoreError, again: Callable[[], Awaitable[T | None]]) -> T:
    """Retry a write that failed with `error`, up to five times with growing pauses, and return its result.

    `again` repeats the same write under its operation id, so that it cannot be done twice. If it returns None there is
    nothing to repeat, and the last error is raised; so is an error that is not retryable, at once.
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
