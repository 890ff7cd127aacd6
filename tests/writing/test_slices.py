"""Slices of changes that are too big for one commit."""

import pytest

from tenuto.model.session import LogEnd
from tenuto.writing.changes import LogChange
from tenuto.writing.slices import MAX_ENTRIES, MAX_INLINE_ENTRIES, slices

END = LogEnd(7, 3, 40)


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (MAX_INLINE_ENTRIES, 0),
        (MAX_INLINE_ENTRIES + 1, 1),
        (2 * MAX_INLINE_ENTRIES, 1),
        (3 * MAX_INLINE_ENTRIES + 1, 3),
    ],
)
def test_what_is_written_ahead_leaves_at_most_one_commits_entries_and_at_least_one(count: int, parts: int) -> None:
    found = list(slices(LogChange(items=range(count))))
    written = [item for part in found for item in part.items]
    assert len(found) == parts
    assert written == list(range(len(written)))
    assert 1 <= count - len(written) <= MAX_INLINE_ENTRIES


def test_only_the_first_slice_begins_a_log_anew() -> None:
    change = LogChange(items=list(range(3 * MAX_INLINE_ENTRIES)), anew=True, kept=5, keep=END)
    first, second = slices(change)
    assert first == (list(range(MAX_INLINE_ENTRIES)), True, 5, END)
    assert second == (list(range(MAX_INLINE_ENTRIES, 2 * MAX_INLINE_ENTRIES)), False, 0, None)


def test_big_entries_make_short_slices() -> None:
    big = "x" * 1024 * 1024
    first = next(slices(LogChange(items=[big] * (MAX_INLINE_ENTRIES + 1))))
    assert len(first.items) == 4


def test_a_commit_takes_twice_the_entries_that_are_always_written_with_it() -> None:
    assert MAX_ENTRIES == 2 * MAX_INLINE_ENTRIES
