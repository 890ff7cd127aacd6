"""The one table of session statuses: what is allowed from where."""

from tenuto.errors import StatusRefused
from tenuto.model.session import SessionKey, SessionStatus

ACTIVE, SUSPENDED, COMPLETED, FAILED, DELETED = (
    SessionStatus.ACTIVE,
    SessionStatus.SUSPENDED,
    SessionStatus.COMPLETED,
    SessionStatus.FAILED,
    SessionStatus.DELETED,
)

TRANSITIONS: dict[SessionStatus, frozenset[SessionStatus]] = {
    ACTIVE: frozenset({ACTIVE, SUSPENDED, COMPLETED, FAILED, DELETED}),
    SUSPENDED: frozenset({ACTIVE, DELETED}),
    COMPLETED: frozenset({ACTIVE, DELETED}),
    FAILED: frozenset({ACTIVE, DELETED}),
    DELETED: frozenset(),
}
"""Which statuses a session may move to. Whatever is closed is opened again by resuming it; deleted is final."""


def check_transition(key: SessionKey, found: SessionStatus, wanted: SessionStatus, version: int) -> None:
    """Refuse a move the table does not have; keeping the status is always allowed, except for what is deleted."""
    if wanted in TRANSITIONS[found] or (wanted is found and found is not DELETED):
        return
    raise StatusRefused(
        f"{key} is {found}; it cannot become {wanted}."
        + (" Resume it first." if found not in (ACTIVE, DELETED) else ""),
        key=key,
        found=found,
        wanted=wanted,
        version=version,
    )
