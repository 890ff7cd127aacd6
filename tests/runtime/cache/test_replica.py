"""The runtime's own copy of a session, in step with the store."""

from typing import Any

from tenuto import Store
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.cache.replicas import Replicas
from tenuto.runtime.definition import Definition
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session_view import changes_between
from tests.runtime.talking import echo

USER = {"role": "user", "content": "hello"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look"}, {"id": "b", "name": "look"}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
MARK = {"role": "frame", "frame": "compaction"}


async def a_copy(store: Store, *messages: Any) -> Replica:
    runtime = SessionRuntime(store, [echo])
    seed = {"messages": [], "notes": ["n1"], "mood": "calm", "count": 3}
    await runtime.create("echo", seed, session_id="s", logs=["notes"])
    record = await store.load("s")
    assert record is not None
    copy = Replica.of(record)
    copy.add("messages", messages)
    copy.judge()
    return copy


async def test_a_copy_is_what_was_loaded(store: Store) -> None:
    copy = await a_copy(store)
    head = await store.head("s")
    assert head is not None
    assert (copy.life, copy.version, copy.commit_number) == (head.life, head.version, head.commit_number)
    assert (copy.document, copy.logs) == ({"mood": "calm", "count": 3}, {"messages": [], "notes": ["n1"]})
    assert (copy.definition, copy.status) == (Definition(name="echo"), SessionStatus.ACTIVE)
    assert (copy.base.version, copy.base.ends) == (1, head.ends)
    assert copy.size > 10


async def test_taking_stock_finds_open_calls_used_ids_and_the_last_frame(store: Store) -> None:
    copy = await a_copy(store, MARK, USER, MARK, USER, CALL, RESULT)
    assert (list(copy.history.open), copy.history.used, copy.frame_at) == (["b"], {"a", "b"}, 2)
    copy.judge(4)
    assert (copy.history.open, copy.history.used, copy.frame_at) == ({}, set(), 2)


async def test_a_value_stays_what_it_was_while_its_copy_goes_on(store: Store) -> None:
    copy = await a_copy(store, USER)
    value = copy.value()
    copy.add("messages", [CALL, MARK])
    copy.document = copy.document | {"mood": "glad"}
    copy.status = SessionStatus.SUSPENDED
    assert (list(value.messages), value.document["mood"], value.status) == ([USER], "calm", "active")
    assert (copy.frame_at, len(copy.value().messages)) == (2, 3)


async def test_committed_changes_make_the_copy_the_value_they_lead_to(store: Store) -> None:
    copy = await a_copy(store, USER)
    before = copy.value()
    after = (
        before.with_fields(mood="glad")
        .without_fields("count")
        .appended("messages", MARK, CALL)
        .replaced("notes", ["other"])
        .with_metadata(a=1)
        .with_definition(name="next", label="next")
        .with_status(SessionStatus.COMPLETED)
    )
    copy.take(changes_between(before, after), after)
    now = copy.value()
    assert (dict(now.document), list(now.messages), list(now.logs["notes"])) == (
        {"mood": "glad"},
        [USER, MARK, CALL],
        ["other"],
    )
    assert (now.status, now.metadata, now.definition) == ("completed", {"a": 1}, after.definition)
    assert (now.profile.agent, now.profile.definition["name"]) == ("next", "next")
    assert (list(copy.history.open), copy.frame_at) == (["a", "b"], 1)
    assert list(before.logs["notes"]) == ["n1"]


def sized(session_id: str, size: int) -> Replica:
    copy = Replica.__new__(Replica)
    copy.key, copy.size = SessionKey(session_id), size
    return copy


def test_a_copy_is_handed_out_once() -> None:
    copies = Replicas(100)
    copies.put(sized("a", 10))
    assert copies.take(SessionKey("a")) is not None
    assert copies.take(SessionKey("a")) is None


def test_copies_used_longest_ago_go_first_and_one_over_the_limit_is_not_kept() -> None:
    copies = Replicas(100)
    for name in "abc":
        copies.put(sized(name, 40))
    assert [copies.take(SessionKey(name)) is not None for name in "abc"] == [False, True, True]
    copies.put(sized("big", 101))
    assert copies.take(SessionKey("big")) is None
    for name, size in (("a", 40), ("a", 90), ("b", 10), ("c", 1)):
        copies.put(sized(name, size))
    assert [copies.take(SessionKey(name)) is not None for name in "abc"] == [False, True, True]
