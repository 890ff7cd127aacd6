"""What a program returned, read back from its stored form as the type that its return annotation declares."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tenuto.words import JSON

_PLAIN = (Any, JSON, None, NoneType, str, int, float, bool, list, dict)
_SCALARS = (str, int, bool, NoneType)


def read_output(program: Any, stored: JSON) -> Any:
    """Return a stored output as the type that its program declares, or as the JSON it is if it does not fit that.

    A program that declares a type has `types_output`, and `reads_output`, which makes the value. What does not fit is
    not refused: an older version of the program may have returned it.
    """
    if stored is None or not getattr(program, "types_output", False):
        return stored
    try:
        return program.reads_output(stored)
    except Exception:  # a check of the application's type may raise anything, and the turn is over
        return stored


def is_plain(declared: Any) -> bool:
    """Return whether values of a declared type are JSON themselves, so that there is nothing to read back."""
    if declared in _PLAIN:
        return True
    origin, parts = get_origin(declared), get_args(declared)
    if origin is Literal:
        return all(type(each) in _SCALARS for each in parts)
    if origin is Annotated:
        return is_plain(parts[0]) and not parts[1:]
    if origin is dict and parts[0] is not str:
        return False
    return origin in (list, dict, Union, UnionType) and all(is_plain(each) for each in parts)
