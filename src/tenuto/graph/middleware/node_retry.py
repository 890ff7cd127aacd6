"""Retry what failed for a transient reason."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tenuto.errors import Bucket, InvalidInput, LaneLost, bucket_of
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.node import Next, Update
from tenuto.graph.engine.scope import scope_variable


def is_transient(error: BaseException, _state: Any = None) -> bool:
    """Return whether an error, or its cause, is transient or marked so; see `bucket_of`."""
    return bucket_of(error) is Bucket.RETRYABLE_TRANSIENT


def full_jitter(attempt: int) -> float:
    """Return a random delay after an attempt: up to twice as long each time, at most 30 seconds."""
    return random.uniform(0, min(30.0, 2.0**attempt))


class Retry:
    """Call the node up to `max_attempts` times, as long as the classifier says that the failure is transient.

    Each attempt sees its index in the scope and has its own copy of the metadata; that of a failed attempt is dropped.
    """

    def __init__(
        self,
        max_attempts: int = 3,
        classifier: Callable[[Exception, Any], bool] | None = None,
        backoff: Callable[[int], float] | None = None,
        on_retry: Callable[[Exception, int], Awaitable[None] | None] | None = None,
    ) -> None:
        if type(max_attempts) is not int or max_attempts < 1:
            raise InvalidInput(f"max_attempts must be 1 or more, got {max_attempts!r}.")
        self._max_attempts = max_attempts
        self._classifier = classifier or is_transient
        self._backoff = backoff or full_jitter
        self._on_retry = on_retry

    async def __call__(self, state: Any, following: Next) -> Update:
        """See `Middleware`."""
        outer = scope_variable.get()
        for attempt in range(self._max_attempts):
            inner = outer._replace(attempt_index=attempt, metadata=outer.metadata.copy()) if outer else None
            token = scope_variable.set(inner)
            try:
                update = await following(state)
            except Exception as error:
                failure = error
            else:
                if outer and inner:
                    outer.metadata.update(inner.metadata)
                return update
            finally:
                scope_variable.reset(token)
            lost = isinstance(failure, (*NOT_THE_NODES, LaneLost))
            if lost or attempt + 1 == self._max_attempts or not self._classifier(failure, state):
                # Those around it still see which attempt it was; the step resets the scope.
                scope_variable.set(outer._replace(attempt_index=attempt) if outer else None)
                raise failure
            if self._on_retry and (waiting := self._on_retry(failure, attempt)) is not None:
                await waiting
            await asyncio.sleep(self._backoff(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")
