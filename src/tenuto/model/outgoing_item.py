"""The outbox: work that a commit causes elsewhere, started only after the commit is stored."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import SessionKey

CHILD_LOST = "child_lost"
"""The category of the error that a parent receives for a child that could not be started, or is gone."""


class OutboxKind(StrEnum):
    """What an outgoing item requests of its target session.

    `WAKE`: continue, because an answer arrived, or a time has come. `CHILD`: create a
    child, or send an existing one another message. `RESULT`: the outcome of a child's turn, or that the child is gone,
    for the parent that waits. `STOP`: the parent no longer waits for the child; pending until the child has stopped.
    `INPUT`: a message or an action that a program queued. `WAITS`: the root learns what a session below it waits for.
    `SCHEDULE`: a schedule that a program declared or removed.
    """

    WAKE = "wake"
    CHILD = "child"
    RESULT = "child_result"
    STOP = "stop_child"
    INPUT = "input"
    WAITS = "waits"
    SCHEDULE = "schedule"


class OutgoingStatus(StrEnum):
    """The progress of an outgoing item; done, refused and expired are final."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutgoing:
    """An item for another session, due at `due_at`, or `delay` seconds after the commit, or at once.

    An `outbox_id` is minted, unless the caller has derived one.
    """

    kind: str
    target: SessionKey
    body: JSON = None
    due_at: datetime | None = None
    delay: float | None = None
    outbox_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One outgoing item as stored; `key` is the session that sent it, `attempts` counts the deliveries tried.

    The body of a refused item is replaced by the reason, under `error`.
    """

    outbox_id: str
    key: SessionKey
    life: int
    kind: str
    target: SessionKey
    body: JSON
    status: OutgoingStatus
    attempts: int
    due_at: datetime
    created_at: datetime
