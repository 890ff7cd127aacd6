"""Runs, each one stretch of executing an invocation, and the requests to stop them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import Ends, SessionKey


class RunStatus(StrEnum):
    """Whether a run is in progress, and how it ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"


class StopKind(StrEnum):
    """How a run is to stop: an interrupted run can be resumed, an aborted one cannot."""

    INTERRUPT = "interrupt"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request to stop, stored with its run; `seen_at` is when the run noticed it."""

    kind: StopKind
    reason: str | None
    at: datetime
    seen_at: datetime | None


class StopAnswer(StrEnum):
    """The result of a request to stop, or to withdraw one."""

    RECORDED = "recorded"
    ALREADY = "already"
    ENDED = "ended"
    WITHDRAWN = "withdrawn"
    SEEN = "seen"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReply:
    """The result of a request, the stop that is requested of the run now, and the run's status as found."""

    answer: StopAnswer
    stop: Stop | None
    status: RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """A run as its runner knows it: the attempt says which runner may write."""

    run_id: str
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One stretch of executing an invocation.

    `ends` are the log ends as the run sees them and `own_logs` the logs it writes on its own branches; `base_version`
    and `base_ends` are the head after its last save, or at its start. A completed run has none of them.
    `commit_number` is the commit that began it; `rolled_back` means that a later turn rolled it back. `additions` are
    the positions, in pairs of first and last by log, of the entries that its program added in the step that is open.
    `budget` is how many steps it may take, fixed when it began.
    """

    run_id: str
    key: SessionKey
    life: int
    number: int
    invocation_id: str
    origin_id: str
    correlation_id: str
    attempt: int
    status: RunStatus
    generation: int | None
    steps: int
    partial: bool
    start_sequence: int
    base_version: int | None
    base_ends: Ends
    ends: Ends
    own_logs: frozenset[str]
    worker: str | None
    error: JSON
    outcome: JSON
    started_at: datetime
    ended_at: datetime | None
    expires_at: datetime | None
    stop: Stop | None = None
    commit_number: int = 0
    rolled_back: bool = False
    additions: Mapping[str, JSON] = field(default_factory=dict)
    budget: int | None = None
