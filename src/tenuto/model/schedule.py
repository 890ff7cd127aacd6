"""Schedules: messages that a session is sent again and again, at times that a row keeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON
from tenuto.model.input import Input
from tenuto.model.session import SessionKey


class Missed(StrEnum):
    """What is sent for occurrences that passed while nobody fired them: one message, one each, or nothing."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class WhenWaiting(StrEnum):
    """What an occurrence does while its session waits for something: wait too, be left out, or abandon the waits."""

    HOLD = "hold"
    SKIP = "skip"
    ABANDON = "abandon"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to be declared: `body` is that of its input.

    Exactly one of `every`, in seconds, and `cron`, of five fields in the time zone `tz`, says when.
    """

    name: str
    body: JSON
    every: float | None = None
    cron: str | None = None
    tz: str = "UTC"
    missed: Missed = Missed.LATEST
    when_waiting: WhenWaiting = WhenWaiting.HOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule as stored.

    `every` counts from `anchor`, the time it was declared. `next_at` is its next occurrence, `fired_at` the last that
    was fired, as the input `input_id`. `paused` says why it does not fire, if it does not.
    """

    key: SessionKey
    name: str
    body: JSON
    every: float | None
    cron: str | None
    tz: str
    missed: Missed
    when_waiting: WhenWaiting
    anchor: datetime
    next_at: datetime
    fired_at: datetime | None
    input_id: str | None
    paused: str | None

    @property
    def message(self) -> Any:
        """The message that it sends."""
        return self.body.get("message") if isinstance(self.body, Mapping) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What firing a schedule did: the inputs that it queued, and the reason why it was paused, if it was.

    Neither means that there was nothing to do: it is not due, is held, or another worker was faster.
    """

    inputs: tuple[Input, ...] = ()
    paused: str | None = None
