"""Runs on a session of a store that can neither lock nor compare versions: those of one process wait for each other."""

import asyncio
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import LaneBusy
from tenuto.graph.session.foreign_store import default_concurrency
from tenuto.graph.session.process_locks import ProcessLocks
from tenuto.graph.warnings import SessionNotGuarded
from tests.graph.session.test_foreign_session import Locks, Shelf, Versions
from tests.graph.talking import Body, ended, line, says


def slow(text: str) -> Body:
    async def body(_: Any) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        return {"messages": [text]}

    return body


@pytest.mark.parametrize(
    ("shelf", "mode"), [(Shelf(), "exclusive"), (Versions(), "optimistic"), (Locks(), "exclusive")]
)
def test_a_store_of_the_users_own_is_used_as_well_as_it_can_be(shelf: Shelf, mode: str) -> None:
    assert default_concurrency(shelf) == mode
    assert line(slow("a"), store=shelf).session.concurrency == mode


def test_a_save_that_takes_anything_is_not_thought_to_compare_versions() -> None:
    class Loose(Shelf):
        async def save(self, session_id: str, record: Any, **options: Any) -> Any: ...

    assert default_concurrency(Loose()) == "exclusive"
    assert line(slow("a"), store=Loose()).session.is_guarded_here


@pytest.mark.parametrize("shelf", [Shelf(), Locks()])
async def test_no_reply_is_lost_by_default_within_a_process(shelf: Shelf) -> None:
    graphs = [line(slow(f"r{number}"), store=shelf) for number in range(6)]
    outs = await asyncio.gather(*[graph.run(session_id="s") for graph in graphs])
    assert [ended(out) for out in outs] == ["completed"] * 6
    assert shelf.rows["s"].state["messages"] == [f"r{number}" for number in range(6)]


async def test_by_default_no_later_save_of_a_store_with_versions_wins_over_an_earlier_one() -> None:
    shelf = Versions()

    async def overtaken(_: Any) -> Mapping[str, Any]:
        assert ended(await line(says("other"), store=shelf).run(session_id="s")) == "completed"
        return {"messages": ["mine"]}

    assert ended(await line(overtaken, store=shelf).run(session_id="s")) == "failed: session_write_conflict"
    assert shelf.rows["s"].state["messages"] == ["other"]


def told_by(*graphs: Any) -> list[warnings.WarningMessage]:
    async def twice() -> None:
        for graph in graphs * 2:
            await graph.run(session_id="s")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(twice())
    return [each for each in caught if each.category is SessionNotGuarded]


def test_only_what_is_guarded_within_the_process_alone_is_warned_of_once_per_graph() -> None:
    (once,) = told_by(
        line(says("a"), store=Shelf()),
        line(says("b"), store=Versions()),
        line(says("c"), store=Locks()),
        line(says("d"), store=Shelf(), concurrency="last_write_wins"),
    )
    assert "Shelf" in str(once.message)
    assert "two processes" in str(once.message)
    assert Path(once.filename) == Path(__file__)


async def test_bound_to_a_whole_store_it_waits_for_the_lane_again(store: Store) -> None:
    for shelf in (Shelf(), Versions()):
        bound = line(says("a"), store=shelf).bind(store)
        assert (bound.session.concurrency, bound.session.is_guarded_here) == ("exclusive", False)


async def test_a_run_that_waits_too_long_is_refused_as_busy_and_leaves_the_line() -> None:
    shelf, inside, go = Shelf(), asyncio.Event(), asyncio.Event()

    async def hold(_: Any) -> Mapping[str, Any]:
        inside.set()
        await go.wait()
        return {"messages": ["first"]}

    first = asyncio.create_task(line(hold, store=shelf).run(session_id="s"))
    await inside.wait()
    busy = await line(says("busy"), store=shelf, lane_wait=0.01).run(session_id="s")
    assert isinstance(busy.error, LaneBusy)
    assert ended(await line(says("elsewhere"), store=shelf).run(session_id="t")) == "completed"
    waiting = asyncio.create_task(line(says("next"), store=shelf).run(session_id="s"))
    cancelled = asyncio.create_task(line(says("cancelled"), store=shelf).run(session_id="s"))
    await asyncio.sleep(0)
    cancelled.cancel()
    go.set()
    assert ended(await first) == "completed"
    assert ended(await waiting) == "completed"
    assert shelf.rows["s"].state["messages"] == ["first", "next"]


async def test_another_threads_run_waits_too() -> None:
    store, order = object(), []
    locks = ProcessLocks(store)
    await locks.acquire_lock("s")

    async def other() -> None:
        theirs = ProcessLocks(store)
        await theirs.acquire_lock("s")
        order.append("theirs")
        await theirs.release_lock("s")

    thread = threading.Thread(target=asyncio.run, args=(other(),))
    thread.start()
    await asyncio.sleep(0.02)
    order.append("ours")
    await locks.release_lock("s")
    await asyncio.to_thread(thread.join)
    assert order == ["ours", "theirs"]


async def test_a_run_whose_turn_came_as_it_was_cancelled_passes_it_on() -> None:
    locks = ProcessLocks(object())
    await locks.acquire_lock("s")
    second, third = (asyncio.create_task(locks.acquire_lock("s")) for _ in range(2))
    await asyncio.sleep(0)
    await locks.release_lock("s")
    second.cancel()
    await asyncio.wait_for(third, 5)
    assert second.cancelled()
    await locks.release_lock("s")
    await asyncio.wait_for(locks.acquire_lock("s"), 5)
    await locks.release_lock("s")
