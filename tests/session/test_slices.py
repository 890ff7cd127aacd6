"""Slices of changes that are too big for one commit."""

import pytest

from tenuto.model.session import LogEnd
from tenuto.session.slices import MOST_AT_ONCE, fits, mended, slices
from tenuto.session.writes import LogChange

END = LogEnd(7, 3, 40)


@pytest.mark.parametrize(
    ("count", "parts"), [(MOST_AT_ONCE, 0), (MOST_AT_ONCE + 1, 1), (2 * MOST_AT_ONCE, 1), (3 * MOST_AT_ONCE + 1, 3)]
)
def test_what_is_written_ahead_leaves_at_most_one_commits_entries_and_at_least_one(count: int, parts: int) -> None:
    found = list(slices(LogChange(items=range(count))))
    written = [item for part in found for item in part.items]
    assert len(found) == parts
    assert written == list(range(len(written)))
    assert 1 <= count - len(written) <= MOST_AT_ONCE


def test_only_the_first_slice_begins_a_log_anew() -> None:
    change = LogChange(items=list(range(3 * MOST_AT_ONCE)), anew=True, kept=5, keep=END)
    first, second = slices(change)
    assert first == (list(range(MOST_AT_ONCE)), True, 5, END)
    assert second == (list(range(MOST_AT_ONCE, 2 * MOST_AT_ONCE)), False, 0, None)


def test_big_entries_make_short_slices() -> None:
    big = "x" * 1024 * 1024
    first = next(slices(LogChange(items=[big] * (MOST_AT_ONCE + 1))))
    assert len(first.items) == 4


def test_a_commit_takes_the_entries_of_all_logs_together_up_to_its_limit() -> None:
    logs = {"a": LogChange(items=range(MOST_AT_ONCE)), "b": LogChange(items=range(MOST_AT_ONCE))}
    assert fits(logs)
    assert not fits({**logs, "c": LogChange(items=[1])})


def test_logs_go_on_from_before_what_was_written_ahead_in_vain() -> None:
    anew = LogChange(items=["d"], anew=True, kept=2)
    logs = {"grown": LogChange(items=["a"]), "anew": anew, "other": LogChange(items=["b"])}
    ends = {"grown": END, "anew": END, "new": None, "silent": END}
    assert mended(logs, ends) == {
        "grown": LogChange(items=["a"], anew=True, kept=40),
        "anew": anew,
        "other": LogChange(items=["b"]),
        "new": LogChange(items=(), anew=True, kept=0),
        "silent": LogChange(items=(), anew=True, kept=40),
    }
