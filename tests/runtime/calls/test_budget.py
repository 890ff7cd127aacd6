"""The budget of a turn: steps or model calls, whichever are more, fixed when the run begins, whoever asks."""

import asyncio
from typing import Any

import pytest

from tenuto.errors import InvalidInput, StepBudgetExceeded
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, in_memory, on_disk


async def says() -> str:
    return "hello"


@in_memory
async def test_a_program_that_loops_without_steps_is_bounded_by_its_model_calls(harness: OurHarness) -> None:
    made: list[int] = []

    @program
    async def loops(turn: Turn) -> None:
        while True:
            made.append(len(made))
            await turn.model(says)

    @program
    async def named(turn: Turn) -> None:
        for number in range(1000):
            made.append(number)
            await turn.effect(f"model {number}", says, kind="model")

    runtime = await Database(harness).runtime(loops, named)
    for name in ("loops", "named"):
        made.clear()
        await runtime.create(name, session_id=name)
        outcome = await runtime.send(name, "hi")
        assert (outcome.status, outcome.error["category"]) == ("failed", "step_budget_exceeded")
        assert outcome.error["details"]["limit"] == 50
        assert len(made) == 51


@in_memory
async def test_steps_and_model_calls_are_counted_side_by_side(harness: OurHarness) -> None:
    @program(steps=4)
    async def asks(turn: Turn) -> list[int]:
        found = []
        async for step in turn.steps():
            found.append(step)
            await turn.model(says)
            await turn.effect("tool", says)
            if step == 4:
                return found
        return found

    @program(steps=4)
    async def twice(turn: Turn) -> int:
        try:
            async for _ in turn.steps():
                await turn.model(says)
                await turn.model(says)
        except StepBudgetExceeded:
            return turn.step
        return 0

    runtime = await Database(harness).runtime(asks, twice)
    await runtime.create("asks", session_id="asks")
    await runtime.create("twice", session_id="twice")
    assert (await runtime.send("asks", "hi")).output == [1, 2, 3, 4]
    assert (await runtime.send("asks", "again")).output == [1, 2, 3, 4]
    assert (await runtime.send("twice", "hi")).output == 3


@on_disk
async def test_a_budget_is_that_of_the_run_whoever_asks_and_takes_over(harness: OurHarness) -> None:
    gate = Gate()
    made: list[int] = []

    @program
    async def loops(turn: Turn) -> int:
        for number in range(100):
            made.append(number)
            await turn.model(says)
            if number == 3:
                await turn.save()
                await gate()
        return 0

    database = Database(harness)
    first = await database.runtime(loops, steps=6)
    await first.create("loops", session_id="s")
    task = asyncio.create_task(first.send("s", "hi"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    made.clear()
    second = await database.runtime(loops, steps=90)
    await second.drain()
    (run,) = await second.session("s").runs()
    assert (run.budget, run.status, run.run.attempt) == (6, "failed", 2)
    assert run.run.error["details"]["limit"] == 6
    assert made == list(range(7))
    await second.send("s", "more")
    third = await database.runtime(loops, steps=2)
    assert [each.budget for each in await third.session("s").runs()] == [90, 6]


@in_memory
async def test_a_resumed_run_has_a_budget_of_its_own_and_replays_count_nothing(harness: OurHarness) -> None:
    @program(steps=3)
    async def asks(turn: Turn) -> int:
        for _ in range(3):
            await turn.model(says)
        await turn.wait("go")
        for _ in range(3):
            await turn.model(says)
        return 6

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    answered = await (await database.runtime(asks)).answer(outcome.waits[0], 1)
    assert answered.outcome is not None
    assert answered.outcome.output == 6
    assert [each.budget for each in await runtime.session("s").runs()] == [3, 3]


@in_memory
async def test_queued_turns_have_the_budget_of_their_program(harness: OurHarness) -> None:
    @program(steps=7)
    async def asks(turn: Turn) -> None:
        await turn.model(says)

    runtime = await Database(harness).runtime(asks, steps=9)
    await runtime.create("asks", session_id="s")
    for text in ("one", "two", "three"):
        await runtime.session("s").enqueue(text)
    await runtime.drain()
    assert [each.budget for each in await runtime.session("s").runs()] == [7, 7, 7]


@pytest.mark.parametrize("steps", [0, -1, True, "5", 2.0])
def test_only_whole_numbers_from_one_are_budgets(steps: Any) -> None:
    with pytest.raises(InvalidInput, match="steps must be a whole number from 1"):
        program(steps=steps)
