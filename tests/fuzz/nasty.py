"""Classes of nasty values, and what a place keeps of a value that is accepted."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any

from tenuto.model.commit import Append, BeginRun, Commit
from tenuto.model.event import NewEvent
from tenuto.model.lane import Owner
from tenuto.model.session import LogEnd, Profile, SessionKey


class Colour(Enum):
    """An enum of the caller's own."""

    RED = "red"


class Text(str):
    """A text of the caller's own class."""


class Unshowable:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def nested(depth: int, inside: Any = 0) -> Any:
    """Return lists in lists."""
    for _ in range(depth):
        inside = [inside]
    return inside


def endless() -> Any:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


CLASSES: dict[str, list[Any]] = {
    "none": [None],
    "flag": [True, False],
    "small number": [0, 1, -1, 7],
    "wide number": [2**53 - 1, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**70],
    "endless number": [10**4300, 10**5000, -(10**5000), [10**4999], {"n": {"deep": 10**4300}}],
    "fraction": [0.5, -0.0, 1e308, 5e-324],
    "not finite": [math.nan, math.inf, -math.inf, [math.nan], {"n": math.inf}],
    "bytes": [b"x", b"", bytearray(b"x")],
    "empty": ["", [], {}, ()],
    "blank": [" ", "a ", "\t", "a\nb", "\u2028"],
    "plain text": ["text", "7", "ACTIVE", "Completed", "../x", "'; DROP TABLE session;--", "%", "$1", '{"a":1}'],
    "wide text": ["\U0001f600", "e\u0301", "\u202eabc", "\ufeffa", "\uffff"],
    "NUL": ["a\0b", "\0", ["a\0"], {"a\0": "b\0"}],
    "surrogate": ["a\ud800", "\udfff", ["\ud800"], {"\udfff": 1}, {"a": "\ud83d"}],
    "long text": ["x" * 256, "é" * 128, "y" * 1025, "字" * 400, "z" * 5000],
    "huge text": ["h" * 2_000_000, ["h" * 200_000] * 10],
    "list": [["a"], [1, "b", None], [[]], ["messages", "messages"]],
    "mapping": [{"a": 1}, {"role": "user", "content": "hi"}, {"kind": "session"}, {1: 2}, {None: 1}],
    "other collection": [("a",), {"a"}, frozenset({1}), range(3), {"a": 1}.keys()],
    "deep": [nested(97), nested(101), nested(20_000), endless(), {"a": nested(99)}],
    "object": [object(), Unshowable(), lambda: 1, int, ValueError("x"), Decimal("1.1"), 1j, ..., Text("t"), Colour.RED],
    "time": [datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1), date(2030, 1, 1), timedelta(1)],
    "time at the edge": [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.min,
    ],
    "value of ours": [
        SessionKey("other", tenant="B"),
        LogEnd(1, 1, 1),
        LogEnd(-1, -1, -1),
        Owner(owner_id="o", incarnation="i"),
        Profile(title="t"),
        NewEvent(type="e"),
        Append(items=(1,)),
        BeginRun(run_id="r", invocation_id="i"),
        Commit(key=SessionKey("s"), operation_id="o", life=1),
    ],
}
"""The columns of the matrix; every cell gets one value of its class first, and others at random."""


def pick(name: str, random: Random) -> Any:
    """Return a value of a class."""
    return random.choice(CLASSES[name])


def is_telling(value: Any) -> bool:
    """Tell whether a value would not be found by chance: a long enough text, or a number or list nobody else has."""
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    if type(value) is str:
        return len(value) > 2
    if type(value) in (int, float):
        return abs(value) > 1000 or (type(value) is float and value != 0)
    return type(value) in (list, dict) and bool(value)


def is_equal(one: Any, other: Any) -> bool:
    """Compare strictly: numbers by type and sign, mappings and lists by their parts, tuples as lists."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, str) and isinstance(other, str):
        return str.__eq__(one, other)
    return type(one) is type(other) and bool(one == other)


def holds(found: Any, value: Any) -> bool:
    """Tell whether a value stands somewhere in what was read, as itself or as a name."""
    if is_equal(found, value):
        return True
    if isinstance(found, dict):
        return any(is_equal(name, value) or holds(part, value) for name, part in found.items())
    return isinstance(found, list | tuple) and any(holds(part, value) for part in found)
