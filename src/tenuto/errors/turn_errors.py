"""A turn of the runtime, or an answer to one, cannot continue."""

from typing import Any

from tenuto.errors.base import Bucket, Public, TenutoError, of_cause


class TurnError(TenutoError):
    """A turn of the runtime went wrong, or an answer to one."""

    category = "turn_error"


class EffectFailed(TurnError):
    """A call to the outside failed; `error` is what is recorded of it, the same at every replay."""

    category = "effect_failed"
    bucket = of_cause(Bucket.USER_CORRECTABLE)
    error: Any


class EffectInDoubt(TurnError):
    """It is unknown whether a call was carried out; settle it by hand, or declare it idempotent."""

    category = "effect_in_doubt"
    place: Public[Any]


class EffectResultDropped(TurnError):
    """A call was carried out, but its result has been dropped; it is not called again."""

    category = "effect_result_dropped"
    place: Public[Any]


class ReplayMismatch(TurnError):
    """A program that runs a step again adds something else than before; nothing of it is pending."""

    category = "replay_mismatch"
    log: Public[str]
    entry: Public[int]


class StateConflict(TurnError):
    """A change of the state was made from what another task has changed since; it was not applied."""

    category = "state_conflict"
    path: Public[str]


class StepBudgetExceeded(TurnError):
    """A turn took all the steps it may take; the next turn has a new budget."""

    category = "step_budget_exceeded"
    limit: Public[int]


class WaitExpired(TurnError):
    """What a run waited for did not come in time."""

    category = "wait_expired"
    wait_id: Public[str]


class ChildFailed(TurnError):
    """A child that a program asked ended without a result; `session_id` is the child's, `error` what is recorded."""

    category = "child_failed"
    bucket = of_cause(Bucket.USER_CORRECTABLE)
    session_id: Public[str]
    error: Any


class RunFailed(TurnError):
    """A run ended without the result that was asked for; `status` and `error` say how."""

    category = "run_failed"
    bucket = of_cause(Bucket.USER_CORRECTABLE)
    run_id: Public[str | None]
    status: Public[str]
    error: Any


class StreamDropped(TurnError):
    """A run's stream stopped before its end; read on from `cursor`."""

    category = "stream_dropped"
    bucket = Bucket.RETRYABLE_TRANSIENT
    cursor: Public[int]


class StreamRewound(TurnError):
    """A takeover took back a part of a reply that was shown already (`shown`); show it again from the start."""

    category = "stream_rewound"
    bucket = Bucket.RETRYABLE_TRANSIENT
    shown: str


class AnswerRefused(TurnError):
    """An answer does not fit what is waited for; nothing was stored."""

    category = "answer_refused"
    wait_id: Public[str]


class WaitUnknown(AnswerRefused):
    """There is no such wait here."""

    category = "wait_unknown"


class AnswerMismatch(AnswerRefused):
    """The answer's kind, run or session is not the wait's; `expected` and `given` say which."""

    category = "answer_mismatch"
    expected: str
    given: str


class AnswerInvalid(AnswerRefused):
    """An answer is not what its wait takes; `problems` say where, and what was expected. Nothing changes."""

    category = "answer_invalid"
    problems: Public[Any]


class AlreadyAnswered(AnswerRefused):
    """The wait was answered before; that answer stands."""

    category = "already_answered"


class LateAnswer(AnswerRefused):
    """The wait is over: it timed out, was abandoned, or its run has ended."""

    category = "late_answer"
    found: Public[str]
