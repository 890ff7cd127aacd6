"""An error as it is stored in records, notices and messages: plain data that can always be written."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import chain
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from tenuto.codec import JSON, dumps
from tenuto.errors import Bucket, NotJson, TenutoError, bucket_of, bucket_of_record, cause_of

T = TypeVar("T")

MOST_TEXT = 10_000
"""How many characters of an error's text are stored."""

_MOST_WORD = 200
_MOST_DETAILS = 50
_MOST_FRAMES = 20
_HERE = str(Path(__file__).parent.parent) + os.sep
TRACEBACK = "traceback"
"""The field of a run's record with the frames of its error: for this machine's people, so it never leaves by a door."""

_ROOM = 20
"""How deep a record may be nested in other records and in the conversation."""


def error_record(error: BaseException) -> JSON:
    """Return an error as plain data: category, message and details. The result can be written for any error.

    `cause` is the category of the error it passes on; `transient` is present where the categories alone would suggest
    the opposite. Long texts are cut with a mark, and details that cannot be stored are named in `left_out`.
    """
    record: dict[str, JSON] = {"category": category_of(error), "message": text_of(error)}
    if cause := cause_of(error):
        record["cause"] = clipped(cause, _MOST_WORD)
    passes = bool(_told(lambda: bucket_of(error) is Bucket.RETRYABLE_TRANSIENT))
    if passes is not (bucket_of_record(record) is Bucket.RETRYABLE_TRANSIENT):
        record["transient"] = passes
    kept, left_out = _details(error)
    if kept:
        record["details"] = kept
    if left_out:
        record["left_out"] = left_out
    return record


def with_frames(record: JSON, error: BaseException) -> JSON:
    """Return an error's record with where it was raised; unchanged if no code but Tenuto's own was involved."""
    frames = frames_of(error)
    return {**record, TRACEBACK: list(frames)} if frames and isinstance(record, Mapping) else record


def without_frames(record: JSON) -> JSON:
    """Return an error's record without what is only for this machine's people."""
    if not isinstance(record, Mapping) or TRACEBACK not in record:
        return record
    return {name: value for name, value in record.items() if name != TRACEBACK}


def frames_of(error: BaseException) -> list[str]:
    """Return the last frames of an error and its causes, the innermost last: file, line and function, no values.

    The frames of Tenuto itself are left out. Of an exception group, the first exception is followed.
    """
    found = deque(chain.from_iterable(map(_frames, causes_of(error))), maxlen=_MOST_FRAMES)
    return list(found)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, down to the first; of a group, its first exception."""
    seen: set[int] = set()
    following: BaseException | None = error
    while isinstance(following, BaseException) and id(following) not in seen:
        seen.add(id(following))
        yield following
        within = following.exceptions[0] if isinstance(following, BaseExceptionGroup) else None
        following = following.__cause__ or within


def _frames(error: BaseException) -> Iterator[str]:
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            yield clipped(f"{code.co_filename}:{line} in {code.co_qualname}", _MOST_WORD)


def bare_record(record: JSON) -> JSON:
    """Return only the category and message of an error's record, for a run that cannot be ended otherwise."""
    fields = record if isinstance(record, Mapping) else {}
    return {name: clipped(fields.get(name, ""), _MOST_WORD) for name in ("category", "message")}


def category_of(error: BaseException) -> str:
    """Return an error's category: its own, or the name of its class."""
    category = _told(lambda: getattr(error, "category", None))
    return clipped(category if isinstance(category, str) and category else type(error).__name__, _MOST_WORD)


def text_of(error: BaseException) -> str:
    """Return an error's message."""
    message = _told(lambda: getattr(error, "message", None))
    return clipped(error if message is None else message)


def shown(error: BaseException) -> str:
    """Return an error's `repr`: its class and its text."""
    text = _told(lambda: clipped(repr(error)))
    return f"{category_of(error)}: {text_of(error)}" if text is None else text


def clipped(value: Any, most: int = MOST_TEXT) -> str:
    """Return a value's text in a form that can be stored: lone surrogates replaced, and cut with a mark."""
    try:
        text = str(value)
        size, text = len(text), text[:most]
        # Two adjacent halves of one character become that character.
        plain = str.encode(text, "utf-16", "surrogatepass").decode("utf-16", "replace")
    except Exception as failure:  # raised by the value's own class
        return f"(no text: {type(failure).__name__})"
    return plain if size <= most else f"{plain}… (cut, {size:,} characters)"


def _details(error: BaseException) -> tuple[dict[str, JSON], list[str]]:
    """Return an error's public details, and the names of those that cannot be stored."""
    found = _told(lambda: error.public_details() if isinstance(error, TenutoError) else None) or {}
    kept: dict[str, JSON] = {}
    left_out: list[str] = []
    for name, detail in list(found.items())[:_MOST_DETAILS]:
        value = _as_json(detail)
        if fits_record(value):
            kept[clipped(name, _MOST_WORD)] = value
        else:
            left_out.append(clipped(name, _MOST_WORD))
    return kept, left_out


def _as_json(value: Any) -> Any:
    """Convert an enum member or a time to its JSON form; return anything else unchanged."""
    if isinstance(value, StrEnum):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value


def fits_record(value: Any) -> bool:
    """Return whether a value can be stored in a record at any depth allowed for records."""
    for _ in range(_ROOM):
        value = [value]
    try:
        return len(dumps(value)) <= MOST_TEXT
    except NotJson:
        return False


def _told(read: Callable[[], T]) -> T | None:
    """Return what an error says of itself; None if its own class raises instead."""
    try:
        return read()
    except Exception:  # whatever an error's own class raises
        return None
