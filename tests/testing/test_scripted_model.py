"""What users' tests are given: a runtime in memory, a clock of their own, and a model that replies by a script."""

import pytest

from tenuto import Turn, program
from tenuto.errors import InvalidInput
from tenuto.messages import text_of
from tenuto.testing import FakeClock, ScriptedModel, memory_runtime


async def test_a_program_is_tested_without_a_provider_and_without_waiting() -> None:
    model, clock = ScriptedModel("Good night.", "Good morning."), FakeClock()

    @program
    async def sleeper(turn: Turn) -> None:
        turn.append(await turn.effect("evening", lambda: model(turn.text), kind="model"), once="evening")
        await turn.sleep(8 * 3600)
        turn.append(await turn.effect("morning", lambda: model("wake up"), kind="model"), once="morning")

    async with memory_runtime(sleeper, clock=clock) as runtime:
        session = await runtime.create(sleeper)
        assert (await session.send("It is late.")).suspended
        await runtime.drain()
        assert len((await session.get()).messages) == 2
        clock.advance(8 * 3600 + 1)
        await runtime.drain()
        said = [text_of(message) for message in (await session.messages()) if message["role"] == "assistant"]
    assert said == ["Good night.", "Good morning."]
    assert model.calls == [(("It is late.",), {}), (("wake up",), {})]


async def test_a_script_raises_what_it_is_told_and_ends() -> None:
    model = ScriptedModel(ConnectionError("down"), {"role": "assistant", "content": "up"})
    with pytest.raises(ConnectionError, match="down"):
        await model()
    assert (await model(temperature=0))["content"] == "up"
    with pytest.raises(InvalidInput, match="2 replies, and this is call 3"):
        await model()
