"""The session's ordered, replayable stream."""

from dataclasses import dataclass
from datetime import datetime

from tenuto.codec import JSON

CHUNK = "chunk"
"""The type of a part of a reply, shown while it was under way; once the run is over, it may be pruned."""

ELIDED = "elided"
"""The type of what stands for events that were pruned; its data say `from` which number `to` which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be written; the store gives it its number."""

    type: str
    data: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One stored event; `seq` counts from 1 without gaps over all of a session id's lives."""

    seq: int
    type: str
    data: JSON
    run_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events after a cursor.

    `truncated` is set when events between the cursor and `floor` are gone; reading goes on from `floor`.
    `tail` is the stream's last number and `next` the cursor to read on from.
    """

    events: tuple[Event, ...]
    truncated: bool
    floor: int
    tail: int
    next: int
