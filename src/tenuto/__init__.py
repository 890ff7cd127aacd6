"""Tenuto holds an agent's session.

One identity, one typed state, one transcript, across turns, crashes, deploys and workers.
"""

from tenuto.errors import Bucket, TenutoError
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
    "At",
    "Boundary",
    "Bucket",
    "Definition",
    "FrameKind",
    "HookStack",
    "InDoubt",
    "Session",
    "SessionRuntime",
    "Stage",
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
]
