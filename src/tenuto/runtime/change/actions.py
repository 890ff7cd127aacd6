"""Actions: what can be done to a session, each one small class with one method. Write your own the same way.

An action that changes the session has `apply`: it gets the session's value and returns the one to be saved, in one
commit. One that does something else has `perform`: it needs no lane, and works on a session that is busy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tenuto.argument import check_items, check_kind, check_map
from tenuto.codec import JSON
from tenuto.model.run import StopKind
from tenuto.model.session import SessionStatus
from tenuto.runtime.session.definition import Task, check_tasks
from tenuto.runtime.session.session_view import Session

if TYPE_CHECKING:
    from tenuto.runtime.change.fork import Forked
    from tenuto.runtime.handle import SessionHandle
    from tenuto.runtime.runtime import SessionRuntime


@runtime_checkable
class Action(Protocol):
    """Changes a session: `apply` gets its value and returns the one to be saved, or raises."""

    async def apply(self, session: Session) -> Session:
        """Return the session as it is to be."""
        ...


@runtime_checkable
class Deed(Protocol):
    """Does something about a session without changing it under its lane."""

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> Any:
        """Do it, and return what came of it."""
        ...


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Say something to the session: a turn of its program. A text is a message of the user."""

    message: str | Mapping[str, Any]
    key: str | None = None

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> Any:
        """See `Deed.perform`."""
        return await runtime.send(session.key, self.message, key=self.key)


@dataclass(frozen=True, slots=True)
class SuspendSession:
    """Take no messages for now."""

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.SUSPENDED)


@dataclass(frozen=True, slots=True)
class ResumeSession:
    """Take messages again, after the session was suspended, completed or failed."""

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.ACTIVE).with_profile(failure_reason=None)


@dataclass(frozen=True, slots=True)
class CompleteSession:
    """Close the session; it can be resumed."""

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.COMPLETED)


@dataclass(frozen=True, slots=True)
class FailSession:
    """Close the session as failed, and say why; it can be resumed."""

    reason: str = ""

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.FAILED).with_profile(failure_reason=self.reason or None)


@dataclass(frozen=True, slots=True)
class ClearSession:
    """Begin the conversation anew: every log begins a new branch; identity, definition and metadata stay."""

    logs: tuple[str, ...] | None = None

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        for name in session.logs if self.logs is None else check_items(self.logs, "logs"):
            session = session.replaced(check_kind(name, str, "a name in logs"))
        return session


@dataclass(frozen=True, slots=True)
class RewindSession:
    """Go back to how the session was before a run, or at a checkpoint's commit; what came after stays readable."""

    to: str | int

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> Session:
        """See `Deed.perform`."""
        return await runtime.rewind(session.key, self.to)


@dataclass(frozen=True, slots=True)
class ForkSession:
    """Begin another session with this one's state, now, as it was after a run, or at a checkpoint's commit.

    With a message, the fork's first turn is begun with it, and its `outcome` is returned with the fork. Repeated under
    its key, it is the same fork.
    """

    at: str | int | None = None
    session_id: str | None = None
    message: str | Mapping[str, Any] | None = None
    key: str | None = None

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> "Forked":
        """See `Deed.perform`."""
        return await runtime.fork(session.key, at=self.at, target=self.session_id, message=self.message, key=self.key)


@dataclass(frozen=True, slots=True)
class ChangeSystemPrompt:
    """Tell the program something else about itself, from the next turn on."""

    prompt: str | None

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_definition(system_prompt=self.prompt)


@dataclass(frozen=True, slots=True)
class ChangeModel:
    """Call another model, from the next call on."""

    model: JSON

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_definition(model=self.model)


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Note something about the session, which is not part of its state."""

    values: Mapping[str, JSON] = field(default_factory=dict)

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        for name in check_map(self.values, "values"):
            check_kind(name, str, "a name in values")
        return session.with_metadata(**self.values)


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Replace the session's task list: at most 20, one of them in progress."""

    tasks: tuple[Task, ...]

    def __init__(self, tasks: Iterable[Task | Mapping[str, Any]]) -> None:
        found = tuple(Task.given(task) for task in check_items(tasks, "tasks"))
        check_tasks(found)
        object.__setattr__(self, "tasks", found)

    async def apply(self, session: Session) -> Session:
        """See `Action.apply`."""
        return session.with_definition(tasks=self.tasks)


@dataclass(frozen=True, slots=True)
class StopRun:
    """Ask the session's run to stop: `interrupt`, so that it can be gone on with, or `abort`."""

    kind: StopKind = StopKind.INTERRUPT
    reason: str | None = None
    run_id: str | None = None

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> Any:
        """See `Deed.perform`."""
        return await runtime.stop(session.key, kind=self.kind, reason=self.reason, run_id=self.run_id)


@dataclass(frozen=True, slots=True)
class DeleteSession:
    """End the session for good; with `cascade`, its children too."""

    cascade: bool = False

    async def perform(self, session: "SessionHandle", runtime: "SessionRuntime") -> Any:
        """See `Deed.perform`."""
        return await runtime.delete(session.key, cascade=self.cascade)


COMMANDS: tuple[type[Any], ...] = (
    SuspendSession,
    ResumeSession,
    CompleteSession,
    FailSession,
    ClearSession,
    ChangeSystemPrompt,
    ChangeModel,
    WriteMetadata,
    UpdateTask,
)
"""The actions that can wait in an inbox, besides a user's own that a runtime was given."""
