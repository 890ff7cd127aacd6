"""A reply that never came: the caller repeats by the operation id and nothing happens twice."""

import pytest

from tenuto import Store
from tenuto.errors import OperationConflict, StoreUnavailable
from tenuto.model.commit import Receipt
from tenuto.model.session import SessionKey
from tenuto.testing.factories import a_save, a_session, an_id, an_owner
from tenuto.testing.faults import FaultyBackend
from tenuto.testing.harness import Harness
from tests.crash.turns import a_whole_turn, check_whole


@pytest.fixture
async def faults(harness: Harness) -> FaultyBackend:
    return FaultyBackend((await harness.open()).backend)


@pytest.fixture
def store(faults: FaultyBackend) -> Store:
    return Store(faults)


async def _twice(store: Store, faults: FaultyBackend, key: SessionKey, call: object) -> Receipt:
    """Lose the reply to a call, repeat it, and check that the repeat changed nothing."""
    faults.lose_reply()
    with pytest.raises(StoreUnavailable):
        await call()  # type: ignore[operator]
    landed = await store.dump()
    receipt: Receipt = await call()  # type: ignore[operator]
    assert receipt.replayed
    assert await store.dump() == landed
    found = await store.receipt(key, receipt.operation_id)
    assert found == receipt
    return receipt


@pytest.mark.parametrize("laned", [False, True], ids=["without lane", "under a lane"])
async def test_a_repeated_turn_is_applied_once(store: Store, faults: FaultyBackend, laned: bool) -> None:
    key, _ = await a_session(store, operation_id="create")
    lane = await store.lanes.acquire(key, an_owner()) if laned else None
    for number in range(3):
        commit = a_whole_turn(key, f"turn-{number}", lane=lane)
        receipt = await _twice(store, faults, key, lambda commit=commit: store.commit(commit))
        assert (receipt.version, receipt.commit_number, receipt.event_seq) == (number + 2, number + 2, 2 * number + 2)
    assert await check_whole(store, key) == {"turn-0", "turn-1", "turn-2"}


async def test_a_displaced_holder_still_gets_the_receipt_of_what_landed(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store, operation_id="create")
    lane = await store.lanes.acquire(key, an_owner())
    commit = a_whole_turn(key, "turn-0", lane=lane)
    faults.lose_reply()
    with pytest.raises(StoreUnavailable):
        await store.commit(commit)
    await store.lanes.disarm(lane)
    await store.lanes.acquire(key, an_owner("worker-2"))
    assert (await store.commit(commit)).replayed
    assert await check_whole(store, key) == {"turn-0"}


async def test_a_repeated_create_is_applied_once(store: Store, faults: FaultyBackend) -> None:
    key, operation = SessionKey(an_id()), an_id("operation")
    await _twice(store, faults, key, lambda: store.create(key, state={"a": 1}, operation_id=operation))
    head = await store.head(key)
    assert head is not None
    assert (head.version, head.commit_number) == (1, 1)


async def test_a_repeated_fork_is_applied_once(store: Store, faults: FaultyBackend) -> None:
    source, _ = await a_session(store, None, "one")
    target, operation = SessionKey(an_id()), an_id("operation")
    await _twice(store, faults, target, lambda: store.fork(source, target, operation_id=operation))
    assert await store.logs.count(target, "messages") == 1


async def test_a_call_that_failed_before_it_began_is_applied_by_its_repeat(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    commit = a_save(key, "one")
    before = await store.dump()
    faults.fail_call()
    with pytest.raises(StoreUnavailable):
        await store.commit(commit)
    assert await store.dump() == before
    assert not (await store.commit(commit)).replayed
    assert await store.logs.count(key, "messages") == 1


async def test_the_same_operation_id_with_other_content_is_a_conflict_also_after_a_lost_reply(
    store: Store, faults: FaultyBackend
) -> None:
    key, _ = await a_session(store)
    faults.lose_reply()
    with pytest.raises(StoreUnavailable):
        await store.commit(a_save(key, "one", operation_id="same"))
    with pytest.raises(OperationConflict):
        await store.commit(a_save(key, "two", operation_id="same"))
    assert await store.logs.count(key, "messages") == 1


async def test_a_lane_whose_grant_got_lost_is_re_entered_by_its_nonce(store: Store, faults: FaultyBackend) -> None:
    key, _ = await a_session(store)
    faults.lose_reply()
    with pytest.raises(StoreUnavailable):
        await store.lanes.acquire(key, an_owner(), nonce="mine")
    lane = await store.lanes.acquire(key, an_owner(), nonce="mine")
    assert lane.generation == 1
    assert lane.displaced is None
