"""A graph, or a run of one, cannot continue."""

from typing import Any

from tenuto.errors.base import Bucket, Public, TenutoError, of_cause
from tenuto.errors.turn_errors import AnswerInvalid


class GraphError(TenutoError):
    """A graph is not well made, or a run of one went wrong."""

    category = "graph_error"


class GraphCompileError(GraphError):
    """A graph cannot be compiled; `category` says which rule it breaks."""

    def __init__(self, category: str, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.category = category


class StateMigrationError(GraphError):
    """Stored state cannot be brought to the version the code declares; `category` says whether the way is missing,
    ambiguous, or failed.
    """

    bucket = Bucket.SESSION_TERMINATING

    def __init__(self, category: str, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.category = category


class CheckpointNotFound(GraphError):
    """There is no checkpoint to resume from."""

    category = "checkpoint_not_found"


class CheckpointRecordInvalid(GraphError):
    """A checkpoint does not fit the graph that is to continue from it."""

    category = "checkpoint_record_invalid"


class CheckpointSaveFailed(GraphError):
    """A checkpoint could not be written; the run stops, and resumes from the one before it."""

    category = "checkpoint_save_failed"
    bucket = of_cause(Bucket.RETRYABLE_TRANSIENT)


class InvocationInterrupted(GraphError):
    """`invoke` has no final state to return, since the run was stopped; `outcome` has the state it stopped in."""

    category = "invocation_interrupted"
    outcome: Any


class InvocationSuspended(GraphError):
    """`invoke` has no state to return, since the run is paused; `outcome` says where and for what. `run` returns it."""

    category = "invocation_suspended"
    outcome: Any


class SuspensionPersistenceFailed(GraphError):
    """A pause could not be written, so there is nothing to resume; the run ended without it."""

    category = "suspension_persistence_failed"
    bucket = of_cause(Bucket.USER_CORRECTABLE)


class SuspensionRecordInvalid(GraphError):
    """There is no paused invocation to resume: it never was, is over, was cancelled or resumed, or its time is up."""

    category = "suspension_record_invalid"
    invocation_id: Public[str]


class SuspensionResumePayloadInvalid(GraphError, AnswerInvalid):
    """What was given to a paused invocation does not fit its state; it is still paused."""

    category = "suspension_resume_payload_invalid"
    invocation_id: Public[str]


class GraphRunError(GraphError):
    """A run stopped at a node.

    `recoverable_state` is the state before it, or after it where the node itself was done.
    """

    graph: Public[str | None]
    node_name: Public[str | None]
    recoverable_state: Any

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **dict.fromkeys(("graph", "node_name", "recoverable_state")) | details)


class NodeException(GraphRunError):
    """A node, or a middleware around it, raised; the exception is the cause."""

    category = "node_exception"
    bucket = of_cause(Bucket.USER_CORRECTABLE)


class BranchFailed(NodeException):
    """A branch of a parallel-branches node raised."""

    category = "parallel_branches_branch_failed"
    branch_name: Public[str]


class EdgeException(GraphRunError):
    """A conditional edge raised."""

    category = "edge_exception"
    bucket = of_cause(Bucket.USER_CORRECTABLE)


class ReducerError(GraphRunError):
    """A reducer could not take an update."""

    category = "reducer_error"
    field: Public[str]
    reducer: Public[str]


class RoutingError(GraphRunError):
    """A conditional edge named no node of the graph."""

    category = "routing_error"


class StateValidationError(GraphRunError):
    """A state, or an update to one, does not fit its declared fields."""

    category = "state_validation_error"


class FanOutEmpty(GraphError):
    """A fan-out had no items, and is configured to treat that as an error; the cause of its node's exception."""

    category = "fan_out_empty"


class FanOutInvalidCount(GraphError):
    """A fan-out's count is not a whole number of 0 or more."""

    category = "fan_out_invalid_count"


class FanOutInvalidConcurrency(GraphError):
    """A fan-out's concurrency is not a whole number of 1 or more."""

    category = "fan_out_invalid_concurrency"


class StepLimitReached(GraphRunError):
    """A run executed more nodes than it may; raise the limit if it is not a loop without end."""

    category = "step_limit_reached"
    limit: Public[int]


class SuspensionInUnsupportedContext(GraphRunError):
    """A run cannot be suspended from here."""

    category = "suspension_in_unsupported_context"
