"""The outcome of a turn."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import Bucket, RunFailed, bucket_of_record
from tenuto.model.wait import Wait


class OutcomeStatus(StrEnum):
    """The status of an input: queued, running, or how its run ended."""

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
    """The outcome of a turn, the same for every repeat of its message.

    `output` is what the program returned, or the text of its last message; `reply` is that message. `waits` are the
    open waits of a suspended run; `error` is plain data. An input that is still queued, or was refused, has no run.
    `version` is the session's version after the turn, if the turn ran here; it is not compared.
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
        """Whether the turn completed."""
        return self.status is OutcomeStatus.COMPLETED

    @property
    def suspended(self) -> bool:
        """Whether the turn is suspended."""
        return self.status is OutcomeStatus.SUSPENDED

    @property
    def retryable(self) -> bool:
        """Whether the turn failed for a transient reason."""
        return bucket_of_record(self.error) is Bucket.RETRYABLE_TRANSIENT

    def result(self) -> JSON:
        """Return the output of a completed turn; raise `RunFailed` for any other."""
        if self.status in (OutcomeStatus.COMPLETED, OutcomeStatus.EXECUTED):
            return self.output
        error: Any = self.error or {}
        what = f"input {self.input_id}" if self.run_id is None else f"run {self.run_id}"
        raise RunFailed(
            f"The {what} of session {self.session_id!r} is {self.status}"
            + (f": {error.get('message')}" if error else "")
            + (f"; it waits for {', '.join(w.signal_id or w.kind for w in self.waits)}" if self.waits else "")
            + ".",
            run_id=self.run_id,
            status=str(self.status),
            error=self.error,
        )
