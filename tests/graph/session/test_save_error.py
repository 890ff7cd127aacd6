"""A save at the end that fails: the run's result stands, and the save alone is made again."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store, TenutoError
from tenuto.errors import InvalidInput, LaneBusy, SessionSaveFailed, StoreUnavailable, VersionConflict
from tenuto.graph import GraphOutcome, save_session
from tenuto.model.lane import Owner
from tests.conftest import OurHarness
from tests.graph.conftest import FaultyStore
from tests.graph.talking import ended, held, line, nothing, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])


def save_failed(out: GraphOutcome[Any]) -> SessionSaveFailed:
    assert ended(out) == "failed: session_save_failed"
    assert isinstance(out.error, SessionSaveFailed)
    assert out.state is out.error.final_state
    assert out.error.operation_id
    assert out.error.retryable
    return out.error


@CHECKPOINTS
@pytest.mark.parametrize("concurrency", ["last_write_wins", "optimistic", "exclusive"])
@pytest.mark.parametrize("fault", ["refused", "landed"])
async def test_a_failed_save_at_the_end_is_made_good_by_repeating_it(
    faulty: FaultyStore, checkpoints: bool, concurrency: str, fault: str
) -> None:
    store = faulty if checkpoints else None
    await line(says("old"), store=faulty).invoke(session_id="s")

    async def last(_: Any) -> Mapping[str, Any]:
        nth = 2 if checkpoints else 1  # the checkpoint after this node goes through
        if fault == "landed":
            faulty.faults.lose_reply(nth)
        else:
            faulty.faults.fail_call(nth)
        return {"messages": ["answer"], "mood": "glad"}

    graph = line(last, store=faulty, checkpoints=store, concurrency=concurrency)
    out = await graph.run({"messages": ["ask"]}, session_id="s")
    error = save_failed(out)
    assert isinstance(error.__cause__, StoreUnavailable)
    assert error.final_state.messages == ["old", "ask", "answer"]
    transactions = faulty.faults.transactions
    await asyncio.sleep(0)
    assert faulty.faults.transactions == transactions  # the engine does not try again by itself
    for _ in range(2):
        await graph.save_again(error)
        assert (await held(faulty))["messages"] == ["old", "ask", "answer"]
    head = await faulty.head("s")
    assert head is not None
    assert head.version == 2
    (run,) = await faulty.runs.of_invocation(out.invocation_id)
    assert run.status == "completed"
    after = line(says("next"), store=faulty, concurrency=concurrency, lane_wait=0.0)
    assert (await after.invoke(session_id="s")).messages == ["old", "ask", "answer", "next"]


async def test_a_save_refused_as_busy_is_made_when_the_lane_is_free(harness: OurHarness) -> None:
    store, other = await harness.open(), await harness.open()
    await line(says("old"), store=store).invoke(session_id="s")
    lane = await other.lanes.acquire("s", Owner(owner_id="other", incarnation="1"))
    graph = line(says("answer"), store=store, concurrency="last_write_wins")
    error = save_failed(await graph.run(session_id="s"))
    assert isinstance(error.__cause__, LaneBusy)
    with pytest.raises(LaneBusy):
        await graph.save_again(error)
    await other.lanes.disarm(lane)
    await graph.save_again(error)
    assert (await held(store))["messages"] == ["old", "answer"]


async def test_a_save_made_again_later_wins_over_what_came_between(faulty: FaultyStore) -> None:
    async def last(_: Any) -> Mapping[str, Any]:
        faulty.faults.fail_call()
        return {"messages": ["late"]}

    graph = line(last, store=faulty, concurrency="last_write_wins")
    error = save_failed(await graph.run(session_id="s"))
    await line(says("between"), store=faulty).invoke(session_id="s")
    await graph.save_again(error)
    assert (await held(faulty))["messages"] == ["late"]


async def test_a_store_that_stays_away_leaves_an_error_that_can_be_repeated(faulty: FaultyStore) -> None:
    async def last(_: Any) -> Mapping[str, Any]:
        faulty.faults.cut()
        with pytest.raises(SessionSaveFailed):
            await save_session({"messages": ["a"]})
        return {"messages": ["a", "b"]}

    graph = line(last, store=faulty)
    error = save_failed(await graph.run(session_id="s"))
    with pytest.raises(TenutoError):
        await graph.save_again(error)
    faulty.faults.heal()
    await graph.save_again(error)
    assert (await held(faulty))["messages"] == ["a", "b"]


@pytest.mark.parametrize("nth", [1, 4, 5])
@pytest.mark.parametrize("fault", ["refused", "landed"])
async def test_a_big_save_that_failed_on_the_way_goes_on_where_it_stopped(
    faulty: FaultyStore, nth: int, fault: str
) -> None:
    many = [f"m{number}" for number in range(4800)]

    async def last(_: Any) -> Mapping[str, Any]:
        if fault == "landed":
            faulty.faults.lose_reply(nth)
        else:
            faulty.faults.fail_call(nth)
        return {"messages": many}

    graph = line(last, store=faulty)
    out = await graph.run({"messages": ["ask"]}, session_id="s")
    await graph.save_again(save_failed(out))
    assert (await held(faulty))["messages"] == ["ask", *many]
    (run,) = await faulty.runs.of_invocation(out.invocation_id)
    assert run.status == "completed"


async def test_an_optimistic_loser_gets_a_conflict_with_its_final_state(store: Store) -> None:
    async def last(_: Any) -> Mapping[str, Any]:
        await line(says("other"), store=store).invoke(session_id="s")
        return {"messages": ["mine"]}

    graph = line(last, store=store, concurrency="optimistic")
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: session_write_conflict"
    assert isinstance(out.error, VersionConflict)
    assert (out.error.retryable, out.error.expected, out.error.found) == (True, 0, 1)
    assert out.error.details()["final_state"].messages == ["mine"]
    assert (await held(store))["messages"] == ["other"]
    (run,) = await store.runs.of_invocation(out.invocation_id)
    assert run.status == "failed"
    with pytest.raises(InvalidInput):
        await graph.save_again(out.error)  # type: ignore[arg-type]


async def test_a_run_that_is_stopped_while_the_store_is_away_is_an_outcome(faulty: FaultyStore) -> None:
    async def first(_: Any) -> Mapping[str, Any]:
        faulty.faults.cut()
        return {}

    stops = iter([False, True])
    out = await line(first, nothing, store=faulty).run(session_id="s", stop=lambda: next(stops))
    assert ended(out) == "failed: checkpoint_save_failed"


async def test_a_first_checkpoint_whose_reply_was_lost_leaves_no_run_behind(faulty: FaultyStore) -> None:
    faulty.faults.lose_reply()
    graph = line(nothing, store=faulty, checkpoints=faulty, concurrency="last_write_wins")
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: checkpoint_save_failed"
    (run,) = await faulty.runs.of_invocation(out.invocation_id)
    assert run.status == "failed"
