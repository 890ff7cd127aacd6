"""The runtime's own replica of a session, in step with the store."""

from typing import Any

from tenuto import Store
from tenuto.model.session import SessionStatus
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import changes_between
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.turn.replica import Replica
from tests.runtime.runtimes import opened
from tests.runtime.talking import echo

USER = {"role": "user", "content": "hello"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look"}, {"id": "b", "name": "look"}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
MARK = {"role": "frame", "frame": "compaction"}


async def a_replica(store: Store, *messages: Any) -> Replica:
    runtime = await opened(store, [echo])
    seed: dict[str, Any] = {"messages": [], "notes": ["n1"], "mood": "calm", "count": 3}
    await runtime.create("echo", seed, session_id="s", logs=["notes"])
    record = await store.load("s")
    assert record is not None
    replica = Replica.of(record, Definition(name="echo"), None, ProgramTraits())
    replica.add("messages", messages)
    replica.reindex()
    return replica


async def test_a_replica_is_what_was_loaded(store: Store) -> None:
    replica = await a_replica(store)
    head = await store.head("s")
    assert head is not None
    assert (replica.life, replica.version, replica.commit_number) == (head.life, head.version, head.commit_number)
    assert (replica.document, replica.logs) == ({"mood": "calm", "count": 3}, {"messages": [], "notes": ["n1"]})
    assert (replica.definition, replica.status) == (Definition(name="echo"), SessionStatus.ACTIVE)
    assert (replica.base.version, replica.base.ends) == (1, head.ends)
    assert replica.size > 10


async def test_taking_stock_finds_open_calls_used_ids_and_the_last_frame(store: Store) -> None:
    replica = await a_replica(store, MARK, USER, MARK, USER, CALL, RESULT)
    assert (list(replica.history.open), replica.history.used, replica.frame_at) == (["b"], {"a", "b"}, 2)
    replica.reindex(4)
    assert (replica.history.open, replica.history.used, replica.frame_at) == ({}, set(), 2)


async def test_a_value_stays_what_it_was_while_its_copy_goes_on(store: Store) -> None:
    replica = await a_replica(store, USER)
    value = replica.value()
    replica.add("messages", [CALL, MARK])
    replica.document = replica.document | {"mood": "glad"}
    replica.status = SessionStatus.SUSPENDED
    assert (list(value.messages), value.document["mood"], value.status) == ([USER], "calm", "active")
    assert (replica.frame_at, len(replica.value().messages)) == (2, 3)


async def test_committed_changes_make_the_copy_the_value_they_lead_to(store: Store) -> None:
    replica = await a_replica(store, USER)
    before = replica.value()
    after = (
        before.with_fields(mood="glad")
        .without_fields("count")
        .appended("messages", MARK, CALL)
        .replaced("notes", ["other"])
        .with_metadata(a=1)
        .with_definition(name="next", label="next")
        .with_status(SessionStatus.COMPLETED)
    )
    replica.take(changes_between(before, after), after)
    now = replica.value()
    assert (dict(now.document), list(now.messages), list(now.logs["notes"])) == (
        {"mood": "glad"},
        [USER, MARK, CALL],
        ["other"],
    )
    assert (now.status, now.metadata, now.definition) == ("completed", {"a": 1}, after.definition)
    assert (now.profile.agent, now.profile.definition["name"]) == ("next", "next")
    assert (list(replica.history.open), replica.frame_at) == (["a", "b"], 1)
    assert list(before.logs["notes"]) == ["n1"]
