"""Actions on a session, each a small class with one method. Write your own the same way.

An action that changes the session has `apply`: it receives the session's value and returns the one to save, in one
commit. Those that send, stop, fork, rewind or delete are the runtime's verbs of that name as values.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, overload

from tenuto.argument import check_flag, check_items, check_kind, check_map, refuse
from tenuto.codec import JSON, dumps, loads
from tenuto.errors import ActionNotRegistered, InvalidInput
from tenuto.ids import check_id
from tenuto.messages.message import Sendable
from tenuto.model.input import InputKind
from tenuto.model.session import SessionStatus
from tenuto.quote import quote
from tenuto.runtime.conversation.history import as_message, message_input
from tenuto.runtime.program.program_name import Named, full_name
from tenuto.runtime.session.action_protocol import Action, Verb
from tenuto.runtime.session.definition import Task, check_tasks
from tenuto.runtime.session.session_view import SessionView
from tenuto.store.bounds import check_key, check_name
from tenuto.words import StopKind

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class SendMessage(Verb):
    """Send the session a message, which begins a turn of its program. A text is a user message."""

    message: Sendable
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SuspendSession:
    """Suspend the session: it takes no messages until it is resumed."""

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.SUSPENDED)


@dataclass(frozen=True, slots=True)
class ResumeSession:
    """Resume the session: it takes messages again after it was suspended, completed or failed."""

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.ACTIVE).with_profile(failure_reason=None)


@dataclass(frozen=True, slots=True)
class CompleteSession:
    """Close the session; it can be resumed."""

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.COMPLETED)


@dataclass(frozen=True, slots=True)
class FailSession:
    """Close the session as failed, with a reason; it can be resumed."""

    reason: str = ""

    def __post_init__(self) -> None:
        check_kind(self.reason, str, "reason")

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_status(SessionStatus.FAILED).with_profile(failure_reason=self.reason or None)


@dataclass(frozen=True, slots=True)
class ClearSession:
    """Empty the session's logs, on new branches, and reset its document if its program declares a state.

    Identity, definition, metadata and usage stay, and so do the logs and fields that `keep` names. With `logs`, only
    these are emptied, and the document stays.
    """

    logs: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _names(self.keep, "keep"))
        if self.logs is None:
            return
        object.__setattr__(self, "logs", _names(self.logs, "logs"))
        if self.keep:
            raise InvalidInput("ClearSession takes `logs`, the logs to empty, or `keep`, what to leave, but not both.")

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        if self.logs is None:
            return session.cleared(self.keep)
        for name in self.logs:
            session = session.replaced(name)
        return session


@dataclass(frozen=True, slots=True)
class RewindSession(Verb):
    """Rewind the session to before a run, or to a checkpoint's commit; later entries stay readable."""

    to: str | int


@dataclass(frozen=True, slots=True)
class ForkSession(Verb):
    """Create a session from this one's state: the current one, that after a run, or that at a checkpoint's commit.

    With a message, the fork's first turn begins with it, and its `outcome` is returned with the fork. Repeated under
    its key, the action returns the same fork.
    """

    at: str | int | None = None
    session_id: str | None = None
    message: Sendable | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeSystemPrompt:
    """Change the program's system prompt, from the next turn on."""

    prompt: str | None

    def __post_init__(self) -> None:
        if self.prompt is not None:
            check_kind(self.prompt, str, "prompt")

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_definition(system_prompt=self.prompt)


@dataclass(frozen=True, slots=True)
class ChangeProgram:
    """Let another program, or another version of the same one, run the session from the next turn on.

    It is named as `name@version`; a name alone means the one registered last. Its migrations bring the state over, in
    the same commit; if they cannot, `InvalidInput` is raised and nothing changes.
    """

    program: str

    def __init__(self, program: str | Named) -> None:
        object.__setattr__(self, "program", check_name(full_name(program), "program"))

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        name, _, version = self.program.partition("@")
        if not version:
            raise InvalidInput(f"ChangeProgram({quote(name)}) needs a version to be applied by itself.")
        before = session.definition
        label = before.label if before is not None and before.label != before.name else name
        return session.with_definition(name=name, version=version, label=label)


@dataclass(frozen=True, slots=True)
class ChangeModel:
    """Change the model, from the next call on."""

    model: JSON

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_definition(model=self.model)


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Add metadata to the session, which is not part of its state: one value under its key, or a mapping of them."""

    values: Mapping[str, JSON]

    @overload
    def __init__(self, key: str, value: JSON) -> None: ...
    @overload
    def __init__(self, key: Mapping[str, JSON], /) -> None: ...
    @overload
    def __init__(self, *, values: Mapping[str, JSON]) -> None: ...
    def __init__(self, key: Any = _MISSING, value: Any = _MISSING, *, values: Any = _MISSING) -> None:
        match key is _MISSING, value is _MISSING, values is _MISSING:
            case False, False, True:
                values = {check_kind(key, str, "the key of metadata"): value}
            case False, True, True if isinstance(key, str):
                raise InvalidInput(f"WriteMetadata({quote(key)}, ...) needs the value to store under that key.")
            case False, True, True:
                values = key
            case True, True, False:
                pass
            case _:
                raise InvalidInput("WriteMetadata takes a key and its value, or a mapping of them.")
        for name in check_map(values, "values"):
            check_kind(name, str, "a name in values")
        object.__setattr__(self, "values", values)

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_metadata(**self.values)


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Replace the session's tasks: one, by its description, or a list of at most 20 with at most one in progress."""

    tasks: tuple[Task, ...]

    def __init__(self, tasks: str | Iterable[str | Task | Mapping[str, Any]]) -> None:
        listed = (tasks,) if isinstance(tasks, str) else check_items(tasks, "tasks")
        found = tuple(Task.given(task) for task in listed)
        check_tasks(found)
        object.__setattr__(self, "tasks", found)

    async def apply(self, session: SessionView) -> SessionView:
        """See `Action.apply`."""
        return session.with_definition(tasks=self.tasks)


@dataclass(frozen=True, slots=True)
class StopRun(Verb):
    """Ask the session's run to stop: `interrupt`, so that it can be resumed, or `abort`."""

    kind: StopKind = "interrupt"
    reason: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteSession(Verb):
    """Delete the session and everything it owns; with `cascade`, its children too."""

    cascade: bool = False


COMMANDS: tuple[type[Any], ...] = (
    SuspendSession,
    ResumeSession,
    CompleteSession,
    FailSession,
    ClearSession,
    ChangeProgram,
    ChangeSystemPrompt,
    ChangeModel,
    WriteMetadata,
    UpdateTask,
    RewindSession,
    ForkSession,
    DeleteSession,
)
"""The actions that can wait in an inbox, besides the user's own that are passed to a runtime."""


class Commands:
    """The actions that can be queued: dataclasses, by their names."""

    def __init__(self, actions: Iterable[type[Any]] = ()) -> None:
        self._by_name = {kind.__name__: kind for kind in COMMANDS}
        for kind in actions:
            if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "apply")):
                raise InvalidInput(f"{kind!r} cannot be queued as an action: it must be a dataclass with `apply`.")
            if self._by_name.setdefault(kind.__name__, kind) is not kind:
                raise InvalidInput(f"Two actions are named {kind.__name__}; queued actions are looked up by name.")

    def queued(self, value: Any, key: str | None = None) -> tuple[InputKind, JSON, str | None]:
        """Return the kind, body and key of an action, or of a message, as queued input."""
        match value:
            case type() if hasattr(value, "apply") or value in self._by_name.values():
                raise InvalidInput(f"{value.__name__} is the class of an action; pass an instance.")
            case SendMessage():
                if None not in (key, value.key) and key != value.key:
                    raise InvalidInput(f"The message has two keys, {quote(key)} and {quote(value.key)}; give one.")
                return message_input(value.message, value.key if key is None else key)
            case StopRun():
                raise InvalidInput(
                    "StopRun cannot be queued: queued input is taken when the run that it would stop is over. Call "
                    "`session.stop()`, which does not wait."
                )
            case Action() | RewindSession() | ForkSession() | DeleteSession():
                return InputKind.COMMAND, self.record(value), key
            case _:
                return message_input(value, key)

    def record(self, action: Action | Verb) -> JSON:
        """Return an action as plain data."""
        _check_verb(action)
        name = type(action).__name__
        if self._by_name.get(name) is not type(action):
            raise InvalidInput(
                f"{name} is not registered, so it cannot be queued; pass the class to the runtime in `actions`.",
                action=name,
            )
        known: Any = action  # a dataclass, like every registered class, which a protocol cannot express
        fields = {each.name: getattr(action, each.name) for each in dataclasses.fields(known)}
        values = {field: _plain(value) for field, value in fields.items()}
        record: dict[str, JSON] = {"action": name, "values": loads(dumps(values, name), name)}
        tuples = [field for field, value in fields.items() if isinstance(value, tuple)]
        return {**record, "tuples": tuples} if tuples else record

    def read(self, record: Any) -> Action | Verb:
        """Return the action that was queued.

        Raise `ActionNotRegistered` if its class is not registered here, or has other fields here, and `InvalidInput` if
        the record is not an action's.
        """
        name = record.get("action") if isinstance(record, Mapping) else None
        fields = record.get("values") if isinstance(record, Mapping) else None
        if not isinstance(name, str) or not isinstance(fields, Mapping):
            raise InvalidInput(f"A queued action must have a name and values, got {record!r:.200}.")
        tuples = record.get("tuples", ())
        values = {field: tuple(value) if field in tuples else value for field, value in fields.items()}
        if name not in self._by_name:
            known = ", ".join(sorted(self._by_name))
            raise _not_here(name, f"The action {name} is not registered here. Registered: {known}")
        try:
            action: Action | Verb = self._by_name[name](**values)
        except TypeError as error:
            raise _not_here(name, f"The queued {name} does not fit the class registered here: {error}") from error
        return action


def _not_here(name: str, what: str) -> ActionNotRegistered:
    return ActionNotRegistered(f"{what}. It stays queued for a process that knows it.", action=name)


def _check_verb(action: Action | Verb) -> None:
    """Refuse a verb with an argument that it could never accept."""
    match action:
        case RewindSession(to) if isinstance(to, bool) or not isinstance(to, str | int):
            refuse("to", "the id of a run or the number of a commit", to)
        case ForkSession(at) if isinstance(at, bool) or not isinstance(at, str | int | None):
            refuse("at", "the id of a run or the number of a commit", at)
        case ForkSession(_, session_id, message, key):
            if session_id is not None:
                check_id(session_id)
            if message is not None:
                as_message(message)
            if key is not None:
                check_key(key)
        case DeleteSession(cascade):
            check_flag(cascade, "cascade")
        case _:
            pass


def _names(value: Any, what: str) -> tuple[str, ...]:
    return tuple(check_kind(name, str, f"a name in {what}") for name in check_items(value, what))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
