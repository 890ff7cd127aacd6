"""Takeover: a displaced runner writes nothing, and a lapsed one until somebody takes over."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import LaneBusy, LaneLost, RunNotLive, SessionDeleted, VersionConflict
from tenuto.model.commit import EndRun, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.run import RunRef, RunStatus
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.lane_scene import a_displaced_runner, begin_under, busy, under


async def test_takeover_reports_the_lapsed_holder(harness: Harness) -> None:
    """Its last owner, generation and expiry, renewals included."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key = a_key()
    await store.lanes.disarm(await store.lanes.acquire(key, an_owner("first")))
    lapsed = await store.lanes.acquire(key, an_owner("second", "boot-2"), ttl=5)
    clock.advance(3)
    renewal = await store.lanes.renew([lapsed], ttl=5)
    clock.advance(60)
    lane = await store.lanes.acquire(key, an_owner("third"))
    assert lane.generation == 3
    assert lane.displaced is not None
    assert lane.displaced.owner == an_owner("second", "boot-2")
    assert (lane.displaced.generation, lane.displaced.expires_at) == (2, renewal.expires_at)


_WRITES: dict[str, dict[str, Any]] = {
    "save": {"save": True, "document": {"colour": "stale"}},
    "checkpoint": {"checkpoint": NewCheckpoint(step=3, cursor="stale")},
    "wait": {"open_waits": (OpenWait(kind="approval", signal_id="stale"),)},
    "event": {"events": (NewEvent(type="stale", data=1),)},
    "end": {"end": EndRun(status=RunStatus.COMPLETED), "disarm": True},
    "profile": {"profile": {"title": "stale"}},
    "nothing": {},
}


@pytest.mark.parametrize("what", _WRITES)
async def test_a_displaced_runner_cannot_commit(harness: Harness, what: str) -> None:
    """No save, checkpoint, wait, event, end or profile of it gets in, with or without its run."""
    store, lane, run, successor = await a_displaced_runner(harness)
    before = await store.dump()
    with pytest.raises(LaneLost) as refused:
        await store.commit(a_commit(lane.key, **under(lane, run=run, **_WRITES[what])))
    assert (refused.value.expected, refused.value.found) == (lane.generation, successor.generation)
    assert refused.value.category == "session_execution_lease_lost"
    if what in {"save", "event", "profile", "nothing"}:
        with pytest.raises(LaneLost):
            await store.commit(a_commit(lane.key, **under(lane, **_WRITES[what])))
    assert await store.dump() == before


async def test_a_displaced_runner_cannot_write_by_leaving_its_generation_out(harness: Harness) -> None:
    """A run begun under a lane writes under that lane or not at all."""
    store, lane, run, _ = await a_displaced_runner(harness)
    before = await store.dump()
    for parts in ({"checkpoint": NewCheckpoint(step=3)}, {"events": (NewEvent(type="stale"),)}):
        with pytest.raises((LaneLost, RunNotLive)):
            await store.commit(a_commit(lane.key, run=run, **parts))
    assert await store.dump() == before


async def test_a_runner_on_a_remembered_session_learns_of_its_takeover(harness: Harness) -> None:
    """The takeover comes through another opened store, right between two commits of a turn."""
    clock = FakeClock()
    mine, theirs = await harness.open(clock=clock), await harness.open(clock=clock)
    key, _ = await a_session(mine)
    lane = await mine.lanes.acquire(key, an_owner("old"), ttl=5)
    run = await begin_under(mine, lane, f"run-of-{key.session_id}")
    await mine.commit(a_save(key, message("mine"), **under(lane, run=run)))
    clock.advance(5)
    await theirs.lanes.acquire(key, an_owner("new"))
    before = await mine.dump()
    with pytest.raises(LaneLost):
        await mine.commit(a_save(key, message("stale"), **under(lane, run=run)))
    assert await mine.dump() == before


async def test_a_commit_under_a_lane_of_another_session_is_refused(store: Store) -> None:
    """Generations are per session; a number that fits by chance does not carry the run with it."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    run = await begin_under(store, lane, f"run-of-{key.session_id}")
    held = await store.lanes.acquire(other, an_owner("somebody"))
    assert held.generation == lane.generation
    before = await store.dump()
    with pytest.raises(RunNotLive):
        await store.commit(a_commit(other, **under(lane, run=run, events=(NewEvent(type="astray"),))))
    with pytest.raises(LaneLost):
        await store.commit(a_commit(a_key(), **under(lane, events=(NewEvent(type="astray"),))))
    with pytest.raises(RunNotLive):
        await store.events.append(replace(lane, key=other), [NewEvent(type="astray")], run=run)
    assert await store.dump() == before


async def test_a_run_that_is_not_the_lanes_current_one_cannot_write(store: Store) -> None:
    """Under the right generation, but a later run of the same lane has begun."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    former = await begin_under(store, lane, f"former-of-{key.session_id}")
    current = await begin_under(store, lane, f"current-of-{key.session_id}")
    before = await store.dump()
    for run in (former, replace(current, attempt=2), RunRef(run_id="unknown")):
        for parts in ({"open_waits": (OpenWait(kind="signal"),)}, {"checkpoint": NewCheckpoint(step=1)}, {"steps": 4}):
            with pytest.raises(RunNotLive):
                await store.commit(a_commit(key, **under(lane, run=run, **parts)))
        with pytest.raises(RunNotLive):
            await store.events.append(lane, [NewEvent(type="stale")], run=run)
    assert await store.dump() == before
    await store.commit(a_commit(key, **under(lane, run=current, steps=4)))


async def test_a_lapsed_lane_that_nobody_took_still_writes(harness: Harness) -> None:
    """Wait, event, batch and save all land, and the lane is renewable."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner(), ttl=5)
    run = await begin_under(store, lane, f"run-of-{key.session_id}")
    clock.advance(3600)
    events = (NewEvent(type="late"),)
    waits = (OpenWait(kind="signal"),)
    await store.commit(a_save(key, message("late"), **under(lane, run=run, events=events, open_waits=waits)))
    assert await store.events.append(lane, events, run=run) == 2
    assert len(await store.waits.of_session(key)) == 1
    assert (await store.lanes.renew([lane])).renewed == {key}
    await busy(store, key)


async def test_a_laneless_save_is_busy_exactly_while_a_lane_is_armed_and_live(harness: Harness) -> None:
    """Free, held, lapsed and disarmed in turn."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    await store.commit(a_save(key, message("before")))
    lane = await store.lanes.acquire(key, an_owner("ada"), ttl=15)
    clock.advance(14.999)
    before = await store.dump()
    record = await store.load(key)
    assert record is not None
    with pytest.raises(LaneBusy) as refused:
        await store.commit(a_save(key, message("during")))
    with pytest.raises(LaneBusy):
        await store.save(key, replace(record, state={"messages": []}))
    assert (refused.value.owner, refused.value.generation) == ("ada", 1)
    assert await store.dump() == before
    clock.advance(0.001)
    await store.commit(a_save(key, message("lapsed")))
    await store.lanes.renew([lane])
    with pytest.raises(LaneBusy):
        await store.commit(a_save(key, message("again")))
    await store.lanes.disarm(lane)
    await store.commit(a_save(key, message("disarmed")))
    loaded = await store.load(key)
    assert loaded is not None
    assert [item["content"] for item in loaded.state["messages"]] == ["before", "lapsed", "disarmed"]


async def test_a_laneless_commit_that_moves_no_head_lands_beside_a_held_lane(store: Store) -> None:
    """Only head moves are refused."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    receipt = await store.commit(a_commit(key, profile={"title": "renamed"}, events=(NewEvent(type="renamed"),)))
    assert (receipt.version, receipt.event_seq) == (1, 1)
    await store.commit(a_save(key, message("mine"), **under(lane)))


async def test_a_receipt_goes_to_a_displaced_holder_too(harness: Harness) -> None:
    """What had landed before the takeover returns its receipt, anything else is lost."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("old"), ttl=5)
    landed = a_turn(key, lane, message("landed"))
    receipt = await store.commit(landed)
    clock.advance(5)
    await store.lanes.acquire(key, an_owner("new"))
    before = await store.dump()
    assert await store.commit(landed) == replace(receipt, replayed=True)
    with pytest.raises(LaneLost):
        await store.commit(a_turn(key, lane, message("not landed")))
    assert await store.dump() == before


async def test_a_displaced_holders_last_commit_is_refused_whole(harness: Harness) -> None:
    """It neither lands without its release, nor releases the successor's lane."""
    store, lane, run, successor = await a_displaced_runner(harness)
    before = await store.dump()
    end = EndRun(status=RunStatus.COMPLETED)
    with pytest.raises(LaneLost):
        await store.commit(a_save(lane.key, message("too late"), **under(lane, run=run, end=end, disarm=True)))
    assert await store.dump() == before
    assert (await store.lanes.renew([successor])).renewed == {lane.key}


async def test_of_two_laneless_writers_on_one_version_one_conflicts(store: Store) -> None:
    """The loser learns what it expected and what it found."""
    key, _ = await a_session(store)
    commits = [a_save(key, message(name), expected_version=1) for name in ("left", "right")]
    async with asyncio.timeout(20):
        results = await asyncio.gather(*map(store.commit, commits), return_exceptions=True)
    conflicts = [result for result in results if isinstance(result, VersionConflict)]
    landed = [result for result in results if not isinstance(result, BaseException)]
    assert [(conflict.expected, conflict.found) for conflict in conflicts] == [(1, 2)]
    assert [receipt.version for receipt in landed] == [2]


async def test_two_laneless_writers_without_a_version_both_land(store: Store) -> None:
    """They land one after the other."""
    key, _ = await a_session(store)
    async with asyncio.timeout(20):
        receipts = await asyncio.gather(*(store.commit(a_save(key, message(name))) for name in ("left", "right")))
    assert sorted(receipt.version for receipt in receipts) == [2, 3]
    loaded = await store.load(key)
    assert loaded is not None
    assert sorted(item["content"] for item in loaded.state["messages"]) == ["left", "right"]


async def test_acquire_that_names_a_former_life_is_refused(store: Store) -> None:
    """A session deleted meanwhile is not mistaken for a free lane."""
    key, created = await a_session(store)
    await store.delete(key)
    before = await store.dump()
    with pytest.raises(SessionDeleted) as refused:
        await store.lanes.acquire(key, an_owner(), life=created.life)
    assert (refused.value.expected_life, refused.value.found_life) == (1, 2)
    assert await store.dump() == before
