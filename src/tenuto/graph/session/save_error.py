"""What a session that cannot be run on, saved, or resumed on, is to the caller."""

from typing import Any

from tenuto.errors import (
    InvalidHistory,
    InvocationExists,
    LaneLost,
    MessageRefused,
    RunNotLive,
    SessionDeleted,
    SessionMoved,
    SessionSaveFailed,
    StatusRefused,
    TenutoError,
    VersionConflict,
)
from tenuto.model.session import SessionKey, SessionStatus


def check_active(key: SessionKey, status: SessionStatus) -> None:
    """Refuse a run on a session that was suspended or closed; it is as the runtime refuses a turn."""
    if status is not SessionStatus.ACTIVE:
        raise StatusRefused(
            f"{key} is {status}, so no graph runs on it and nothing was saved; execute ResumeSession() on it first, "
            "with a runtime.",
            key=key,
            found=status,
        )


def save_error(error: TenutoError, key: SessionKey, operation_id: str, state: Any, repeat: Any) -> TenutoError:
    """Return the error of a failed save, with the final state; a conflict keeps its type."""
    if isinstance(error, LaneLost | RunNotLive | InvalidHistory | MessageRefused):
        return error  # another runner resumes it, or no repeat can succeed
    if isinstance(error, VersionConflict | SessionDeleted | InvocationExists):  # repeating will not help
        return type(error)(error.message, **error.details(), final_state=state, operation_id=operation_id)
    then = "repeat only the save, with save_again." if error.retryable else "repeating the save would not help."
    return SessionSaveFailed(
        f"{key} could not be saved: {error.message} The run itself is done; {then}",
        key=key,
        **path_of(error),
        operation_id=operation_id,
        final_state=state,
        repeat=repeat,
    )


def path_of(error: TenutoError) -> dict[str, str]:
    """Return the path of a value that could not be kept, for the error that reports it."""
    path = error.details().get("path")
    return {} if path is None else {"path": path}


def session_moved(key: SessionKey, expected: int | None, found: int | None) -> SessionMoved:
    """Return the error of a resume on a session that others changed."""
    return SessionMoved(
        f"{key} was changed by other turns since this invocation stopped (version {expected}, now {found}); "
        "nothing ran. Resume with on_moved='rebase' or on_moved='overwrite', or cancel it.",
        key=key,
        expected=expected,
        found=found,
    )
