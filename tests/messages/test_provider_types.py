"""The converters against the types of the real libraries: what they return, what they stream, and what they accept."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tenuto.messages import (
    AssistantMessage,
    from_anthropic,
    from_openai,
    from_openai_responses,
    stream_anthropic,
    stream_openai,
    to_anthropic,
    to_openai,
    to_openai_responses,
)
from tenuto.testing.provider_replies import ANTHROPIC, CHAT, RESPONSES, Said, streamed, whole
from tests.messages.conversations import CHAT as CHAT_MESSAGES
from tests.messages.conversations import ITEMS, TEXT, claude, in_parts, ours
from tests.messages.test_provider_forms import events

pytestmark = [pytest.mark.wide, pytest.mark.long("it builds the types of two whole libraries")]

REPLIES = st.builds(
    lambda content, names: {
        "role": "assistant",
        "content": content,
        **(
            {"tool_calls": [{"id": f"c{n}", "name": name, "arguments": {"n": n}} for n, name in enumerate(names)]}
            if names
            else {}
        ),
    },
    TEXT,
    st.lists(st.sampled_from(["look_up", "refund"]), max_size=2),
)
few = settings(max_examples=40, deadline=None)


def checked(adapter: TypeAdapter[Any], values: Any) -> None:
    """Validate values whole: Pydantic checks an iterable only as far as it is read."""
    for value in values:
        read(adapter.validate_python(value))


def read(value: Any) -> None:
    if isinstance(value, Mapping):
        for each in value.values():
            read(each)
    elif isinstance(value, list | tuple) or (isinstance(value, Iterator) and not isinstance(value, str)):
        for each in value:
            read(each)


@pytest.fixture(scope="module")
def chat_type() -> TypeAdapter[Any]:
    from openai.types.chat import ChatCompletionMessageParam

    return TypeAdapter(ChatCompletionMessageParam)


@pytest.fixture(scope="module")
def item_type() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseInputItemParam

    return TypeAdapter(ResponseInputItemParam)


@pytest.fixture(scope="module")
def claude_type() -> TypeAdapter[Any]:
    from anthropic.types import MessageParam

    return TypeAdapter(MessageParam)


@few
@given(messages=ours())
def test_our_form_is_sent_in_the_libraries_types(
    chat_type: TypeAdapter[Any], item_type: TypeAdapter[Any], claude_type: TypeAdapter[Any], messages: Any
) -> None:
    checked(chat_type, to_openai(messages))
    checked(claude_type, to_anthropic(messages))
    checked(item_type, to_openai_responses(messages))


@few
@given(chat=st.lists(CHAT_MESSAGES, max_size=2), said=claude(), items=ITEMS)
def test_what_is_drawn_as_a_providers_form_is_one_and_comes_back_as_one(
    chat_type: TypeAdapter[Any],
    item_type: TypeAdapter[Any],
    claude_type: TypeAdapter[Any],
    chat: Any,
    said: Any,
    items: Any,
) -> None:
    checked(chat_type, chat)
    checked(chat_type, to_openai(from_openai(chat)))
    checked(claude_type, said)
    checked(claude_type, to_anthropic(from_anthropic(said)))
    checked(item_type, items)
    checked(item_type, to_openai_responses(from_openai_responses(items)))


@few
@given(reply=REPLIES)
def test_the_objects_that_the_libraries_return_are_our_messages(reply: AssistantMessage) -> None:
    from anthropic.types import Message
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    said = Said(1, "m", reply, 1, 1)
    completion = ChatCompletion.model_validate(whole(CHAT, said))
    assert from_openai(completion) == from_openai(completion.choices[0].message) == reply
    assert from_openai([completion.choices[0].message]) == [reply]
    message = Message.model_validate(whole(ANTHROPIC, said))
    assert from_anthropic(message) == reply
    response = Response.model_validate(whole(RESPONSES, said))
    (back,) = from_openai_responses(response)
    assert from_openai_responses(response.output) == [back]
    found = in_parts([back])[0]
    assert [part for part in found["content"] if part["type"] == "text"] == in_parts([reply])[0]["content"]
    assert found.get("tool_calls") == reply.get("tool_calls")


@given(call=st.builds(lambda text: {"id": "c", "name": "f", "input": {"x": text}, "type": "tool_use"}, TEXT))
@few
def test_what_only_anthropic_understands_comes_back_from_its_object_unchanged(call: Any) -> None:
    from anthropic.types import Message

    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "text", "text": "So.", "citations": None},
        call,
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "usage": usage}
    message = Message.model_validate({**head, "stop_sequence": None, "content": blocks})
    sent: Any = to_anthropic([{"role": "user", "content": "u"}, from_anthropic(message)])
    assert sent[1]["content"] == [*blocks[:2], {"type": "text", "text": "So."}, call]


async def objects(kind: Any, path: str) -> AsyncIterator[Any]:
    """Yield what is streamed as objects of a library."""
    async for event in events(path):
        yield TypeAdapter(kind).validate_python(event)


async def test_streamed_objects_are_assembled() -> None:
    from anthropic.types import RawMessageStreamEvent
    from openai.types.chat import ChatCompletionChunk

    from tests.messages.test_provider_forms import REPLY

    assert await stream_openai(objects(ChatCompletionChunk, CHAT)) == REPLY
    assert await stream_anthropic(objects(RawMessageStreamEvent, ANTHROPIC)) == REPLY
    assert list(streamed(CHAT, Said(1, "m", REPLY, 1, 1), {}))
