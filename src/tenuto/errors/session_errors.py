"""What was asked does not fit what the session is now."""

from collections.abc import Sequence
from typing import Any

from tenuto.errors.base import Bucket, Public, TenutoError, of_cause


class SessionError(TenutoError):
    """What was asked does not fit what the session is now."""


class SessionNotFound(SessionError):
    """There is no live session under this id."""

    category = "session_not_found"


class SessionExists(SessionError):
    """A live session already has this id."""

    category = "session_exists"
    found_version: Public[int]


class SessionDeleted(SessionError):
    """The session was deleted after the caller loaded it; the caller's copy belongs to a former life."""

    category = "session_deleted"
    bucket = Bucket.SESSION_TERMINATING
    expected_life: int
    found_life: int


class StatusRefused(SessionError):
    """The session's status does not allow this."""

    category = "session_status_invalid"
    found: Public[str]


class InvocationExists(SessionError):
    """The invocation id was used before in this tenant."""

    category = "invocation_exists"


class OperationConflict(SessionError):
    """The operation id was used before for something else."""

    category = "operation_conflict"
    operation_id: Public[str]


class VersionConflict(SessionError):
    """The session moved on since the caller read it."""

    category = "session_write_conflict"
    bucket = Bucket.RETRYABLE_TRANSIENT
    expected: Public[int | None]
    found: Public[int | None]


class CommitMoved(VersionConflict):
    """The session is at another commit than the caller expects; `expected` and `found` count commits."""


class StreamMoved(VersionConflict):
    """The session's stream is at another event than the caller expects; `expected` and `found` count events."""


class SessionMoved(VersionConflict):
    """Other turns changed the session while an invocation of it was paused; nothing ran, and it is still paused.

    Resume it with `on_moved="rebase"` or `on_moved="overwrite"`, or cancel it.
    """

    bucket = Bucket.USER_CORRECTABLE


class ForkPointNotRetained(SessionError):
    """Nothing is kept of the session as it was at this commit; `nearest` lists points that are."""

    category = "fork_point_not_retained"
    nearest: Public[Sequence[int]]


class ScheduleNotFound(SessionError):
    """The session has no schedule of this name."""

    category = "schedule_not_found"
    name: Public[str]


class LaneBusy(SessionError):
    """Another runner holds the session's lane."""

    category = "session_execution_busy"
    bucket = Bucket.RETRYABLE_TRANSIENT
    owner: str
    generation: int
    expires_at: Public[Any]
    holder: Any


class NestedSession(SessionError):
    """A run on a session was started within a run on the same session, which it would wait for without end."""

    category = "nested_session"


class LaneLost(SessionError):
    """Another runner took the lane over; nothing was written."""

    category = "session_execution_lease_lost"
    bucket = Bucket.RETRYABLE_TRANSIENT
    expected: int
    found: int


class SessionLoadFailed(SessionError):
    """The session could not be loaded, or what is stored does not fit its declared state; the graph did not run."""

    category = "session_load_failed"
    bucket = of_cause(Bucket.SESSION_TERMINATING)


class SessionSaveFailed(SessionError):
    """The session could not be saved; what the run did stands.

    After a finished run `final_state` is its state. If it is retryable, only the save is to be repeated, by
    `operation_id`: give this error to the graph's `save_again`.
    """

    category = "session_save_failed"
    bucket = of_cause(Bucket.RETRYABLE_TRANSIENT)
    operation_id: str
    final_state: Any


class ProgramNotRegistered(SessionError):
    """The session's program is not registered here; the session can be read, but not run."""

    category = "program_not_registered"
    program: Public[str | None]
    registered: Sequence[str]


class CommitRefused(SessionError):
    """A commit names something that is not there, or not as it expects."""

    category = "store_commit_failed"


class RunNotLive(CommitRefused):
    """The run a commit belongs to is not running with this attempt."""

    run_id: Public[str]
    found: Public[str]


class StopRequested(CommitRefused):
    """The run was asked to stop, so it ends neither as completed nor as suspended; `stop` is the request."""

    run_id: Public[str]
    stop: Any


class StopWithdrawn(CommitRefused):
    """A commit acts on a stop that was withdrawn before the run had seen it."""


class ClaimLost(CommitRefused):
    """An input is unknown, belongs elsewhere, or has been settled."""

    input_id: Public[str]
    found: Public[str]


class EffectMismatch(CommitRefused):
    """An effect was started before with another request; both digests are given."""

    category = "effect_mismatch"
    place: Public[Any]
    found: str
    given: str
    path: Public[str]


class EffectNotOpen(CommitRefused):
    """An effect is done already, was not started, or was started by another runner."""

    place: Public[Any]
    found: Public[str]


class DeliveryLost(CommitRefused):
    """An outgoing item is not where its deliverer thinks it is."""

    outbox_id: Public[str]
    found: Public[str]


class WaitNotOpen(CommitRefused):
    """A wait is unknown, belongs elsewhere, or is settled."""

    wait_id: Public[str]
    found: Public[str]
