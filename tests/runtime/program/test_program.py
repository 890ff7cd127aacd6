"""Programs: plain functions, and what is refused."""

from typing import Any

import pytest

from tenuto import Store, program
from tenuto.errors import InvalidInput, RunFailed
from tenuto.runtime.program.turn import Turn
from tests.runtime.runtimes import opened


async def test_a_plain_function_is_a_program_and_its_output_is_the_outcomes(store: Store) -> None:
    @program
    async def greet(turn: Turn) -> str:
        return f"hello from {turn.session_id}"

    async def fails(turn: Turn) -> None:
        raise ValueError("no")

    fail = program(name="sour", version="2")(fails)

    assert [(each.name, each.version) for each in (greet, fail)] == [("greet", "1"), ("sour", "2")]
    runtime = await opened(store, [greet, fail])
    await runtime.create("greet", session_id="a")
    await runtime.create("sour", session_id="b")
    outcome = await runtime.send("a", "go")
    assert (outcome.status, outcome.output, outcome.reply) == ("completed", "hello from a", None)
    assert outcome.result() == "hello from a"
    assert await (await runtime.session("a").start("go")).result() == "hello from a"
    failed = await runtime.send("b", "go")
    assert (failed.status, failed.error) == ("failed", {"category": "ValueError", "message": "no"})
    with pytest.raises(RunFailed):
        failed.result()
    with pytest.raises(InvalidInput):
        program(version="")(fails)


async def test_what_is_no_program_is_refused(store: Store) -> None:
    wrong: Any = object()
    with pytest.raises(InvalidInput):
        await opened(store, [wrong])
