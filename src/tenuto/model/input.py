"""The inbox: a session's durable input, from its arrival to the run that consumes it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.lane import LaneView
from tenuto.model.run import Stop
from tenuto.model.session import SessionKey


class InputKind(StrEnum):
    """What an input is: a message, an action to execute, or a request to continue."""

    MESSAGE = "message"
    COMMAND = "command"
    WAKE = "wake"


class InputStatus(StrEnum):
    """Whether an input is still waiting; every status except open is final."""

    OPEN = "open"
    CONSUMED = "consumed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class Boundary(StrEnum):
    """A safe point at which a live run takes the input meant for it."""

    AFTER_STEP = "after_step"
    BEFORE_COMPLETION = "before_completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInput:
    """An input to be stored.

    `key` makes it idempotent within the session's life. Without a `boundary` it is for the next turn; with one, for
    the run `run_id`, or the session's current one. It is due at `due_at`, or `delay` seconds from now, or at once.
    `log` and `item` are for a commit that includes its input: they say which item of its append is the input's entry.
    With `spent`, only that entry will be read: the body is not kept while the run is in progress. An `input_id` is
    minted, unless the caller has minted one. One that `leads` arrives with a commit that does not consume it: it is the
    first that the next turn takes, before older input.
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
    leads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume:
    """An open input of the commit's session to be consumed by it.

    `log` and `item` say which item of the commit's write to that log is the input's entry. With `spent`, its body is
    dropped at once, otherwise when the run ends.
    """

    input_id: str
    log: str | None = None
    item: int | None = None
    spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input as stored; `seq` is the order of arrival, `input_key` the sender's own key.

    While it is open, `run_id` is the run it is meant for; afterwards it is the run that consumed it, and `log` and
    `position` name its entry. `has_body` is false once the body was dropped; `digest` stays. `error` is why it was
    refused. `unreadable` says why its row cannot be read, if that is damaged; it has no body then.
    With `regenerated`, `run_id` is the run that answered its message again.
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
    regenerated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The result of an enqueue: the input, and the lane as it was found.

    `replayed` means that its key was known and no input was written. `stopped` is the run that was requested to stop in
    favour of it, by this call or before, and `stop` is that request.
    """

    input: Input
    lane: LaneView
    replayed: bool = False
    stopped: str | None = None
    stop: Stop | None = None


class Nothing(StrEnum):
    """Why there is nothing to take: no open input, none for this boundary, none due yet, or a command is first."""

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
    """The result of a request to cancel an input."""

    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    ALREADY = "already_cancelled"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class DuePage(tuple[SessionKey, ...]):
    """Sessions with due input that no runner holds; `next` continues after them, or is None at the end."""

    next: str | None = None
