"""The table of session statuses and the transitions between them."""

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
"""Which statuses a session may have after an action. A closed session becomes active again by resuming it.

Deleted is final, and no action leads to it: `SessionRuntime.delete` does, which removes everything the session owns.
"""


def check_transition(key: SessionKey, found: SessionStatus, wanted: SessionStatus, version: int) -> None:
    """Refuse a transition that is not in the table with `StatusRefused`."""
    if wanted in TRANSITIONS[found]:
        return
    remedy = " Call `delete` on its handle." if wanted is DELETED else " Resume it first."
    raise StatusRefused(
        f"{key} is {found}; it cannot become {wanted}." + (remedy if found is not DELETED else ""),
        key=key,
        found=found,
        wanted=wanted,
        version=version,
    )
