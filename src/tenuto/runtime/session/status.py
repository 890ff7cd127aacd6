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
    ACTIVE: frozenset({ACTIVE, SUSPENDED, COMPLETED, FAILED}),
    SUSPENDED: frozenset({SUSPENDED, ACTIVE}),
    COMPLETED: frozenset({COMPLETED, ACTIVE}),
    FAILED: frozenset({FAILED, ACTIVE}),
    DELETED: frozenset(),
}
"""Which statuses a session may have after an action. What is closed is opened again by resuming it; deleted is final.

No action makes a session deleted: deleting it ends everything it has, and is a verb of its own.
"""


def check_transition(key: SessionKey, found: SessionStatus, wanted: SessionStatus, version: int) -> None:
    """Refuse a move the table does not have."""
    if wanted in TRANSITIONS[found]:
        return
    remedy = " Delete it with the verb for that." if wanted is DELETED else " Resume it first."
    raise StatusRefused(
        f"{key} is {found}; it cannot become {wanted}." + (remedy if found is not DELETED else ""),
        key=key,
        found=found,
        wanted=wanted,
        version=version,
    )
