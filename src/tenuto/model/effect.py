"""Effects: journaled calls to the outside, done once or in doubt."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from tenuto.codec import JSON
from tenuto.model.session import SessionKey


class EffectKind(StrEnum):
    """What is called."""

    MODEL = "model"
    TOOL = "tool"
    OTHER = "other"


class EffectStatus(StrEnum):
    """Whether a call's result is known: started is not; done and failed returned; settled was decided afterwards."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEffect:
    """A call that the commit's run is about to make, or has made if the same commit finishes it.

    It is identified by its run's origin and by `namespace`, `step` and `key`. `making` is higher by one if the call is
    made again after it failed, or after a runner was lost.
    """

    key: str
    kind: EffectKind
    request: JSON
    step: int = 0
    namespace: str = ""
    idempotent: bool = False
    call_id: str | None = None
    making: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEffect:
    """What a call that the commit's run has started returned: a result, or an error."""

    key: str
    step: int = 0
    namespace: str = ""
    result: JSON = None
    error: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleEffect:
    """The decision about a call in doubt, of any run; if the commit has no run, `origin_id` names the call's origin."""

    key: str
    step: int = 0
    namespace: str = ""
    origin_id: str | None = None
    result: JSON = None
    error: JSON = None


EffectChange: TypeAlias = StartEffect | FinishEffect | SettleEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One effect as stored; `effect_key` is the program's key for it.

    Request and result are dropped when the origin completes: `has_request` and `has_result` say whether they are still
    stored. `digest` stays. `making` is the number of its last making.
    """

    key: SessionKey
    life: int
    origin_id: str
    namespace: str
    step: int
    effect_key: str
    kind: EffectKind
    digest: str
    request: JSON
    has_request: bool
    result: JSON
    has_result: bool
    status: EffectStatus
    idempotent: bool
    error: JSON
    call_id: str | None
    run_id: str
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    making: int = 1
