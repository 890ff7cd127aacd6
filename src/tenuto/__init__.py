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
from tenuto.model.lane import Owner, Rearm
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import (
    Kind,
    Profile,
    SessionFilter,
    SessionKey,
    SessionRecord,
    SessionStatus,
)
from tenuto.session.program import program
from tenuto.session.state import SessionState
from tenuto.store.opening import open_store
from tenuto.store.port import Store

__all__ = [
    "END",
    "Append",
    "BeginRun",
    "Branch",
    "Bucket",
    "Budget",
    "Commit",
    "EndRun",
    "GraphBuilder",
    "Held",
    "Kind",
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
    "SessionFilter",
    "SessionKey",
    "SessionRecord",
    "SessionState",
    "SessionStatus",
    "SettleWait",
    "SignalDescriptor",
    "State",
    "Store",
    "TakeRun",
    "TenutoError",
    "open_store",
    "program",
    "save_session",
    "suspend",
]
