"""Tenuto holds an agent's session.

One identity, one typed state, one transcript, across turns, crashes, deploys and workers.
"""

from tenuto.errors import Bucket, TenutoError
from tenuto.graph.blueprint.builder import END, GraphBuilder
from tenuto.graph.engine.suspend import save_session, suspend
from tenuto.graph.graph_outcome import Outcome
from tenuto.graph.nodes.branches import Branch
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import SessionState, State
from tenuto.model.input import Boundary
from tenuto.model.run import StopKind
from tenuto.runtime.change.hooks import At, HookStack, Stage
from tenuto.runtime.conversation.frame import FrameKind
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tools import Tool, run_calls
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.queue.sender import WhenBusy
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import Session
from tenuto.runtime.stream.reader import StreamFrame, fold
from tenuto.runtime.turn.effect_journal import InDoubt
from tenuto.runtime.turn.invocation_waits import WaitFor
from tenuto.store.open import open_store
from tenuto.store.store import Store

__all__ = [
    "END",
    "At",
    "Boundary",
    "Branch",
    "Bucket",
    "Definition",
    "FrameKind",
    "GraphBuilder",
    "HookStack",
    "InDoubt",
    "Outcome",
    "Session",
    "SessionRuntime",
    "SessionState",
    "SignalDescriptor",
    "Stage",
    "State",
    "StopKind",
    "Store",
    "StreamFrame",
    "TenutoError",
    "Tool",
    "Turn",
    "WaitFor",
    "WhenBusy",
    "fold",
    "open_store",
    "program",
    "run_calls",
    "save_session",
    "suspend",
]
