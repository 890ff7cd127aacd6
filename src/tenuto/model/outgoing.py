"""The outbox: work a commit causes elsewhere, started only once the commit stands."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import SessionKey

CHILD_LOST = "child_lost"
"""The category of the error a parent gets for a child that could not be begun, or is gone."""


class OutboxKind(StrEnum):
    """What an outgoing item asks of the session it is for.

    `WAKE`: look again, since an answer is there, a time has come, or a message follows a hand-off. `CHILD`: begin a
    child, or consult one again. `RESULT`: how a child's turn went, or that it is gone, owed to the parent that waits.
    `STOP`: the parent has stopped waiting for the child; owed until the child has stopped.
    """

    WAKE = "wake"
    CHILD = "child"
    RESULT = "child_result"
    STOP = "stop_child"


class OutgoingStatus(StrEnum):
    """How far an outgoing item has come; done and expired are final."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DONE = "done"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutgoing:
    """Something for another session, due at `due_at`, or `delay` seconds after the commit, or at once."""

    kind: str
    target: SessionKey
    body: JSON = None
    due_at: datetime | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One outgoing item as stored; `key` is the session that sent it, `attempts` counts what was tried."""

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
