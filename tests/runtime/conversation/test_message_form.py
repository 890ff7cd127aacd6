"""The one form of messages: a provider's own tool calls and results are refused where they are given."""

from typing import Annotated, Any

import pytest

from tenuto.errors import InvalidHistory, MessageRefused
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
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "text", "text": "hm"}, {"type": "tool_use", "id": "c", "name": "look_up", "input": {}}],
    },
    "anthropic result": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    "function call": {"role": "assistant", "content": None, "function_call": {"name": "look_up", "arguments": "{}"}},
    "developer": {"role": "developer", "content": "be kind"},
    "image": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
    "file": {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
    "completion": {"id": "x", "object": "chat.completion", "choices": []},
    "anthropic message": {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"},
    "item": {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"},
    "output": {"role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
}

CONVERTERS = {
    "openai": "from_openai",
    "anthropic": "from_anthropic",
    "anthropic result": "from_anthropic",
    "function call": "from_openai",
    "developer": "from_openai",
    "image": "from_openai",
    "file": "from_openai",
    "completion": "from_openai",
    "anthropic message": "from_anthropic",
    "item": "from_openai_responses",
    "output": "from_openai_responses",
}

MALFORMED: dict[str, Any] = {
    "arguments as text": {"role": "assistant", "tool_calls": [{"id": "c", "name": "look_up", "arguments": "{}"}]},
    "no id": {"role": "assistant", "tool_calls": [{"name": "look_up"}]},
    "long id": {"role": "assistant", "tool_calls": [{"id": "c" * 300, "name": "look_up"}]},
    "text": {"role": "assistant", "tool_calls": "look_up"},
}


class Talk(State):
    messages: Annotated[list[dict[str, Any]], append] = []


class LibraryObject:
    """An object as a provider's library has it: not a mapping."""


LibraryObject.__module__ = "openai.types.chat.chat_completion"


async def refused(harness: OurHarness, message: Any, error: type[Exception]) -> str:
    """Append a message in a turn, which refuses it, and return why."""

    @program
    async def agent(turn: Turn) -> str:
        with pytest.raises(error) as refusal:
            turn.append(message)
        assert not turn.open_calls
        return str(refusal.value)

    runtime = await Database(harness).runtime(agent)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    assert outcome.completed, outcome.error
    assert [each["role"] for each in (await runtime.get("s")).messages] == ["user"]
    return str(outcome.output)


@in_memory
@pytest.mark.parametrize("name", NATIVE)
async def test_a_providers_form_is_refused_where_it_is_given_and_the_error_names_its_converter(
    harness: OurHarness, name: str
) -> None:
    why = await refused(harness, NATIVE[name], MessageRefused)
    assert f"tenuto.messages.{CONVERTERS[name]}`" in why


@in_memory
@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_call_is_refused_where_it_is_given(harness: OurHarness, name: str) -> None:
    why = await refused(harness, MALFORMED[name], InvalidHistory)
    assert name == "text" or "[{'id': ..., 'name': ..., 'arguments': {...}}]" in why


@in_memory
@pytest.mark.parametrize("content", [5, {"text": "hi"}, ["hi"], True])
async def test_content_that_is_neither_a_text_nor_parts_is_refused_where_it_is_given(
    harness: OurHarness, content: Any
) -> None:
    assert "a text, or a list of parts" in await refused(
        harness, {"role": "assistant", "content": content}, InvalidHistory
    )

    @program
    async def agent(turn: Turn) -> None: ...

    runtime = await Database(harness).runtime(agent)
    message: Any = {"role": "user", "content": content}
    with pytest.raises(InvalidHistory):
        await runtime.create("agent", {"messages": [message]}, session_id="seeded")
    with pytest.raises(InvalidHistory):
        await runtime.send("s", message)
    with pytest.raises(InvalidHistory):
        await runtime.session("s").enqueue(message)


@in_memory
async def test_an_object_of_a_providers_library_is_refused_with_the_name_of_its_converter(harness: OurHarness) -> None:
    why = await refused(harness, LibraryObject(), MessageRefused)
    assert why.startswith("the message is a LibraryObject of openai")
    assert "tenuto.messages.from_openai`" in why


@in_memory
async def test_a_sender_and_a_seed_are_told_of_it_and_an_applications_own_part_is_fine(harness: OurHarness) -> None:
    @program
    async def agent(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": [{"type": "text", "text": "I see"}]})

    runtime = await Database(harness).runtime(agent)
    with pytest.raises(MessageRefused, match="from_openai`"):
        await runtime.create("agent", {"messages": [NATIVE["openai"]]}, session_id="seeded")
    await runtime.create("agent", session_id="s")
    natives: list[Any] = [NATIVE["anthropic result"], NATIVE["item"], LibraryObject()]
    for native in natives:
        with pytest.raises(MessageRefused) as refusal:
            await runtime.send("s", native)
        assert refusal.value.converter in str(refusal.value)
    message: Any = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "our_map", "at": [1, 2]}]}
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
    assert error["category"] == "message_refused"
    assert error["details"] == {"converter": "from_openai"}
    assert (await runtime.send("free", "hi")).completed
