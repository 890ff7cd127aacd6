"""The clock that tests move by hand."""

from tenuto.clock import FakeClock

__all__ = ["FakeClock"]
