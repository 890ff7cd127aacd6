"""Programs: plain functions, and what is refused."""

from typing import Any

import pytest

from tenuto import Definition, SessionRuntime, Store, program
from tenuto.errors import InvalidInput, RunFailed
from tenuto.graph import END, GraphBuilder, State
from tenuto.runtime.program.turn import Turn
from tenuto.writing.error_record import without_frames
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
    assert (failed.status, without_frames(failed.error)) == ("failed", {"category": "ValueError", "message": "no"})
    with pytest.raises(RunFailed):
        failed.result()
    with pytest.raises(InvalidInput):
        program(version="")(fails)


async def test_what_is_no_program_is_refused(store: Store) -> None:
    wrong: Any = object()
    with pytest.raises(InvalidInput):
        await opened(store, [wrong])


async def test_a_graph_and_a_function_that_are_no_programs_yet_are_told_how_to_become_one() -> None:
    class Empty(State):
        pass

    async def node(state: Empty) -> dict[str, object]:
        return {}

    graph: Any = GraphBuilder(Empty).add_node("node", node).add_edge("node", END).set_entry("node").compile()
    with pytest.raises(InvalidInput, match="as_program"):
        SessionRuntime("memory://", [graph])
    bare: Any = node
    with pytest.raises(InvalidInput, match="@program"):
        SessionRuntime("memory://", [bare])


async def test_a_plain_function_says_so_when_it_runs(store: Store) -> None:
    def plain(turn: Turn) -> Any:
        return "done"

    runtime = await opened(store, [program(plain)])
    await runtime.create("plain", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert outcome.error["message"] == "The program plain is a plain function; declare it with `async def`."


async def test_a_program_brings_the_definition_of_its_sessions(store: Store) -> None:
    known = Definition(name="support", version="7", label="Support", system_prompt="Be brief.", tools=("look_up",))

    @program(version=2, definition=known)
    async def answers(turn: Turn) -> str:
        return f"{turn.definition.system_prompt} {turn.definition.tools}"

    assert (answers.name, answers.version, answers.definition.label) == ("support", "2", "Support")
    runtime = await opened(store, [answers])
    session = await runtime.create(answers)
    assert (await session.send("hi")).result() == "Be brief. ('look_up',)"


WRONG: list[dict[str, Any]] = [
    {"definition": "support"},
    {"version": ""},
    {"version": True},
    {"accepts": "1"},
    {"accepts": [1.5]},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_what_cannot_be_declared_of_a_program_is_refused(options: dict[str, Any]) -> None:
    declare: Any = program
    with pytest.raises(InvalidInput):
        declare(**options)(dict)
