"""What was found of stored states: how many fit, and why the others do not."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import ValidationError

from tenuto.errors import (
    LaneBusy,
    SessionDeleted,
    SessionLoadFailed,
    StoreContended,
    StoredDataCorrupt,
    StoreError,
    TenutoError,
    VersionConflict,
)
from tenuto.model.session import SessionKey

_EXAMPLES = 5
_REASONS = 20

Step = Callable[[], None]
"""Called once per session or run that was processed."""


@dataclass(slots=True)
class Reason:
    """Why some sessions did not pass: the error's category, its text without a session's name, and the first few."""

    category: str
    text: str
    count: int = 0
    examples: list[SessionKey] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """The result for all that is stored under one version. `left` needed nothing: deleted, or migrated by others, after
    it was listed.
    """

    version: str
    passed: int = 0
    left: int = 0
    reasons: dict[tuple[str, str], Reason] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many did not pass."""
        return sum(reason.count for reason in self.reasons.values())

    def fail(self, key: SessionKey, error: TenutoError) -> None:
        """Count one that did not pass; only a limited number of reasons is distinguished."""
        why = (error.category, _text(error, key))
        if why not in self.reasons and len(self.reasons) >= _REASONS:
            why = (error.category, "other reasons")
        reason = self.reasons.setdefault(why, Reason(*why))
        reason.count += 1
        if len(reason.examples) < _EXAMPLES:
            reason.examples.append(key)


def is_outage(error: TenutoError) -> bool:
    """Return whether the store failed, and not this one session; then nothing more is tried."""
    cause = error.__cause__ if isinstance(error, SessionLoadFailed) else error
    return isinstance(cause, StoreError) and not isinstance(cause, StoreContended | StoredDataCorrupt)


def _text(error: TenutoError, key: SessionKey) -> str:
    """Return the reason in words that are the same for all sessions with that fault: no session id, no values."""
    if isinstance(error, LaneBusy):
        return "a runner holds its lane; run the migration again once it is done"
    if isinstance(error, SessionDeleted | StoreContended | VersionConflict):
        return "others kept changing it meanwhile; run the migration again"
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return error.message.replace(str(key), "the session")
    name = error.details().get("field")
    faults = []
    for fault in cause.errors(include_input=False, include_url=False, include_context=False):
        where = [*([name] if name else []), *("[]" if isinstance(part, int) else str(part) for part in fault["loc"])]
        faults.append(f"{'.'.join(where)}: {fault['msg']}")
    return "; ".join(dict.fromkeys(faults))
