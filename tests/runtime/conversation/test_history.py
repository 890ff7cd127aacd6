"""Valid histories: every call has a result, or something that stands for it."""

from typing import Any

import pytest

from tenuto.errors import InvalidHistory
from tenuto.messages.history_repair import repair
from tenuto.messages.message_form import check_message, with_unique_calls
from tenuto.messages.tool_result import not_executed, outcome_unknown
from tenuto.runtime.conversation.history import History

USER = {"role": "user", "content": "hello"}
SYSTEM = {"role": "system", "content": "be kind"}
REPLY = {"role": "assistant", "content": "hi"}
FRAME = {"role": "frame", "frame": "compaction"}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": each, "name": "look"} for each in ids]}


def result(call_id: str, content: str = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [SYSTEM, USER, REPLY, USER],
        [USER, calling("a", "b"), result("b"), result("a"), REPLY],
        [USER, calling("a"), SYSTEM, result("a"), FRAME, USER],
        [calling("a"), result("a"), calling("b"), result("b")],
        [{**REPLY, "tool_calls": None}, {**REPLY, "tool_calls": []}],
    ],
)
def test_a_history_with_every_call_answered_is_valid(messages: list[Any]) -> None:
    judged = History().judged(messages)
    assert not judged.open


@pytest.mark.parametrize(
    ("messages", "call_id"),
    [
        ([calling("a")], "a"),
        ([calling("a"), USER, result("a")], "a"),
        ([calling("a"), REPLY], "a"),
        ([calling("a"), calling("b"), result("a"), result("b")], "a"),
        ([calling("a", "b"), result("b"), FRAME, result("a")], "a"),
        ([result("a")], "a"),
        ([calling("a"), result("a"), result("a")], "a"),
        ([calling("a", "a"), result("a")], "a"),
        ([calling("a"), result("a"), calling("a"), result("a")], "a"),
    ],
)
def test_a_history_that_breaks_the_law_is_refused_and_names_the_call(messages: list[Any], call_id: str) -> None:
    with pytest.raises(InvalidHistory) as refused:
        History().judged(messages)
    assert refused.value.call_id == call_id


def test_a_call_that_something_stands_for_may_stay_open_but_nothing_passes_it() -> None:
    history = History()
    history.accept(history.judged([USER, calling("a", "b"), result("b")], excused={"a"}))
    assert list(history.open) == ["a"]
    for passing in (USER, REPLY, calling("c"), FRAME):
        with pytest.raises(InvalidHistory, match="'a'"):
            history.judged([passing], excused={"a", "c"})
    with pytest.raises(InvalidHistory):
        history.judged([])
    history.accept(history.judged([SYSTEM], excused={"a"}))
    history.accept(history.judged([result("a"), USER]))
    assert (list(history.open), history.used) == ([], {"a", "b"})


def test_judging_adds_nothing_until_it_is_accepted() -> None:
    history = History()
    for _ in range(2):
        judged = history.judged([calling("a"), result("a")])
    assert (history.open, history.used) == ({}, set())
    history.accept(judged)
    with pytest.raises(InvalidHistory, match="used before"):
        history.judged([calling("a"), result("a")])
    with pytest.raises(InvalidHistory, match="answered already"):
        history.judged([result("a")])
    with pytest.raises(InvalidHistory, match="never made"):
        history.judged([result("z")])


def test_what_is_known_of_a_stored_history_is_what_judging_it_gave() -> None:
    messages = [USER, calling("a", "b"), result("a")]
    known, judged = History.of(messages), History().judged(messages, excused={"b"})
    assert (known.open, known.used) == (judged.open, judged.made)
    assert History.of(["of", 3, "other kinds"]) == History()


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        None,
        [],
        {},
        {"role": "robot"},
        {"role": None},
        {"role": ["user"]},
        {"role": "tool", "content": "x"},
        {"role": "tool", "tool_call_id": ""},
        {"role": "tool", "tool_call_id": 5},
        {"role": "user", "tool_calls": [{"id": "a"}]},
        {"role": "assistant", "tool_calls": [{}]},
        {"role": "assistant", "tool_calls": [{"id": ""}]},
        {"role": "assistant", "tool_calls": ["a"]},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": {"id": "a"}},
    ],
)
def test_what_is_no_message_is_refused_everywhere(message: Any) -> None:
    with pytest.raises(InvalidHistory):
        check_message(message)
    with pytest.raises(InvalidHistory):
        History().judged([message])
    with pytest.raises(InvalidHistory):
        repair([message])
    with pytest.raises(InvalidHistory):
        with_unique_calls(message, set())


def test_repeated_call_ids_are_made_unique_with_the_smallest_free_number() -> None:
    message = calling("a", "a", "b", "a_2")
    unique = with_unique_calls(message, {"a", "b", "b_2"})
    assert [call["id"] for call in unique["tool_calls"]] == ["a_2", "a_3", "b_3", "a_2_2"]
    assert [call["id"] for call in message["tool_calls"]] == ["a", "a", "b", "a_2"]
    assert with_unique_calls(REPLY, {"a"}) == REPLY


def test_results_that_say_what_became_of_a_call_are_results() -> None:
    said = [calling("a", "b"), not_executed("a", "stopped"), outcome_unknown("b")]
    assert History().judged(said).open == {}
    with pytest.raises(InvalidHistory):
        History().judged(said[:2])
