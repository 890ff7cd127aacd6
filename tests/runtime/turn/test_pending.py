"""What a turn has done and not yet written: taken along by the next commit, or taken back."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidHistory
from tenuto.model.commit import OpenWait, Receipt
from tenuto.model.event import NewEvent
from tenuto.model.session import LogEnd, Profile, SessionKey, SessionStatus
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import changes_between
from tenuto.runtime.turn.pending_changes import Pending
from tenuto.runtime.turn.replica import Replica
from tenuto.writing.log_tracker import LogTracker, operation_of

AT = datetime(2026, 1, 2, tzinfo=UTC)
USER = {"role": "user", "content": "hello"}
REPLY = {"role": "assistant", "content": "hi"}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": each, "name": "look"} for each in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def a_replica(*messages: Any) -> Replica:
    replica = Replica(
        key=SessionKey("s"),
        life=0,
        version=1,
        commit_number=1,
        generation=0,
        status=SessionStatus.ACTIVE,
        definition=Definition(name="echo"),
        profile=Profile(),
        document={"mood": "calm"},
        logs={"messages": list(messages), "notes": ["n1"]},
        ends={"messages": LogEnd(1, 1, len(messages)), "notes": LogEnd(1, 2, 1)},
        schema_version="",
        resume_count=0,
        created_at=AT,
        updated_at=AT,
        size=0,
    )
    replica.reindex()
    return replica


def pending_of(replica: Replica, **options: Any) -> Pending:
    return Pending(replica, LogTracker(replica.base), **options)


def landing(pending: Pending) -> None:
    """Let a commit with all that is pending land, as the turn does."""
    under_way(pending)
    landed(pending)


def sent(pending: Pending) -> dict[str, list[Any]]:
    """Return each log as the commit under way leaves it."""
    logs = _sent.get(id(pending))
    assert logs is not None
    return logs


_sent: dict[int, dict[str, list[Any]]] = {}


def under_way(pending: Pending, waits: tuple[OpenWait, ...] = ()) -> dict[str, Any]:
    parts = pending.parts(pending.logs(), waits)
    _sent[id(pending)] = {name: list(items) for name, items in pending.replica.logs.items()}
    return parts


def landed(pending: Pending) -> None:
    replica = pending.replica
    ends = {name: LogEnd(1, at, len(items)) for at, (name, items) in enumerate(sent(pending).items(), start=1)}
    receipt = Receipt(
        operation_id="o",
        life=0,
        commit_number=replica.commit_number + 1,
        version=replica.version + 1,
        generation=0,
        event_seq=0,
        ends=ends,
        wait_ids=(),
        committed_at=AT,
    )
    pending.tracker.landed(receipt, {}, saved=True)
    pending.landed(receipt)


def test_nothing_done_is_nothing_to_write() -> None:
    pending = pending_of(a_replica(USER))
    assert pending.is_empty
    assert (pending.logs(), pending.moves_head) == ({}, False)


def test_what_is_added_is_written_once() -> None:
    pending = pending_of(a_replica(USER))
    assert pending.add("messages", [REPLY]) == 0
    assert pending.add("messages", [USER]) == 1
    pending.add("fresh", [1])
    pending.events.append(NewEvent(type="e"))
    logs = pending.logs()
    assert {name: (list(change.items), change.anew) for name, change in logs.items()} == {
        "messages": ([REPLY, USER], False),
        "fresh": ([1], False),
    }
    parts = under_way(pending)
    assert [event.type for event in parts["events"]] == ["e"]
    landed(pending)
    assert (pending.is_empty, pending.written("messages"), pending.replica.version) == (True, 3, 2)


def test_what_is_done_while_a_commit_is_under_way_waits_for_the_next() -> None:
    replica = a_replica(USER)
    pending = pending_of(replica)
    pending.add("messages", [REPLY])
    pending.document |= {"mood": "glad", "a": 1}
    pending.profile |= {"title": "one"}
    pending.events.append(NewEvent(type="first"))
    under_way(pending)
    pending.add("messages", [USER])
    pending.document |= {"mood": "sour"}
    pending.profile |= {"title": "two"}
    pending.events.append(NewEvent(type="second"))
    landed(pending)
    assert (pending.document, pending.profile) == ({"mood": "sour"}, {"title": "two"})
    assert [event.type for event in pending.events] == ["second"]
    assert list(pending.logs()["messages"].items) == [USER]


def test_a_call_may_stay_open_only_if_something_stands_for_it() -> None:
    pending = pending_of(a_replica(USER))
    pending.add("messages", [calling("a", "b")])
    with pytest.raises(InvalidHistory):
        under_way(pending)
    pending.covered_calls = {"a"}
    with pytest.raises(InvalidHistory, match="'b'"):
        under_way(pending)
    under_way(pending, (OpenWait(kind="tool_result", metadata={"call_id": "b"}),))
    landed(pending)
    assert list(pending.replica.history.open) == ["a", "b"]


def test_logs_that_are_no_conversations_are_not_judged() -> None:
    pending = pending_of(a_replica(USER), message_logs=frozenset())
    pending.add("messages", ["anything"])
    landing(pending)
    assert pending.replica.messages == [USER, "anything"]


def test_a_log_that_begins_anew_keeps_only_what_the_store_has() -> None:
    pending = pending_of(a_replica(USER, REPLY))
    pending.add("messages", [USER, REPLY])
    edited = {"role": "assistant", "content": "edited"}
    pending.reset_log("messages", [USER, REPLY, USER, edited], kept=3)
    change = pending.logs()["messages"]
    assert (list(change.items), change.anew, change.kept) == ([USER, edited], True, 2)
    landing(pending)
    assert (pending.replica.messages, pending.written("messages"), pending.logs()) == (
        [USER, REPLY, USER, edited],
        4,
        {},
    )


def test_a_log_that_begins_anew_is_judged_with_all_that_is_added_to_it() -> None:
    pending = pending_of(a_replica(USER, calling("a"), result("a")))
    pending.reset_log("messages", [USER], kept=1)
    pending.add("messages", [calling("a"), result("a"), calling("b")])
    with pytest.raises(InvalidHistory, match="'b'"):
        under_way(pending)
    pending.add("messages", [result("b")])
    landing(pending)
    assert (pending.replica.history.open, pending.replica.history.used) == ({}, {"a", "b"})


def test_a_log_may_go_on_from_another_end() -> None:
    pending = pending_of(a_replica(USER))
    pending.reset_log("messages", [REPLY, USER], 2, LogEnd(1, 7, 2))
    pending.reset_log("messages", [REPLY, REPLY], 1)
    change = pending.logs()["messages"]
    assert (list(change.items), change.kept, change.keep) == ([REPLY], 1, LogEnd(1, 7, 2))
    written: Any = operation_of(change, LogEnd(1, 1, 1))
    assert written.keep == LogEnd(1, 7, 1)


def test_taking_back_leaves_the_session_as_the_store_has_it() -> None:
    replica = a_replica(USER)
    pending = pending_of(replica)
    pending.add("messages", [REPLY])
    landing(pending)
    view = replica.value()
    after = (
        view.with_fields(mood="sour")
        .with_status(SessionStatus.SUSPENDED)
        .with_definition(model="m2")
        .with_metadata(a=1)
        .appended("messages", USER)
        .replaced("notes", ["other"])
        .appended("fresh", 1)
    )
    pending.apply(changes_between(view, after), after)
    taken = replica.value()
    assert (taken.document["mood"], taken.status, len(taken.messages)) == ("sour", "suspended", 3)
    pending.discard()
    now = replica.value()
    assert (dict(now.document), now.status, now.metadata) == ({"mood": "calm"}, "active", {})
    assert now.definition == Definition(name="echo")
    assert (list(now.messages), list(now.logs["notes"]), list(now.logs.get("fresh", ()))) == ([USER, REPLY], ["n1"], [])
    assert len(taken.messages) == 3  # a value stays what it was
    assert (pending.document, pending.profile, pending.status) == ({}, {}, None)
    assert all(not change.items and not change.anew for change in pending.logs().values())


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3)),
        st.tuples(st.just("anew"), st.integers(0, 6)),
        st.tuples(st.just("land"), st.just(0)),
        st.tuples(st.just("discard"), st.just(0)),
    ),
    max_size=12,
)


@given(_STEPS)
def test_what_is_written_and_what_is_in_memory_never_part(steps: list[tuple[str, int]]) -> None:
    replica = a_replica(USER, REPLY)
    pending = pending_of(replica)
    stored, number = [USER, REPLY], 0
    for word, count in steps:
        match word:
            case "add":
                number += 1
                pending.add("messages", [{"role": "user", "content": f"{number}.{each}"} for each in range(count)])
            case "anew":
                number += 1
                kept = replica.messages[:count]
                pending.reset_log("messages", [*kept, {"role": "user", "content": f"new {number}"}], len(kept))
            case "land":
                change = pending.logs().get("messages")
                if change is not None:
                    stored = [*(stored[: change.kept] if change.anew else stored), *change.items]
                landing(pending)
                assert replica.messages == stored
            case _:
                pending.discard()
                assert replica.messages == stored
        assert pending.written("messages") <= len(replica.messages)
