"""Waits: what a suspended run needs before it can be resumed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import SessionKey


class WaitKind(StrEnum):
    """What a wait is for, which decides the form of its answer.

    A wait for a child names the child's id (`child`) and the `token` of the request in its metadata. Other words are
    answered like signals.
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

    `wait_id` is minted; `signal_id` is the program's word and need not be unique. `schema` is the JSON Schema of the
    answer. `graph` is the name of the graph that paused with it, if that runs without a runtime.
    """

    wait_id: str
    key: SessionKey
    run_id: str
    invocation_id: str
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
    graph: str | None = None

    @property
    def session_id(self) -> str:
        """The id of the session that waits; of a run without a session, its invocation's."""
        return self.key.session_id

    @property
    def tenant(self) -> str:
        """The tenant of the session."""
        return self.key.tenant

    @property
    def tool(self) -> str | None:
        """The name of the tool whose call waits; None if no tool call does."""
        return _text(self.metadata.get("tool"))

    @property
    def call_id(self) -> str | None:
        """The id of the tool call that waits; None if no tool call does."""
        return _text(self.metadata.get("call_id"))

    @property
    def arguments(self) -> Mapping[str, JSON]:
        """The arguments of the tool call that waits; empty if no tool call does."""
        found = self.metadata.get("arguments", self.metadata.get("request"))  # a call in doubt has its request
        return found if self.tool is not None and isinstance(found, Mapping) else {}


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None
