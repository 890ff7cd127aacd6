"""Actions that wait in a session's inbox, as plain data."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON, dumps, loads
from tenuto.errors import InvalidInput
from tenuto.model.inbox import InputKind
from tenuto.session.actions import COMMANDS, Action, as_message


class Commands:
    """Which actions can be queued: dataclasses, by their names."""

    def __init__(self, actions: Iterable[type[Any]] = ()) -> None:
        self._by_name = {kind.__name__: kind for kind in COMMANDS}
        for kind in actions:
            if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "apply")):
                raise InvalidInput(f"{kind!r} is no action that can be queued: it has to be a dataclass with `apply`.")
            if self._by_name.setdefault(kind.__name__, kind) is not kind:
                raise InvalidInput(f"There are two actions of the name {kind.__name__}; queued ones are found by it.")

    def queued(self, given: Action | str | Mapping[str, Any]) -> tuple[InputKind, JSON]:
        """Return what an action, or a message, is as queued input."""
        if isinstance(given, Action):
            return InputKind.COMMAND, self.record(given)
        return InputKind.MESSAGE, {"message": as_message(given)}

    def record(self, action: Action) -> JSON:
        """Return an action as plain data."""
        name = type(action).__name__
        if self._by_name.get(name) is not type(action):
            raise InvalidInput(
                f"{name} cannot be queued here; give the runtime the class, as one of its `actions`.", action=name
            )
        known: Any = action  # a dataclass, as every class that is registered; a protocol cannot say so
        given = {each.name: getattr(action, each.name) for each in dataclasses.fields(known)}
        values = {field: _plain(value) for field, value in given.items()}
        record: dict[str, JSON] = {"action": name, "values": loads(dumps(values, name), name)}
        tuples = [field for field, value in given.items() if isinstance(value, tuple)]
        return {**record, "tuples": tuples} if tuples else record

    def read(self, record: Any) -> Action:
        """Return the action that was queued."""
        if not isinstance(record, Mapping) or record.get("action") not in self._by_name:
            known = ", ".join(sorted(self._by_name))
            raise InvalidInput(f"This is no action known here: {record!r}; known are {known}.")
        tuples = record.get("tuples", ())
        values = {name: tuple(value) if name in tuples else value for name, value in record["values"].items()}
        try:
            action: Action = self._by_name[record["action"]](**values)
        except TypeError as error:
            raise InvalidInput(f"The queued {record['action']} does not fit the class known here: {error}.") from error
        return action


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
