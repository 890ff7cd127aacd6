"""The faulty backend fails what a test asks for, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto import Store, open_store
from tenuto.errors import StoreClosed, StoreContended, StoreUnavailable, VersionConflict
from tenuto.testing.factories import a_save, a_session, an_owner
from tenuto.testing.faults import FaultyBackend


@pytest.fixture
async def faults() -> FaultyBackend:
    return FaultyBackend((await open_store("memory://")).backend)


@pytest.fixture
def store(faults: FaultyBackend) -> Store:
    return Store(faults)


async def test_told_nothing_it_only_counts(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    await store.commit(a_save(key, 1))
    assert (faults.name, faults.calls, faults.transactions) == ("sqlite", 2, 2)
    assert await store.logs.count(key, "messages") == 1
    assert (faults.calls, faults.transactions) == (3, 2)


async def test_it_fails_the_call_asked_for_and_no_other(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.fail_call(3)
    landed = []
    for number in range(5):
        try:
            await store.commit(a_save(key, number))
            landed.append(number)
        except StoreUnavailable:
            pass
    record = await store.load(key)
    assert record is not None
    assert landed == record.state["messages"] == [0, 1, 3, 4]


async def test_it_raises_the_error_it_was_given(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.fail_call(error=StoreContended("as asked"))
    with pytest.raises(StoreContended, match="as asked"):
        await store.commit(a_save(key, 1))
    faults.lose_reply(error=StoreContended("as asked"))
    with pytest.raises(StoreContended, match="as asked"):
        await store.commit(a_save(key, 1))


async def test_the_reply_asked_for_is_lost_and_its_transaction_landed(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.lose_reply(2)
    await store.commit(a_save(key, 1))
    with pytest.raises(StoreUnavailable):
        await store.commit(a_save(key, 2))
    await store.commit(a_save(key, 3))
    assert await store.logs.count(key, "messages") == 3


async def test_a_lost_refusal_looks_like_a_lost_reply(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.lose_reply()
    with pytest.raises(StoreUnavailable) as lost:
        await store.commit(a_save(key, 1, expected_version=7))
    assert isinstance(lost.value.__context__, VersionConflict)
    assert await store.logs.count(key, "messages") == 0


async def test_over_a_cut_connection_nothing_goes_until_it_is_healed(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    faults.cut()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.commit(a_save(key, 1, generation=lane.generation)),
        lambda: store.load(key),
        lambda: store.lanes.renew([lane]),
        lambda: anext(store.events.subscribe(key)),
        lambda: faults.vacuum(1),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await call()
    faults.heal()
    assert await store.logs.count(key, "messages") == 0
    await store.commit(a_save(key, 1, generation=lane.generation))
    assert (await store.lanes.renew([lane])).renewed == {key}


async def test_what_is_under_way_when_the_connection_is_cut_lands_unheard(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    inner = faults.inner.transact

    async def cut_half_way(*args: Any, **options: Any) -> Any:
        faults.cut()
        return await inner(*args, **options)

    faults.inner.transact = cut_half_way  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await store.commit(a_save(key, 1))
    faults.heal()
    assert await store.logs.count(key, "messages") == 1


async def test_healing_forgets_the_faults_that_did_not_strike(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.fail_call()
    faults.lose_reply()
    faults.heal()
    assert not (await store.commit(a_save(key, 1))).replayed


async def test_a_delay_holds_up_each_call(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.delay = 60.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await store.commit(a_save(key, 1))
    faults.delay = 0.0
    assert await store.logs.count(key, "messages") == 0


async def test_closing_goes_through_even_when_cut(store: Store, faults: FaultyBackend) -> None:
    faults.cut()
    await store.aclose()
    faults.heal()
    with pytest.raises(StoreClosed):
        await store.list()


async def test_a_cancelled_caller_hears_that_and_not_that_its_reply_was_lost(
    store: Store, faults: FaultyBackend
) -> None:
    key, _ = await a_session(store)
    begun, never = asyncio.Event(), asyncio.Event()

    async def hanging(*_: Any, **__: Any) -> Any:
        begun.set()
        await never.wait()

    faults.inner.transact = hanging  # type: ignore[method-assign]
    faults.lose_reply()
    task = asyncio.create_task(store.commit(a_save(key, 1)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
