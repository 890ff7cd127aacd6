"""What of a family nobody reaches, and since when."""

from typing import Any

import pytest

from tenuto.errors import StoredDataCorrupt
from tenuto.store.rules.plan import Plan
from tenuto.store.rules.rows import BranchRow
from tenuto.store.rules.verbs.collect import ROWS_PER_SLICE, Collected, Family, decide_collect, reachable
from tests.store.rules.found import LIFE, NOW, SID, branch

GRACE = 100
OLD = NOW - GRACE


def family(*branches: BranchRow, roots: list[str] | None = None, tip: int = 5, **more: Any) -> Family:
    places = {(each.session, each.branch): each for each in branches}
    return Family(
        **{
            "now": NOW,
            "lives": {SID: LIFE},
            "roots": roots or [],
            "held": {SID: set()},
            "branches": places,
            "tips": dict.fromkeys(places, tip),
            "holdings": [],
            **more,
        }
    )


def writes(plan: Plan[Collected]) -> dict[str, list[Any]]:
    return {write.name: list(write.rows) for write in plan.writes}


def test_what_a_root_reaches_is_reached_up_to_there_through_its_lineage() -> None:
    found = family(branch(1), branch(2, start=3, lineage="[[7,1,3]]"), roots=['{"log":[7,2,4]}', '{"log":[7,1,2]}'])
    assert reachable(found) == {(SID, 2): 4, (SID, 1): 3}


def test_what_is_reached_whole_stays_and_loses_its_mark() -> None:
    assert writes(decide_collect(GRACE, family(branch(1), roots=['{"log":[7,1,5]}']))) == {}
    loose = branch(1, loose_from=2, loose_at=OLD)
    assert writes(decide_collect(GRACE, family(loose, roots=['{"log":[7,1,5]}']))) == {
        "mark_branches": [(None, None, SID, 1)]
    }


def test_what_nobody_reaches_is_marked_first_and_waits() -> None:
    plan = decide_collect(GRACE, family(branch(1)))
    assert writes(plan) == {"mark_branches": [(0, NOW, SID, 1)]}
    assert (plan.result.report.waiting, plan.result.report.entries) == (1, 0)


@pytest.mark.parametrize(("since", "gone"), [(OLD, True), (OLD + 1, False)])
def test_it_goes_once_it_has_been_so_for_the_grace(since: int, gone: bool) -> None:
    plan = decide_collect(GRACE, family(branch(1, loose_from=0, loose_at=since)))
    expected = {"cut_entries": [(SID, 1, 0)], "delete_branches": [(SID, 1)]} if gone else {}
    assert writes(plan) == expected
    assert (plan.result.report.entries, plan.result.report.branches) == ((5, 1) if gone else (0, 0))


def test_of_a_branch_that_is_reached_in_part_only_the_rest_goes() -> None:
    loose = branch(1, loose_from=3, loose_at=OLD)
    plan = decide_collect(GRACE, family(loose, roots=['{"log":[7,1,3]}']))
    assert writes(plan) == {"cut_entries": [(SID, 1, 3)], "mark_branches": [(None, None, SID, 1)]}
    assert (plan.result.report.entries, plan.result.report.branches) == (2, 0)


def test_what_became_loose_further_down_begins_its_grace_anew() -> None:
    loose = branch(1, loose_from=4, loose_at=OLD)
    plan = decide_collect(GRACE, family(loose, roots=['{"log":[7,1,2]}']))
    assert writes(plan) == {"mark_branches": [(2, NOW, SID, 1)]}


def test_a_former_life_gets_no_grace() -> None:
    plan = decide_collect(GRACE, family(branch(1, life=LIFE - 1)))
    assert writes(plan) == {"cut_entries": [(SID, 1, 0)], "delete_branches": [(SID, 1)]}


def test_one_slice_removes_so_many_rows_from_the_end_and_asks_for_another() -> None:
    many = ROWS_PER_SLICE + 5
    plan = decide_collect(0, family(branch(1, loose_from=0, loose_at=0), tip=many))
    assert writes(plan) == {"cut_entries": [(SID, 1, 5)]}
    assert (plan.result.more, plan.result.report.entries) == (True, ROWS_PER_SLICE)


def test_values_that_no_head_or_checkpoint_holds_are_let_go() -> None:
    found = family(held={SID: {"kept"}}, holdings=[(SID, "kept"), (SID, "gone")])
    plan = decide_collect(GRACE, found)
    assert writes(plan) == {"delete_holdings": [(SID, "gone")]}
    assert plan.result.dropped == [(SID, "gone")]


def test_a_root_on_a_branch_that_is_missing_stops_the_collection_of_its_family() -> None:
    with pytest.raises(StoredDataCorrupt):
        decide_collect(GRACE, family(roots=['{"log":[7,1,3]}']))
