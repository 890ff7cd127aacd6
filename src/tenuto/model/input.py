"""The inbox: a session's durable input, from its arrival to the run that consumes it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.lane import LaneView
from tenuto.model.run import Stop
from tenuto.model.session import SessionKey


class InputKind(StrEnum):
    """What an input is: something said, an action to be executed, or a call to go on."""

    MESSAGE = "message"
    COMMAND = "command"
    WAKE = "wake"


class InputStatus(StrEnum):
    """Whether an input still waits; every state but open is final."""

    OPEN = "open"
    CONSUMED = "consumed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class Boundary(StrEnum):
    """A safe point of a live run at which it takes input meant for it."""

    AFTER_STEP = "after_step"
    BEFORE_COMPLETION = "before_completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """An input to be stored.

    `key` makes it idempotent within the session's life. Without a `boundary` it is for the next turn; with one, for
    the run `run_id`, or the session's current one. It is due at `due_at`, or `delay` seconds from now, or at once.
    `log` and `item` belong to a commit that brings its input along: the item of its append that is the input's entry.
    With `spent` that entry is all anybody will read of it: its body is not kept while the run is under way. An
    `input_id` is minted, unless the caller has minted one.
    """

    kind: InputKind
    body: JSON
    key: str | None = None
    boundary: Boundary | None = None
    run_id: str | None = None
    due_at: datetime | None = None
    delay: float | None = None
    log: str | None = None
    item: int | None = None
    input_id: str | None = None
    spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume:
    """An open input of the commit's session to be consumed by it.

    `log` and `item` say which item of the commit's write to that log is the input's entry; with `spent` its body is
    dropped at once, otherwise with the end of the run.
    """

    input_id: str
    log: str | None = None
    item: int | None = None
    spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input as stored; `seq` is the order of arrival, `input_key` the sender's own key.

    `run_id` is the run an open one is meant for, and the run that consumed it afterwards; `log` and `position` are
    then its entry. `has_body` is false once the body was dropped; `digest` stays. `error` is why it was refused.
    `unreadable` says why nothing can be made of its row, if that is damaged; it has no body then.
    """

    input_id: str
    key: SessionKey
    life: int
    seq: int
    kind: InputKind
    input_key: str | None
    digest: str
    body: JSON
    has_body: bool
    boundary: Boundary | None
    due_at: datetime | None
    status: InputStatus
    run_id: str | None
    log: str | None
    position: int | None
    rolled_back: bool
    created_at: datetime
    settled_at: datetime | None
    error: JSON = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What became of an enqueue: the input, and the lane as it was found.

    `replayed` says that its key was known, and no input was written. `stopped` is the run that was asked to make room
    for it, now or before, and `stop` that request.
    """

    input: Input
    lane: LaneView
    replayed: bool = False
    stopped: str | None = None
    stop: Stop | None = None


class Nothing(StrEnum):
    """Why there is nothing to take: no open input, none for this place, none due yet, or a command goes first."""

    EMPTY = "empty"
    NOT_HERE = "not_here"
    NOT_DUE = "not_due"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeable:
    """The inputs a runner may take now, in order, or the reason why there are none.

    `due_at` is the next due time if nothing is due, `blocked_by` the input that has to be taken first.
    """

    inputs: tuple[Input, ...] = ()
    reason: Nothing | None = None
    due_at: datetime | None = None
    blocked_by: str | None = None


class Cancelled(StrEnum):
    """What became of a request to cancel an input."""

    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    ALREADY = "already_cancelled"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class DuePage(tuple[SessionKey, ...]):
    """Sessions with due input that nobody works on; `next` continues after them, or is None at the end."""

    next: str | None = None
