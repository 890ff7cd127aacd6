"""What goes in comes out equal, and what cannot is refused by path."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.codec import MAX_DEPTH, dumps, encode, loads, loads_many
from tenuto.errors import NotJson, StoredDataCorrupt

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


class Color(StrEnum):
    RED = "red"


@given(values)
def test_every_json_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    back = loads(dumps(value), "value")
    assert repr(back) == repr(value)


@given(st.lists(values))
def test_many_texts_come_back_as_one_by_one(items: list[Any]) -> None:
    texts = [dumps(item) for item in items]
    assert repr(loads_many(texts, "items")) == repr(items)
    assert texts == [encode(item) for item in items]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "$.a[1]"),
        ({"a": {"b": math.inf}}, "$.a.b"),
        ([-math.inf], "$[0]"),
        ({"a": "\ud800"}, "$.a"),
        ({"a": {"\udfff": 1}}, "$.a"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": (1, 2)}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        ([b"bytes"], "$[0]"),
        ([Decimal(1)], "$[0]"),
        ([datetime.now(UTC)], "$[0]"),
        ([Color.RED], "$[0]"),
        ([object()], "$[0]"),
    ],
)
def test_what_is_not_json_is_refused_by_path(value: Any, path: str) -> None:
    with pytest.raises(NotJson) as refusal:
        dumps(value)
    assert refusal.value.path == path
    assert not refusal.value.retryable


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_allowed_up_to_the_limit_and_no_deeper() -> None:
    deepest = nested(MAX_DEPTH)
    assert loads(dumps(deepest), "value") == deepest
    with pytest.raises(NotJson, match="nested"):
        dumps(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("broken", ["", "{", "[1,]", "nope", '{"a":1}}'])
def test_broken_stored_text_is_corrupt_and_named(broken: str) -> None:
    with pytest.raises(StoredDataCorrupt, match="the shoe box"):
        loads(broken, "the shoe box")


def test_a_stored_text_that_is_two_values_is_corrupt() -> None:
    with pytest.raises(StoredDataCorrupt):
        loads_many(["1,2", "3"], "log")
