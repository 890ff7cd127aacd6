"""What observers get to see."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenuto.graph.cause import CauseLink
from tenuto.graph.scope import Scope


class Phase(StrEnum):
    """The phases of a node's attempt."""

    STARTED = "started"
    COMPLETED = "completed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """What a fan-out node was about to do."""

    item_count: int
    concurrency: int | None
    error_policy: str
    parent_node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBranchesConfig:
    """What a parallel-branches node was about to do."""

    branch_names: tuple[str, ...]
    branch_count: int
    error_policy: str
    parent_node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """One attempt of a node begins, or ends: each has exactly one `started` and one terminal event.

    `step` counts node executions over the whole invocation; attempts share it. A completed event has `post_state` or
    `error`.
    """

    phase: Phase
    node_name: str
    namespace: tuple[str, ...]
    step: int
    pre_state: Any
    post_state: Any = None
    error: BaseException | None = None
    parent_states: tuple[Any, ...] = ()
    attempt_index: int = 0
    fan_out_index: int | None = None
    branch_name: str | None = None
    fan_out_index_chain: tuple[int | None, ...] = ()
    branch_name_chain: tuple[str | None, ...] = ()
    fan_out_config: FanOutConfig | None = None
    parallel_branches_config: ParallelBranchesConfig | None = None
    scope: Scope

    def ended(self, post_state: Any = None, error: BaseException | None = None) -> "NodeEvent":
        """Return the completed event of a started one."""
        return replace(self, phase=Phase.COMPLETED, post_state=None if error else post_state, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtException:
    """An exception that failure isolation took in."""

    chain: tuple[CauseLink, ...]
    category: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureIsolatedEvent:
    """A failure was isolated; the node went on with `post_state`, the degraded update."""

    event_name: str
    namespace: tuple[str, ...]
    attempt_index: int
    fan_out_index: int | None
    branch_name: str | None
    pre_state: Any
    post_state: Any
    caught_exception: CaughtException
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataEvent:
    """A node added to the invocation's metadata."""

    values: dict[str, Any]
    namespace: tuple[str, ...]
    attempt_index: int
    fan_out_index: int | None
    branch_name: str | None
    scope: Scope
