"""Time as a value."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from tenuto.clock import to_datetime, to_duration, to_micros
from tenuto.testing.fake_clock import FakeClock


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_converts_there_and_back_exactly(moment: datetime) -> None:
    assert to_datetime(to_micros(moment)) == moment


def test_other_time_zones_mean_the_same_instant() -> None:
    cairo = datetime(2030, 5, 1, 14, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    assert to_micros(cairo) == to_micros(cairo.astimezone(UTC))


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(datetime(2031, 1, 1, tzinfo=UTC))
    start = clock.now()
    assert clock.now() == start
    clock.advance(1.5)
    assert clock.now() - start == to_duration(1.5) == 1_500_000
    clock.advance(-2)
    assert clock.now() < start
