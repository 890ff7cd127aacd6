"""Values that cannot be changed in place: lists, mappings, sets and models as copies that refuse every change."""

import dataclasses
from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, NoReturn
from uuid import UUID

from pydantic import BaseModel

from tenuto.errors import InvalidInput

_WAY = "set the field to a new value, or use `turn.update(lambda state: {...})`"
_ORIGIN = "_frozen_from"
_ATOMS = (str, int, float, bool, bytes, type(None), Decimal, date, time, timedelta, UUID, Enum, frozenset)
_MODEL_PARTS = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def refuse_change(*_: Any, **__: Any) -> NoReturn:
    """Refuse a change in place."""
    raise InvalidInput(f"A value of `turn.state` cannot be changed in place; {_WAY}.")


def frozen(value: Any) -> Any:
    """Return a copy of a value that refuses changes, all the way down; of another kind of value, a plain copy."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, tuple):
        items = [frozen(each) for each in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    for base, fill in _FILLS.items():
        if isinstance(value, base):
            kind: Any = _COLLECTIONS.get(type(value), _COLLECTIONS[base])
            copy = kind.__new__(kind)  # without `__init__`, which may use what is refused
            fill(copy, value)
            return copy
    if isinstance(value, BaseModel):
        return model_copy(value, _kind_of(type(value)), frozen)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass_copy(value, _kind_of(type(value)), frozen)
    return deepcopy(value)


def thawed(value: Any) -> Any:
    """Return a value with plain copies of the frozen ones in it."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, tuple):
        items = [thawed(each) for each in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    kind: Any = getattr(type(value), _ORIGIN, type(value))
    if kind in (list, set):
        return kind(map(thawed, value))
    if kind is deque:
        return deque(map(thawed, value), value.maxlen)
    if kind in (dict, OrderedDict, defaultdict, Counter):
        plain = kind()
        for name, each in value.items():
            plain[name] = thawed(each)
        if kind is defaultdict:
            plain.default_factory = value.default_factory
        return plain
    if isinstance(value, BaseModel):
        return model_copy(value, kind, thawed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass_copy(value, kind, thawed)
    return value


def show(view: Any, model: BaseModel, values: dict[str, Any]) -> None:
    """Let an instance of a class made by `derived` show these values, and what else a model has."""
    object.__setattr__(view, "__dict__", dict(values))
    for part in _MODEL_PARTS:
        object.__setattr__(view, part, deepcopy(getattr(model, part)))


def model_copy(value: BaseModel, kind: type[Any], copied: Callable[[Any], Any]) -> Any:
    """Return an instance of a model's class, or of one made by `derived`, with copies of a model's values."""
    copy = object.__new__(kind)
    object.__setattr__(copy, "__dict__", {name: copied(each) for name, each in vars(value).items()})
    for part in _MODEL_PARTS:
        object.__setattr__(copy, part, deepcopy(getattr(value, part)))
    return copy


def derived(kind: type[Any], names: dict[str, Any]) -> type[Any]:
    """Return a subclass of a class, without the work of its metaclass: it has the schema of the class itself."""
    maker: Any = ABCMeta if issubclass(type(kind), ABCMeta) else type
    made: type[Any] = maker.__new__(type(kind), kind.__name__, (kind,), {"__slots__": (), _ORIGIN: kind, **names})
    made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
    return made


def _dataclass_copy(value: Any, kind: type[Any], copied: Callable[[Any], Any]) -> Any:
    copy = object.__new__(kind)
    for each in dataclasses.fields(value):
        object.__setattr__(copy, each.name, copied(getattr(value, each.name)))
    return copy


def _fill_list(copy: list[Any], value: Iterable[Any]) -> None:
    list.extend(copy, map(frozen, value))


def _fill_deque(copy: "deque[Any]", value: "deque[Any]") -> None:
    deque.__init__(copy, map(frozen, value), value.maxlen)


def _fill_dict(copy: dict[Any, Any], value: dict[Any, Any]) -> None:
    put = OrderedDict.__setitem__ if isinstance(copy, OrderedDict) else dict.__setitem__
    for name, each in value.items():
        put(copy, name, frozen(each))
    if isinstance(copy, defaultdict) and isinstance(value, defaultdict):
        copy.default_factory = value.default_factory


def _fill_set(copy: set[Any], value: set[Any]) -> None:
    set.update(copy, value)


_FILLS: dict[type[Any], Callable[[Any, Any], None]] = {
    list: _fill_list,
    dict: _fill_dict,
    set: _fill_set,
    deque: _fill_deque,
}
_SEQUENCE = "append extend insert pop remove clear __setitem__ __delitem__ __iadd__ __imul__"
_CHANGES: dict[type[Any], str] = {
    list: f"{_SEQUENCE} sort reverse",
    dict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update move_to_end subtract",
    set: "add clear difference_update discard intersection_update pop remove symmetric_difference_update update "
    "__iand__ __ior__ __isub__ __ixor__",
    deque: f"{_SEQUENCE} appendleft extendleft popleft reverse rotate",
}


@lru_cache(maxsize=1024)
def _kind_of(kind: Any) -> type[Any]:
    """Return the class of frozen copies of a class's instances, which is a subclass of it."""
    changes = next((names for base, names in _CHANGES.items() if issubclass(kind, base)), None)
    refused = (changes or "__setattr__ __delattr__").split()
    names: dict[str, Any] = {name: refuse_change for name in refused if hasattr(kind, name)}
    names |= {"__copy__": thawed, "__deepcopy__": lambda self, _: thawed(self), "__reduce__": _reduced}
    if changes is None:
        names |= {"__eq__": _equals, "__hash__": lambda self: hash(thawed(self))}
    elif issubclass(kind, dict):
        names |= {"copy": thawed, "__or__": lambda self, other: thawed(self) | other}
    return derived(kind, names)


def _equals(mine: Any, other: object) -> bool:
    return bool(thawed(mine) == thawed(other))


def _reduced(value: Any) -> tuple[Any, ...]:
    return _same, (thawed(value),)


def _same(value: Any) -> Any:
    return value


_COLLECTIONS: dict[Any, type[Any]] = {
    each: _kind_of(each) for each in (list, dict, OrderedDict, defaultdict, Counter, set, deque)
}
