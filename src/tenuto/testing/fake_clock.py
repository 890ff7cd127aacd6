"""The clock that tests move by hand."""

from datetime import UTC, datetime

from tenuto.clock import SECOND, to_micros


class FakeClock:
    """A clock that moves only by `advance`; a store that gets one uses it instead of the database's."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = to_micros(start or datetime(2030, 1, 1, tzinfo=UTC))

    def now(self) -> int:
        """Return the time it was set to."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move by `seconds`; negative values move back, as clocks in the field do."""
        self._now += round(seconds * SECOND)
