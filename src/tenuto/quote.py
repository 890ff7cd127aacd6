"""A given value as an error shows it: short, whatever it is."""

from typing import Any

_MOST_CHARACTERS = 80
_MOST_BITS = 256


def quote(value: Any) -> str:
    """Return how an error shows a value it was given, cut with a mark; this never fails and is never long."""
    if isinstance(value, str | bytes):
        return _cut(value[: _MOST_CHARACTERS + 1].__repr__())
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list | tuple | dict | set | frozenset) and len(value) > _MOST_CHARACTERS:
        return f"a {type(value).__name__} of {len(value)} items"
    try:
        return _cut(repr(value))
    except Exception:  # whatever the caller's own class raises
        return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
