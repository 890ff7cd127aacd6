"""Types for annotations: the words that verbs take, and what they return."""

from tenuto.model.effect import Effect
from tenuto.model.lane import LaneTiming
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopReply
from tenuto.model.schedule import Schedule
from tenuto.model.session import Page, SessionHead, SessionSummary
from tenuto.model.token_usage import UsageReport, UsageTotals
from tenuto.runtime.change.hooks import Hook, HookFunction
from tenuto.runtime.handle import Forked
from tenuto.runtime.operator import Operator
from tenuto.runtime.program.child_result import ChildResult
from tenuto.runtime.program.turn_state import Document
from tenuto.runtime.session.info import RunView
from tenuto.runtime.stream.notices import Listener
from tenuto.runtime.tree.answer import Answered
from tenuto.store.open import Opening
from tenuto.words import (
    AnswerEffect,
    Boundary,
    Cancelled,
    EffectKind,
    FrameKind,
    InDoubt,
    ItemType,
    MissedOccurrences,
    OutcomeStatus,
    RetryFailed,
    RunStatus,
    Seconds,
    SessionStatus,
    Stage,
    StopAnswer,
    StopKind,
    WaitKind,
    WhenBusy,
    WhenWaiting,
)

__all__ = [
    "AnswerEffect",
    "Answered",
    "Boundary",
    "Cancelled",
    "ChildResult",
    "DeleteReport",
    "Document",
    "Effect",
    "EffectKind",
    "Forked",
    "FrameKind",
    "Hook",
    "HookFunction",
    "InDoubt",
    "ItemType",
    "LaneTiming",
    "Listener",
    "MissedOccurrences",
    "Opening",
    "Operator",
    "OutcomeStatus",
    "Page",
    "RetryFailed",
    "RunStatus",
    "RunView",
    "Schedule",
    "Seconds",
    "SessionHead",
    "SessionStatus",
    "SessionSummary",
    "Stage",
    "StopAnswer",
    "StopKind",
    "StopReply",
    "UsageReport",
    "UsageTotals",
    "WaitKind",
    "WhenBusy",
    "WhenWaiting",
]
