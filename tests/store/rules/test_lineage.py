"""Branches and how they join into one history."""

import pytest

from tenuto.errors import StoredDataCorrupt
from tenuto.model.session import LogEnd
from tenuto.store.rules.commit.lineage import Segment, clip, lineage_text, new_branch, segments
from tests.store.rules.found import LIFE, SID, branch

OLD, MIDDLE = Segment(3, 1, 0, 4), Segment(SID, 1, 4, 6)


@pytest.mark.parametrize(
    ("upto", "parts"),
    [
        (9, [OLD, MIDDLE, Segment(SID, 2, 6, 9)]),
        (7, [OLD, MIDDLE, Segment(SID, 2, 6, 7)]),
        (6, [OLD, MIDDLE]),
        (5, [OLD, Segment(SID, 1, 4, 5)]),
        (4, [OLD]),
        (0, []),
    ],
)
def test_a_log_is_the_stretches_of_its_lineage_and_its_own(upto: int, parts: list[Segment]) -> None:
    row = branch(2, start=6, lineage=lineage_text([OLD, MIDDLE]))
    assert segments(row, LogEnd(SID, 2, upto)) == parts


@pytest.mark.parametrize(
    ("start", "lineage"),
    [
        (6, "[[3,1,4]]"),  # ends before the branch begins
        (6, "[[3,1,4],[7,1,3]]"),  # goes back
        (6, "[[3,1,4],[7,2,6]]"),  # goes through the branch itself
        (6, "[[3,1]]"),
        (6, '[[3,1,"4"]]'),
        (6, "{}"),
        (6, "no json"),
        (1, "[]"),
    ],
)
def test_damage_is_an_error_and_never_a_shorter_history(start: int, lineage: str) -> None:
    with pytest.raises(StoredDataCorrupt):
        segments(branch(2, start=start, lineage=lineage), LogEnd(SID, 2, 9))


def test_a_missing_branch_is_damage() -> None:
    with pytest.raises(StoredDataCorrupt, match="missing"):
        segments(None, LogEnd(SID, 2, 9))


def test_a_clip_cuts_both_ends_and_leaves_out_what_is_empty() -> None:
    assert clip([OLD, MIDDLE], 2, 5) == [Segment(3, 1, 2, 4), Segment(SID, 1, 4, 5)]
    assert clip([OLD, MIDDLE], 4, 5) == [Segment(SID, 1, 4, 5)]
    assert clip([OLD, MIDDLE], 6, 9) == []


def test_a_new_branch_begins_where_its_lineage_ends() -> None:
    row = new_branch(SID, 5, LIFE, "log", [OLD, MIDDLE])
    assert (row.start, row.lineage, row.shared, row.loose_at) == (6, "[[3,1,4],[7,1,6]]", 0, None)
    assert new_branch(SID, 5, LIFE, "log", []).start == 0
    assert segments(row, LogEnd(SID, 5, 6)) == [OLD, MIDDLE]
