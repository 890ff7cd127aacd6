"""The session's row: how it begins, the guard of its write, and receipts."""

import pytest

from tenuto.errors import CommitMoved, OperationConflict, SessionDeleted, VersionConflict
from tenuto.store.rules.rows import SessionRow
from tenuto.store.rules.session_row import (
    blank_row,
    check_commit,
    check_life,
    check_version,
    receipt_of,
    replay,
    session_write,
)
from tests.store.rules.found import (
    COMMIT,
    EVENTS,
    GENERATION,
    KEY,
    LIFE,
    NOW,
    SID,
    VERSION,
    held,
    nothing,
    receipt,
    session,
)


def test_a_blank_row_begins_above_the_floors_and_is_not_there() -> None:
    row = blank_row(KEY, nothing(life_floor=9, event_floor=40))
    assert (row.life, row.event_seq, row.event_floor, row.alive, row.version) == (9, 40, 40, 0, 0)
    assert (row.sid, row.family, row.session_id) == (SID, SID, "ada")


def test_only_the_present_life_passes() -> None:
    check_life(KEY, LIFE, session())
    with pytest.raises(SessionDeleted) as refused:
        check_life(KEY, LIFE - 1, session())
    assert (refused.value.expected_life, refused.value.found_life) == (LIFE - 1, LIFE)


@pytest.mark.parametrize(("expected", "row"), [(None, session()), (VERSION, session()), (0, session(alive=0))])
def test_a_version_passes_that_is_there_or_is_none(expected: int | None, row: SessionRow) -> None:
    check_version(KEY, expected, row)


@pytest.mark.parametrize(
    ("expected", "row", "found"),
    [(VERSION + 1, session(), VERSION), (0, session(), VERSION), (VERSION, session(alive=0), None)],
)
def test_another_version_is_a_conflict_that_names_what_was_found(
    expected: int, row: SessionRow, found: int | None
) -> None:
    with pytest.raises(VersionConflict) as refused:
        check_version(KEY, expected, row)
    assert (refused.value.expected, refused.value.found) == (expected, found)


def test_another_commit_is_a_type_of_its_own() -> None:
    check_commit(KEY, None, session())
    check_commit(KEY, COMMIT, session())
    with pytest.raises(CommitMoved) as refused:
        check_commit(KEY, COMMIT - 1, session())
    assert refused.value.details()["counted"] == "commits"


def test_a_new_row_is_inserted_and_a_known_one_moved_under_its_guard() -> None:
    new = blank_row(KEY, nothing())
    assert session_write(nothing(), new) == ("insert_session", [new], True)
    old = held()
    name, (row,), must = session_write(nothing(session=old), old._replace(version=VERSION + 1))
    assert (name, must) == ("move_session", True)
    assert row == (*old._replace(version=VERSION + 1)[4:], SID, LIFE, COMMIT, GENERATION, 1, EVENTS, 1, NOW)


def test_a_write_that_needs_a_free_lane_says_so_in_its_guard() -> None:
    write = session_write(nothing(session=session(), lease=NOW + 5), session(), free_lane=True)
    assert write.rows[0][-2:] == (0, NOW + 5)


def test_a_receipt_is_read_with_everything_it_minted() -> None:
    row = receipt("i", wait_ids='["w"]', minted='{"inputs":["a","b"],"outgoing":["o"]}', ends='{"log":[7,1,3]}')
    read = receipt_of(row, replayed=False)
    assert (read.wait_ids, read.input_ids, read.outgoing_ids) == (("w",), ("a", "b"), ("o",))
    assert read.ends["log"] == (7, 1, 3)
    assert not read.replayed


def test_a_repeat_with_another_intent_is_refused() -> None:
    assert replay(receipt("i"), "i").replayed
    with pytest.raises(OperationConflict):
        replay(receipt("i"), "j")
