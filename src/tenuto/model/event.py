"""The session's ordered, replayable stream."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON


class EventType(StrEnum):
    """The types of events that the store and the runtime write; programs and hosts may write others.

    A `CHUNK` is a part of a reply, written while the reply was produced; once the run is over it may be pruned.
    `ELIDED` replaces events that were pruned; its data say `from` which number `to` which. `REWOUND` supersedes the
    chunks after the number it names. The others are the notices of `tenuto.runtime.stream.notices`.
    """

    CHUNK = "chunk"
    ELIDED = "elided"
    REWOUND = "rewound"
    REPLY_SAVED = "reply_saved"
    SESSION_LOADED = "session_loaded"
    SESSION_ACTION_EXECUTED = "session_action_executed"
    SESSION_SAVED = "session_saved"
    SESSION_LOAD_FAILED = "session_load_failed"
    SESSION_ACTION_FAILED = "session_action_failed"
    SESSION_SAVE_FAILED = "session_save_failed"
    INPUT_QUEUED = "input_queued"
    INPUT_REFUSED = "input_refused"
    OUTGOING_REFUSED = "outgoing_refused"
    SCHEDULE_CHANGED = "schedule_changed"
    RUN_STARTED = "run_started"
    RUN_ENDED = "run_ended"
    LANE_TAKEN_OVER = "lane_taken_over"
    WAIT_OPENED = "wait_opened"
    WAIT_SETTLED = "wait_settled"
    EFFECT_SETTLED = "effect_settled"
    HOOK_FAILED = "hook_failed"
    LISTENER_FAILED = "listener_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be written; the store assigns its number."""

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

    `truncated` is set when events between the cursor and `floor` are gone; reading continues from `floor`.
    `tail` is the stream's last number and `next` the cursor for the next read.
    """

    events: tuple[Event, ...]
    truncated: bool
    floor: int
    tail: int
    next: int
