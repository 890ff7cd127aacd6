"""Complete lists, read page by page: no limit cuts them short."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from tenuto.model.effect import Effect
from tenuto.model.input import Input
from tenuto.model.outgoing_item import Outgoing
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.store.store import Store

T = TypeVar("T")

PAGE = 1000
"""How many rows are read at once."""


async def all_effects(
    store: Store, key: SessionKey, *, origin_id: str | None = None, in_doubt: bool = False
) -> tuple[Effect, ...]:
    """Return all effects of a session, or of one of its origins, or those in doubt; see `Effects.list`."""
    listed = partial(store.effects.list, key, origin_id=origin_id, in_doubt=in_doubt, limit=PAGE)
    return tuple([each async for each in _pages(lambda last: listed(after=last))])


def all_sent(store: Store, key: SessionKey) -> AsyncIterator[Outgoing]:
    """Yield everything a session sent, in the order of sending."""
    return _pages(lambda last: store.outbox.of_session(key, limit=PAGE, after=last))


def all_inputs(store: Store, key: SessionKey) -> AsyncIterator[Input]:
    """Yield every open input of a session, in order of arrival."""
    return _pages(lambda last: store.inbox.list(key, limit=PAGE, after=last.seq if last else 0))


def all_runs(store: Store, key: SessionKey) -> AsyncIterator[Run]:
    """Yield every run of a session, newest first."""
    return _pages(lambda last: store.runs.of_session(key, limit=PAGE, before=last.number if last else None))


async def _pages(read: Callable[[T | None], Awaitable[Sequence[T]]]) -> AsyncIterator[T]:
    """Yield what a list has; `read` returns the page behind an item, or the first one."""
    last: T | None = None
    while page := await read(last):
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        last = page[-1]
