"""How a turn went, for whoever asked for it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import Bucket, RunFailed, bucket_of_record
from tenuto.model.wait import Wait


class OutcomeStatus(StrEnum):
    """Where an input stands: waiting, being worked on, or how its run ended."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    EXECUTED = "executed"


FINAL = frozenset(OutcomeStatus) - {OutcomeStatus.QUEUED, OutcomeStatus.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a turn went, the same for every repeat of its message.

    `output` is what the program returned, or the text of its last message; `reply` is that message. `waits` are what a
    suspended run still waits for; `error` is plain data. An input that no run has taken yet has no run, nor has one
    that failed because it was refused.
    `version` is what the turn left, where it was run here; it is no part of what is the same.
    """

    session_id: str
    status: OutcomeStatus
    run_id: str | None = None
    input_id: str | None = None
    output: JSON = None
    reply: Any = None
    error: Any = None
    waits: tuple[Wait, ...] = ()
    version: int | None = field(default=None, compare=False)

    @property
    def completed(self) -> bool:
        """Whether the turn came to its end."""
        return self.status is OutcomeStatus.COMPLETED

    @property
    def suspended(self) -> bool:
        """Whether the turn waits for something."""
        return self.status is OutcomeStatus.SUSPENDED

    @property
    def retryable(self) -> bool:
        """Whether the turn failed for a reason that passes."""
        return bucket_of_record(self.error) is Bucket.RETRYABLE_TRANSIENT

    def result(self) -> JSON:
        """Return the output of a completed turn; any other is `RunFailed`."""
        if self.status in (OutcomeStatus.COMPLETED, OutcomeStatus.EXECUTED):
            return self.output
        told: Any = self.error or {}
        what = f"input {self.input_id}" if self.run_id is None else f"run {self.run_id}"
        raise RunFailed(
            f"The {what} of session {self.session_id!r} is {self.status}"
            + (f": {told.get('message')}" if told else "")
            + (f"; it waits for {', '.join(w.signal_id or w.kind for w in self.waits)}" if self.waits else "")
            + ".",
            run_id=self.run_id,
            status=str(self.status),
            error=self.error,
        )
