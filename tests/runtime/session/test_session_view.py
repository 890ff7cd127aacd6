"""Session values, and what changed between two of them."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import InvalidInput, StatusRefused
from tenuto.model.commit import MetadataChange
from tenuto.model.session import LogEnd, Profile, SessionKey, SessionStatus
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import KeptLog, LogView, SessionView, changes_between

AT = datetime(2026, 1, 2, tzinfo=UTC)
MESSAGES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def a_session(**parts: Any) -> SessionView:
    known: dict[str, Any] = {
        "key": SessionKey("s"),
        "status": SessionStatus.ACTIVE,
        "version": 7,
        "commit_number": 9,
        "definition": Definition(name="helper"),
        "profile": Profile(title="old", metadata={"a": 1}, trace={"trace_id": "t"}),
        "document": {"mood": "calm", "count": 3},
        "logs": {"messages": LogView(list(MESSAGES)), "notes": LogView(["n1"])},
        "created_at": AT,
        "updated_at": AT,
    }
    return SessionView(**(known | parts))


def test_a_session_is_frozen() -> None:
    session = a_session()
    with pytest.raises(FrozenInstanceError):
        session.version = 8  # type: ignore[misc]
    changed = session.with_fields(mood="glad")
    with pytest.raises(TypeError):
        changed.document["mood"] = "sad"  # type: ignore[index]
    with pytest.raises(TypeError):
        session.appended("notes", "n2").logs["notes"] = []  # type: ignore[index]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.with_fields(mood="glad"),
        lambda s: s.without_fields("mood"),
        lambda s: s.appended("messages", {"role": "user", "content": "three"}),
        lambda s: s.replaced("messages"),
    ],
)
def test_a_new_state_keeps_status_version_and_times_and_leaves_the_old_value(change: Any) -> None:
    session = a_session(status=SessionStatus.SUSPENDED)
    changed = change(session)
    assert changed != session
    kept = (changed.status, changed.version, changed.commit_number, changed.created_at, changed.updated_at)
    assert kept == (SessionStatus.SUSPENDED, 7, 9, AT, AT)
    assert session == a_session(status=SessionStatus.SUSPENDED)


@pytest.mark.parametrize("status", [SessionStatus.SUSPENDED, SessionStatus.COMPLETED, SessionStatus.FAILED])
def test_each_status_change_gives_a_new_value_and_leaves_the_old_one(status: SessionStatus) -> None:
    session = a_session()
    closed = session.with_status(status)
    assert (session.status, closed.status, closed.version, closed.updated_at) == ("active", status, 7, AT)
    opened = closed.with_status(SessionStatus.ACTIVE)
    assert (closed.status, opened) == (status, session)


def test_a_status_the_table_does_not_allow_is_refused() -> None:
    with pytest.raises(StatusRefused):
        a_session(status=SessionStatus.COMPLETED).with_status(SessionStatus.FAILED)


def test_a_session_without_a_program_needs_one_named_before_anything_else_of_it_changes() -> None:
    session = a_session(definition=None)
    with pytest.raises(InvalidInput):
        session.with_definition(model="m")
    assert session.with_definition(name="helper", model="m").definition == Definition(name="helper", model="m")


def test_a_log_view_is_what_the_log_was_while_the_log_goes_on() -> None:
    log = ["a", "b"]
    view = LogView(log)
    log.append("c")
    assert (list(view), len(view), view[-1], view[0:5], view == ["a", "b"]) == (["a", "b"], 2, "b", ["a", "b"], True)
    assert list(reversed(view)) == ["b", "a"]
    for index in (2, -3):
        with pytest.raises(IndexError):
            view[index]
    assert view != "ab"
    assert view.grew_to(LogView(log)) == ["c"]
    assert LogView(log).grew_to(view) is None
    assert view.grew_to(LogView(list(log))) is None


def test_nothing_changed_is_nothing_to_write() -> None:
    session = a_session()
    changes = changes_between(session, session.with_fields(mood="calm").with_metadata(a=1))
    assert not changes.moves_head
    assert (changes.profile, changes.status) == ({}, None)


def test_an_equal_text_is_no_change_and_an_equal_number_of_another_type_is() -> None:
    before = a_session(document={"mood": "".join(["ca", "lm"]), "count": 1, "big": 10**12})
    assert not changes_between(before, before.with_fields(mood="calm", big=10**6 * 10**6)).moves_head
    changes = changes_between(before, before.with_fields(count=True))
    assert (changes.document, type(changes.document["count"])) == ({"count": True}, bool)


def test_only_what_changed_is_written() -> None:
    before = a_session()
    after = before.with_fields(mood="glad", new=[1]).without_fields("count").appended("notes", "n2", "n3")
    changes = changes_between(before, after)
    assert changes.document == {"mood": "glad", "new": [1]}
    assert changes.removed == {"count"}
    assert {name: (change.items, change.anew) for name, change in changes.logs.items()} == {
        "notes": (["n2", "n3"], False)
    }
    assert changes.moves_head


def test_a_log_that_was_edited_is_written_anew_from_where_it_differs() -> None:
    before = a_session()
    edited = {"role": "assistant", "content": "2"}
    changes = changes_between(before, before.replaced("messages", [before.messages[0], edited]))
    assert changes.logs["messages"] == ([edited], True, 1, None)
    assert changes_between(before, before.replaced("notes")).logs["notes"] == ([], True, 0, None)


def test_an_empty_log_that_is_new_is_written_too() -> None:
    before = a_session()
    assert changes_between(before, before.replaced("fresh")).logs["fresh"] == ([], False, 0, None)


def test_a_log_that_is_gone_is_removed() -> None:
    before = a_session()
    left = {name: items for name, items in before.logs.items() if name != "notes"}
    assert changes_between(before, a_session(logs=left)).removed == {"notes"}


def test_what_a_log_was_elsewhere_is_named_by_its_end() -> None:
    end = LogEnd(1, 4, 2)
    before = a_session()
    kept = KeptLog(["x", "y"], end)
    assert changes_between(before, before.replaced("notes")).logs["notes"].keep is None
    after = a_session(logs={**before.logs, "notes": kept})
    assert changes_between(before, after).logs["notes"] == ([], True, 2, end)


def test_metadata_definition_and_status_move_no_head() -> None:
    before = a_session()
    after = (
        before.with_metadata(b=2)
        .with_definition(name="other", label="other", model="m")
        .with_profile(title="new", mode="fast", workspace="w")
        .with_status(SessionStatus.COMPLETED)
    )
    changes = changes_between(before, after)
    assert not changes.moves_head
    assert changes.status == "completed"
    definition = {"name": "other", "version": "1", "label": "other", "model": "m"}
    assert changes.profile == {
        "title": "new",
        "mode": "fast",
        "workspace": "w",
        "definition": definition,
        "agent": "other",
    }
    assert changes.metadata == MetadataChange(values={"b": 2})


def test_only_the_keys_of_metadata_that_differ_are_written() -> None:
    before = a_session().with_metadata(one=1, true=True, items=[1], gone=0, none=None)
    after = {"one": True, "true": True, "items": [1], "none": None, "new": None}
    changes = changes_between(before, before.with_profile(metadata=after))
    assert changes.metadata == MetadataChange(values={"one": True, "new": None}, removed=frozenset({"gone", "a"}))
    assert changes_between(before, before.with_metadata(items=[1])).metadata is None
    assert changes_between(before, before).metadata is None


@pytest.mark.parametrize("fixed", [{"parent": "p"}, {"root": "r"}])
def test_what_a_create_fixed_cannot_be_changed_silently(fixed: dict[str, str]) -> None:
    before = a_session()
    with pytest.raises(InvalidInput, match="set at creation"):
        changes_between(before, before.with_profile(**fixed))
