"""Tenuto holds an agent's session.

One identity, one typed state, one transcript, across turns, crashes, deploys and workers.
"""

from tenuto.errors import Bucket, TenutoError
from tenuto.graph.branches import Branch
from tenuto.graph.builder import END, GraphBuilder
from tenuto.graph.outcome import Outcome
from tenuto.graph.state import State
from tenuto.graph.suspending import SignalDescriptor, save_session, suspend
from tenuto.model.commit import (
    Append,
    BeginRun,
    Budget,
    Commit,
    EndRun,
    Held,
    NewCheckpoint,
    OpenWait,
    Receipt,
    Reset,
    SettleWait,
    TakeRun,
)
from tenuto.model.event import NewEvent
from tenuto.model.inbox import Boundary
from tenuto.model.lane import Owner, Rearm
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import (
    Kind,
    Profile,
    SessionFilter,
    SessionKey,
    SessionRecord,
    SessionStatus,
)
from tenuto.session.arrivals import WhenBusy
from tenuto.session.definition import Definition
from tenuto.session.effects import InDoubt
from tenuto.session.frames import FrameKind
from tenuto.session.hooks import At, HookStack, Stage
from tenuto.session.live import LiveTurn
from tenuto.session.program import program
from tenuto.session.runtime import SessionRuntime
from tenuto.session.state import SessionState
from tenuto.session.streams import StreamFrame, fold
from tenuto.session.tools import Tool, run_calls
from tenuto.session.value import Session
from tenuto.session.waiting import WaitFor
from tenuto.store.opening import open_store
from tenuto.store.port import Store

__all__ = [
    "END",
    "Append",
    "At",
    "BeginRun",
    "Boundary",
    "Branch",
    "Bucket",
    "Budget",
    "Commit",
    "Definition",
    "EndRun",
    "FrameKind",
    "GraphBuilder",
    "Held",
    "HookStack",
    "InDoubt",
    "Kind",
    "LiveTurn",
    "NewCheckpoint",
    "NewEvent",
    "OpenWait",
    "Outcome",
    "Owner",
    "Profile",
    "Rearm",
    "Receipt",
    "Reset",
    "RunRef",
    "RunStatus",
    "Session",
    "SessionFilter",
    "SessionKey",
    "SessionRecord",
    "SessionRuntime",
    "SessionState",
    "SessionStatus",
    "SettleWait",
    "SignalDescriptor",
    "Stage",
    "State",
    "StopKind",
    "Store",
    "StreamFrame",
    "TakeRun",
    "TenutoError",
    "Tool",
    "WaitFor",
    "WhenBusy",
    "fold",
    "open_store",
    "program",
    "run_calls",
    "save_session",
    "suspend",
]
