"""Actions that wait in a session's inbox, as plain data."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON, dumps, loads
from tenuto.errors import InvalidInput
from tenuto.session.actions import COMMANDS, Action


class Commands:
    """Which actions can be queued: dataclasses, by their names."""

    def __init__(self, actions: Iterable[type[Any]] = ()) -> None:
        self._by_name = {kind.__name__: kind for kind in (*COMMANDS, *actions)}

    def record(self, action: Action) -> JSON:
        """Return an action as plain data."""
        name = type(action).__name__
        if self._by_name.get(name) is not type(action):
            raise InvalidInput(
                f"{name} cannot be queued here; give the runtime the class, as one of its `actions`.", action=name
            )
        values = {each.name: _plain(getattr(action, each.name)) for each in dataclasses.fields(action)}  # type: ignore[arg-type]
        return {"action": name, "values": loads(dumps(values, name), name)}

    def read(self, record: Any) -> Action:
        """Return the action that was queued."""
        if not isinstance(record, Mapping) or record.get("action") not in self._by_name:
            known = ", ".join(sorted(self._by_name))
            raise InvalidInput(f"This is no action known here: {record!r}; known are {known}.")
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in record["values"].items()}
        action: Action = self._by_name[record["action"]](**values)
        return action


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
