"""Runs: one stretch each of executing an invocation, and the stops asked of them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenuto.codec import JSON
from tenuto.model.session import Ends, SessionKey


class RunStatus(StrEnum):
    """How a run goes, or went."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"


class StopKind(StrEnum):
    """How a run is to stop: so that it can be gone on with, or for good."""

    INTERRUPT = "interrupt"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request to stop, on the run it is meant for; `seen_at` is when the run took notice."""

    kind: StopKind
    reason: str | None
    at: datetime
    seen_at: datetime | None


class StopAnswer(StrEnum):
    """What became of a request to stop, or to withdraw one."""

    RECORDED = "recorded"
    ALREADY = "already"
    ENDED = "ended"
    WITHDRAWN = "withdrawn"
    SEEN = "seen"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReply:
    """The answer, the stop that stands on the run now, and the run's status as found."""

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

    `ends` are the logs as the run sees them and `own_logs` those it writes on its own branches; `base_version` and
    `base_ends` are what its last save, or its start, left. An ended run that completed has none of them.
    `commit_number` is the commit that began it; `rolled_back` says that a later turn took it back.
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
