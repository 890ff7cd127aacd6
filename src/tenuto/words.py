"""The words that verbs take and values show: closed sets, so that a type checker finds a misspelt one."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from typing_extensions import TypeAliasType

if TYPE_CHECKING:
    JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
else:  # mypy cannot read the form that Pydantic needs of a recursive type
    JSON = TypeAliasType("JSON", bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None)
"""A JSON value."""

Seconds: TypeAlias = float | timedelta
"""A length of time: seconds, or a `timedelta`."""

AnswerEffect: TypeAlias = Literal["here", "worker", "waiting"]
Boundary: TypeAlias = Literal["after_step", "before_completion"]
Cancelled: TypeAlias = Literal["cancelled", "consumed", "already_cancelled", "refused", "unknown"]
EffectKind: TypeAlias = Literal["model", "tool", "other"]
FrameKind: TypeAlias = Literal["start", "compaction", "handoff"]
InDoubt: TypeAlias = Literal["ask", "retry", "fail"]
ItemType: TypeAlias = Literal["chunk", "event", "end", "fail", "truncated", "rewound", "elided", "caught_up"]
MissedOccurrences: TypeAlias = Literal["latest", "all", "none"]
OutcomeStatus: TypeAlias = Literal[
    "queued", "running", "completed", "failed", "interrupted", "suspended", "cancelled", "rolled_back", "executed"
]
RetryFailed: TypeAlias = Literal["retryable", "never"]
RunStatus: TypeAlias = Literal["running", "completed", "failed", "interrupted", "suspended"]
SessionStatus: TypeAlias = Literal["active", "suspended", "completed", "failed", "deleted"]
Stage: TypeAlias = Literal["before_create", "after_create", "after_load", "after_action", "before_save", "after_save"]
StopAnswer: TypeAlias = Literal["recorded", "already", "ended", "withdrawn", "seen", "none"]
StopKind: TypeAlias = Literal["interrupt", "abort"]
WaitKind: TypeAlias = Literal["signal", "approval", "tool_result", "in_doubt", "child", "time"]
WhenBusy: TypeAlias = Literal["reject", "queue", "interrupt", "rollback"]
WhenWaiting: TypeAlias = Literal["hold", "skip", "abandon"]

Concurrency: TypeAlias = Literal["exclusive", "optimistic", "last_write_wins"]
"""What happens to runs on one session at the same time: each waits for the others, every save but the first is refused,
or the last save wins.
"""

ErrorPolicy: TypeAlias = Literal["fail_fast", "collect"]
"""What a node that runs several things does when one fails: cancel the others and fail, or let them finish and collect
the errors.
"""

GraphStatus: TypeAlias = Literal["completed", "suspended", "failed", "interrupted"]
"""How a run of a graph ended."""

OnEmpty: TypeAlias = Literal["raise", "noop"]
"""What a fan-out without items does."""

OnMoved: TypeAlias = Literal["overwrite", "rebase"]
"""How a run is resumed on a session that others changed: write its own state over theirs, or add what it had added to
theirs.
"""
