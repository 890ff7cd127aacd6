"""The keeper renews from its own thread, tries again, and tells of what is lost."""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import StoreUnavailable
from tenuto.graph.engine.scope import current_scope
from tenuto.model.lane import Owner
from tenuto.model.run import RunRef
from tenuto.model.session import SessionKey
from tenuto.store.facets.lanes import Lanes
from tenuto.store.keeper import Keeper
from tenuto.testing.faults import FaultyBackend
from tenuto.writing.run_writer import RunWriter
from tests.conftest import OurHarness
from tests.graph.talking import ended, held, line, says
from tests.polling import until

KEY = SessionKey("s")
OWNER = Owner(owner_id="me", incarnation="1")


def quick(store: Store, ttl: float = 30.0) -> Keeper:
    store.keeper = Keeper(store, ttl=ttl, every=0.02)
    return store.keeper


async def expiry(store: Store) -> Any:
    view = await store.lanes.inspect(KEY)
    assert view is not None
    return view.expires_at


async def test_a_lane_is_renewed_while_the_event_loop_is_blocked(store: Store) -> None:
    lane = await store.lanes.acquire(KEY, OWNER, ttl=30.0)
    lost: list[str] = []
    holding = quick(store).hold(lane, lambda: lost.append("lost"))
    for _ in range(200):
        time.sleep(0.02)  # noqa: ASYNC251 - the loop stands still meanwhile
        if await expiry(store) > lane.expires_at:
            break
    else:
        pytest.fail("nobody renewed the lane")
    store.keeper.release(holding)
    store.keeper.release(holding)
    assert lost == []


async def test_what_is_lost_is_told_once_on_the_holders_loop(store: Store) -> None:
    lane = await store.lanes.acquire(KEY, OWNER, ttl=30.0)
    kept = await store.lanes.acquire("other", OWNER, ttl=30.0)
    told: asyncio.Queue[Any] = asyncio.Queue()
    keeper = quick(store)
    keeper.hold(lane, lambda: told.put_nowait(("lane", threading.current_thread())))
    keeper.hold(RunRef(run_id="never"), lambda: told.put_nowait(("run", threading.current_thread())))
    keeper.hold(kept, lambda: told.put_nowait(("kept", None)))
    await store.lanes.disarm(lane)
    async with asyncio.timeout(10):
        first, second = await told.get(), await told.get()
    assert {first, second} == {("lane", threading.main_thread()), ("run", threading.main_thread())}
    await keeper.aclose()
    assert told.empty()


async def test_a_renewal_that_fails_is_tried_again_until_the_time_is_up(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, renew = threading.Event(), Lanes.renew

    async def noting(*arguments: Any, **options: Any) -> Any:
        try:
            return await renew(*arguments, **options)
        except StoreUnavailable:
            failed.set()
            raise

    monkeypatch.setattr(Lanes, "renew", noting)
    inner = await harness.open()
    faults = FaultyBackend(inner.backend)
    store = Store(faults)
    lane = await store.lanes.acquire(KEY, OWNER, ttl=30.0)
    lost: list[str] = []
    quick(store).hold(lane, lambda: lost.append("lost"))
    faults.cut()
    await until(failed.is_set)
    faults.heal()
    before = await expiry(inner)

    async def is_renewed() -> bool:
        return bool(await expiry(inner) > before)

    await until(is_renewed)
    assert lost == []
    await store.keeper.aclose()


async def test_what_cannot_be_renewed_in_time_is_given_up(harness: OurHarness) -> None:
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    lane = await store.lanes.acquire(KEY, OWNER, ttl=0.2)
    lost = asyncio.Event()
    quick(store, ttl=0.2).hold(lane, lost.set)
    faults.cut()
    async with asyncio.timeout(10):
        await lost.wait()
    faults.heal()
    await store.keeper.aclose()


async def test_closing_ends_the_thread_and_holding_afterwards_starts_none(store: Store) -> None:
    keeper = quick(store)
    keeper.hold(RunRef(run_id="r"), lambda: None)
    assert [thread.name for thread in threading.enumerate()].count("tenuto-keeper") >= 1
    thread = keeper._thread
    assert thread is not None
    await keeper.aclose()
    await keeper.aclose()
    assert not thread.is_alive()
    keeper.hold(RunRef(run_id="r"), lambda: None)
    assert keeper._thread is thread


async def test_a_turn_whose_lane_is_taken_is_stopped_and_says_so(store: Store) -> None:
    quick(store)

    async def robbed(_: Any) -> Mapping[str, Any]:
        scope = current_scope()
        assert scope is not None
        await store.lanes.disarm(scope.frame.run.journal.writer.lane)
        await store.lanes.acquire(KEY, OWNER)
        await asyncio.Event().wait()
        return {}

    async with asyncio.timeout(10):
        out = await line(says("old"), robbed, store=store, concurrency="exclusive").run(session_id="s")
    task = asyncio.current_task()
    assert task is not None
    assert (ended(out), task.cancelling()) == ("failed: session_execution_lease_lost", 0)
    assert await held(store) == {}


async def test_a_turn_that_is_over_is_not_cancelled_by_a_late_word(store: Store) -> None:
    turn = RunWriter.under(store, await store.lanes.acquire(KEY, OWNER))
    turn.release()
    turn._lose()
    task = asyncio.current_task()
    assert task is not None
    assert (turn.lost, task.cancelling()) == (None, 0)
