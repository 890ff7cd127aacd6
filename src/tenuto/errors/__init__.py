"""Every error Tenuto raises, as one tree.

    TenutoError
    ├── InvalidInput                 refused before anything was written
    │   ├── InvalidId
    │   ├── NotJson
    │   ├── StateInvalid
    │   ├── CommitTooLarge
    │   ├── CursorBeyondTail
    │   ├── KeyRepeated
    │   ├── InvalidHistory
    │   ├── MessageRefused
    │   ├── ActionNotRegistered
    │   ├── NotOpen
    │   ├── WrongLoop
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
    │   │   ├── CommitMoved
    │   │   ├── StreamMoved
    │   │   └── SessionMoved
    │   ├── ForkPointNotRetained
    │   ├── ScheduleNotFound
    │   ├── LaneBusy
    │   ├── LaneLost
    │   ├── NestedSession
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
    │   ├── ReplayMismatch
    │   ├── StateConflict
    │   ├── StepBudgetExceeded
    │   ├── WaitExpired
    │   ├── ChildFailed
    │   ├── RunFailed
    │   ├── StreamDropped
    │   ├── StreamRewound
    │   └── AnswerRefused
    │       ├── WaitUnknown
    │       ├── AnswerMismatch
    │       ├── AnswerInvalid
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

from tenuto.errors.base import *
from tenuto.errors.graph_errors import *
from tenuto.errors.input_errors import *
from tenuto.errors.session_errors import *
from tenuto.errors.store_errors import *
from tenuto.errors.turn_errors import *


def __dir__() -> list[str]:
    """Name what is defined here, without what the modules of the tree import themselves."""
    own = {name for name, each in globals().items() if getattr(each, "__module__", "").startswith("tenuto.errors.")}
    return sorted(own)
