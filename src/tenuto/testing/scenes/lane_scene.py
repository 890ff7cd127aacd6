"""Runners on a lane."""

from typing import Any

import pytest

from tenuto.errors import LaneBusy
from tenuto.model.commit import BeginRun
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_session, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness


def under(lane: Lane, **parts: Any) -> dict[str, Any]:
    """Return what every commit under this lane names."""
    return {"generation": lane.generation, "life": lane.life} | parts


async def begin_under(store: Store, lane: Lane, run_id: str, **parts: Any) -> RunRef:
    """Begin a run under a lane."""
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    await store.commit(a_commit(lane.key, **under(lane, run=begin, **parts)))
    return RunRef(run_id=run_id)


async def busy(store: Store, key: SessionKey, **acquire: Any) -> LaneBusy:
    """Try to acquire a held lane; return the refusal, having checked that nothing changed."""
    before = await store.dump()
    with pytest.raises(LaneBusy) as refused:
        await store.lanes.acquire(key, acquire.pop("owner", an_owner("rival", "rival-boot")), **acquire)
    assert await store.dump() == before
    return refused.value


async def a_displaced_runner(harness: Harness) -> tuple[Store, Lane, RunRef, Lane]:
    """Return a store, the lane and run of a runner that was taken over, and the successor's lane."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, message("one"))
    lane = await store.lanes.acquire(key, an_owner("old", "boot-1"), nonce="old-turn", ttl=5)
    run = await begin_under(store, lane, f"run-of-{key.session_id}")
    clock.advance(5)
    successor = await store.lanes.acquire(key, an_owner("new", "boot-2"), nonce="new-turn", ttl=60)
    return store, lane, run, successor
