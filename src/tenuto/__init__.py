"""Tenuto holds an agent's session.

One identity, one typed state, one transcript, across turns, crashes, deploys and workers.
"""

from importlib.metadata import version as _version

from tenuto.errors import TenutoError
from tenuto.messages.message import Message
from tenuto.model.wait import Wait
from tenuto.runtime.calls.wait_for import Approval, WaitFor
from tenuto.runtime.change.hooks import on
from tenuto.runtime.handle import Session
from tenuto.runtime.program.child_result import AskChild
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.tool_function import tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.sessions import Sessions
from tenuto.runtime.stream.notices import Notice
from tenuto.runtime.stream.reader import StreamItem, fold
from tenuto.store.open import open_store
from tenuto.store.store import Store
from tenuto.words import JSON

__version__ = _version("tenuto")

__all__ = [
    "JSON",
    "Approval",
    "AskChild",
    "Definition",
    "Message",
    "Notice",
    "Outcome",
    "Program",
    "RunHandle",
    "Session",
    "SessionRuntime",
    "SessionView",
    "Sessions",
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
    "tool",
]
