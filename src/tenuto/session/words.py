"""Words of a closed set, as callers give them."""

from enum import StrEnum
from typing import TypeVar

from tenuto.errors import InvalidInput
from tenuto.quote import quote

W = TypeVar("W", bound=StrEnum)


def word_of(words: type[W], given: str, what: str) -> W:
    """Return a word of a closed set; any other is refused."""
    if not isinstance(given, str) or given not in list(words):
        raise InvalidInput(f"{what} is one of {', '.join(words)}, got {quote(given)}.")
    return words(given)
