"""Ownership: a store belongs to the event loop that opened it, until it is closed."""

import asyncio

import pytest

from tenuto.errors import StoreClosed, StoreMisused
from tenuto.store.store import Store
from tenuto.testing.factories import a_save, a_session


async def test_a_closed_store_refuses_every_kind_of_use_and_closes_twice(store: Store) -> None:
    key, _ = await a_session(store)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreClosed):
        await store.commit(a_save(key, "a"))
    with pytest.raises(StoreClosed):
        await store.head(key)
    with pytest.raises(StoreClosed):
        await store.stamp(key)
    with pytest.raises(StoreClosed):
        await store.load(key)
    with pytest.raises(StoreClosed):
        await store.lanes.renew([])


async def test_a_store_is_refused_in_another_event_loop_where_its_sibling_works(store: Store) -> None:
    """The sibling has the same data."""
    key, _ = await a_session(store, None, "a")

    async def elsewhere() -> int:
        with pytest.raises(StoreMisused):
            await store.commit(a_save(key, "refused"))
        async with await store.sibling() as sibling:
            return (await sibling.commit(a_save(key, "b"))).version

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == 2
    assert await store.logs.count(key, "messages") == 2
