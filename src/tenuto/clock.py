"""Time as a value: microseconds since 1970-01-01 UTC inside the store, aware datetimes outside."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)

SECOND = 1_000_000
"""One second, in the store's unit."""

since_boot: Callable[[], float] = time.monotonic if _BOOT is None else partial(time.clock_gettime, _BOOT)
"""Returns the seconds since this machine was started, including sleep where the system counts it."""


class Clock(Protocol):
    """Gives the time in microseconds since the epoch."""

    def now(self) -> int:
        """Return the current time."""


def to_micros(moment: datetime) -> int:
    """Convert an aware datetime to microseconds since the epoch, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def to_datetime(micros: int) -> datetime:
    """Convert microseconds since the epoch to an aware UTC datetime, exactly."""
    return _EPOCH + timedelta(microseconds=micros)


_FIRST, _LAST = to_micros(datetime.min.replace(tzinfo=UTC)), to_micros(datetime.max.replace(tzinfo=UTC))


def is_in_calendar(micros: int) -> bool:
    """Return whether a time lies in the years 1 to 9999 in UTC, which is all a datetime can show."""
    return _FIRST <= micros <= _LAST


def to_duration(seconds: float) -> int:
    """Convert seconds to whole microseconds."""
    return round(seconds * SECOND)
