"""Waiting for a session's lane."""

import asyncio
import os
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import LaneBusy
from tenuto.model.lane import Owner
from tenuto.model.session import SessionKey
from tenuto.testing.fake_clock import FakeClock
from tenuto.writing.lane_claim import in_line, take_lane, this_owner
from tests.conftest import OurHarness
from tests.runtime.seams import lines

KEY = SessionKey("s")
OTHER = Owner(owner_id="other", incarnation="1")


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_a_free_lane_is_taken_at_once_under_this_processs_name(store: Store) -> None:
    lane = await take_lane(store, KEY, deadline=soon(0.0))
    assert (lane.owner, lane.key) == (this_owner(), KEY)
    assert lane.owner.host is not None
    assert lane.owner.host.pid == os.getpid()


async def test_a_busy_lane_is_asked_for_until_the_deadline_and_then_says_who_has_it(store: Store) -> None:
    held = await store.lanes.acquire(KEY, OTHER)
    polls: list[int] = []

    async def meanwhile() -> None:
        polls.append(1)

    with pytest.raises(LaneBusy) as raised:
        await take_lane(store, KEY, deadline=soon(0.5), meanwhile=meanwhile)
    assert (raised.value.owner, raised.value.generation) == ("other", held.generation)
    assert polls
    waiting = asyncio.create_task(take_lane(store, KEY, deadline=soon()))
    await asyncio.sleep(0)
    await store.lanes.disarm(held)
    assert (await waiting).generation > held.generation


async def test_meanwhile_may_give_up(store: Store) -> None:
    await store.lanes.acquire(KEY, OTHER)

    async def enough() -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        await take_lane(store, KEY, deadline=soon(), meanwhile=enough)


async def test_a_silent_holder_is_displaced_after_its_time_and_a_renewing_one_never(harness: OurHarness) -> None:
    clock = FakeClock()
    store = await harness.open(clock=clock)
    held = await store.lanes.acquire(KEY, OTHER, ttl=15.0)
    clock.advance(14.0)
    await store.lanes.renew([held], ttl=15.0)
    clock.advance(14.0)
    with pytest.raises(LaneBusy):
        await take_lane(store, KEY, deadline=soon(0.0))
    clock.advance(1.0)
    lane = await take_lane(store, KEY, deadline=soon(0.0))
    assert lane.displaced is not None
    assert lane.displaced.generation == held.generation


async def test_one_who_is_cancelled_while_the_lane_is_granted_gives_it_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted, acquire = asyncio.Event(), store.lanes.acquire

    async def slow(*args: Any, **options: Any) -> Any:
        lane = await acquire(*args, **options)
        if not granted.is_set():
            granted.set()
            await asyncio.Event().wait()
        return lane

    monkeypatch.setattr(store.lanes, "acquire", slow)
    taking = asyncio.create_task(take_lane(store, KEY, deadline=soon()))
    await granted.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    view = await store.lanes.inspect(KEY)
    assert view is not None
    assert view.state == "free"


async def test_a_line_is_first_come_first_served_and_leaves_nothing_behind(store: Store) -> None:
    order: list[int] = []

    async def stands(number: int) -> None:
        async with in_line(store, KEY, soon()):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*[stands(number) for number in range(6)])
    assert order == list(range(6))
    assert not lines(store)


async def test_a_line_is_left_at_the_deadline_and_by_those_who_are_cancelled(store: Store) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def holds() -> None:
        async with in_line(store, KEY, soon()):
            inside.set()
            await go.wait()

    async def stands(deadline: float) -> str:
        async with in_line(store, KEY, deadline):
            return "through"

    holder = asyncio.create_task(holds())
    await inside.wait()
    assert await stands(soon(0.01)) == "through"
    waiter, cancelled = asyncio.create_task(stands(soon())), asyncio.create_task(stands(soon()))
    await asyncio.sleep(0)
    cancelled.cancel()
    go.set()
    assert await waiter == "through"
    await holder
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not lines(store)


async def test_other_sessions_and_tenants_stand_in_other_lines(store: Store) -> None:
    async with (
        in_line(store, KEY, soon()),
        in_line(store, SessionKey("t"), soon()),
        in_line(store, SessionKey("s", tenant="a"), soon()),
    ):
        assert lines(store) == 3
