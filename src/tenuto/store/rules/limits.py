"""The small checks that every verb makes before it touches the store."""

from enum import StrEnum
from typing import Any

from tenuto.errors import InvalidInput

MAX_COUNT = 2**53 - 1
"""No counter goes beyond what JSON readers everywhere hold exactly; one that gets there refuses and does not wrap."""

MAX_NAME_BYTES = 1024
MAX_TTL = 86_400.0
MAX_TIMEOUT = 100 * 365 * 86_400.0
MAX_DELAY = 100 * 366 * 86_400.0


def check_count(value: Any, what: str) -> int:
    """Return a counter value in range, or refuse it."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise InvalidInput(f"{what} must be a whole number from 0 to 2^53 - 1, got {value!r}.", what=what)
    return value


def next_count(value: int, what: str, step: int = 1) -> int:
    """Raise a stored counter, or refuse when it is at its limit."""
    if value > MAX_COUNT - step:
        raise InvalidInput(f"{what} is at its limit of 2^53 - 1 and cannot rise.", what=what)
    return value + step


def check_ttl(seconds: Any) -> float:
    """Return a time to live in seconds, or refuse it."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MAX_TTL:
        raise InvalidInput(f"A ttl must be more than 0 and at most {MAX_TTL:g} seconds, got {seconds!r}.")
    return float(seconds)


def check_timeout(seconds: Any) -> float:
    """Return how long an answer may take, in seconds, or refuse it."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MAX_TIMEOUT:
        raise InvalidInput(f"A timeout must be more than 0 and at most {MAX_TIMEOUT:g} seconds, got {seconds!r}.")
    return float(seconds)


def check_delay(seconds: Any) -> float:
    """Return a delay in seconds, or refuse it."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_DELAY:
        raise InvalidInput(f"A delay must be from 0 to {MAX_DELAY:g} seconds, got {seconds!r}.")
    return float(seconds)


def check_word(value: Any, words: type[StrEnum], what: str) -> str:
    """Return one of a set of words, or refuse it."""
    if not isinstance(value, str) or value not in words._value2member_map_:
        raise InvalidInput(f"{what} must be one of {', '.join(words)}, got {value!r}.", what=what)
    return str(value)


def check_name(value: Any, what: str) -> str:
    """Return a non-empty text of bounded size, or refuse it."""
    text = check_text(value, what)
    if not text or (len(text) if text.isascii() else len(text.encode())) > MAX_NAME_BYTES:
        raise InvalidInput(f"{what} must have 1 to {MAX_NAME_BYTES} bytes, got {text[:80]!r}.", what=what)
    return text


def check_text(value: Any, what: str) -> str:
    """Return text that every backend can keep, or refuse it."""
    if type(value) is not str:
        raise InvalidInput(f"{what} must be text, got {type(value).__name__}.", what=what)
    if "\0" in value or not (value.isascii() or _is_unicode(value)):
        raise InvalidInput(f"{what} has a NUL character or a lone surrogate.", what=what)
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
