"""What goes to a provider and comes back is the same: in both directions, for all three forms."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidInput
from tenuto.messages import (
    from_anthropic,
    from_openai,
    from_openai_responses,
    to_anthropic,
    to_openai,
    to_openai_responses,
)
from tests.messages.conversations import CHAT, ITEMS, claude, in_parts, ours, parsed


def chat_meaning(message: Any) -> Any:
    """Return a message of chat completions without the ways to say the same."""
    found = {name: value for name, value in message.items() if value not in (None, "", [])}
    calls = [
        {**call, "function": {**call["function"], "arguments": parsed(call["function"]["arguments"])}}
        if "function" in call
        else call
        for call in message.get("tool_calls") or ()
    ]
    return found | ({"tool_calls": calls} if calls else {})


def claude_meaning(messages: Any) -> Any:
    """Return Anthropic's messages with every content as blocks."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def item_meaning(item: Any) -> Any:
    return {**item, "arguments": parsed(item["arguments"])} if "arguments" in item else item


@given(ours())
def test_our_form_comes_back_from_chat_completions(messages: Any) -> None:
    sent = to_openai(messages)
    assert "secret" not in str(sent)
    back: Any = [message for message in from_openai(sent) if message["role"] != "system"]
    assert in_parts(back) == in_parts(messages)


@given(ours())
def test_our_form_comes_back_from_anthropic(messages: Any) -> None:
    sent: Any = to_anthropic(messages)
    assert "secret" not in str(sent)
    assert all(one["role"] != two["role"] for one, two in pairwise(sent))
    assert in_parts(list(from_anthropic(sent))) == in_parts(messages)


@given(ours())
def test_our_form_comes_back_from_responses(messages: Any) -> None:
    sent = to_openai_responses(messages)
    assert "secret" not in str(sent)
    back = merged(in_parts(list(from_openai_responses(sent))))
    assert back == merged(in_parts(messages))


def merged(messages: list[Any]) -> list[Any]:
    """Join what one assistant says in a row: the items of a reply have no end mark."""
    found: list[Any] = []
    for message in messages:
        if found and message["role"] == found[-1]["role"] == "assistant":
            last = found.pop()
            calls = [*last.get("tool_calls", ()), *message.get("tool_calls", ())]
            message = {**message, "content": [*last["content"], *message["content"]], "tool_calls": calls}
        if message.get("tool_calls") == []:
            message = {name: value for name, value in message.items() if name != "tool_calls"}
        content = [part for part in message["content"] if part["type"] != "other"]
        found.append({**message, "content": content})
    return found


@given(st.lists(CHAT, max_size=4))
def test_a_message_of_chat_completions_comes_back_whole(messages: Any) -> None:
    converted = [from_openai(message) for message in messages]
    assert from_openai(messages) == converted
    back = [one for message in converted for one in to_openai([message])]
    assert [chat_meaning(message) for message in back] == [chat_meaning(message) for message in messages]


@given(claude())
def test_messages_of_anthropic_come_back_whole(messages: Any) -> None:
    assert claude_meaning(to_anthropic(from_anthropic(messages))) == claude_meaning(messages)


@given(ITEMS)
def test_items_of_responses_come_back_whole(items: Any) -> None:
    """In their order, except that a system message between a call and its result follows the result."""
    items = [{**item, "id": f"id_{n}"} if "id" in item else item for n, item in enumerate(items)]
    back = [item_meaning(item) for item in to_openai_responses(from_openai_responses(items))]
    before = [item_meaning(item) for item in items]
    assert [each for each in back if is_system(each)] == [each for each in before if is_system(each)]
    assert [each for each in back if not is_system(each)] == [each for each in before if not is_system(each)]


JUNK = st.sampled_from([None, 7, "text", [], {}, [7], {"type": "text"}, {"type": "file"}, {"id": 7}])


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[Any]) -> Any:
    """Draw a value of which one thing somewhere inside is left out or replaced."""
    value = draw(whole)
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 3)) == 0:
        return draw(JUNK)
    place: Any = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    copy: Any = value.copy()
    if draw(st.booleans()):
        copy[place] = draw(damaged(st.just(value[place])))
    else:
        del copy[place]
    return copy


@pytest.mark.parametrize(
    "whole", [st.lists(CHAT, max_size=2), claude(), ITEMS, ours()], ids=["chat", "claude", "items", "ours"]
)
@given(data=st.data())
def test_what_is_damaged_is_converted_or_refused_with_a_typed_error(whole: Any, data: st.DataObject) -> None:
    messages = data.draw(damaged(whole))
    inwards: list[Any] = [from_openai, from_anthropic, from_openai_responses]
    outwards: list[Any] = [to_openai, to_anthropic, to_openai_responses]
    for convert in inwards + outwards:
        if convert in inwards or isinstance(messages, list):
            with suppress(InvalidInput):
                convert(messages)


def is_system(item: Any) -> bool:
    return item.get("role") in ("system", "developer")
