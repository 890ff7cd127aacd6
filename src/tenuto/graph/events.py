"""What observers get to see."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

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


class NodeEvent(NamedTuple):
    """One attempt of a node begins, or ends: each has exactly one `started` and one terminal event.

    `step` counts node executions over the whole invocation; attempts share it. A completed event has `post_state` or
    `error`. A named tuple, because two are made for every node.
    """

    phase: Phase
    node_name: str
    namespace: tuple[str, ...]
    step: int
    pre_state: Any
    post_state: Any
    error: BaseException | None
    parent_states: tuple[Any, ...]
    attempt_index: int
    fan_out_index: int | None
    branch_name: str | None
    fan_out_index_chain: tuple[int | None, ...]
    branch_name_chain: tuple[str | None, ...]
    fan_out_config: FanOutConfig | None
    parallel_branches_config: ParallelBranchesConfig | None
    scope: Scope

    def ended(self, post_state: Any = None, error: BaseException | None = None) -> "NodeEvent":
        """Return the completed event of a started one."""
        return self._replace(phase=Phase.COMPLETED, post_state=None if error else post_state, error=error)


def started(
    scope: Scope, step: int, state: Any, parent_states: tuple[Any, ...], described: dict[str, Any] | None = None
) -> NodeEvent:
    """Return the event with which an attempt at the scope's node begins."""
    index_chain, branch_chain = scope.fan_out_index_chain, scope.branch_name_chain
    return NodeEvent(
        Phase.STARTED,
        scope.namespace[-1],
        scope.namespace,
        step,
        state,
        None,
        None,
        parent_states,
        scope.attempt_index,
        scope.fan_out_index if index_chain else None,
        scope.branch_name if branch_chain else None,
        index_chain,
        branch_chain,
        described.get("fan_out_config") if described else None,
        described.get("parallel_branches_config") if described else None,
        scope,
    )


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
