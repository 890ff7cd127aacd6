"""A program that asks another model after a failure takes the same branch wherever its runner is lost."""

import asyncio

from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, on_disk


@on_disk
async def test_a_runner_lost_while_it_asks_another_model_has_the_failure_of_the_first_on_record(
    harness: OurHarness,
) -> None:
    asked: list[str] = []
    gate = Gate()

    @program
    async def chat(turn: Turn) -> str:
        async def large() -> str:
            asked.append("large")
            turn.record_usage("large", input=10)
            if len(asked) == 1:
                raise ConnectionError("down")
            return "large says hello"

        async def spare() -> str:
            asked.append("spare")
            await gate()
            return "spare says hello"

        try:
            return await turn.model(large, retries=0)
        except ConnectionError:
            return await turn.model(spare)

    database = Database(harness)
    first = await database.runtime(chat)
    await first.create("chat", session_id="s")
    task = asyncio.create_task(first.send("s", "hi", key="k"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    second = await database.runtime(chat)
    await second.drain()
    assert (await second.send("s", "hi", key="k")).output == "spare says hello"
    assert asked == ["large", "spare", "spare"]
    assert (await second.session("s").usage()).by_model["large"].calls == 1
