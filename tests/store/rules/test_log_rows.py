"""What a commit writes to logs: appends, resets, a run's own branches, and how a save folds them in."""

from typing import Any

import pytest

from tenuto.errors import CommitRefused, InvalidInput
from tenuto.model.commit import Append, LogWrite, Reset
from tenuto.model.session import LogEnd
from tenuto.store.rules.commit.log_rows import REKEY_AT_MOST, LogWriter, Stand, check_point, is_run_log, stand_of
from tenuto.store.rules.limits import MAX_COUNT
from tenuto.store.rules.plan import Found
from tests.store.rules.found import LIFE, SID, branch, nothing, run, session

HEAD = LogEnd(SID, 1, 3)


def found(**more: Any) -> Found:
    return nothing(**{"session": session(), "branches": {(SID, 1): branch()}, **more})


def writer(stand: Stand | None = None, **more: Any) -> LogWriter:
    return LogWriter(session(**more.pop("row", {})), stand or Stand(), found(**more), 12, "v2")


def saved(log: LogWriter, write: LogWrite | None = None, *items: str, name: str = "log") -> dict[str, Any]:
    """Save, and return the writes by name."""
    log.save({name: write} if write else {}, {name: list(items)}, frozenset())
    return {each.name: list(each.rows) for each in log.writes()}


def test_an_append_goes_on_the_heads_branch_and_needs_no_other_row() -> None:
    log = writer()
    assert saved(log, Append(), '"a"', '"b"') == {
        "insert_entries": [(SID, 1, 3, 12, "v2", '"a"'), (SID, 1, 4, 12, "v2", '"b"')]
    }
    assert (log.heads, log.branch_seq) == ({"log": LogEnd(SID, 1, 5)}, 1)


def test_a_new_log_gets_a_branch_of_its_own() -> None:
    log = writer()
    writes = saved(log, Append(), "1", name="notes")
    assert writes["insert_branches"] == [branch(2, log="notes")]
    assert log.heads == {"log": HEAD, "notes": LogEnd(SID, 2, 1)}


def test_a_reset_leaves_the_old_branch_and_begins_at_nothing_or_after_what_is_kept() -> None:
    log = writer()
    assert saved(log, Reset(), "1")["insert_branches"] == [branch(2)]
    assert log.heads["log"] == LogEnd(SID, 2, 1)
    kept = LogEnd(SID, 1, 2)
    log = writer(points={kept})
    writes = saved(log, Reset(keep=kept), "1")
    assert writes["insert_branches"] == [branch(2, start=2, lineage="[[7,1,2]]")]
    assert writes["share_branches"] == [(SID, 1)]
    assert log.heads["log"] == LogEnd(SID, 2, 3)


def test_items_for_a_base_that_the_log_has_left_go_on_a_branch_from_there() -> None:
    base = LogEnd(SID, 1, 2)
    log = writer(points={base})
    writes = saved(log, Append(base=base), "1")
    assert writes["insert_branches"] == [branch(2, start=2, lineage="[[7,1,2]]")]
    log = writer(points={HEAD})
    assert saved(log, Append(base=HEAD), "1").keys() == {"insert_entries"}


@pytest.mark.parametrize(
    "point",
    [LogEnd(SID + 1, 1, 2), LogEnd(SID, 9, 2), LogEnd(SID, 1, 4)],
    ids=["another session", "no such branch", "past the end"],
)
def test_a_point_that_is_not_in_the_log_is_refused(point: LogEnd) -> None:
    with pytest.raises(CommitRefused):
        check_point("log", point, session(), found(points={LogEnd(SID, 1, 2)}))


def test_a_point_of_another_log_or_a_former_life_is_refused() -> None:
    point = LogEnd(SID, 1, 2)
    for row in (branch(log="notes"), branch(life=LIFE - 1)):
        with pytest.raises(CommitRefused):
            check_point("log", point, session(), found(branches={(SID, 1): row}, points={point}))
    check_point("log", point, session(), found(points={point}))
    check_point("log", LogEnd(SID, 1, 0), session(), found())


def test_a_run_writes_on_branches_of_its_own_and_the_head_stays() -> None:
    log = writer(stand_of(run()))
    log.checkpoint({"log": Append(), "in/side": Append()}, {"log": ["1"], "in/side": ["2"]})
    assert (log.heads, log.own) == ({"log": HEAD}, {"log", "in/side"})
    assert log.ends == {"log": LogEnd(SID, 2, 4), "in/side": LogEnd(SID, 3, 1)}
    branches = {each.name: list(each.rows) for each in log.writes()}["insert_branches"]
    assert branches == [branch(2, start=3, lineage="[[7,1,3]]"), branch(3, log="in/side")]


def own_run(position: int = 5) -> Stand:
    """Return a run that has gone on from the head's third entry on its own branch 2."""
    return Stand({"log": LogEnd(SID, 2, position)}, {"log": HEAD}, frozenset({"log"}))


def test_a_save_moves_the_rows_of_a_runs_branch_onto_the_heads() -> None:
    branches = {(SID, 1): branch(), (SID, 2): branch(2, start=3, lineage="[[7,1,3]]")}
    log = writer(own_run(), branches=branches, row={"branch_seq": 2})
    writes = saved(log, Append(), '"c"')
    assert log.heads == {"log": LogEnd(SID, 1, 6)}
    assert log.ends == log.base == log.heads
    assert log.own == set()
    assert writes["rekey_branch"] == [(5, "[[7,1,5]]", SID, 2)]
    assert writes["rekey_entries"] == [(1, SID, 2)]
    assert writes["insert_entries"] == [(SID, 1, 5, 12, "v2", '"c"')]


@pytest.mark.parametrize(
    ("own", "position"),
    [
        (branch(2, start=3, lineage="[[7,1,3]]", shared=1), 5),
        (branch(2, start=3, lineage="[[7,1,3]]"), 4 + REKEY_AT_MOST),
        (branch(2, start=2, lineage="[[7,1,2]]"), 5),
    ],
    ids=["shared", "too long", "not from the head"],
)
def test_where_rows_cannot_move_the_head_moves_to_the_runs_branch(own: Any, position: int) -> None:
    log = writer(own_run(position), branches={(SID, 1): branch(), (SID, 2): own})
    assert saved(log) == {}
    assert log.heads == {"log": LogEnd(SID, 2, position)}


def test_a_log_with_a_slash_never_reaches_the_head() -> None:
    assert (is_run_log("a/b"), is_run_log("ab")) == (True, False)
    log = writer(stand_of(run()))
    saved(log, Append(), "1", name="in/side")
    assert (log.heads, log.own) == ({"log": HEAD}, {"in/side"})


def test_a_removed_log_leaves_the_head() -> None:
    log = writer()
    log.save({}, {}, frozenset({"log"}))
    assert (log.heads, log.writes()) == ({}, [])


def test_a_log_has_an_end() -> None:
    log = writer(row={"heads": f'{{"log":[{SID},1,{MAX_COUNT}]}}'})
    with pytest.raises(InvalidInput):
        saved(log, Append(), "1")
