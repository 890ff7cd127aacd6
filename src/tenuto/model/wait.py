"""Waits: what a suspended run needs before it can be resumed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import SessionKey


class WaitKind(StrEnum):
    """What a wait is for, which decides the form of its answer.

    A wait for a child names the child's id (`child`) and the `token` of the request in its metadata. Programs may use
    other words for their own waits; those are answered like signals.
    """

    SIGNAL = "signal"
    APPROVAL = "approval"
    TOOL_RESULT = "tool_result"
    CHILD = "child"
    TIME = "time"
    IN_DOUBT = "in_doubt"


class WaitStatus(StrEnum):
    """Whether a wait is still open; every other status is final."""

    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something a suspended run needs.

    `wait_id` is minted; `signal_id` is the program's word and need not be unique.
    """

    wait_id: str
    key: SessionKey
    run_id: str
    kind: str
    signal_id: str | None
    status: WaitStatus
    deadline: datetime | None
    schema: JSON = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    answer: JSON = None
    commit_number: int
    created_at: datetime
    settled_at: datetime | None
