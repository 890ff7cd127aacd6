"""The events that observers get."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tenuto.graph.engine.cause import CauseLink
from tenuto.graph.engine.scope import Scope
from tenuto.graph.signal import SignalDescriptor


class Phase(StrEnum):
    """The phases of a node's attempt."""

    STARTED = "started"
    COMPLETED = "completed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """What a fan-out node is about to do."""

    item_count: int
    concurrency: int | None
    error_policy: str
    parent_node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBranchesConfig:
    """What a parallel-branches node is about to do."""

    branch_names: tuple[str, ...]
    branch_count: int
    error_policy: str
    parent_node_name: str


class NodeEvent(NamedTuple):
    """One attempt of a node begins, or ends: each has exactly one `started` and one terminal event.

    `step` counts node executions over the whole invocation; attempts share it. A completed event has `post_state` or
    `error`, a suspended one the `descriptor`. `update` is what the node gave, after its middleware; None if it gave
    nothing. A named tuple, because two are made for every node.
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
    descriptor: SignalDescriptor | None = None
    update: Mapping[str, Any] | None = None

    def ended(
        self, post_state: Any = None, error: BaseException | None = None, update: Mapping[str, Any] | None = None
    ) -> "NodeEvent":
        """Return the completed event of a started one."""
        after, gave = (None, None) if error else (post_state, update)
        return self._replace(phase=Phase.COMPLETED, post_state=after, error=error, update=gave)

    def suspended(self, descriptor: SignalDescriptor) -> "NodeEvent":
        """Return the suspended event of a started one."""
        return self._replace(phase=Phase.SUSPENDED, descriptor=descriptor)


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
    """An exception that failure isolation caught."""

    chain: tuple[CauseLink, ...]
    category: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureIsolatedEvent:
    """A failure was isolated; the node returned `post_state`, the degraded update."""

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


class Ending(StrEnum):
    """How an invocation, or a graph inside a node, ended."""

    COMPLETED = "completed"
    SUSPENDED = "suspended"
    INTERRUPTED = "interrupted"
    ERRORED = "errored"
    CANCELLED = "cancelled"


def ending_of(error: BaseException | None) -> Ending:
    """Return how something ended, given what it raised; a signal of the engine has an `ending` itself."""
    if error is None:
        return Ending.COMPLETED
    if isinstance(error, Exception):
        return Ending.ERRORED
    return Ending(getattr(error, "ending", Ending.CANCELLED))


class InvocationEvent(NamedTuple):
    """An invocation begins, or ends; only inline observers get it.

    `phase` is `started`, or how it ended. `resumed_from` is the trace context of the invocation that this one resumes,
    as its observer gave it.
    """

    phase: str
    graph: Any
    scope: Scope
    error: BaseException | None = None
    resumed_from: str | None = None

    def returned(self, outcome: Any) -> "InvocationEvent":
        """Return the event with which the invocation ends, given its outcome."""
        failed = outcome.status == "failed"
        return self._replace(phase=Ending.ERRORED.value if failed else outcome.status, error=outcome.error)

    def raised(self, error: BaseException) -> "InvocationEvent":
        """Return the event with which the invocation ends, given what it raised instead of returning an outcome."""
        return self._replace(phase=ending_of(error).value, error=error)


class FrameEvent(NamedTuple):
    """A graph inside a node begins, or ends: a subgraph, an instance, a branch; only inline observers get it.

    Every attempt has its own frame. `fan_out_index` and `branch_name` are set if it is an instance or a branch.
    """

    phase: str
    frame: Any
    scope: Scope
    node_name: str
    fan_out_index: int | None
    branch_name: str | None
    error: BaseException | None = None

    @classmethod
    def of(cls, frame: Any) -> "FrameEvent":
        """Return the event with which a frame begins."""
        scope: Scope = frame.scope
        index, branch = scope.fan_out_index_chain[-1], scope.branch_name_chain[-1]
        return cls(Phase.STARTED.value, frame, scope, scope.namespace[-1], index, branch)

    def returned(self, _state: Any) -> "FrameEvent":
        """Return the event with which the frame ends when its graph reaches END."""
        return self._replace(phase=Ending.COMPLETED.value)

    def raised(self, error: BaseException) -> "FrameEvent":
        """Return the event with which the frame ends, given what it raised."""
        return self._replace(phase=ending_of(error).value, error=error)
