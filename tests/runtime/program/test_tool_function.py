"""A call of a function as a tool: its arguments are checked first, and what is wrong is the model's to correct."""

import asyncio
import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from tenuto import Tool, Turn, program, run_tools, tool
from tenuto.errors import InvalidInput
from tenuto.messages import from_anthropic, from_openai
from tenuto.runtime.session.definition import Definition
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, in_memory, results

pytestmark = in_memory


class Line(BaseModel):
    item: str
    count: int = Field(default=1, gt=0)

    @field_validator("item")
    @classmethod
    def known(cls, item: str) -> str:
        if item == "moon":
            raise ValueError("nobody sells the moon")
        return item


async def outcome_of(harness: OurHarness, tools: Iterable[Tool], *wanted: Any) -> dict[str, Any]:
    """Return the results of calls, by their ids, in a session of an agent with these tools; whole, as messages."""
    runtime = await Database(harness).runtime(agent(calls(*wanted), "done", tools=tuple(tools)))
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    messages: Any = (await runtime.get("s")).messages
    return {each["tool_call_id"]: each for each in messages if each["role"] == "tool"}


async def test_a_function_gets_its_arguments_as_its_annotations_say(harness: OurHarness) -> None:
    got: list[Any] = []

    @tool
    async def buy(
        turn: Turn, lines: list[Line], when: date, how: Literal["air", "sea"] = "sea", note: str = "-"
    ) -> Any:
        got.append((turn.session_id, lines, when, how, note))
        return sum(line.count for line in lines)

    asked = {"lines": [{"item": "pen", "count": 3}, {"item": "ink"}], "when": "2031-02-03"}
    assert (await outcome_of(harness, [buy], ("c1", "buy", asked)))["c1"]["content"] == "4"
    assert got == [("s", [Line(item="pen", count=3), Line(item="ink")], date(2031, 2, 3), "sea", "-")]


async def test_arguments_that_do_not_fit_are_the_result_with_each_place_and_nothing_is_run(harness: OurHarness) -> None:
    ran: list[int] = []

    @tool
    async def buy(lines: list[Line], when: date, how: Literal["air", "sea"] = "sea") -> None:
        ran.append(1)

    bad = {"lines": [{"item": "pen"}, {"item": "moon", "count": 0}], "how": "rail", "colour": "red"}
    said = (await outcome_of(harness, [buy], ("c1", "buy", bad)))["c1"]
    error = said["metadata"]["error"]
    assert error["category"] == "invalid_arguments"
    assert {each["path"] for each in error["problems"]} == {"lines[1].item", "lines[1].count", "when", "how", "colour"}
    assert said["content"].startswith("Error: The arguments do not fit, and nothing was run. ")
    for part in ("lines[1].item: Value error, nobody sells the moon", "how: Input should be 'air' or 'sea'", "when: "):
        assert part in said["content"]
    assert ran == []


async def test_a_model_corrects_its_call_in_the_next_step(harness: OurHarness) -> None:
    ran: list[int] = []

    @tool
    async def double(n: int) -> int:
        ran.append(n)
        return 2 * n

    script = Script(calls(("c1", "double", {"m": 4})), calls(("c2", "double", {"n": 4})), "8")
    runtime = await Database(harness).runtime(ScriptedAgent(model=script, tools=[double]))
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "8"
    assert "n: Field required" in script.requests[1].messages[-1]["content"]
    assert script.requests[2].messages[-1]["content"] == "8"
    assert ran == [4]
    assert [each.call_id for each in await runtime.store.effects.list("s") if each.call_id] == ["c2"]


async def test_a_number_that_is_written_as_a_text_is_taken_and_one_that_is_not_a_number_is_not(
    harness: OurHarness,
) -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    said = await outcome_of(harness, [double], ("c1", "double", {"n": "4"}), ("c2", "double", {"n": "four"}))
    assert said["c1"]["content"] == "8"
    assert said["c2"]["metadata"]["error"]["problems"][0]["path"] == "n"


async def test_arguments_that_a_provider_did_not_write_as_an_object_are_not_run(harness: OurHarness) -> None:
    ran: list[Any] = []

    @tool
    async def free() -> None:
        ran.append(1)

    @tool
    async def one(n: int = 1) -> None:
        ran.append(n)

    written = ['{"n": 1', "[1]", '"n"', "NaN", "{'n': 1}", '{"n": 1} {"n": 2}']
    named = {"type": "function", "id": "", "function": {}}
    asked = from_openai(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {**named, "id": f"{name}{at}", "function": {"name": name, "arguments": text}}
                for at, text in enumerate(written)
                for name in ("one", "free")
            ],
        }
    )
    runtime = await Database(harness).runtime(agent(asked, "done", tools=[one, free, Tool("any", _any(ran))]))
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    said = results((await runtime.get("s")).messages)
    assert len(said) == 12
    assert set(said.values()) == {"Error: The arguments do not fit, and nothing was run. They are not a JSON object."}
    assert ran == []


def _any(ran: list[Any]) -> Any:
    async def run(turn: Turn, arguments: Mapping[str, Any]) -> None:
        ran.append(arguments)

    return run


async def test_no_arguments_at_all_are_an_empty_object(harness: OurHarness) -> None:
    @tool
    async def one(n: int = 7) -> int:
        return n

    openai: Any = from_openai(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "one", "arguments": ""}}],
        }
    )
    claude: Any = from_anthropic(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "one", "input": {}}]}
    )
    asked = [(call["id"], "one", call["arguments"]) for each in (openai, claude) for call in each["tool_calls"]]
    said = await outcome_of(harness, [one], *asked)
    assert {key: each["content"] for key, each in said.items()} == {"a": "7", "b": "7"}


async def test_a_schema_checks_the_arguments_of_a_tool_that_is_made_by_hand(harness: OurHarness) -> None:
    ran: list[Any] = []
    schema: Any = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3}},
        "required": ["n"],
        "additionalProperties": False,
    }
    tools = [Tool("go", _any(ran), parameters=schema)]
    said = await outcome_of(harness, tools, ("c1", "go", {"n": 2}), ("c2", "go", {"n": 3}), ("c3", "go", {"m": 3}))
    assert said["c1"]["metadata"]["error"]["problems"] == [{"path": "n", "problem": "2 is less than the minimum of 3"}]
    assert said["c2"]["content"] == "null"
    assert {each["problem"] for each in said["c3"]["metadata"]["error"]["problems"]} == {
        "'n' is a required property",
        "'m' is not declared; expected 'n'",
    }
    assert ran == [{"n": 3}]


async def test_a_result_is_plain_data_in_the_form_of_its_annotation(harness: OurHarness) -> None:
    @dataclass
    class Parcel:
        number: int
        sent: date

    @tool
    async def model() -> Line:
        return Line(item="pen")

    @tool
    async def record() -> Any:
        return Parcel(7, date(2031, 2, 3))

    @tool
    async def pair() -> tuple[int, set[str]]:
        return 1, {"a"}

    @tool
    async def strange() -> Any:
        return object()

    made = [model, record, pair, strange]
    said = await outcome_of(harness, made, *((f"call_{each.name}", each.name, {}) for each in made))
    said = {key.removeprefix("call_"): each for key, each in said.items()}
    assert said["model"]["content"] == '{"item":"pen","count":1}'
    assert said["record"]["content"] == '{"number":7,"sent":"2031-02-03"}'
    assert said["pair"]["content"] == '[1,["a"]]'
    assert said["strange"]["content"].startswith("Error: ")


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "is nan, which JSON has no word for"),
        ({"a": [float("inf")]}, "is inf, which JSON has no word for"),
        (CYCLE, "Circular reference"),
        ("\ud800", "has a lone surrogate"),
        (b"\xff", "invalid utf-8"),
        (10**5000, "more than 4300 digits"),
        ("x" * (5 * 1024 * 1024), "the limit is 4,194,304"),
        (object(), "Unable to serialize unknown type"),
    ],
    ids=["nan", "inf", "cycle", "surrogate", "bytes", "digits", "big", "object"],
)
@pytest.mark.parametrize("annotation", [Any, int])
async def test_a_result_that_is_not_plain_data_is_an_error_that_the_model_gets(
    harness: OurHarness, value: Any, said: str, annotation: Any
) -> None:
    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    found = await outcome_of(harness, [tool(give)], ("c1", "give", {}))
    assert found["c1"]["content"].startswith("Error: ")
    assert said in found["c1"]["content"]


async def test_a_plain_function_runs_in_a_thread_and_others_go_on_meanwhile(harness: OurHarness) -> None:
    """The plain tool ends only when the async one, in the loop that it must not block, has run."""
    here, other_ran = threading.get_ident(), threading.Event()
    threads: list[int] = []

    @tool
    def plain(n: int) -> int:
        threads.append(threading.get_ident())
        assert other_ran.wait(20)
        return n

    @tool
    async def quick() -> str:
        other_ran.set()
        return "quick"

    said = await outcome_of(harness, [plain, quick], ("c1", "plain", {"n": 3}), ("c2", "quick", {}))
    assert {key: each["content"] for key, each in said.items()} == {"c1": "3", "c2": "quick"}
    assert here not in threads


SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


async def test_a_plain_function_sees_the_context_variables_of_its_turn(harness: OurHarness) -> None:
    @tool
    def look() -> str:
        return SEEN.get()

    SEEN.set("ada")
    assert (await outcome_of(harness, [look], ("c1", "look", {})))["c1"]["content"] == "ada"


@pytest.mark.parametrize("raised", [ValueError("broken"), StopIteration("broken")])
async def test_what_a_plain_function_raises_is_the_result(harness: OurHarness, raised: Exception) -> None:
    @tool
    def breaks() -> None:
        raise raised

    said = await outcome_of(harness, [breaks], ("c1", "breaks", {}))
    assert "broken" in said["c1"]["content"]
    assert said["c1"]["content"].startswith("Error: ")


async def test_a_plain_function_that_returns_an_awaitable_is_awaited(harness: OurHarness) -> None:
    async def later() -> str:
        return "later"

    @tool
    def soon() -> Any:
        return later()

    assert (await outcome_of(harness, [soon], ("c1", "soon", {})))["c1"]["content"] == "later"


async def test_a_program_as_a_tool_is_a_session_whose_result_the_model_gets(harness: OurHarness) -> None:
    @program
    async def legal(turn: Turn) -> str:
        """Ask the lawyers."""
        return f"We say no to: {turn.text}"

    asked = calls(("c1", "legal", {"message": "May we?"}), ("c2", "legal", {"text": "May we?"}))
    runtime = await Database(harness).runtime(agent(asked, "done", tools=[legal.as_tool()]), legal)
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).suspended
    await runtime.drain()
    said = results((await runtime.get("s")).messages)
    assert "We say no to: May we?" in said["c1"]
    assert "message" in said["c2"]
    assert said["c2"].startswith("Error: The arguments do not fit")


async def test_a_clients_wait_has_the_schema_of_its_answer(harness: OurHarness) -> None:
    @tool(client=True)
    async def location(city: str) -> tuple[float, float]:
        """Where the customer is."""
        raise AssertionError("it is the client's")

    asked = calls(("c1", "location", {"city": "Wien"}), ("c2", "location", {"town": "Wien"}))
    runtime = await Database(harness).runtime(agent(asked, "done", tools=[location]))
    session = await runtime.create("agent", session_id="s")
    (wait,) = (await runtime.send("s", "go")).waits
    assert (wait.kind, wait.metadata["arguments"]) == ("tool_result", {"city": "Wien"})
    schema: Any = wait.schema
    assert (schema["type"], schema["minItems"], schema["maxItems"]) == ("array", 2, 2)
    await session.answer(wait, [48.2, 16.4])
    said = results((await session.get()).messages)
    assert said["c1"] == "[48.2,16.4]"
    assert said["c2"].startswith("Error: The arguments do not fit")


async def test_arguments_are_checked_before_a_person_is_asked_to_approve_them(harness: OurHarness) -> None:
    amounts: list[float] = []

    def is_much(arguments: Mapping[str, Any]) -> bool:
        amounts.append(arguments["amount"])
        return bool(arguments["amount"] > 10)

    @tool(needs_approval=is_much)
    async def pay(amount: float = 99.0) -> str:
        return f"paid {amount}"

    asked = calls(("c1", "pay", {"amount": "much"}), ("c2", "pay", {"amount": "5"}), ("c3", "pay", {}))
    runtime = await Database(harness).runtime(agent(asked, "done", tools=[pay]))
    session = await runtime.create("agent", session_id="s")
    (wait,) = (await session.send("go")).waits
    assert (wait.metadata["call_id"], amounts) == ("c3", [5.0, 99.0])
    await session.answer(wait, True)
    said = results((await session.get()).messages)
    assert said["c1"].startswith("Error: The arguments do not fit")
    assert (said["c2"], said["c3"]) == ("paid 5.0", "paid 99.0")


async def test_a_call_of_a_tool_that_the_definition_leaves_out_is_answered_and_not_run(harness: OurHarness) -> None:
    ran: list[str] = []

    @tool
    async def look() -> str:
        ran.append("look")
        return "seen"

    @tool(needs_approval=True)
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    offered: list[list[str]] = []

    @program
    async def desk(turn: Turn) -> str:
        offered.append([each.name for each in turn.definition.offered([look, pay])])
        if not turn.open_calls:
            turn.append(from_openai(MODEL))
        await run_tools(turn, [look, pay])
        return "done"

    runtime = await Database(harness).runtime(desk)
    session = await runtime.create(Definition(name="desk", tools=("look",)), session_id="s")
    assert (await session.send("go")).output == "done"
    assert offered == [["look"]]
    assert results((await session.get()).messages) == {"c1": "seen", "c2": "Error: no tool 'pay'; the tools are: look"}
    assert ran == ["look"]
    everything = await runtime.create(desk)
    assert [wait.kind for wait in (await everything.send("go")).waits] == ["approval"]
    assert offered[-1] == ["look", "pay"]


MODEL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for call_id, name in (("c1", "look"), ("c2", "pay"))
    ],
}


async def test_a_tool_is_called_by_hand_with_the_same_check(harness: OurHarness) -> None:
    @tool(needs_approval=True)
    async def double(turn: Turn, n: int) -> int:
        return 2 * n

    @program
    async def tries(turn: Turn) -> Any:
        with pytest.raises(InvalidInput, match="was not called"):
            await double.call(turn, {"m": 1})
        with pytest.raises(InvalidInput, match="carried out by the client"):
            await Tool("client").call(turn, {})
        return await double.call(turn, {"n": 4})

    runtime = await Database(harness).runtime(tries)
    assert (await (await runtime.create(tries)).send("go")).result() == 8


async def test_an_abort_does_not_wait_for_a_thread_and_the_calls_outcome_is_unknown(harness: OurHarness) -> None:
    begun, may_end = Gate(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def slow() -> str:
        loop.call_soon_threadsafe(begun.reached.set)
        assert may_end.wait(20)
        return "done"

    runtime = await Database(harness).runtime(agent(calls(("c1", "slow", {})), "never", tools=[slow]))
    session = await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await begun.reached.wait()
    await session.stop(kind="abort")
    assert (await task).status == "failed"
    may_end.set()
    assert results((await session.get()).messages)["c1"].startswith("Outcome unknown")
    assert [each.call_id for each in await session.effects_in_doubt()] == ["c1"]
