"""When schedules occur: by seconds from an anchor, or by a cron expression, also on days with another offset."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tenuto.clock import to_datetime, to_micros
from tenuto.errors import InvalidInput
from tenuto.store.rules.parts.occurrences import MOST_MISSED, Cron, Interval, Times, check_times

SPRING = {
    "Europe/Vienna": ("2026-03-29", "30 2 * * *", "2026-03-29T01:00", "03:00"),
    "America/New_York": ("2026-03-08", "15 2 * * *", "2026-03-08T07:00", "03:00"),
    "Australia/Lord_Howe": ("2026-10-04", "10 2 * * *", "2026-10-03T15:30", "02:30"),
}
AUTUMN = {
    "Europe/Vienna": ("2026-10-25", "30 2 * * *", "2026-10-25T00:30"),
    "America/New_York": ("2026-11-01", "15 1 * * *", "2026-11-01T05:15"),
    "Australia/Lord_Howe": ("2026-04-05", "40 1 * * *", "2026-04-04T14:40"),
}
EXPRESSIONS = ("30 2 * * *", "0,30 2 * * *", "0 * * * *", "*/20 1-2 * * *")


def _at(text: str) -> int:
    return to_micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


def _between(times: Times, start: int, end: int) -> list[int]:
    found, moment = [], times.after(start)
    while moment is not None and moment <= end:
        found.append(moment)
        moment = times.after(moment)
    return found


def _day(date: str) -> tuple[int, int]:
    middle = datetime.fromisoformat(date).replace(tzinfo=UTC)
    return to_micros(middle - timedelta(days=2)), to_micros(middle + timedelta(days=2))


@pytest.mark.parametrize("zone", SPRING)
def test_a_local_time_that_does_not_exist_is_the_first_instant_after_the_gap(zone: str) -> None:
    date, expression, expected, local = SPRING[zone]
    cron = Cron(expression, zone)
    found = _between(cron, *_day(date))
    assert _at(expected) in found
    assert to_datetime(_at(expected)).astimezone(cron._zone).strftime("%H:%M") == local
    assert len(found) == 4
    assert sorted({later - earlier for earlier, later in pairwise(found)})[0] < 86_400 * 1_000_000


@pytest.mark.parametrize("zone", AUTUMN)
def test_a_local_time_that_occurs_twice_is_the_first_of_both(zone: str) -> None:
    date, expression, expected = AUTUMN[zone]
    found = _between(Cron(expression, zone), *_day(date))
    assert _at(expected) in found
    assert len(found) == 4


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "date"), [(zone, day[0]) for days in (SPRING, AUTUMN) for zone, day in days.items()])
def test_what_was_missed_is_what_would_have_been_next_each_time(zone: str, date: str, expression: str) -> None:
    """Looking back from any moment finds the same instants as looking ahead, each once and in order."""
    cron = Cron(expression, zone)
    start, end = _day(date)
    ahead = _between(cron, start, end)
    assert ahead == sorted(set(ahead))
    for moment in range(start, end, 433 * 60 * 1_000_000):
        assert cron.until(moment, start + 1)[-MOST_MISSED:] == [at for at in ahead if at <= moment][-MOST_MISSED:]


def test_an_interval_counts_from_its_anchor_and_does_not_drift() -> None:
    anchor = _at("2026-01-01T00:00") + 123_456
    times = Interval(0.1 + 0.2 + 9.7, anchor)
    assert times.after(anchor - 5) == times.after(anchor) == anchor + 10_000_000
    assert times.after(anchor + 10_000_000) == anchor + 20_000_000
    assert times.after(anchor + 86_400_000_001) == anchor + 86_410_000_000
    assert times.until(anchor + 39_999_999, anchor + 20_000_000) == [anchor + 20_000_000, anchor + 30_000_000]
    assert times.until(anchor + 15_000_000, anchor + 20_000_000) == []


def test_an_interval_of_a_day_stays_at_its_instant_when_clocks_change() -> None:
    found = _between(Interval(86_400, _at("2026-03-27T02:30")), *_day("2026-03-29"))
    assert [to_datetime(each).strftime("%H:%M") for each in found] == ["02:30"] * 3


def test_what_was_missed_is_counted_up_to_a_bound() -> None:
    start = _at("2026-01-01T00:00")
    for times in (Interval(60, start), Cron("* * * * *", "UTC")):
        found = times.until(start + 3 * 86_400_000_000, start + 1)
        assert len(found) == MOST_MISSED
        assert found[-1] == start + 3 * 86_400_000_000


def test_the_end_of_the_calendar_has_no_next_occurrence() -> None:
    assert Interval(3600, _at("9999-12-31T23:30")).after(_at("9999-12-31T23:30")) is None
    assert Cron("0 0 * * *", "UTC").after(_at("9999-12-31T23:30")) is None


@pytest.mark.parametrize(
    ("every", "cron", "tz"),
    [
        (None, None, "UTC"),
        (60.0, "0 3 * * *", "UTC"),
        (0.5, None, "UTC"),
        (None, "0 3 * *", "UTC"),
        (None, "0 0 3 * * *", "UTC"),
        (None, "61 3 * * *", "UTC"),
        (None, "0 0 30 2 *", "UTC"),
        (None, "", "UTC"),
        (None, "0 3 * * *", "Europe/Wien"),
        (None, "0 3 * * *", ""),
        (None, "0 3 * * *", "../UTC"),
        (60.0, None, "nowhere"),
        (None, "0 3 * * *", "Europe"),
        (None, "0 3 * * *", "a\0b"),
    ],
)
def test_times_that_cannot_be_are_refused(every: float | None, cron: str | None, tz: str) -> None:
    with pytest.raises(InvalidInput):
        check_times(every, cron, tz)
