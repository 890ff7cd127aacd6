"""JSON text at rest: what goes in comes out equal, and what cannot is refused by path.

Values are null, booleans, integers of at most `MAX_DIGITS` digits, finite floats, text, lists and string-keyed dicts,
nested at most `MAX_DEPTH` deep. Nothing is coerced: a tuple, an enum or a datetime would come back as something else,
so it is refused.
"""

import math
from typing import Any, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from tenuto.errors import NotJson, StoredDataCorrupt
from tenuto.quote import quote

JSON: TypeAlias = Any
"""A JSON value; `Any`, because a recursive type helps no caller."""

MAX_DEPTH = 100

MAX_DIGITS = 4300
"""The longest integer that Python's own reader and ours take back; a longer one would never be read again."""

_SHOWN = 80
_LARGEST = 10**MAX_DIGITS - 1
_SCALARS = frozenset({str, bool, type(None)})


def dumps(value: JSON, where: str = "$") -> str:
    """Return `value` as JSON text, or raise `NotJson` naming the path of the first offender below `where`."""
    if _is_json(value, MAX_DEPTH):
        try:
            return to_json(value).decode()
        except (PydanticSerializationError, UnicodeError):
            pass  # a lone surrogate; the slow walk below names the place
    path, reason = _offender(value, where, MAX_DEPTH) or (where, "cannot be written as JSON")
    raise NotJson(f"{path} {reason}; give plain JSON data.", path=path)


def is_json(value: JSON) -> bool:
    """Return whether a value has only JSON's own types all the way down; texts are not checked."""
    return _is_json(value, MAX_DEPTH)


def encode(value: JSON) -> str:
    """Return JSON text of a value that is known to be JSON, such as one that was read from the store."""
    return to_json(value).decode()


def encode_bytes(value: JSON) -> bytes:
    """Return what `encode` does, as UTF-8."""
    return to_json(value)


def loads(text: str | bytes, what: str) -> JSON:
    """Return the value of stored JSON text, or raise `StoredDataCorrupt` naming `what`."""
    try:
        return from_json(text, cache_strings="keys")
    except (ValueError, TypeError) as error:
        raise StoredDataCorrupt(f"{what} is not readable JSON: {error}.", what=what) from error


def loads_map(text: str | bytes, what: str) -> dict[str, JSON]:
    """Return a stored JSON object; anything else is corrupt."""
    value = loads(text, what)
    if type(value) is not dict:
        raise StoredDataCorrupt(f"{what} is not a JSON object.", what=what)
    return value


def loads_many(texts: list[str], what: str) -> list[JSON]:
    """Return the values of many stored JSON texts in one parse; `what` names them in an error."""
    values = loads("[" + ",".join(texts) + "]", what)
    if len(values) != len(texts):
        raise StoredDataCorrupt(f"{what} holds something other than one JSON value each.", what=what)
    return list(values)


def _is_json(value: JSON, depth: int) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is int:
        return bool(-_LARGEST <= value <= _LARGEST)
    if kind is float:
        return math.isfinite(value)
    if not depth:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (type(item) in _SCALARS or _is_json(item, depth - 1)):
                return False
        return True
    return kind is list and all(type(item) in _SCALARS or _is_json(item, depth - 1) for item in value)


def _offender(value: JSON, path: str, depth: int) -> tuple[str, str] | None:
    kind = type(value)
    if kind is str:
        return None if _is_text(value) else (path, "has a lone surrogate, which is not valid Unicode text")
    if kind in _SCALARS:
        return None
    if kind is int:
        fits = -_LARGEST <= value <= _LARGEST
        return None if fits else (path, f"is an integer of more than {MAX_DIGITS} digits, which no JSON reader takes")
    if kind is float:
        return None if math.isfinite(value) else (path, f"is {value}, which JSON has no word for")
    if kind is not dict and kind is not list:
        return path, f"is of type {kind.__name__}, which is not a JSON type"
    if not depth:
        return path, f"is nested more than {MAX_DEPTH} deep"
    if kind is list:
        found = (_offender(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value))
        return next(filter(None, found), None)
    for key, item in value.items():
        if type(key) is not str:
            return path, f"has the key {quote(key)}, which is not text"
        if not _is_text(key):
            return path, "has a key with a lone surrogate, which is not valid Unicode text"
        if offender := _offender(item, f"{path}.{_shown(key)}", depth - 1):
            return offender
    return None


def _shown(key: str) -> str:
    return key if len(key) <= _SHOWN else f"{key[:_SHOWN]}…"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
