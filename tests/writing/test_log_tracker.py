"""Where the logs of a run end in the store, and what a commit writes to them."""

from datetime import UTC, datetime

from tenuto.model.commit import Append, Receipt, Reset
from tenuto.model.session import LogEnd
from tenuto.writing.changes import Base, LogChange
from tenuto.writing.log_tracker import LogTracker

GROWN, ANEW, SILENT = LogEnd(7, 3, 40), LogEnd(7, 4, 9), LogEnd(7, 5, 2)
BASE = Base(version=3, ends={"grown": GROWN, "anew": ANEW, "silent": SILENT})


def receipt(**ends: LogEnd) -> Receipt:
    return Receipt(
        operation_id="o",
        life=0,
        commit_number=2,
        version=4,
        generation=1,
        event_seq=0,
        ends=ends,
        wait_ids=(),
        committed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_what_the_head_has_is_stored_and_no_more() -> None:
    tracker = LogTracker(BASE)
    assert [tracker.stored(name) for name in ("grown", "anew", "unknown")] == [40, 9, 0]
    tracker.landed(receipt(grown=LogEnd(7, 8, 42)), {"grown": LogChange(["a", "b"])}, saved=False)
    assert (tracker.stored("grown"), tracker.position("grown"), tracker.ahead) == (40, 42, frozenset({"grown"}))
    tracker.landed(receipt(grown=LogEnd(7, 3, 42)), {}, saved=True)
    assert (tracker.stored("grown"), tracker.ahead, tracker.base.version) == (42, frozenset(), 4)


def test_a_change_makes_a_log_longer_or_begins_it_anew() -> None:
    tracker = LogTracker(BASE)
    assert [tracker.position(name) for name in ("grown", "unknown")] == [40, 0]
    assert tracker.length("grown", None) == 40
    assert tracker.length("grown", LogChange(["a", "b"])) == 42
    assert tracker.length("grown", LogChange(["a", "b"], True, 5)) == 7


def test_what_a_run_wrote_ahead_is_known_entry_by_entry() -> None:
    tracker = LogTracker(BASE)
    assert tracker.after("grown", None) == (40, [])
    tracker.landed(receipt(grown=LogEnd(7, 8, 42)), {"grown": LogChange(["a", "b"])}, saved=False)
    for _ in range(2):  # a reply that was lost is found out about, and comes once more
        tracker.landed(receipt(grown=LogEnd(7, 8, 43)), {"grown": LogChange(["c"])}, saved=False)
    assert tracker.after("grown", None) == (40, ["a", "b", "c"])
    assert tracker.after("grown", LogChange(["d"])) == (40, ["a", "b", "c", "d"])
    assert tracker.after("grown", LogChange(["d"], True, 41)) == (40, ["a", "d"])
    assert tracker.after("grown", LogChange(["d"], True, 3)) == (3, ["d"])
    for _ in range(2):
        tracker.landed(receipt(grown=LogEnd(7, 9, 43)), {"grown": LogChange(["d"], True, 42)}, saved=False)
    assert tracker.after("grown", None) == (40, ["a", "b", "d"])


def test_a_change_may_keep_what_the_session_has_where_the_run_has_something_else() -> None:
    tracker = LogTracker(BASE)
    tracker.landed(receipt(grown=LogEnd(7, 8, 31)), {"grown": LogChange(["a"], True, 30)}, saved=False)
    assert tracker.after("grown", LogChange(["b"], True, 35, GROWN)) == (35, ["b"])
    assert tracker.put_back({"grown": LogChange(["b"], True, 35)}) == {"grown": LogChange(["b"], True, 35, GROWN)}


def test_parts_written_for_a_commit_that_failed_do_not_count() -> None:
    tracker = LogTracker(BASE)
    tracker.landed(receipt(grown=LogEnd(7, 8, 41)), {"grown": LogChange(["a"])}, saved=False)
    tracker.note_part("grown")
    tracker.landed(receipt(grown=LogEnd(7, 8, 43)), {"grown": LogChange(["b", "c"])}, saved=False)
    assert tracker.position("grown") == 41
    assert tracker.after("grown", LogChange(["x"])) == (40, ["a", "x"])
    tracker.complete()
    assert tracker.position("grown") == 43


def test_logs_of_frames_are_never_ahead_of_the_session() -> None:
    tracker = LogTracker(BASE)
    tracker.landed(receipt(**{"sub/log": LogEnd(7, 8, 1)}), {"sub/log": LogChange(["a"])}, saved=False)
    assert tracker.ahead == frozenset()


def test_a_run_that_is_taken_over_has_what_it_wrote_ahead() -> None:
    tracker = LogTracker(BASE)
    tracker.continue_from({"grown": LogEnd(7, 8, 41), "anew": ANEW, "/scratch": LogEnd(7, 9, 1)}, own=True)
    assert tracker.ahead == {"grown"}
    tracker.recall("grown", 39, ["a", "b"])
    assert tracker.after("grown", None) == (39, ["a", "b"])
    tracker = LogTracker(BASE)
    tracker.continue_from({"grown": LogEnd(7, 8, 41)})
    assert tracker.ahead == frozenset()


def test_changes_become_operations_at_the_runs_own_end() -> None:
    tracker = LogTracker(BASE)
    assert tracker.write("grown", LogChange(items=["a"])) == Append(items=("a",))
    assert tracker.write("grown", LogChange(items=["a"], anew=True, kept=5)) == Reset(
        items=("a",), keep=GROWN._replace(position=5)
    )


def test_overwriting_names_the_end_it_continues_from_unless_the_run_has_its_own() -> None:
    tracker = LogTracker(BASE)
    assert tracker.overwrite("grown", LogChange(items=["a"])) == Append(items=("a",), base=GROWN)
    assert tracker.overwrite("silent", None) == Append(items=(), base=SILENT)
    assert tracker.overwrite("unknown", LogChange(items=["a"])) == Reset(items=("a",))
    tracker.landed(receipt(grown=LogEnd(7, 8, 41)), {"grown": LogChange(["a"])}, saved=False)
    assert tracker.overwrite("grown", None) == Append(items=())


def test_a_save_may_leave_behind_what_the_run_wrote_ahead() -> None:
    tracker = LogTracker(BASE)
    ahead = {"grown": LogChange(["a"]), "fresh": LogChange(["a"], True)}
    tracker.landed(receipt(grown=LogEnd(7, 8, 41), fresh=LogEnd(7, 9, 1)), ahead, saved=False)
    assert tracker.put_back({"grown": LogChange(items=["b"])}) == {
        "grown": LogChange(items=["b"], anew=True, kept=40, keep=GROWN),
        "fresh": LogChange(items=(), anew=True),
    }


def test_logs_continue_from_before_what_was_written_ahead_in_vain() -> None:
    tracker = LogTracker(BASE)
    for name in ("grown", "anew", "new", "silent"):
        tracker.note_part(name)
    anew = LogChange(items=["d"], anew=True, kept=2)
    logs = {"grown": LogChange(items=["a"]), "anew": anew, "other": LogChange(items=["b"])}
    assert tracker.without_parts(logs) == {
        "grown": LogChange(items=["a"], anew=True, kept=40),
        "anew": anew,
        "other": LogChange(items=["b"]),
        "new": LogChange(items=(), anew=True, kept=0),
        "silent": LogChange(items=(), anew=True, kept=2),
    }
    tracker.complete()
    assert tracker.without_parts(logs) == logs
