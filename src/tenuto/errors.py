"""Every error Tenuto raises, as one tree.

    TenutoError
    ├── InvalidInput                 refused before anything was written
    │   ├── InvalidId
    │   ├── NotJson
    │   ├── CommitTooLarge
    │   ├── CursorBeyondTail
    │   ├── EffectCalledTwice
    │   ├── InvalidHistory
    │   ├── MessageRefused
    │   ├── ActionNotRegistered
    │   ├── StoreMisused
    │   └── Unsupported
    ├── SessionError                 what was asked does not fit what the session is now
    │   ├── SessionNotFound
    │   ├── SessionExists
    │   ├── SessionDeleted
    │   ├── StatusRefused
    │   ├── InvocationExists
    │   ├── OperationConflict
    │   ├── VersionConflict
    │   │   └── SessionMoved
    │   ├── ForkPointNotRetained
    │   ├── LaneBusy
    │   ├── LaneLost
    │   ├── SessionLoadFailed
    │   ├── SessionSaveFailed
    │   ├── ProgramNotRegistered
    │   └── CommitRefused
    │       ├── RunNotLive
    │       ├── StopRequested
    │       ├── StopWithdrawn
    │       ├── ClaimLost
    │       ├── EffectMismatch
    │       ├── EffectNotOpen
    │       ├── DeliveryLost
    │       └── WaitNotOpen
    ├── TurnError                    a turn of the runtime, or an answer to one
    │   ├── EffectFailed
    │   ├── EffectInDoubt
    │   ├── EffectResultDropped
    │   ├── StepBudgetExceeded
    │   ├── WaitExpired
    │   ├── RunFailed
    │   ├── StreamDropped
    │   └── AnswerRefused
    │       ├── WaitUnknown
    │       ├── AnswerMismatch
    │       ├── AlreadyAnswered
    │       └── LateAnswer
    ├── GraphError                   a graph, or a run of one
    │   ├── GraphCompileError
    │   ├── StateMigrationError
    │   ├── CheckpointNotFound
    │   ├── CheckpointRecordInvalid
    │   ├── CheckpointSaveFailed
    │   ├── FanOutEmpty
    │   ├── FanOutInvalidCount
    │   ├── FanOutInvalidConcurrency
    │   ├── InvocationInterrupted
    │   ├── InvocationSuspended
    │   ├── SuspensionPersistenceFailed
    │   ├── SuspensionRecordInvalid
    │   ├── SuspensionResumePayloadInvalid
    │   └── GraphRunError
    │       ├── NodeException
    │       │   └── BranchFailed
    │       ├── EdgeException
    │       ├── ReducerError
    │       ├── RoutingError
    │       ├── StateValidationError
    │       ├── StepLimitReached
    │       └── SuspensionInUnsupportedContext
    └── StoreError                   the store itself cannot do its work
        ├── StoreUnavailable
        │   ├── StoreClosed
        │   └── StoreFull
        ├── StoreContended
        ├── StoreUnusable
        ├── SchemaMismatch
        ├── StoredDataCorrupt
        ├── UsageOutOfRange
        └── UpkeepFailed

`category` is the stable word for programs, `bucket` says who can do something about it, and `retryable` whether the
same call may simply be made again. An error that only says where another one passed has the bucket of its cause
(`bucket_of`). The data behind an error are attributes, listed by `details()`; what of them a class declares as `public`
is all that a run's record keeps and a door passes on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from inspect import getattr_static
from typing import Any, ClassVar


class Bucket(StrEnum):
    """Who can do something about an error."""

    SESSION_TERMINATING = "session_terminating"
    RETRYABLE_TRANSIENT = "retryable_transient"
    USER_CORRECTABLE = "user_correctable"


class _OfCause:
    """The bucket of an error that passes another one on: its cause's, or `default` if that says nothing."""

    def __init__(self, default: Bucket) -> None:
        self.default = default

    def __get__(self, error: "TenutoError | None", kind: type | None = None) -> Bucket:
        return self.default if error is None else bucket_of(error)


def _of_cause(default: Bucket) -> Any:
    return _OfCause(default)


class TenutoError(Exception):
    """The root of all errors raised by Tenuto."""

    category: str = "tenuto_error"
    bucket: ClassVar[Bucket] = Bucket.USER_CORRECTABLE
    public: ClassVar[frozenset[str]] = frozenset()
    """Which details anybody may see who gets to see the error; unless a class says so, none."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self._details = details
        for name, value in details.items():
            setattr(self, name, value)

    @property
    def retryable(self) -> bool:
        """Whether the same call may be made again unchanged, or after a reload where the message says so."""
        return self.bucket is Bucket.RETRYABLE_TRANSIENT

    def details(self) -> dict[str, Any]:
        """Return the data behind the error, by name, for code and operators: not all of it is for everybody."""
        return dict(self._details)

    def public_details(self) -> dict[str, Any]:
        """Return what of the data a run's record keeps, and a door may pass on."""
        return {name: value for name, value in self._details.items() if name in self.public}


class InvalidInput(TenutoError):
    """What was given is not acceptable; nothing was written."""

    category = "invalid_input"


class InvalidId(InvalidInput):
    """An id breaks the id rules."""

    category = "invalid_session_id"


class NotJson(InvalidInput):
    """A value cannot be kept as JSON text; `path` names the offender."""

    category = "value_not_json"
    public = frozenset({"path"})
    path: str


class CommitTooLarge(InvalidInput):
    """A commit is over its byte or row budget."""

    category = "commit_budget_exceeded"
    public = frozenset({"measure", "size", "budget"})
    measure: str
    size: int
    budget: int


class CursorBeyondTail(InvalidInput):
    """An event cursor is ahead of the session's stream, so it belongs to another session or store."""

    category = "cursor_beyond_tail"
    public = frozenset({"cursor", "tail"})
    cursor: int
    tail: int


class EffectCalledTwice(InvalidInput):
    """A program called an effect of one key twice in one step; `place` says which."""

    category = "effect_called_twice"
    public = frozenset({"place"})
    place: list[Any]


class InvalidHistory(InvalidInput):
    """A message does not fit the history it is added to: a call without a result, or a result without a call."""

    category = "history_invalid"
    public = frozenset({"call_id"})
    call_id: str | None


class MessageRefused(InvalidInput):
    """The session's program, or a controller, does not take this message; it began no turn."""

    category = "message_refused"


class ActionNotRegistered(InvalidInput):
    """A queued action's class is not registered here, or not in that form; it waits for a process that has it."""

    category = "action_not_registered"
    public = frozenset({"action"})
    action: str


class StoreMisused(InvalidInput):
    """A store was used outside the event loop or process that opened it; nothing was done."""

    category = "store_misused"


class Unsupported(InvalidInput):
    """The backend has no such verb."""

    category = "store_verb_unsupported"


class SessionError(TenutoError):
    """What was asked does not fit what the session is now."""


class SessionNotFound(SessionError):
    """There is no live session under this id."""

    category = "session_not_found"


class SessionExists(SessionError):
    """A live session already has this id."""

    category = "session_exists"
    public = frozenset({"found_version"})
    found_version: int


class SessionDeleted(SessionError):
    """The session was deleted after the caller loaded it; the caller's copy belongs to a former life."""

    category = "session_deleted"
    bucket = Bucket.SESSION_TERMINATING
    expected_life: int
    found_life: int


class StatusRefused(SessionError):
    """The session's status does not allow this."""

    category = "session_status_invalid"
    public = frozenset({"found"})
    found: str


class InvocationExists(SessionError):
    """The invocation id was used before in this tenant."""

    category = "invocation_exists"


class OperationConflict(SessionError):
    """The operation id was used before for something else."""

    category = "operation_conflict"
    public = frozenset({"operation_id"})
    operation_id: str


class VersionConflict(SessionError):
    """The session moved on since the caller read it."""

    category = "session_write_conflict"
    bucket = Bucket.RETRYABLE_TRANSIENT
    public = frozenset({"expected", "found"})
    expected: int | None
    found: int | None


class SessionMoved(VersionConflict):
    """Other turns changed the session while an invocation of it was paused; nothing ran, and it is still paused.

    Resume it with `on_moved="rebase"` or `on_moved="overwrite"`, or cancel it.
    """

    bucket = Bucket.USER_CORRECTABLE


class ForkPointNotRetained(SessionError):
    """Nothing is kept of the session as it was at this commit; `nearest` lists points that are."""

    category = "fork_point_not_retained"
    public = frozenset({"nearest"})
    nearest: Sequence[int]


class LaneBusy(SessionError):
    """Another runner holds the session's lane."""

    category = "session_execution_busy"
    bucket = Bucket.RETRYABLE_TRANSIENT
    public = frozenset({"expires_at"})
    owner: str
    generation: int
    expires_at: Any


class LaneLost(SessionError):
    """Another runner took the lane over; nothing was written."""

    category = "session_execution_lease_lost"
    bucket = Bucket.RETRYABLE_TRANSIENT
    expected: int
    found: int


class SessionLoadFailed(SessionError):
    """The session could not be loaded, or what is stored does not fit its declared state; the graph did not run."""

    category = "session_load_failed"
    bucket = _of_cause(Bucket.SESSION_TERMINATING)


class SessionSaveFailed(SessionError):
    """The session could not be saved; what the run did stands.

    After a finished run `final_state` is its state. If it is retryable, only the save is to be repeated, by
    `operation_id`: give this error to the graph's `save_again`.
    """

    category = "session_save_failed"
    bucket = _of_cause(Bucket.RETRYABLE_TRANSIENT)
    operation_id: str
    final_state: Any


class ProgramNotRegistered(SessionError):
    """The session's program is not registered here; the session can be read, but not run."""

    category = "program_not_registered"
    public = frozenset({"program"})
    program: str | None
    registered: Sequence[str]


class CommitRefused(SessionError):
    """A commit names something that is not there, or not as it expects."""

    category = "store_commit_failed"


class RunNotLive(CommitRefused):
    """The run a commit belongs to is not running with this attempt."""

    public = frozenset({"run_id", "found"})
    run_id: str
    found: str


class StopRequested(CommitRefused):
    """The run was asked to stop, so it ends neither as completed nor as suspended; `stop` is the request."""

    public = frozenset({"run_id"})
    run_id: str
    stop: Any


class StopWithdrawn(CommitRefused):
    """A commit acts on a stop that was withdrawn before the run had seen it."""


class ClaimLost(CommitRefused):
    """An input is unknown, belongs elsewhere, or is not open any more."""

    public = frozenset({"input_id", "found"})
    input_id: str
    found: str


class EffectMismatch(CommitRefused):
    """An effect was started before with another request; both digests are given."""

    category = "effect_mismatch"
    public = frozenset({"place", "path"})
    place: Any
    found: str
    given: str
    path: str


class EffectNotOpen(CommitRefused):
    """An effect is done already, was not started, or was started by another runner."""

    public = frozenset({"place", "found"})
    place: Any
    found: str


class DeliveryLost(CommitRefused):
    """An outgoing item is not where its deliverer thinks it is."""

    public = frozenset({"outbox_id", "found"})
    outbox_id: str
    found: str


class WaitNotOpen(CommitRefused):
    """A wait is unknown, belongs elsewhere, or is settled."""

    public = frozenset({"wait_id", "found"})
    wait_id: str
    found: str


class TurnError(TenutoError):
    """A turn of the runtime went wrong, or an answer to one."""

    category = "turn_error"


class EffectFailed(TurnError):
    """A call to the outside failed; `error` is what is recorded of it, the same at every replay."""

    category = "effect_failed"
    bucket = _of_cause(Bucket.USER_CORRECTABLE)
    error: Any


class EffectInDoubt(TurnError):
    """Nobody knows whether a call was carried out; settle it by hand, or declare it idempotent."""

    category = "effect_in_doubt"
    public = frozenset({"place"})
    place: Any


class EffectResultDropped(TurnError):
    """A call was carried out, but its result is kept no longer; it is not called again."""

    category = "effect_result_dropped"
    public = frozenset({"place"})
    place: Any


class StepBudgetExceeded(TurnError):
    """A turn took all the steps it may take; the next turn has a new budget."""

    category = "step_budget_exceeded"
    public = frozenset({"limit"})
    limit: int


class WaitExpired(TurnError):
    """What a run waited for did not come in time."""

    category = "wait_expired"
    public = frozenset({"wait_id"})
    wait_id: str


class RunFailed(TurnError):
    """A run ended without the result that was asked for; `status` and `error` say how."""

    category = "run_failed"
    bucket = _of_cause(Bucket.USER_CORRECTABLE)
    public = frozenset({"run_id", "status"})
    run_id: str | None
    status: str
    error: Any


class StreamDropped(TurnError):
    """A run's stream stopped before its end; read on from `cursor`."""

    category = "stream_dropped"
    bucket = Bucket.RETRYABLE_TRANSIENT
    public = frozenset({"cursor"})
    cursor: int


class AnswerRefused(TurnError):
    """An answer does not fit what is waited for; nothing was stored."""

    category = "answer_refused"
    public = frozenset({"wait_id"})
    wait_id: str


class WaitUnknown(AnswerRefused):
    """There is no such wait here."""

    category = "wait_unknown"


class AnswerMismatch(AnswerRefused):
    """The answer is of another kind, or for another run or session, than the wait; `expected` and `given` say which."""

    category = "answer_mismatch"
    expected: str
    given: str


class AlreadyAnswered(AnswerRefused):
    """The wait was answered before; that answer stands."""

    category = "already_answered"


class LateAnswer(AnswerRefused):
    """The wait is over: it timed out, was given up, or its run has ended."""

    category = "late_answer"
    public = frozenset({"wait_id", "found"})
    found: str


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
    """A checkpoint does not fit the graph that is to go on from it."""

    category = "checkpoint_record_invalid"


class CheckpointSaveFailed(GraphError):
    """A checkpoint could not be written; the run stops, and goes on from the one before when it is resumed."""

    category = "checkpoint_save_failed"
    bucket = _of_cause(Bucket.RETRYABLE_TRANSIENT)


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
    bucket = _of_cause(Bucket.USER_CORRECTABLE)


class SuspensionRecordInvalid(GraphError):
    """There is no paused invocation to resume: it never was, is over, was cancelled or resumed, or its time is up."""

    category = "suspension_record_invalid"
    public = frozenset({"invocation_id"})
    invocation_id: str


class SuspensionResumePayloadInvalid(GraphError):
    """What was given to a paused invocation does not fit its state; it is still paused."""

    category = "suspension_resume_payload_invalid"
    public = frozenset({"invocation_id"})
    invocation_id: str


class GraphRunError(GraphError):
    """A run stopped at a node.

    `recoverable_state` is the state before it, or after it where the node itself was done.
    """

    public = frozenset({"graph", "node_name"})
    graph: str | None
    node_name: str | None
    recoverable_state: Any

    def __init__(
        self,
        message: str,
        *,
        graph: str | None = None,
        node_name: str | None = None,
        recoverable_state: Any = None,
        **details: Any,
    ) -> None:
        super().__init__(message, graph=graph, node_name=node_name, recoverable_state=recoverable_state, **details)


class NodeException(GraphRunError):
    """A node, or a middleware around it, raised; the exception is the cause."""

    category = "node_exception"
    bucket = _of_cause(Bucket.USER_CORRECTABLE)


class BranchFailed(NodeException):
    """A branch of a parallel-branches node raised."""

    category = "parallel_branches_branch_failed"
    public = frozenset({"graph", "node_name", "branch_name"})
    branch_name: str


class EdgeException(GraphRunError):
    """A conditional edge raised."""

    category = "edge_exception"
    bucket = _of_cause(Bucket.USER_CORRECTABLE)


class ReducerError(GraphRunError):
    """A reducer could not take an update."""

    category = "reducer_error"
    public = frozenset({"graph", "node_name", "field", "reducer"})
    field: str
    reducer: str


class RoutingError(GraphRunError):
    """A conditional edge named no node of the graph."""

    category = "routing_error"


class StateValidationError(GraphRunError):
    """A state, or an update to one, does not fit its declared fields."""

    category = "state_validation_error"


class FanOutEmpty(GraphError):
    """A fan-out had no items, and was told that this is an error; the cause of its node's exception."""

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
    public = frozenset({"graph", "node_name", "limit"})
    limit: int


class SuspensionInUnsupportedContext(GraphRunError):
    """A run cannot be suspended from here."""

    category = "suspension_in_unsupported_context"


class StoreError(TenutoError):
    """The store cannot do its work."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now; what was in flight is resolved by repeating its operation id."""

    category = "store_unavailable"
    bucket = Bucket.RETRYABLE_TRANSIENT


class StoreClosed(StoreUnavailable):
    """The store was closed."""

    bucket = Bucket.USER_CORRECTABLE


class StoreFull(StoreUnavailable):
    """There is no room left on the database's disk; nothing of the commit was written."""

    category = "store_full"


class StoreContended(StoreError):
    """Others kept the database busy for too long; repeat the call unchanged."""

    category = "store_contended"
    bucket = Bucket.RETRYABLE_TRANSIENT


class StoreUnusable(StoreError):
    """The address does not lead to a database this store can use."""

    category = "store_unusable"


class SchemaMismatch(StoreError):
    """The database's tables and the code are of different versions."""

    category = "store_schema_mismatch"
    public = frozenset({"found", "expected"})
    found: int
    expected: int


class StoredDataCorrupt(StoreError):
    """Something stored cannot be read as what it should be."""

    category = "stored_data_corrupt"
    bucket = Bucket.SESSION_TERMINATING


class UsageOutOfRange(StoreError):
    """A sum of usage is beyond what can be counted exactly."""

    category = "usage_out_of_range"


class UpkeepFailed(StoreError):
    """An upkeep verb stopped part-way; `report` counts what it had done by then."""

    category = "upkeep_failed"
    bucket = _of_cause(Bucket.RETRYABLE_TRANSIENT)
    report: Any


_PROVIDERS = {
    "provider_unavailable": Bucket.RETRYABLE_TRANSIENT,
    "provider_rate_limit": Bucket.RETRYABLE_TRANSIENT,
    "provider_model_not_loaded": Bucket.RETRYABLE_TRANSIENT,
    "provider_invalid_request": Bucket.USER_CORRECTABLE,
    "provider_authentication": Bucket.USER_CORRECTABLE,
}


def bucket_of(error: BaseException) -> Bucket:
    """Return who can do something about an error, whoever raised it.

    The first link of its cause chain that says so decides: by its mark `transient`, by its own bucket unless it only
    passes another error on, or by its category. If none does, it is the bucket that the outermost carrier has by
    default, and of an error that is not ours, the user's to correct.
    """
    default: Bucket | None = None
    for each in _chain(error):
        mark = _told(each, "transient")
        if isinstance(mark, bool):
            return Bucket.RETRYABLE_TRANSIENT if mark else Bucket.USER_CORRECTABLE
        if isinstance(each, TenutoError):
            rule: Any = getattr_static(type(each), "bucket")
            if not isinstance(rule, _OfCause):
                return Bucket(rule)
            default = default or rule.default
            found = bucket_of_record(_told(each, "error"))
        else:
            found = _categories().get(str(_told(each, "category")))
        if found is not None:
            return found
    return default or Bucket.USER_CORRECTABLE


def bucket_of_record(record: Any) -> Bucket | None:
    """Return the bucket of an error that was stored as plain data; None where its categories say nothing."""
    if not isinstance(record, Mapping):
        return None
    if isinstance(mark := record.get("transient"), bool):
        return Bucket.RETRYABLE_TRANSIENT if mark else Bucket.USER_CORRECTABLE
    told = (_categories().get(str(record.get(name))) for name in ("cause", "category"))
    return next((bucket for bucket in told if bucket is not None), None)


def cause_of(error: BaseException) -> str | None:
    """Return the category of what an error that only passes another one on was caused by, if that has one."""
    for each in _chain(error):
        if not isinstance(each, TenutoError) or not isinstance(getattr_static(type(each), "bucket"), _OfCause):
            category = _told(each, "category")
            if isinstance(category, str) and category:
                return None if each is error else category
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _told(error: BaseException, name: str) -> Any:
    """Return what an exception says of itself; one of the user's own may raise when it is asked."""
    with suppress(Exception):
        return getattr(error, name, None)
    return None


@cache
def _categories() -> dict[str, Bucket]:
    """Return the bucket of every category; of two errors with one word, the more general one's."""
    table = dict(_PROVIDERS)
    kinds: list[type[TenutoError]] = [TenutoError]
    for kind in kinds:
        table.setdefault(kind.category, kind.bucket)
        kinds += kind.__subclasses__()
    return table
