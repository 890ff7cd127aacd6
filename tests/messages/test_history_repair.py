"""Repair of histories: what is changed, that it is reported, and that a valid history is left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidHistory, MessageRefused
from tenuto.messages import Message, Repaired, repair
from tenuto.messages.tool_result import NOT_EXECUTED
from tenuto.runtime.conversation.history import History

USER: Any = {"role": "user", "content": "hello"}
SYSTEM: Any = {"role": "system", "content": "be kind"}
REPLY: Any = {"role": "assistant", "content": "hi"}
FRAME: Any = {"role": "frame", "frame": "compaction"}
BUFFERED: Any = {**FRAME, "buffer": 1}


def calling(*ids: str) -> Any:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": each, "name": "look", "arguments": {}} for each in ids],
    }


def result(call_id: str, content: str = "seen") -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_broken_history_is_repaired_and_every_change_is_reported() -> None:
    found = [
        result("stray"),
        USER,
        calling("a", "b"),
        USER,
        result("b", "of b"),
        calling("a"),
        result("a", "of the second a"),
        result("a", "too many"),
    ]
    fixed = repair(found)
    told = [message["tool_call_id"] if message["role"] == "tool" else message["role"] for message in fixed]
    assert told == ["user", "assistant", "a", "b", "user", "assistant", "a_2"]
    lost: Any = fixed[2]
    assert lost["metadata"][NOT_EXECUTED] == "the result was lost"
    assert (fixed[3].get("content"), fixed[6].get("content")) == ("of b", "of the second a")
    assert fixed.changes == (
        "Message 2: the call 'a' had no result; added one that says so.",
        "Message 4: moved the result of the call 'b' up, before message 3.",
        "Message 5: the call id 'a' was used before and is now 'a_2'.",
        "Message 0: dropped the result of 'stray', which answers no open call.",
        "Message 7: dropped the result of 'a', which answers no open call.",
    )


def test_a_call_at_the_end_gets_its_result_there() -> None:
    fixed = repair([calling("a", "b"), SYSTEM, result("b")])
    assert [each["role"] for each in fixed] == ["assistant", "system", "tool", "tool"]
    assert fixed.changes == ("Message 0: the call 'a' had no result; added one that says so.",)


def test_calls_of_one_message_under_one_id_get_their_results_in_order() -> None:
    fixed: Any = repair([calling("a", "a"), result("a", "first"), result("a", "second")])
    assert [(each["tool_call_id"], each["content"]) for each in fixed[1:]] == [("a", "first"), ("a_2", "second")]
    late: Any = repair([calling("a", "a"), USER, result("a", "first"), result("a", "second")])
    assert [(each["tool_call_id"], each["content"]) for each in late[1:3]] == [("a", "first"), ("a_2", "second")]


def test_a_result_is_not_taken_from_a_later_call_of_the_same_id() -> None:
    fixed: Any = repair([calling("a"), calling("a"), result("a", "of the second")])
    assert [each.get("content") for each in fixed] == ["", "Not executed: the result was lost.", "", "of the second"]


def test_the_buffer_of_a_frame_begins_where_it_began() -> None:
    mark: Any = {"role": "frame", "frame": "compaction", "buffer": 3}
    fixed: Any = repair([result("stray"), result("stray"), calling("a"), USER, REPLY, mark])
    assert [each["role"] for each in fixed] == ["assistant", "tool", "user", "assistant", "frame"]
    assert fixed[4]["buffer"] == 2
    assert fixed.changes[1] == "Message 5: its buffer now begins at message 2, not 3."
    assert repair(fixed).changes == ()


def test_a_providers_own_form_is_refused_with_the_index_and_the_converter() -> None:
    native: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
    with pytest.raises(MessageRefused, match=r"message 1 .*tenuto\.messages\.from_anthropic"):
        repair([USER, native])


_IDS = st.sampled_from(["a", "b", "a_2", "c"])
_MESSAGES = st.one_of(
    st.sampled_from([USER, SYSTEM, REPLY, FRAME, BUFFERED]),
    st.lists(_IDS, max_size=3).map(lambda ids: calling(*ids)),
    st.builds(result, _IDS, st.text(max_size=2)),
)


@given(st.lists(_MESSAGES, max_size=12))
def test_whatever_comes_from_elsewhere_becomes_valid_and_then_stays_the_same(messages: list[Any]) -> None:
    before = [dict(message) for message in messages]
    fixed = repair(messages)
    assert not History().judged(fixed).open
    again = repair(fixed)
    assert (again, again.changes) == (fixed, ())
    assert messages == before
    others = [message["role"] for message in messages if message["role"] != "tool"]
    assert [message["role"] for message in fixed if message["role"] != "tool"] == others
    results = [message["content"] for message in messages if message["role"] == "tool"]
    for message in fixed:
        if message["role"] == "tool" and "metadata" not in message:
            results.remove(str(message["content"]))  # none is used twice
    dropped = [change for change in fixed.changes if "dropped" in change]
    assert len(dropped) == len(results)


@given(st.lists(_MESSAGES, max_size=12))
def test_nothing_is_changed_exactly_if_the_history_is_valid(messages: list[Message]) -> None:
    try:
        valid = not History().judged(messages).open
    except InvalidHistory:
        valid = False
    fixed = repair(messages)
    assert isinstance(fixed, Repaired)
    assert (fixed == tuple(messages)) == valid
    assert (fixed.changes == ()) == valid
