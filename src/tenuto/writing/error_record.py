"""A failure as records, notices and messages keep it: plain data that can always be written."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import Bucket, NotJson, TenutoError, bucket_of, bucket_of_record, cause_of

MOST_TEXT = 10_000
"""How many characters of an error's text are kept."""

_MOST_WORD = 200
_MOST_DETAILS = 50
_ROOM = 20
"""How deep a record may come to stand in other records, and in the conversation."""


def error_record(error: BaseException) -> JSON:
    """Return an error as plain data: category, message and what is behind it; whatever it is, this can be written.

    `cause` is the category of what it passes on; `transient` is there where the categories alone would say otherwise.
    Texts are cut with a mark, and details that cannot be kept are named in `left_out`.
    """
    record: dict[str, JSON] = {"category": category_of(error), "message": text_of(error)}
    if cause := cause_of(error):
        record["cause"] = clipped(cause, _MOST_WORD)
    try:
        passes = bucket_of(error) is Bucket.RETRYABLE_TRANSIENT
    except Exception:  # of a category whose own text cannot be had
        passes = False
    if passes is not (bucket_of_record(record) is Bucket.RETRYABLE_TRANSIENT):
        record["transient"] = passes
    kept, left_out = _details(error)
    if kept:
        record["details"] = kept
    if left_out:
        record["left_out"] = left_out
    return record


def bare_record(record: JSON) -> JSON:
    """Return as little of an error's record as says what it was, for a run that cannot be ended otherwise."""
    told = record if isinstance(record, Mapping) else {}
    return {name: clipped(told.get(name, ""), _MOST_WORD) for name in ("category", "message")}


def category_of(error: BaseException) -> str:
    """Return the word for an error: its own category, or the name of its class."""
    category = _asked(error, "category")
    return clipped(category if isinstance(category, str) and category else type(error).__name__, _MOST_WORD)


def text_of(error: BaseException) -> str:
    """Return what an error says of itself."""
    said = _asked(error, "message")
    return clipped(error if said is None else said)


def shown(error: BaseException) -> str:
    """Return an error as it shows itself: its class and its text."""
    try:
        return clipped(repr(error))
    except Exception:  # whatever its own class raises
        return f"{category_of(error)}: {text_of(error)}"


def clipped(value: Any, most: int = MOST_TEXT) -> str:
    """Return a value's text as it can be kept: lone surrogates replaced, and cut with a mark."""
    try:
        text = str(value)
        size, text = len(text), text[:most]
        # Halves of one character that stand side by side are that character.
        plain = str.encode(text, "utf-16", "surrogatepass").decode("utf-16", "replace")
    except Exception as failure:  # whatever its own class raises
        return f"(no text: {type(failure).__name__})"
    return plain if size <= most else f"{plain}… (cut, {size:,} characters)"


def _details(error: BaseException) -> tuple[dict[str, JSON], list[str]]:
    """Return what of the data behind an error is for everybody, and the names of those that cannot be kept."""
    try:
        found = error.public_details() if isinstance(error, TenutoError) else {}
    except Exception:  # whatever its own class raises
        found = {}
    kept: dict[str, JSON] = {}
    left_out: list[str] = []
    for name, given in list(found.items())[:_MOST_DETAILS]:
        value = _told(given)
        if _is_plain(value):
            kept[clipped(name, _MOST_WORD)] = value
        else:
            left_out.append(clipped(name, _MOST_WORD))
    return kept, left_out


def _told(value: Any) -> Any:
    """Return a word of a closed set, or a time, as JSON has it."""
    if isinstance(value, StrEnum):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _is_plain(value: Any) -> bool:
    """Tell whether a value can stand within a record, wherever that comes to stand."""
    for _ in range(_ROOM):
        value = [value]
    try:
        return len(dumps(value)) <= MOST_TEXT
    except NotJson:
        return False


def _asked(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # whatever its own class raises
        return None
