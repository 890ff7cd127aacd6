"""Re-arming and disarming a lane: the last holder continues, and nobody else does."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import LaneLost
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane, Rearm
from tenuto.store.store import Store
from tenuto.testing.factories import a_key, a_save, a_session, a_turn, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.lane_scene import a_displaced_runner, busy, under


async def test_acquire_after_disarm_takes_the_next_generation_and_displaces_nobody(store: Store) -> None:
    """A disarmed lane is free at once."""
    key = a_key()
    first = await store.lanes.acquire(key, an_owner("ada"), ttl=3600)
    await store.lanes.disarm(first)
    second = await store.lanes.acquire(key, an_owner("bob"))
    assert (second.generation, second.displaced) == (2, None)


async def test_first_commit_of_the_last_holders_next_turn_rearms_with_its_generation(harness: Harness) -> None:
    """No acquire is needed; the lane is held again, under the new nonce, from this commit's time."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, message("one"))
    lane = await store.lanes.acquire(key, an_owner("ada"), nonce="turn-1", ttl=15)
    last = await store.commit(a_turn(key, lane, message("two"), disarm=True))
    clock.advance(100)
    rearm = Rearm(nonce="turn-2", ttl=20)
    receipt = await store.commit(
        a_save(key, message("three"), **under(lane), expected_commit=last.commit_number, rearm=rearm)
    )
    assert (receipt.generation, receipt.version) == (1, 3)
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.state, view.generation, view.owner) == ("held", 1, an_owner("ada"))
    assert view.expires_at == receipt.committed_at + timedelta(seconds=20)
    assert receipt.committed_at == last.committed_at + timedelta(seconds=100)
    again = await store.lanes.acquire(key, an_owner("ada"), nonce="turn-2")
    assert (again.generation, again.displaced) == (1, None)
    await busy(store, key, owner=an_owner("ada"), nonce="turn-1")


async def _rearm_missed(store: Store, lane: Lane, commit_number: int) -> None:
    before = await store.dump()
    commit = a_save(lane.key, message("stale"), **under(lane), expected_commit=commit_number)
    with pytest.raises(LaneLost):
        await store.commit(replace(commit, rearm=Rearm(nonce="turn-2", ttl=20)))
    assert await store.dump() == before


async def test_rearm_of_a_lane_still_armed_writes_nothing(store: Store) -> None:
    """That holds for one's own lane too."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await _rearm_missed(store, lane, created.commit_number)


async def test_rearm_after_another_took_the_lane_writes_nothing(store: Store) -> None:
    """Held by the successor, and also once the successor has disarmed."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada"))
    await store.lanes.disarm(lane)
    other = await store.lanes.acquire(key, an_owner("bob"))
    await _rearm_missed(store, lane, created.commit_number)
    await store.lanes.disarm(other)
    await _rearm_missed(store, lane, created.commit_number)


async def test_rearm_after_another_commit_writes_nothing(store: Store) -> None:
    """A lane-less write in between makes the cached copy stale."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await store.lanes.disarm(lane)
    await store.commit(a_save(key, message("by somebody without a lane")))
    await _rearm_missed(store, lane, created.commit_number)


@pytest.mark.parametrize("changes", [{"generation": 2}, {"generation": 0}, {"nonce": "guessed"}], ids=str)
async def test_disarm_with_a_wrong_generation_or_nonce_is_refused(store: Store, changes: dict[str, Any]) -> None:
    """The holder's lane is untouched."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(replace(lane, **changes))
    assert await store.dump() == before


async def test_second_disarm_is_refused(store: Store) -> None:
    """It is refused while nobody holds the lane, and once a successor does, who keeps it."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    await store.lanes.disarm(lane)
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    successor = await store.lanes.acquire(lane.key, an_owner("successor"))
    before = await store.dump()
    with pytest.raises(LaneLost) as refused:
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    assert (refused.value.expected, refused.value.found) == (1, successor.generation)


async def test_disarm_of_an_unknown_lane_is_refused_and_creates_nothing(store: Store) -> None:
    """A lane of an id that never had one."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(replace(lane, key=a_key()))
    assert await store.dump() == before


async def test_a_displaced_runner_cannot_append_events_renew_or_disarm(harness: Harness) -> None:
    """Each is refused and nothing changes, while the successor does each of them."""
    store, lane, run, successor = await a_displaced_runner(harness)
    before = await store.dump()
    for ref in (run, None):
        with pytest.raises(LaneLost):
            await store.events.append(lane, [NewEvent(type="stale")], run=ref)
    assert (await store.lanes.renew([lane], ttl=900)).lost == {lane.key}
    with pytest.raises(LaneLost):
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    assert await store.events.append(successor, [NewEvent(type="fresh")]) == 1
    assert (await store.lanes.renew([successor])).renewed == {lane.key}
    await store.lanes.disarm(successor)


async def test_the_turns_last_commit_disarms_and_keeps_owner_and_generation(store: Store) -> None:
    """Free to take at once, by anyone."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-3"), ttl=3600)
    await store.commit(a_turn(key, lane, message("done"), disarm=True))
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.state, view.generation, view.owner) == ("free", 1, an_owner("ada", "boot-3"))
    with pytest.raises(LaneLost):
        await store.commit(a_save(key, message("after the end"), **under(lane)))
    with pytest.raises(LaneLost):
        await store.events.append(lane, [NewEvent(type="after the end")])
    assert (await store.lanes.acquire(key, an_owner("bob"))).generation == 2


async def test_repeating_a_landed_last_commit_does_not_touch_the_successors_lane(store: Store) -> None:
    """The receipt comes back and nothing else happens."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada"))
    last = a_turn(key, lane, message("done"), disarm=True)
    receipt = await store.commit(last)
    await store.lanes.acquire(key, an_owner("bob"))
    before = await store.dump()
    assert await store.commit(last) == replace(receipt, replayed=True)
    assert await store.dump() == before
