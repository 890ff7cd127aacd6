"""Words of a closed set, as callers give them."""

from enum import StrEnum
from typing import TypeVar

from tenuto.errors import InvalidInput

W = TypeVar("W", bound=StrEnum)


def word_of(words: type[W], given: str, what: str) -> W:
    """Return a word of a closed set; any other is refused."""
    if given not in list(words):
        raise InvalidInput(f"{what} is one of {', '.join(words)}, got {given!r}.")
    return words(given)
