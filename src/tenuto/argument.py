"""Checks of what a caller gives, by the argument's name; the store's bounds on it are in its rules."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, cast, get_args

from tenuto.errors import InvalidInput
from tenuto.quote import quote

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)

MAPPING = (dict, Mapping)
"""The classes of a mapping; nearly every one is a dict, and to ask the abstract class takes long."""


def refuse(what: str, wanted: str, value: Any) -> NoReturn:
    """Refuse a value: what it is of, what it must be, and what was given."""
    raise InvalidInput(f"{what} must be {wanted}, got {quote(value)}.", what=what)


def check_flag(value: Any, what: str) -> bool:
    """Return true or false; anything else is refused, also what Python would take for one."""
    if type(value) is not bool:
        refuse(what, "True or False", value)
    return value


def word_of(words: type[W], value: Any, what: str) -> W:
    """Return a word of a closed set; any other is refused."""
    if type(value) is words:
        return value
    if not isinstance(value, str) or value not in words._value2member_map_:
        refuse(what, f"one of {', '.join(words)}", value)
    return words(value)


def check_word(value: T, words: Any, what: str) -> T:
    """Return a word of a closed set that is declared as a `Literal`, as plain text; any other is refused."""
    known = get_args(words)
    if not isinstance(value, str) or value not in known:
        refuse(what, f"one of {', '.join(known)}", value)
    return cast("T", str(value))


def check_kind(value: Any, kind: type[T], what: str) -> T:
    """Return a value of a class, or refuse it."""
    if not isinstance(value, kind):
        refuse(what, f"a {kind.__name__}", value)
    return value


def check_map(value: Any, what: str) -> Mapping[Any, Any]:
    """Return a mapping, or refuse it."""
    if not isinstance(value, MAPPING):
        refuse(what, "a mapping", value)
    return value


def check_items(value: Any, what: str) -> tuple[Any, ...]:
    """Return some items as a tuple, or refuse what is not a collection of them; a text is none."""
    if type(value) is tuple:
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        refuse(what, "a list", value)
    return tuple(value)
