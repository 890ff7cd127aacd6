"""What can be done to a session, as values: pass them to `execute`, or queue them with `enqueue`."""

from tenuto.runtime.change.action import (
    ChangeModel,
    ChangeProgram,
    ChangeSystemPrompt,
    ClearSession,
    CompleteSession,
    DeleteSession,
    FailSession,
    ForkSession,
    ResumeSession,
    RewindSession,
    SendMessage,
    StopRun,
    SuspendSession,
    UpdateTask,
    WriteMetadata,
)
from tenuto.runtime.session.action_protocol import Action
from tenuto.runtime.session.definition import Task

__all__ = [
    "Action",
    "ChangeModel",
    "ChangeProgram",
    "ChangeSystemPrompt",
    "ClearSession",
    "CompleteSession",
    "DeleteSession",
    "FailSession",
    "ForkSession",
    "ResumeSession",
    "RewindSession",
    "SendMessage",
    "StopRun",
    "SuspendSession",
    "Task",
    "UpdateTask",
    "WriteMetadata",
]
