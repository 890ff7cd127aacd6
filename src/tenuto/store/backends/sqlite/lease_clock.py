"""The clock that leases are measured by: it does not jump when somebody sets the machine's time."""

import logging
import time
from functools import cache
from hashlib import sha256
from os import readlink
from pathlib import Path

import apsw

from tenuto.clock import SECOND
from tenuto.store.backends.sqlite.connection import begin, rollback

_log = logging.getLogger("tenuto.store")

_JUMP = 7 * SECOND + SECOND // 2
"""Half of a lane's usual term: a bigger difference between the two clocks is reported."""


class LeaseClock:
    """The wall clock as it stood when this boot first opened the file, carried on by the boot clock.

    All processes of one boot read the same two numbers in the file, so they agree, whatever the wall clock does.
    Another boot begins with its own wall clock, and where there is no boot clock the wall clock is all there is.
    """

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._has_warned = False

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        wall = wall_micros()
        if self._ahead is None:
            return wall
        leased = self._ahead + boot_micros()
        if abs(leased - wall) > _JUMP and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "This machine's clock was set by %.0f s since it started; leases follow the time since its start, "
                "and what is due at a time of day follows the clock.",
                (wall - leased) / SECOND,
            )
        return leased

    def anchor(self, connection: apsw.Connection, timeout: float) -> None:
        """Take the numbers of this boot from the file, or be the first to write them there."""
        boot = this_boot()
        if boot is None:
            return
        found = _anchored(connection, boot)
        if found is None:
            begin(connection, timeout)
            try:
                found = _anchored(connection, boot)  # another process may have got here first
                if found is None:
                    found = wall_micros() - boot_micros()
                    connection.execute("DELETE FROM boot_clock")
                    connection.execute("INSERT INTO boot_clock VALUES (?, ?)", (boot, found))
                connection.execute("COMMIT")
            except BaseException:
                rollback(connection)
                raise
        self._ahead = found


def wall_micros() -> int:
    """Return the time of day."""
    return time.time_ns() // 1000


def boot_micros() -> int:
    """Return the time since this machine was started, its sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


@cache
def this_boot() -> str | None:
    """Name this boot of this machine, without telling its id; None where it has no boot clock."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        clock = readlink("/proc/self/ns/time")  # noqa: PTH115 - not a path but the name of a namespace
    except OSError:
        return None
    return sha256(f"tenuto {boot} {clock}".encode()).hexdigest()[:32]


def _anchored(connection: apsw.Connection, boot: str) -> int | None:
    for (ahead,) in connection.execute("SELECT ahead FROM boot_clock WHERE boot = ?", (boot,)):
        return int(ahead)
    return None
