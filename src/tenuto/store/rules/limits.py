"""What every verb lets in: the bounds, and the small checks that keep to them.

| bound | of |
|---|---|
| `MAX_ID_BYTES` (255) | ids of sessions, tenants and invocations, and tags |
| `MAX_NAME_BYTES` (1,024) | every other id, key and name: of runs, inputs, operations, users, fields, logs, signals |
| `MAX_TEXT_BYTES` (4,096) | titles, previews, reasons: text for people, which lists and errors carry along |
| `MAX_METADATA_BYTES` (64 KiB) | the metadata of a session |
| `MAX_TAGS` (100) | the tags of a session |
| `MAX_LIMIT` (10,000) | rows of one page, and ids in one call |
| `MAX_COUNT` (2^53 - 1) | every counter |

PostgreSQL takes index rows of at most 2,704 bytes: the widest, an effect's, has an id and two names. Texts are bounded
in bytes of UTF-8, and have neither a NUL character nor a lone surrogate, which not every database keeps.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from tenuto.argument import check_items, refuse, word_of
from tenuto.clock import is_in_calendar, to_micros
from tenuto.errors import InvalidInput
from tenuto.ids import check_tenant
from tenuto.model.session import ANY_TENANT

MAX_COUNT = 2**53 - 1
"""No counter goes beyond what JSON readers everywhere hold exactly; one that gets there refuses and does not wrap."""

MAX_NAME_BYTES = 1024
MAX_TEXT_BYTES = 4096
MAX_METADATA_BYTES = 64 * 1024
MAX_TAGS = 100
MAX_LIMIT = 10_000
MAX_TTL = 86_400.0
MAX_TIMEOUT = 100 * 365 * 86_400.0
MAX_DELAY = 100 * 366 * 86_400.0

Check: TypeAlias = Callable[[Any, str], object]
"""Refuses a value that is not what it should be, by its name."""


def if_given(check: Check, value: Any, what: str) -> None:
    """Check a value, unless it is None."""
    if value is not None:
        check(value, what)


def check_count(value: Any, what: str) -> int:
    """Return a counter value in range, or refuse it."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        refuse(what, "a whole number from 0 to 2^53 - 1", value)
    return value


def check_limit(value: Any, what: str = "limit") -> int:
    """Return how many rows a page may have, or refuse it."""
    if type(value) is not int or not 0 <= value <= MAX_LIMIT:
        refuse(what, f"a whole number from 0 to {MAX_LIMIT}; read on from page to page for more", value)
    return value


def next_count(value: int, what: str, step: int = 1) -> int:
    """Raise a stored counter, or refuse when it is at its limit."""
    if value > MAX_COUNT - step:
        raise InvalidInput(f"{what} is at its limit of 2^53 - 1 and cannot rise.", what=what)
    return value + step


def check_ttl(seconds: Any, what: str = "ttl") -> float:
    """Return a time to live in seconds, or refuse it."""
    return _positive(seconds, what, MAX_TTL)


def check_timeout(seconds: Any, what: str = "timeout") -> float:
    """Return how long an answer may take, in seconds, or refuse it."""
    return _positive(seconds, what, MAX_TIMEOUT)


def check_delay(seconds: Any, what: str = "delay") -> float:
    """Return a delay, or an age, in seconds, or refuse it."""
    if not _is_number(seconds) or not 0 <= seconds <= MAX_DELAY:
        refuse(what, f"from 0 to {MAX_DELAY:g} seconds", seconds)
    return float(seconds)


def _positive(seconds: Any, what: str, most: float) -> float:
    if not _is_number(seconds) or not 0 < seconds <= most:
        refuse(what, f"more than 0 and at most {most:g} seconds", seconds)
    return float(seconds)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def within(tenant: Any, what: str = "tenant") -> str | None:
    """Return a tenant as the parameter of a read, where None means any; only `ANY_TENANT` asks for that."""
    if tenant is ANY_TENANT:
        return None
    if tenant is None:
        refuse(what, "the name of a tenant, or ANY_TENANT for all of them", tenant)
    return check_tenant(tenant)


def check_word(value: Any, words: type[StrEnum], what: str) -> str:
    """Return one of a set of words as text, or refuse it."""
    return str(word_of(words, value, what))


def check_name(value: Any, what: str) -> str:
    """Return a non-empty text of bounded size, or refuse it."""
    if type(value) is str and 0 < len(value) <= MAX_NAME_BYTES and value.isascii() and "\0" not in value:
        return value  # as nearly all of them are, and every commit has many
    text = check_text(value, what, MAX_NAME_BYTES)
    if not text:
        refuse(what, f"a text of 1 to {MAX_NAME_BYTES} bytes", value)
    return text


def check_text(value: Any, what: str, most: int = MAX_TEXT_BYTES) -> str:
    """Return text that every backend can keep, of at most `most` bytes, or refuse it."""
    if type(value) is not str and not isinstance(value, StrEnum):
        refuse(what, "text", value)
    text = str(value)
    if len(text) > most:
        refuse(what, f"a text of at most {most} bytes", value)
    plain = text.isascii()
    if "\0" in text or not (plain or _is_unicode(text)):
        raise InvalidInput(f"{what} has a NUL character or a lone surrogate.", what=what)
    if not plain and len(text.encode()) > most:
        refuse(what, f"a text of at most {most} bytes", value)
    return text


check_label = partial(check_text, most=MAX_NAME_BYTES)
"""Returns a text of at most a name's size, which may be empty, or refuses it."""


def check_moment(value: Any, what: str) -> datetime:
    """Return a time with a time zone, in the years 1 to 9999 of UTC, or refuse it."""
    try:
        if isinstance(value, datetime) and value.utcoffset() is not None and is_in_calendar(to_micros(value)):
            return value
    except (TypeError, ValueError, OverflowError):
        pass  # a time zone that fails
    return refuse(what, "a datetime with a time zone, of the years 1 to 9999 in UTC", value)


def check_names(value: Any, what: str) -> frozenset[str]:
    """Return some names as a set, or refuse what is not a collection of names; a text is none."""
    return frozenset(check_name(name, f"a name in {what}") for name in check_items(value, what))


def check_ids(value: Any, what: str) -> tuple[str, ...]:
    """Return some ids, or refuse what is not a collection of them, or has too many for one call; a text is none."""
    ids = check_items(value, what)
    if len(ids) > MAX_LIMIT:
        raise InvalidInput(f"{what} has {len(ids)} ids; name at most {MAX_LIMIT} in one call.", what=what)
    return tuple(check_name(each, f"an id in {what}") for each in ids)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
