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
    │   │   ├── CommitMoved
    │   │   ├── StreamMoved
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

from tenuto.errors.base import Bucket as Bucket
from tenuto.errors.base import TenutoError as TenutoError
from tenuto.errors.base import bucket_of as bucket_of
from tenuto.errors.base import bucket_of_record as bucket_of_record
from tenuto.errors.base import cause_of as cause_of
from tenuto.errors.graph_errors import BranchFailed as BranchFailed
from tenuto.errors.graph_errors import CheckpointNotFound as CheckpointNotFound
from tenuto.errors.graph_errors import CheckpointRecordInvalid as CheckpointRecordInvalid
from tenuto.errors.graph_errors import CheckpointSaveFailed as CheckpointSaveFailed
from tenuto.errors.graph_errors import EdgeException as EdgeException
from tenuto.errors.graph_errors import FanOutEmpty as FanOutEmpty
from tenuto.errors.graph_errors import FanOutInvalidConcurrency as FanOutInvalidConcurrency
from tenuto.errors.graph_errors import FanOutInvalidCount as FanOutInvalidCount
from tenuto.errors.graph_errors import GraphCompileError as GraphCompileError
from tenuto.errors.graph_errors import GraphError as GraphError
from tenuto.errors.graph_errors import GraphRunError as GraphRunError
from tenuto.errors.graph_errors import InvocationInterrupted as InvocationInterrupted
from tenuto.errors.graph_errors import InvocationSuspended as InvocationSuspended
from tenuto.errors.graph_errors import NodeException as NodeException
from tenuto.errors.graph_errors import ReducerError as ReducerError
from tenuto.errors.graph_errors import RoutingError as RoutingError
from tenuto.errors.graph_errors import StateMigrationError as StateMigrationError
from tenuto.errors.graph_errors import StateValidationError as StateValidationError
from tenuto.errors.graph_errors import StepLimitReached as StepLimitReached
from tenuto.errors.graph_errors import SuspensionInUnsupportedContext as SuspensionInUnsupportedContext
from tenuto.errors.graph_errors import SuspensionPersistenceFailed as SuspensionPersistenceFailed
from tenuto.errors.graph_errors import SuspensionRecordInvalid as SuspensionRecordInvalid
from tenuto.errors.graph_errors import SuspensionResumePayloadInvalid as SuspensionResumePayloadInvalid
from tenuto.errors.input_errors import ActionNotRegistered as ActionNotRegistered
from tenuto.errors.input_errors import CommitTooLarge as CommitTooLarge
from tenuto.errors.input_errors import CursorBeyondTail as CursorBeyondTail
from tenuto.errors.input_errors import EffectCalledTwice as EffectCalledTwice
from tenuto.errors.input_errors import InvalidHistory as InvalidHistory
from tenuto.errors.input_errors import InvalidId as InvalidId
from tenuto.errors.input_errors import InvalidInput as InvalidInput
from tenuto.errors.input_errors import MessageRefused as MessageRefused
from tenuto.errors.input_errors import NotJson as NotJson
from tenuto.errors.input_errors import StoreMisused as StoreMisused
from tenuto.errors.input_errors import Unsupported as Unsupported
from tenuto.errors.session_errors import ClaimLost as ClaimLost
from tenuto.errors.session_errors import CommitMoved as CommitMoved
from tenuto.errors.session_errors import CommitRefused as CommitRefused
from tenuto.errors.session_errors import DeliveryLost as DeliveryLost
from tenuto.errors.session_errors import EffectMismatch as EffectMismatch
from tenuto.errors.session_errors import EffectNotOpen as EffectNotOpen
from tenuto.errors.session_errors import ForkPointNotRetained as ForkPointNotRetained
from tenuto.errors.session_errors import InvocationExists as InvocationExists
from tenuto.errors.session_errors import LaneBusy as LaneBusy
from tenuto.errors.session_errors import LaneLost as LaneLost
from tenuto.errors.session_errors import OperationConflict as OperationConflict
from tenuto.errors.session_errors import ProgramNotRegistered as ProgramNotRegistered
from tenuto.errors.session_errors import RunNotLive as RunNotLive
from tenuto.errors.session_errors import SessionDeleted as SessionDeleted
from tenuto.errors.session_errors import SessionError as SessionError
from tenuto.errors.session_errors import SessionExists as SessionExists
from tenuto.errors.session_errors import SessionLoadFailed as SessionLoadFailed
from tenuto.errors.session_errors import SessionMoved as SessionMoved
from tenuto.errors.session_errors import SessionNotFound as SessionNotFound
from tenuto.errors.session_errors import SessionSaveFailed as SessionSaveFailed
from tenuto.errors.session_errors import StatusRefused as StatusRefused
from tenuto.errors.session_errors import StopRequested as StopRequested
from tenuto.errors.session_errors import StopWithdrawn as StopWithdrawn
from tenuto.errors.session_errors import StreamMoved as StreamMoved
from tenuto.errors.session_errors import VersionConflict as VersionConflict
from tenuto.errors.session_errors import WaitNotOpen as WaitNotOpen
from tenuto.errors.store_errors import SchemaMismatch as SchemaMismatch
from tenuto.errors.store_errors import StoreClosed as StoreClosed
from tenuto.errors.store_errors import StoreContended as StoreContended
from tenuto.errors.store_errors import StoredDataCorrupt as StoredDataCorrupt
from tenuto.errors.store_errors import StoreError as StoreError
from tenuto.errors.store_errors import StoreFull as StoreFull
from tenuto.errors.store_errors import StoreUnavailable as StoreUnavailable
from tenuto.errors.store_errors import StoreUnusable as StoreUnusable
from tenuto.errors.store_errors import UpkeepFailed as UpkeepFailed
from tenuto.errors.store_errors import UsageOutOfRange as UsageOutOfRange
from tenuto.errors.turn_errors import AlreadyAnswered as AlreadyAnswered
from tenuto.errors.turn_errors import AnswerMismatch as AnswerMismatch
from tenuto.errors.turn_errors import AnswerRefused as AnswerRefused
from tenuto.errors.turn_errors import EffectFailed as EffectFailed
from tenuto.errors.turn_errors import EffectInDoubt as EffectInDoubt
from tenuto.errors.turn_errors import EffectResultDropped as EffectResultDropped
from tenuto.errors.turn_errors import LateAnswer as LateAnswer
from tenuto.errors.turn_errors import RunFailed as RunFailed
from tenuto.errors.turn_errors import StepBudgetExceeded as StepBudgetExceeded
from tenuto.errors.turn_errors import StreamDropped as StreamDropped
from tenuto.errors.turn_errors import TurnError as TurnError
from tenuto.errors.turn_errors import WaitExpired as WaitExpired
from tenuto.errors.turn_errors import WaitUnknown as WaitUnknown

for _kind in tuple(vars().values()):
    if isinstance(_kind, type) and _kind.__module__.startswith(f"{__name__}."):
        _kind.__module__ = __name__  # where everybody finds it, also in a traceback
