"""Actions that wait in a session's inbox, as plain data."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON, dumps, loads
from tenuto.errors import ActionNotRegistered, InvalidInput
from tenuto.model.input import InputKind
from tenuto.runtime.change.actions import COMMANDS, Action
from tenuto.runtime.conversation.history import as_message


class Commands:
    """The actions that can be queued: dataclasses, by their names."""

    def __init__(self, actions: Iterable[type[Any]] = ()) -> None:
        self._by_name = {kind.__name__: kind for kind in COMMANDS}
        for kind in actions:
            if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "apply")):
                raise InvalidInput(f"{kind!r} cannot be queued as an action: it must be a dataclass with `apply`.")
            if self._by_name.setdefault(kind.__name__, kind) is not kind:
                raise InvalidInput(f"Two actions are named {kind.__name__}; queued actions are looked up by name.")

    def queued(self, value: Action | str | Mapping[str, Any]) -> tuple[InputKind, JSON]:
        """Return the kind and body of an action, or of a message, as queued input."""
        if isinstance(value, Action):
            return InputKind.COMMAND, self.record(value)
        return InputKind.MESSAGE, {"message": as_message(value)}

    def record(self, action: Action) -> JSON:
        """Return an action as plain data."""
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

    def read(self, record: Any) -> Action:
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
            action: Action = self._by_name[name](**values)
        except TypeError as error:
            raise _not_here(name, f"The queued {name} does not fit the class registered here: {error}") from error
        return action


def _not_here(name: str, what: str) -> ActionNotRegistered:
    return ActionNotRegistered(f"{what}. It stays queued for a process that knows it.", action=name)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
