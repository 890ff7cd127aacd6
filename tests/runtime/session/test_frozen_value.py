"""Frozen copies: of the same types, with the same values, and refusing every change."""

import copy
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from tenuto.errors import InvalidInput
from tenuto.runtime.session.frozen_value import frozen, thawed


class Node(BaseModel):
    name: str
    children: list["Node"] = []

    def rename(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True)
class Place:
    doors: list[int]


class Pair(NamedTuple):
    left: list[int]
    right: int


VALUES: dict[str, Any] = {
    "list": [[1], {"a": 2}],
    "dict": {"a": [1]},
    "ordered": OrderedDict(b=[1], a=[2]),
    "default": defaultdict(list, {"a": [1]}),
    "counter": Counter("aab"),
    "set": {1, 2},
    "deque": deque([[1], [2]], maxlen=3),
    "tuple": ([1], {"a": [2]}),
    "named tuple": Pair([1], 2),
    "model": Node(name="a", children=[Node(name="b")]),
    "dataclass": Place([7]),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_frozen_copy_equals_its_value_and_turns_back_into_it(value: Any) -> None:
    copied = frozen(value)
    assert copied == value
    assert isinstance(copied, type(value))
    for plain in (thawed(copied), copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
        assert plain == value
        assert type(plain) is type(value)
        assert repr(plain) == repr(value)


CHANGES: dict[str, Any] = {
    "list": [lambda v: v.append(1), lambda v: v[1].update(b=1), lambda v: v.__iadd__([1]), lambda v: v[0].clear()],
    "dict": [lambda v: v.pop("a"), lambda v: v["a"].append(1), lambda v: v.__ior__({}), lambda v: v.setdefault("b", 1)],
    "ordered": [lambda v: v.move_to_end("b"), lambda v: v.popitem(), lambda v: v.__setitem__("a", 1)],
    "default": [lambda v: v["a"].append(1), lambda v: v.clear()],
    "counter": [lambda v: v.update("a"), lambda v: v.subtract("a"), lambda v: v.__iadd__(Counter("a"))],
    "set": [lambda v: v.add(3), lambda v: v.__ior__({3}), lambda v: v.discard(1)],
    "deque": [lambda v: v.appendleft(1), lambda v: v.rotate(1), lambda v: v[0].append(1)],
    "tuple": [lambda v: v[0].append(1), lambda v: v[1]["a"].append(1)],
    "named tuple": [lambda v: v.left.append(1)],
    "model": [lambda v: v.rename("c"), lambda v: setattr(v.children[0], "name", "c"), lambda v: delattr(v, "name")],
    "dataclass": [lambda v: v.doors.append(1)],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_frozen_copy_refuses_every_change(name: str) -> None:
    copied = frozen(VALUES[name])
    for change in CHANGES[name]:
        with pytest.raises(InvalidInput, match=r"turn\.update"):
            change(copied)
    assert copied == VALUES[name]


def test_operators_make_plain_values_of_frozen_ones() -> None:
    made = [
        frozen([1]) + [2],  # noqa: RUF005 - the operator is what is tested
        frozen({"a": [1]}) | {"b": 2},
        frozen({1}) | {2},
        frozen(Counter("a")) + Counter("b"),
        frozen(OrderedDict(a=1)) | {"b": 2},
        frozen(OrderedDict(a=1)).copy(),
        frozen(Node(name="a")).model_copy(update={"name": "b"}),
    ]
    made[0].append(3)
    made[1]["c"] = 3
    made[2].add(3)
    made[3].update("c")
    made[4].move_to_end("a")
    made[5]["b"] = 2
    made[6].name = "c"
    assert made == [
        [1, 2, 3],
        {"a": [1], "b": 2, "c": 3},
        {1, 2, 3},
        Counter("abc"),
        OrderedDict(b=2, a=1),
        OrderedDict(a=1, b=2),
        Node(name="c"),
    ]
    with pytest.raises(InvalidInput):  # a read that would add a value
        frozen(VALUES["default"])["missing"]
