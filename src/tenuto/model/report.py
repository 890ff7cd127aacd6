"""What maintenance did, in counts; zeros mean that there was nothing to do."""

from dataclasses import dataclass

from tenuto.model.session import SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport:
    """What a delete removed, and which children and forks it left in place."""

    sessions: int = 0
    runs: int = 0
    checkpoints: int = 0
    waits: int = 0
    receipts: int = 0
    inputs: int = 0
    effects: int = 0
    usage: int = 0
    outgoing: int = 0
    schedules: int = 0
    events: int = 0
    entries: int = 0
    branches: int = 0
    contents: int = 0
    children: tuple[SessionKey, ...] = ()
    forks: tuple[SessionKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a collection removed, including `sessions` that interrupted cascading deletes had left.

    `waiting` counts branches and contents still within their grace period. `damaged` says, by session, what could not
    be read: nothing of that family was removed.
    """

    sessions: int = 0
    families: int = 0
    entries: int = 0
    branches: int = 0
    contents: int = 0
    events: int = 0
    waiting: int = 0
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What a prune removed by age or count; `damaged` says, by session, what was kept because it is unreadable."""

    receipts: int = 0
    events: int = 0
    chunks: int = 0
    runs: int = 0
    checkpoints: int = 0
    waits: int = 0
    effects: int = 0
    inputs: int = 0
    outgoing: int = 0
    rows: int = 0
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryReport:
    """Which sessions were deleted because they had expired, and which stay because a runner holds them.

    `damaged` names sessions of which a part could not be read; such a session may be in `deleted` too, with its entries
    kept.
    """

    deleted: tuple[SessionKey, ...] = ()
    held: tuple[SessionKey, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """How many pages were returned to the file system, and how many free pages are left."""

    pages_freed: int = 0
    pages_left: int = 0
