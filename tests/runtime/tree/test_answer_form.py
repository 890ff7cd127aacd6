"""What a wait takes: a schema is checked when the wait is opened, and an answer whole, before anything is written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto import SessionRuntime, Turn, program
from tenuto.errors import AnswerInvalid, InvalidInput, NotJson
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitStatus
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.tree.answer_form import checked
from tenuto.testing.agent import calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, agent, in_memory, waiting


def a_wait(kind: str = "signal", schema: Any = None, **metadata: Any) -> Wait:
    return Wait(
        wait_id="w",
        key=SessionKey("s"),
        run_id="r",
        invocation_id="i",
        kind=kind,
        signal_id="asked",
        status=WaitStatus.OPEN,
        deadline=None,
        schema=schema,
        metadata=metadata,
        commit_number=1,
        created_at=datetime.now(UTC),
        settled_at=None,
    )


@pytest.mark.parametrize(
    ("kind", "value", "error", "stored"),
    [
        ("approval", True, None, {"approved": True}),
        ("approval", {"approved": False, "reason": "no"}, None, {"approved": False, "reason": "no"}),
        ("tool_result", None, None, {"result": None}),
        ("tool_result", {"a": 1}, None, {"result": {"a": 1}}),
        ("tool_result", None, "broken", {"error": {"category": "tool_error", "message": "broken"}}),
        ("child", None, {"category": "x"}, {"error": {"category": "x", "message": ""}}),
        ("in_doubt", {"outcome": "retry"}, None, {"outcome": "retry"}),
        ("signal", [1], None, [1]),
    ],
)
def test_an_answer_is_stored_in_the_form_of_its_kind(kind: str, value: Any, error: Any, stored: Any) -> None:
    assert checked(a_wait(kind), value, error) == stored


ORDER = {
    "type": "object",
    "required": ["choice"],
    "properties": {
        "choice": {"enum": ["red", "blue", 1]},
        "count": {"type": "integer", "maximum": 3},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "due": {"type": "string", "format": "date-time"},
        "note": {"type": ["string", "null"]},
        "code": {"anyOf": [{"const": 7}, {"pattern": "^a+$", "type": "string"}]},
    },
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string"}},
}

WRONG: list[tuple[Any, str, str]] = [
    ("red", "answer", "is not of type 'object'"),
    ({}, "answer.choice", "required"),
    ({"choice": "green"}, "answer.choice", "not one of"),
    ({"choice": True}, "answer.choice", "not one of"),
    ({"choice": "red", "count": 1.5}, "answer.count", "'integer'"),
    ({"choice": "red", "count": True}, "answer.count", "'integer'"),
    ({"choice": "red", "count": 4}, "answer.count", "maximum of 3"),
    ({"choice": "red", "tags": ["a", 2]}, "answer.tags[1]", "'string'"),
    ({"choice": "red", "due": "tomorrow"}, "answer.due", "'date-time'"),
    ({"choice": "red", "note": 1}, "answer.note", "'string', 'null'"),
    ({"choice": "red", "code": "b"}, "answer.code", "any of the given schemas"),
    ({"choice": "red", "chioce": "red"}, "answer", "'chioce' is not declared; expected 'choice', 'count'"),
]


async def test_an_answer_is_checked_whole_and_the_run_keeps_waiting(harness: OurHarness) -> None:
    @program
    async def votes(turn: Turn) -> Any:
        return await turn.wait("vote", schema=ORDER)

    runtime = await Database(harness).runtime(votes)
    await runtime.create("votes", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    before = await runtime.store.dump()
    for value, path, problem in WRONG:
        with pytest.raises(AnswerInvalid) as refusal:
            await runtime.answer(wait.wait_id, value)
        assert [each["path"] for each in refusal.value.problems] == [path]
        assert problem in refusal.value.message
        assert refusal.value.public_details() == {"wait_id": wait.wait_id, "problems": refusal.value.problems}
    not_json: Any = object()
    with pytest.raises(NotJson):
        await runtime.answer(wait.wait_id, {"choice": "red", "note": not_json})
    assert await runtime.store.dump() == before
    right: Any = {
        "choice": "blue",
        "count": 2,
        "tags": ["x"],
        "due": "2026-03-01T12:00:00Z",
        "note": None,
        "code": "aa",
    }
    answered = await runtime.answer(wait.wait_id, right)
    assert answered.outcome is not None
    assert answered.outcome.output == right


@in_memory
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "String"}, "at type"),
        ({"required": 5}, "at required"),
        ({"properties": ["a"]}, "at properties"),
        ({"pattern": "["}, "at pattern"),
        ({"$ref": "#/nowhere"}, "'/nowhere', which is not in it"),
        ({"properties": {"a": {"items": {"$ref": "https://example.com/a"}}}}, "'https://example.com/a'"),
        ({"$ref": "#"}, "no value can be checked"),
        ({"$schema": "mine"}, "'mine', is unknown"),
        (["a"], "schema"),
    ],
)
async def test_a_schema_that_is_not_one_is_refused_where_the_wait_would_be_opened(
    harness: OurHarness, schema: Any, said: str
) -> None:
    refused: list[InvalidInput] = []

    @program
    async def votes(turn: Turn) -> str:
        try:
            await turn.wait("vote", schema=schema)
        except InvalidInput as error:
            refused.append(error)
        return "went on"

    runtime = await Database(harness).runtime(votes)
    await runtime.create("votes", session_id="s")
    assert (await runtime.send("s", "hi")).output == "went on"
    assert said in refused[0].message


def test_a_wait_of_an_earlier_version_whose_schema_is_not_one_takes_no_answer() -> None:
    with pytest.raises(AnswerInvalid, match="Abandon the wait"):
        checked(a_wait(schema={"type": "String"}), "x", None)


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("approval", "yes", None),
        ("approval", {"approved": True, "resaon": "fine"}, None),
        ("approval", True, "broken"),
        ("in_doubt", {"outcome": "perhaps"}, None),
        ("in_doubt", {"outcome": "done", "reslut": 1}, None),
        ("signal", None, "broken"),
    ],
)
def test_an_answer_of_another_form_and_with_undeclared_names_is_refused(kind: str, value: Any, error: Any) -> None:
    with pytest.raises(AnswerInvalid) as refused:
        checked(a_wait(kind), value, error)
    assert refused.value.problems[0]["path"].startswith("answer")


async def test_only_the_child_answers_its_wait_and_only_the_clock_a_sleep(harness: OurHarness) -> None:
    @program
    async def kid(turn: Turn) -> str:
        return "mine"

    @program
    async def sleeper(turn: Turn) -> Any:
        if turn.text == "sleep":
            await turn.sleep(3600)
        return (await turn.child(kid, "go")).result()

    runtime: SessionRuntime = await Database(harness).runtime(sleeper, kid)
    for name, kind, said in (("a", "sleep", "clock"), ("b", "ask", "child")):
        await runtime.create("sleeper", session_id=name)
        (wait,) = (await runtime.send(name, kind)).waits
        before = await runtime.store.dump()
        for given in ({"value": "forged"}, {"error": "forged"}):
            with pytest.raises(AnswerInvalid, match=said):
                await runtime.answer(wait, **given)  # type: ignore[arg-type]
        assert await runtime.store.dump() == before
    await runtime.drain()
    assert (await runtime.get("b")).document == {}
    assert (await runtime.session("b").runs())[0].status == "completed"


async def test_a_clients_result_is_checked_against_what_the_tool_declares(harness: OurHarness) -> None:
    from tenuto import tool

    @tool(client=True)
    async def location() -> tuple[float, float]:
        """Where the customer is."""
        raise NotImplementedError

    made = agent(calls(("c1", "location", {})), "done", tools=[location, Tool(name="browser")])
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    wait = waiting(await runtime.send("s", "go"), "tool_result")
    with pytest.raises(AnswerInvalid, match=r"answer\[1\]"):
        await runtime.answer(wait, [48.2, "east"])
    assert (await runtime.answer(wait, [48.2, 16.4])).outcome is not None
