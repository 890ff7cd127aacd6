"""One tree of errors, each with its word, its bucket and its data."""

import re

import tenuto.errors as errors
from tenuto.errors import Bucket, LaneBusy, StoredDataCorrupt, TenutoError, VersionConflict


def tree(root: type[TenutoError]) -> list[type[TenutoError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


def test_every_error_is_drawn_in_the_modules_tree_under_its_parent() -> None:
    lines = (re.match(r"^([ │├└─]*)([A-Z]\w+)(\s|$)", line) for line in (errors.__doc__ or "").splitlines())
    drawn = [(len(found[1]), found[2]) for found in lines if found]
    parents: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for depth, name in drawn:
        if name not in vars(errors):
            continue
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if stack:
            parents[name] = stack[-1][1]
        stack.append((depth, name))
    actual = {
        kind.__name__: kind.__bases__[0].__name__
        for kind in tree(TenutoError)[1:]
        if kind.__module__ == "tenuto.errors"
    }
    assert parents == actual


def test_every_error_has_a_word_and_a_bucket() -> None:
    for kind in tree(TenutoError):
        assert re.fullmatch(r"[a-z_]+", kind.category)
        assert kind.bucket in Bucket


def test_data_are_attributes_and_listed() -> None:
    error = VersionConflict("it moved on", expected=3, found=4)
    assert (error.expected, error.found, error.details()) == (3, 4, {"expected": 3, "found": 4})
    assert str(error) == error.message == "it moved on"
    assert error.retryable
    assert error.category == "session_write_conflict"


def test_retryable_follows_the_bucket() -> None:
    assert LaneBusy("busy").retryable
    assert not StoredDataCorrupt("broken").retryable
    assert StoredDataCorrupt.bucket is Bucket.SESSION_TERMINATING
