"""Tenuto holds an agent's session.

One identity, one typed state, one transcript, across turns, crashes, deploys and workers.
"""

from importlib.metadata import version as _version

from tenuto.codec import JSON
from tenuto.errors import TenutoError
from tenuto.graph.blueprint.builder import END, GraphBuilder
from tenuto.graph.engine.suspend import save_session, suspend
from tenuto.graph.graph_outcome import Outcome as GraphOutcome
from tenuto.graph.nodes.branches import Branch
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import SessionState, State
from tenuto.messages import Message
from tenuto.model.wait import Wait
from tenuto.runtime.change.hooks import on
from tenuto.runtime.handle import Session
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.tools import Tool, run_tools
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.sessions import Sessions
from tenuto.runtime.stream.notices import Notice
from tenuto.runtime.stream.reader import StreamItem, fold
from tenuto.runtime.turn.invocation_waits import WaitFor
from tenuto.store.open import open_store
from tenuto.store.store import Store

__version__ = _version("tenuto")

__all__ = [
    "END",
    "JSON",
    "Branch",
    "Definition",
    "GraphBuilder",
    "GraphOutcome",
    "Message",
    "Notice",
    "Outcome",
    "Program",
    "RunHandle",
    "Session",
    "SessionRuntime",
    "SessionState",
    "SessionView",
    "Sessions",
    "SignalDescriptor",
    "State",
    "Store",
    "StreamItem",
    "TenutoError",
    "Tool",
    "Turn",
    "Wait",
    "WaitFor",
    "fold",
    "on",
    "open_store",
    "program",
    "run_tools",
    "save_session",
    "suspend",
]
