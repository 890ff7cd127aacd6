"""Complete lists, read page by page: no limit cuts them short."""

from collections.abc import AsyncIterator

from tenuto.model.effect import Effect
from tenuto.model.input import Input
from tenuto.model.outgoing_item import Outgoing
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.store.store import Store

PAGE = 1000
"""How many rows are read at once."""


async def all_effects(
    store: Store, key: SessionKey, *, origin_id: str | None = None, in_doubt: bool = False
) -> tuple[Effect, ...]:
    """Return all effects of a session, or of one of its origins, or those in doubt; see `Effects.list`."""
    found: list[Effect] = []
    after: Effect | None = None
    while page := await store.effects.list(key, origin_id=origin_id, in_doubt=in_doubt, limit=PAGE, after=after):
        found.extend(page)
        if len(page) < PAGE:
            break
        after = page[-1]
    return tuple(found)


async def all_sent(store: Store, key: SessionKey) -> AsyncIterator[Outgoing]:
    """Yield everything a session sent, in the order of sending."""
    after: Outgoing | None = None
    while page := await store.outbox.of_session(key, limit=PAGE, after=after):
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        after = page[-1]


async def all_inputs(store: Store, key: SessionKey) -> AsyncIterator[Input]:
    """Yield every open input of a session, in order of arrival."""
    after = 0
    while page := await store.inbox.list(key, limit=PAGE, after=after):
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        after = page[-1].seq


async def all_runs(store: Store, key: SessionKey) -> AsyncIterator[Run]:
    """Yield every run of a session, newest first."""
    before: int | None = None
    while page := await store.runs.of_session(key, limit=PAGE, before=before):
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        before = page[-1].number
