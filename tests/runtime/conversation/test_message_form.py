"""The one form of messages: a provider's own tool calls and results are refused where they are given."""

from typing import Annotated, Any

import pytest

from tenuto.errors import InvalidHistory
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, in_memory

NATIVE: dict[str, Any] = {
    "openai": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": '{"order": 7}'}}],
    },
    "arguments as text": {"role": "assistant", "tool_calls": [{"id": "c", "name": "look_up", "arguments": "{}"}]},
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "text", "text": "hm"}, {"type": "tool_use", "id": "c", "name": "look_up", "input": {}}],
    },
    "anthropic result": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    "function call": {"role": "assistant", "content": None, "function_call": {"name": "look_up", "arguments": "{}"}},
    "no id": {"role": "assistant", "tool_calls": [{"name": "look_up"}]},
    "long id": {"role": "assistant", "tool_calls": [{"id": "c" * 300, "name": "look_up"}]},
    "text": {"role": "assistant", "tool_calls": "look_up"},
}


class Talk(State):
    messages: Annotated[list[dict[str, Any]], append] = []


@in_memory
@pytest.mark.parametrize("name", NATIVE)
async def test_a_providers_form_is_refused_where_it_is_given(harness: OurHarness, name: str) -> None:
    @program
    async def agent(turn: Turn) -> str:
        with pytest.raises(InvalidHistory) as refusal:
            turn.append(NATIVE[name])
        assert not turn.open_calls
        return str(refusal.value)

    runtime = await Database(harness).runtime(agent)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    assert outcome.completed, outcome.error
    if name != "text":
        assert "[{'id': ..., 'name': ..., 'arguments': {...}}]" in str(outcome.output)
    assert [each["role"] for each in (await runtime.get("s")).messages] == ["user"]


@in_memory
async def test_a_sender_is_told_of_it_and_other_blocks_are_fine(harness: OurHarness) -> None:
    @program
    async def agent(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": [{"type": "text", "text": "I see"}]})

    runtime = await Database(harness).runtime(agent)
    await runtime.create("agent", session_id="s")
    with pytest.raises(InvalidHistory, match="tool_result"):
        await runtime.send("s", NATIVE["anthropic result"])
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    message: Any = {"role": "user", "content": [{"type": "text", "text": "look"}, image]}
    outcome = await runtime.send("s", message)
    assert outcome.completed


@in_memory
async def test_a_graph_keeps_any_form_in_a_log_that_is_not_judged_as_a_conversation(harness: OurHarness) -> None:
    async def reply(_: Talk) -> dict[str, Any]:
        return {"messages": [NATIVE["openai"]]}

    graph = GraphBuilder(Talk, "notes").add_node("reply", reply).add_edge("reply", END).set_entry("reply").compile()
    judged, free = graph.as_program(name="judged"), graph.as_program(name="free", message_logs=())
    runtime = await Database(harness).runtime(judged, free)
    for name in ("judged", "free"):
        await runtime.create(name, session_id=name)
    error: Any = (await runtime.send("judged", "hi")).error
    assert error["category"] == "history_invalid"
    assert "'function'" in error["message"]
    assert (await runtime.send("free", "hi")).completed
