"""A field's value as plain data that is read back unchanged: any other value is refused, with its path.

A declared type may be anything that pydantic writes and reads, so a `set[int]` is kept as a list and read as a set.
Where nothing is declared (`Any`) nothing could turn the list into a set again, so only plain JSON is kept. A copy in
memory and a load from the store are therefore equal.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from tenuto.codec import JSON, MAX_DEPTH, dumps, is_json
from tenuto.errors import NotJson

_SCALARS = frozenset({str, int, float, bool, type(None)})
_HELP = "give plain JSON data, or declare the type it has."


def plain(value: Any, dump: Callable[[Any], Any], check: Callable[[Any], Any], where: str, start: int = 0) -> JSON:
    """Return a value as plain data, or raise `NotJson`; `start` is the index of a list's first item within `where`."""
    try:
        data = dump(value)
    except Exception as error:
        path = _unwritable(value, where, start)
        raise NotJson(f"{path} cannot be written as JSON ({type(error).__name__}); {_HELP}", path=path) from error
    try:
        back = check(data)
    except Exception as error:
        dumps(data, where)
        faults = error.errors(include_url=False, include_context=False) if isinstance(error, ValidationError) else ()
        path = where + (steps(faults[0]["loc"], start) if faults else "")
        raise NotJson(f"{path} does not fit its field when read back: {error}; {_HELP}", path=path) from error
    if is_json(value) and _equal(value, back):
        return data
    dumps(data, where)
    if lost := difference(value, back, where, start):
        raise NotJson(lost[1], path=lost[0])
    return data


def difference(value: Any, back: Any, where: str, start: int = 0) -> tuple[str, str] | None:
    """Return the path of the first part of a value that would be read back as another, and a sentence about it."""
    if value is back:
        return None
    kind = type(value)
    if kind in _SCALARS:
        return None if _equal(value, back) else _lost(value, back, where)
    if kind is not type(back):
        return _lost(value, back, where)
    if kind in (list, tuple) and len(value) == len(back):
        parts = ((f"{where}[{index + start}]", *pair) for index, pair in enumerate(zip(value, back, strict=True)))
    elif kind is dict and list(map(type, value)) == list(map(type, back)) and value.keys() == back.keys():
        parts = ((f"{where}.{key}", item, back[key]) for key, item in value.items())
    elif isinstance(value, BaseModel) or (_has_no_equality(kind) and hasattr(value, "__dict__")):
        mine, theirs = vars(value), vars(back)
        parts = ((f"{where}.{name}", item, theirs.get(name)) for name, item in mine.items())
    elif _has_no_equality(kind) or (_equal(value, back) and _kinds(value) == _kinds(back)):
        return None
    else:
        return _lost(value, back, where)
    return next(filter(None, (difference(mine, theirs, path) for path, mine, theirs in parts)), None)


def common(stored: Sequence[Any], items: Sequence[Any]) -> int:
    """Return the length of the common beginning of two lists."""
    for index, (old, new) in enumerate(zip(stored, items, strict=False)):
        if old != new:
            return index
    return min(len(stored), len(items))


def _has_no_equality(kind: Any) -> bool:
    return kind.__eq__ is object.__eq__


def _lost(value: Any, back: Any, where: str) -> tuple[str, str]:
    if isinstance(value, float) and not math.isfinite(value):
        return where, f"{where} is {value}, which JSON cannot represent; {_HELP}"
    kinds = (type(value).__name__, type(back).__name__)
    read_back = f"as {kinds[1]}" if kinds[0] != kinds[1] else "as another value"
    return where, f"{where} is of type {kinds[0]} and would be read back {read_back}; {_HELP}"


def _kinds(value: Any) -> Any:
    return sorted(type(item).__name__ for item in value) if isinstance(value, set | frozenset) else None


def _equal(value: Any, back: Any) -> bool:
    try:
        return bool(value == back)
    except Exception:  # a class of the user's own may not be comparable
        return False


def _unwritable(value: Any, where: str, start: int = 0, depth: int = MAX_DEPTH) -> str:
    """Return the path of the first part that cannot be JSON; the whole, if each part can."""
    if isinstance(value, dict):
        parts = [(f"{where}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(f"{where}[{index}]", item) for index, item in enumerate(value, start)]
    elif isinstance(value, BaseModel):
        parts = [(f"{where}.{name}", item) for name, item in vars(value).items()]
    else:
        return where
    for path, item in parts:
        try:
            to_jsonable_python(item)
        except Exception:
            return _unwritable(item, path, depth=depth - 1) if depth else path
    return where


def steps(loc: Sequence[int | str], start: int = 0) -> str:
    """Return the place that a validation error names as it follows a value's name: `[2].price`."""
    parts = [loc[0] + start, *loc[1:]] if loc and isinstance(loc[0], int) else loc
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
