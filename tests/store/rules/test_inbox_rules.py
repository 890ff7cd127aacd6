"""The inbox: what is queued, cancelled, refused, and what a runner may take."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import InvalidInput, OperationConflict, RunNotLive, SessionNotFound, StatusRefused
from tenuto.model.input import Boundary, Cancelled, InputKind, NewInput, Nothing
from tenuto.store.rules.parts.input_rules import PackedInput, pack_input
from tenuto.store.rules.verbs.inbox_rules import InboxLook, decide_cancel, decide_enqueue, decide_refuse, decide_take
from tests.store.rules.found import EVENTS, KEY, LIFE, NOW, SID, nothing, queued, rows_of, run, session


def message(**parts: Any) -> PackedInput:
    return pack_input(NewInput(**{"kind": InputKind.MESSAGE, "body": "hi", **parts}), "input")


def test_input_takes_the_next_event_number_and_says_so_in_the_stream() -> None:
    given = message(delay=2.0)
    plan = decide_enqueue(KEY, given, nothing(session=session()))
    (row,) = rows_of(plan, "insert_inputs")
    (event,) = rows_of(plan, "insert_events")
    assert (row.input_id, row.seq, row.due_at, row.status) == (given.input_id, EVENTS + 1, NOW + 2_000_000, "open")
    assert (event.first_seq, event.last_seq) == (EVENTS + 1, EVENTS + 1)
    assert rows_of(plan, "take_number") == [(EVENTS + 1, SID, LIFE, EVENTS, 1, "active")]
    assert plan.moved is not None
    assert (plan.moved.before, plan.moved.event_seq) == (EVENTS, EVENTS + 1)


def test_a_known_key_returns_its_first_row_also_where_nothing_new_is_taken() -> None:
    given = message(key="k")
    known = queued(key="k", digest=given.digest, status="consumed")
    plan = decide_enqueue(KEY, given, nothing(session=session(status="failed"), input_keys={"k": known}))
    assert (plan.writes, plan.result.replayed, plan.result.input.input_id) == ([], True, "input-1")
    with pytest.raises(OperationConflict):
        decide_enqueue(KEY, message(key="k", body="other"), nothing(session=session(), input_keys={"k": known}))


def test_input_needs_a_session_that_is_there_and_active() -> None:
    for found in (nothing(), nothing(session=session(alive=0))):
        with pytest.raises(SessionNotFound):
            decide_enqueue(KEY, message(), found)
    with pytest.raises(StatusRefused):
        decide_enqueue(KEY, message(), nothing(session=session(status="suspended")))


def test_input_for_a_boundary_is_bound_to_the_live_run_or_left_to_the_next_turn() -> None:
    given = message(boundary=Boundary.AFTER_STEP)
    plan = decide_enqueue(KEY, given, nothing(session=session(), run=run()))
    (row,) = rows_of(plan, "insert_inputs")
    assert (row.run_id, row.boundary) == ("run-1", str(Boundary.AFTER_STEP))
    assert rows_of(plan, "hold_runs") == [(1, "run-1")]
    for found in (None, run(status="completed"), run(session=SID + 1)):
        (row,) = rows_of(decide_enqueue(KEY, given, nothing(session=session(), run=found)), "insert_inputs")
        assert (row.run_id, row.boundary) == (None, None)


def test_input_for_a_run_of_another_session_is_refused() -> None:
    given = message(boundary=Boundary.AFTER_STEP, run_id="run-1")
    with pytest.raises(RunNotLive):
        decide_enqueue(KEY, given, nothing(session=session(), run=run(session=SID + 1)))


@pytest.mark.parametrize(
    "parts",
    [
        {"delay": 1.0, "due_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"kind": InputKind.COMMAND, "boundary": Boundary.AFTER_STEP},
        {"run_id": "r"},
    ],
    ids=["due twice", "a command at a boundary", "a run without a boundary"],
)
def test_input_that_contradicts_itself_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        message(**parts)


def test_a_cancel_says_for_each_id_what_became_of_it_and_touches_only_what_is_open() -> None:
    states = {"open": "open", "consumed": "consumed", "cancelled": "cancelled", "refused": "refused"}
    found = {name: queued(input_id=name, status=status) for name, status in states.items()}
    found["theirs"] = queued(input_id="theirs", session=SID + 1)
    plan = decide_cancel([*found, "unknown"], nothing(session=session(), inputs=found))
    assert plan.result == {
        "open": Cancelled.CANCELLED,
        "consumed": Cancelled.CONSUMED,
        "cancelled": Cancelled.ALREADY,
        "refused": Cancelled.REFUSED,
        "theirs": Cancelled.UNKNOWN,
        "unknown": Cancelled.UNKNOWN,
    }
    assert rows_of(plan, "cancel_inputs") == [(NOW, "open")]


def test_only_open_input_is_refused_and_its_reason_takes_the_bodys_place() -> None:
    plan = decide_refuse(KEY, "input-1", {"why": 1}, nothing(session=session(), inputs={"input-1": queued()}))
    assert plan.result
    assert rows_of(plan, "refuse_inputs") == [('{"why":1}', NOW, "input-1")]
    for known in (queued(status="consumed"), queued(life=LIFE - 1)):
        plan = decide_refuse(KEY, "input-1", None, nothing(session=session(), inputs={"input-1": known}))
        assert (plan.result, plan.writes) == (False, [])


def look(**parts: Any) -> InboxLook:
    return InboxLook(**{"open": True, "next_due": None, "command": None, **parts})


def test_between_turns_the_oldest_due_input_is_taken_alone() -> None:
    due = [queued(input_id="a", seq=1), queued(input_id="b", seq=2)]
    assert [each.input_id for each in decide_take(None, look(), due, KEY).inputs] == ["a"]


def test_at_a_boundary_nothing_passes_an_older_command() -> None:
    due = [queued(input_id="a", seq=1), queued(input_id="b", seq=3)]
    taken = decide_take(Boundary.AFTER_STEP, look(command=(2, "c")), due, KEY)
    assert [each.input_id for each in taken.inputs] == ["a"]
    blocked = decide_take(Boundary.AFTER_STEP, look(command=(0, "c")), due, KEY)
    assert (blocked.inputs, blocked.reason, blocked.blocked_by) == ((), Nothing.BLOCKED, "c")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [(look(open=False), Nothing.EMPTY), (look(), Nothing.NOT_HERE), (look(next_due=NOW), Nothing.NOT_DUE)],
)
def test_where_nothing_is_taken_it_says_why(seen: InboxLook, reason: Nothing) -> None:
    assert decide_take(None, seen, [], KEY).reason is reason
