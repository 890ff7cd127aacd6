"""Usage: what model calls cost, counted once whatever is repeated, and summed over runs and children."""

import asyncio
from typing import Any

import pytest

from tenuto.errors import InvalidInput, StoreUnavailable, UsageOutOfRange
from tenuto.model.token_usage import UsageTotals
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.testing.agent import Request, ScriptedAgent
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, in_memory


async def test_a_replayed_call_is_counted_once_and_a_second_real_one_again(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        async def model() -> Any:
            turn.record_usage("m", source="provider", input=10, output=3, cache_read=2, cache_write=1, reasoning=4)
            return "hi"

        await turn.effect("first", model, None, kind="model")  # replayed when the turn goes on
        await turn.wait("go")
        await turn.effect("second", model, None, kind="model")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    (wait,) = (await runtime.send("s", "hi")).waits
    await (await database.runtime(asks)).answer(wait.wait_id, None)
    report = await runtime.session("s").usage()
    assert report.total == UsageTotals(calls=2, input=20, output=6, cache_read=4, cache_write=2, reasoning=8)
    assert [run.usage.total.calls for run in await runtime.session("s").runs()] == [1, 1]
    assert await runtime.session("s").usage() == report


async def test_what_is_counted_beside_a_call_is_counted_once_by_its_word(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        for name in ("a", "b"):
            turn.record_usage("m", once=name, input=1)
        await turn.wait("one")
        turn.record_usage("m", once="a", input=1)
        await turn.wait("two")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    await runtime.send("s", "hi")
    for _ in range(2):
        (wait,) = await runtime.session("s").waits()
        await (await database.runtime(asks)).answer(wait.wait_id, None)
    assert (await runtime.session("s").usage()).total.input == 2
    assert (await runtime.send("s", "again")).suspended
    assert (await runtime.session("s").usage()).total.input == 4


async def test_a_run_that_was_taken_over_counts_what_was_recorded_once(harness: OurHarness) -> None:
    """The first call is on record when the runner dies, the second is not: it is made, and counted, once more."""
    gate, asked = Gate(), list[int]()

    async def model(request: Request) -> dict[str, Any]:
        asked.append(len(request.messages))
        if len(request.messages) == 1:
            call = {"id": "c", "name": "unknown", "arguments": {}}
            return {"role": "assistant", "content": "", "tool_calls": [call], "usage": {"input": 100}}
        await gate()
        return {"role": "assistant", "content": "done", "usage": {"input": 7}}

    made = ScriptedAgent(model=model)
    database = Database(harness)
    first = await database.runtime(made)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    second = await database.runtime(made)
    await second.drain()
    assert asked == [1, 3, 3]
    (info,) = await second.session("s").runs()
    assert (info.run.attempt, info.usage.total) == (2, UsageTotals(calls=2, input=107))
    assert (await second.session("s").usage()).total == info.usage.total


async def test_a_commit_whose_reply_was_lost_counts_once(harness: OurHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    @program
    async def asks(turn: Turn) -> None:
        turn.record_usage("m", input=5)
        turn.append({"role": "assistant", "content": "hi"})

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    commit, lost = runtime.store.commit, list[str]()

    async def losing(given: Any) -> Any:
        receipt = await commit(given)
        if given.usage and not lost:
            lost.append(given.operation_id)
            raise StoreUnavailable("The reply was lost.")
        return receipt

    monkeypatch.setattr(runtime.store, "commit", losing)
    assert (await runtime.send("s", "hi")).completed
    assert len(lost) == 1
    assert (await runtime.session("s").usage()).total == UsageTotals(calls=1, input=5)


async def test_calls_with_reasoning_alone_are_kept_and_models_are_told_apart(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        turn.record_usage("thinker", reasoning=40)
        turn.record_usage("thinker", source="planner")
        turn.record_usage("writer", source="planner", output=2)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    await runtime.send("s", "hi")
    report = await runtime.session("s").usage()
    assert report.by_model == {"thinker": UsageTotals(calls=2, reasoning=40), "writer": UsageTotals(calls=1, output=2)}
    assert report.by_source == {"": UsageTotals(calls=1, reasoning=40), "planner": UsageTotals(calls=2, output=2)}


@in_memory
@pytest.mark.parametrize("count", [-1, 1.5, 2**53, True, "1"])
async def test_a_count_out_of_range_fails_the_run_and_counts_nothing(harness: OurHarness, count: Any) -> None:
    @program
    async def asks(turn: Turn) -> None:
        turn.record_usage("m", input=count)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert (outcome.status, outcome.error["category"]) == ("failed", InvalidInput.category)
    assert (await runtime.session("s").usage()).total == UsageTotals()


async def test_a_sum_out_of_range_is_a_typed_error(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        turn.record_usage("m", input=2**53 - 1)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    await runtime.send("s", "hi")
    assert (await runtime.session("s").usage()).total.input == 2**53 - 1
    await runtime.send("s", "hi")
    with pytest.raises(UsageOutOfRange):
        await runtime.session("s").usage()


async def test_usage_rolls_up_over_children_and_grandchildren_once(harness: OurHarness) -> None:
    @program
    async def leaf(turn: Turn) -> None:
        turn.record_usage("m", input=100)

    @program
    async def middle(turn: Turn) -> None:
        turn.record_usage("m", once="mine", input=10)
        await turn.child("leaf", "a")
        await turn.child("leaf", "b")

    @program
    async def root(turn: Turn) -> None:
        turn.record_usage("m", once="mine", input=1)
        await turn.child("middle", "go")

    runtime = await Database(harness).runtime(root, middle, leaf)
    await runtime.create("root", session_id="s")
    await runtime.send("s", "hi")
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].status == "completed"
    report = await runtime.session("s").usage()
    assert (report.total.input, report.total.calls, report.sessions) == (211, 4, 4)
    assert (await runtime.session("s").usage(cascade=False)).total.input == 1
