"""Renewing lanes and runs: what is still held is renewed, and what was lost is named."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from tenuto.errors import LaneBusy
from tenuto.model.commit import BeginRun, EndRun
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_session, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.lane_scene import begin_under


async def test_one_renewal_names_the_lost_lanes_and_renews_the_others(harness: Harness) -> None:
    """Stale generation, wrong nonce, disarmed, unknown and deleted are lost; live and lapsed ones are renewed."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    names = ("live", "lapsed", "stale", "forged", "disarmed", "deleted")
    keys = {name: a_key() for name in names}
    lanes = {n: await store.lanes.acquire(key, an_owner(n), ttl=5 if n == "lapsed" else 60) for n, key in keys.items()}
    clock.advance(10)
    await store.lanes.disarm(lanes["stale"])
    await store.lanes.acquire(keys["stale"], an_owner("successor"), ttl=60)
    await store.lanes.disarm(lanes["disarmed"])
    await store.delete(keys["deleted"])
    unknown = replace(lanes["live"], key=a_key())
    held = [*lanes.values(), unknown]
    held[names.index("forged")] = replace(lanes["forged"], nonce="guessed")
    before = await store.dump()
    renewal = await store.lanes.renew(held, ttl=90)
    assert renewal.renewed == {keys["live"], keys["lapsed"]}
    assert renewal.lost == {keys["stale"], keys["forged"], keys["disarmed"], keys["deleted"], unknown.key}
    assert renewal.expires_at == lanes["live"].claimed_at + timedelta(seconds=100)
    after = await store.dump()
    moved = {row["session_id"] for row in after["session"] if row not in before["session"]}
    assert moved == {keys["live"].session_id, keys["lapsed"].session_id}
    for name in ("live", "lapsed"):
        view = await store.lanes.inspect(keys[name])
        assert view is not None
        assert (view.state, view.generation, view.expires_at) == ("held", 1, renewal.expires_at)


async def test_renewal_that_meets_nothing_of_ones_own_names_all_as_lost(store: Store) -> None:
    """A renewal that hits no row is a refusal."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner())
    before = await store.dump()
    renewal = await store.lanes.renew([replace(lane, generation=2)])
    assert renewal.renewed == set()
    assert renewal.lost == {key}
    assert await store.dump() == before


async def test_renewal_never_shortens_a_lane(harness: Harness) -> None:
    """A late renewal with a shorter ttl keeps the later expiry, and returns it."""
    store = await harness.open(clock=FakeClock())
    lane = await store.lanes.acquire(a_key(), an_owner(), ttl=60)
    renewal = await store.lanes.renew([lane], ttl=1)
    assert renewal.expires_at == lane.expires_at


async def test_runs_without_a_lane_are_renewed_and_the_lost_ones_named(harness: Harness) -> None:
    """Ended, unknown, taken and laned runs are not renewed; a live one is, even when overdue."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    for name in ("live", "ended"):
        begin = BeginRun(run_id=name, invocation_id=f"inv-{name}", ttl=5)
        end = EndRun(status=RunStatus.FAILED) if name == "ended" else None
        await store.commit(a_commit(a_key(), run=begin, end=end))
    lane = await store.lanes.acquire(a_key(), an_owner())
    await begin_under(store, lane, "laned")
    clock.advance(30)
    refs = [RunRef(run_id=name) for name in ("live", "ended", "laned", "unknown")]
    renewal = await store.lanes.renew([], ttl=7, runs=refs)
    assert renewal.lost_runs == {"ended", "laned", "unknown"}
    run = await store.runs.get("live")
    assert run is not None
    assert run.expires_at == run.started_at + timedelta(seconds=37)
    wrong = await store.lanes.renew([], ttl=70, runs=[RunRef(run_id="live", attempt=2)])
    assert wrong.lost_runs == {"live"}
    assert await store.runs.get("live") == run


async def test_a_stale_renew_against_a_takeover_leaves_the_successors_row(harness: Harness) -> None:
    """At the same moment, ten times over: the renew came before, or is lost and the row is the successor's."""
    clock = FakeClock()
    stale, fresh = await harness.open(clock=clock), await harness.open(clock=clock)
    for _ in range(10):
        key = a_key()
        lane = await stale.lanes.acquire(key, an_owner("old"), ttl=5)
        clock.advance(5)
        async with asyncio.timeout(20):
            renewal, taken = await asyncio.gather(stale.lanes.renew([lane], ttl=60), _take(fresh, key))
        view = await fresh.lanes.inspect(key)
        assert view is not None
        if isinstance(taken, Lane):
            assert (view.owner, view.generation) == (an_owner("new"), 2)
            assert view.expires_at == taken.expires_at
            assert (await stale.lanes.renew([lane])).lost == {key}
        else:
            assert renewal.renewed == {key}
            assert (view.owner, view.generation) == (an_owner("old"), 1)


async def _take(store: Store, key: SessionKey) -> Lane | str:
    try:
        return await store.lanes.acquire(key, an_owner("new"), ttl=30)
    except LaneBusy:
        return "busy"


async def test_inspect_shows_unknown_held_lapsed_and_free_lanes_and_changes_nothing(harness: Harness) -> None:
    """A disarmed lane names its last owner and generation."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    assert await store.lanes.inspect(key) is None
    assert await store.lanes.inspect(a_key()) is None
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-3"), ttl=15)
    seen = []
    for seconds in (14.999, 0.001):
        clock.advance(seconds)
        before = await store.dump()
        seen.append(await store.lanes.inspect(key))
        assert await store.dump() == before
    await store.lanes.disarm(lane)
    seen.append(await store.lanes.inspect(key))
    assert [view.state if view else None for view in seen] == ["held", "lapsed", "free"]
    assert {(view.key, view.generation, view.owner) for view in seen if view} == {(key, 1, an_owner("ada", "boot-3"))}
    assert [view.expires_at for view in seen[:2] if view] == [lane.expires_at] * 2


async def test_orphans_are_the_running_runs_whose_runner_is_gone(harness: Harness) -> None:
    """Lane lapsed, disarmed or taken, or renewal overdue; oldest first, live and ended runs left out."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    names = ("lapsed", "disarmed", "taken", "live")
    lanes = {}
    for name in names:
        clock.advance(0.1)
        lanes[name] = await store.lanes.acquire(a_key(), an_owner(name), ttl=60 if name == "live" else 5)
        await begin_under(store, lanes[name], f"run-{name}")
    clock.advance(0.1)
    await store.commit(a_commit(a_key(), run=BeginRun(run_id="overdue", invocation_id="inv-overdue", ttl=5)))
    await store.commit(a_commit(a_key(), run=BeginRun(run_id="renewed", invocation_id="inv-renewed", ttl=60)))
    assert await store.lanes.orphans() == []
    await store.lanes.disarm(lanes["disarmed"])
    assert [run.run_id for run in await store.lanes.orphans()] == ["run-disarmed"]
    clock.advance(5)
    await store.lanes.acquire(lanes["taken"].key, an_owner("successor"))
    orphans = await store.lanes.orphans()
    assert [run.run_id for run in orphans] == ["run-lapsed", "run-disarmed", "run-taken", "overdue"]
    assert [run.run_id for run in await store.lanes.orphans(limit=2)] == ["run-lapsed", "run-disarmed"]
