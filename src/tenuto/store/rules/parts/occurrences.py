"""When schedules occur: a pure function of the words they were declared with, in microseconds of UTC."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import dropwhile, islice, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tenuto.clock import SECOND, is_in_calendar, to_datetime, to_duration, to_micros
from tenuto.errors import InvalidInput
from tenuto.quote import quote

MOST_MISSED = 1000
"""How far back missed occurrences are counted."""

_MINUTE = timedelta(minutes=1)
_LONGEST_SHIFT = timedelta(hours=3)  # of a clock that is set back


class Times(Protocol):
    """When something occurs."""

    def after(self, moment: int) -> int | None:
        """Return the first occurrence after a time, or None if there is none."""

    def until(self, moment: int, first: int) -> list[int]:
        """Return the occurrences from `first` to a time, both included, oldest first: the last `MOST_MISSED`."""


class Interval:
    """Every so many seconds from an anchor: each is counted from there, so nothing drifts."""

    def __init__(self, every: float, anchor: int) -> None:
        self._every = to_duration(every)
        self._anchor = anchor

    def after(self, moment: int) -> int | None:
        """See `Times.after`."""
        found = self._anchor + max(1, (moment - self._anchor) // self._every + 1) * self._every
        return found if is_in_calendar(found) else None

    def until(self, moment: int, first: int) -> list[int]:
        """See `Times.until`."""
        latest = self._anchor + (moment - self._anchor) // self._every * self._every
        return [at for n in range(MOST_MISSED) if (at := latest - n * self._every) >= first][::-1]


class Cron:
    """At the local times that a cron expression names.

    One that does not exist that day is at the first instant after the gap, one that occurs twice is the first of both.
    """

    def __init__(self, expression: str, tz: str) -> None:
        self._expression = expression
        self._zone = ZoneInfo(tz)

    def after(self, moment: int) -> int | None:
        """See `Times.after`."""
        # The local time of a clock that was set back is earlier than others that have passed already.
        return next(dropwhile(lambda at: at <= moment, self._walk(moment)), None)

    def until(self, moment: int, first: int) -> list[int]:
        """See `Times.until`."""
        past = dropwhile(lambda at: at > moment, self._walk(moment, reverse=True))
        return list(islice(takewhile(lambda at: at >= first, past), MOST_MISSED))[::-1]

    def _walk(self, moment: int, *, reverse: bool = False) -> Iterator[int]:
        local = to_datetime(moment).astimezone(self._zone).replace(tzinfo=None, fold=0)
        start = local + _LONGEST_SHIFT if reverse else local - _LONGEST_SHIFT
        last = None
        with suppress(OverflowError):  # at the end of the calendar
            for naive in CronSim(self._expression, start, reverse=reverse):
                at = self._instant(naive)
                if at != last:  # several in one gap are the one after it
                    yield at
                last = at

    def _instant(self, naive: datetime) -> int:
        while (found := naive.replace(tzinfo=self._zone).astimezone(UTC)).astimezone(self._zone).replace(
            tzinfo=None, fold=0
        ) != naive:
            naive += _MINUTE
        return to_micros(found)


def times_of(every: float | None, cron: str | None, tz: str, anchor: int) -> Times:
    """Return when a schedule occurs."""
    if every is not None:
        return Interval(every, anchor)
    assert cron is not None
    return _cron(cron, tz)


@lru_cache(maxsize=256)
def _cron(expression: str, tz: str) -> Cron:
    return Cron(expression, tz)


def check_times(every: float | None, cron: str | None, tz: str) -> None:
    """Refuse times that cannot be: of both kinds or none, too often, no cron expression, or an unknown zone."""
    if (every is None) == (cron is None):
        raise InvalidInput("A schedule needs either `every`, in seconds, or `cron`.", what="every")
    try:
        ZoneInfo(tz)
    except (ValueError, OSError, LookupError) as error:
        message = f"tz must be the name of a time zone, such as Europe/Vienna, got {quote(tz)}."
        raise InvalidInput(message, what="tz") from error
    if every is not None:
        if to_duration(every) < SECOND:
            raise InvalidInput(f"every must be a second or more, got {quote(every)}.", what="every")
        return
    assert cron is not None
    if len(cron.split()) != 5:
        raise InvalidInput(f"cron must have five fields, such as '0 3 * * *', got {quote(cron)}.", what="cron")
    try:
        never = next(CronSim(cron, datetime(2000, 1, 1)), None) is None
    except CronSimError as error:
        raise InvalidInput(f"cron cannot be read ({error}): {quote(cron)}.", what="cron") from error
    if never:
        raise InvalidInput(f"cron names no day that exists: {quote(cron)}.", what="cron")
