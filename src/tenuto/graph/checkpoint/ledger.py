"""Which of a run's fields are stored already, and what of them is still to be written.

A field's name in the store begins with its frame's path (`/field`, `sub/field`); the fields of a session have the
session's own names. A field that only grows is a log, of which only what was added is written; the others form the
document.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.graph.checkpoint.journal_frame import JournalFrame
from tenuto.graph.plain_data import common
from tenuto.graph.state import Field, Schema
from tenuto.model.session import Ends
from tenuto.writing.changes import LogChange

Path = tuple[str, ...]

_UNKNOWN: Any = object()
"""Stands for stored entries that were never read here; nothing equals it."""


@dataclass(slots=True)
class Ledger:
    """Keeps count of a run's fields. `names` are those that a session has other names for.

    `pending` are changes of logs that are part of the next write. A preview is what a save wrote of a log before its
    node had returned: it is stored, and is compared with what the node returns in the end.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, LogChange] = field(default_factory=dict)
    _stored: dict[str, tuple[Any, int]] = field(default_factory=dict)
    _previews: dict[str, list[Any]] = field(default_factory=dict)
    _dumps: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def name(self, path: Path, name: str) -> str:
        """Return a field's name in the store."""
        return self.names[name] if not path and name in self.names else log_name(path, name)

    def stores(self, key: str, frame: JournalFrame, count: int) -> None:
        """Note that this many entries of a frame's log are stored."""
        self._stored[key] = (frame, count)
        self._previews.pop(key, None)

    def adopt(self, frame: JournalFrame, state: Any) -> None:
        """Treat the logs of a restored frame as written, or as about to be."""
        for name, column in frame.graph.schema.fields.items():
            if column.reducer.is_log:
                self._stored[self.name(frame.scope.namespace, name)] = (frame, len(state.__dict__[name]))

    def collect(self, frames: Iterable[tuple[JournalFrame, Any]]) -> dict[str, LogChange]:
        """Set the document to that of these frames, and return what is to be written of their logs."""
        self.document = {}
        logs: dict[str, LogChange] = {}
        for frame, state in frames:
            for name, column in frame.graph.schema.fields.items():
                value = state.__dict__[name]
                key = self.name(frame.scope.namespace, name)
                if not column.reducer.is_log:
                    self.document[key] = self._dumped(key, value, column)
                    continue
                change, _ = self.change(key, frame, value, column)
                if change is not None:
                    logs[key] = change
                self.stores(key, frame, len(value))
        return logs

    def change(self, key: str, frame: JournalFrame, value: Any, column: Field) -> tuple[LogChange | None, list[Any]]:
        """Return what is to be written of a log, and all it has beyond what is settled."""
        known = self._stored.get(key)
        anew = known is None or known[0] is not frame
        start = 0 if anew or known is None else known[1]
        items = column.dump(value[start:], start) if anew or start < len(value) else []
        preview = self._previews.get(key)
        if preview is not None:
            same = common(preview, items)
            if same < len(preview):
                return LogChange(items=items[same:], anew=True, kept=start + same), items
            return (LogChange(items=items[same:]) if items[same:] else None), items
        return (LogChange(items=items, anew=anew) if anew or items else None), items

    def previewed(self, key: str, items: list[Any]) -> bool:
        """Note what a save wrote of a log before its node returned; False if it wrote nothing that could differ."""
        if not items and key not in self._previews:
            return False
        self._previews[key] = items
        return True

    def distrust(self, ends: Ends, known: Ends) -> None:
        """Treat what a lost runner wrote to the session's logs after its last checkpoint as an unknown preview."""
        for name in self.names.values():
            if name in ends and ends[name] != known.get(name):
                self._previews[name] = [_UNKNOWN]

    def rewrite(self, path: Path, schema: Schema, state: Any, names: Iterable[str] | None = None) -> None:
        """Rewrite these fields of a frame, or all of them, with the next write."""
        for name in schema.fields if names is None else names:
            column, key, value = schema.fields[name], self.name(path, name), state.__dict__[name]
            if column.reducer.is_log:
                self.pending[key] = LogChange(items=column.dump(value), anew=True)
            else:
                self.document[key] = self._dumped(key, value, column)

    def _dumped(self, key: str, value: Any, column: Field) -> Any:
        """Return a field as plain data, the same object as long as the field is."""
        known = self._dumps.get(key)
        if known is None or known[0] is not value:
            known = self._dumps[key] = (value, column.dump(value))
        return known[1]


def joined(begun: LogChange | None, change: LogChange | None) -> LogChange | None:
    """Return two changes of a log as one."""
    if begun is None or change is None or change.anew:
        return change or begun
    return begun._replace(items=[*begun.items, *change.items])


def all_joined(begun: Mapping[str, LogChange], changes: Mapping[str, LogChange]) -> dict[str, LogChange]:
    """Return the changes of many logs, the pending ones before the new ones."""
    return {**begun, **{name: joined(begun.get(name), change) or change for name, change in changes.items()}}


def log_name(path: Path, name: str) -> str:
    """Return the name of a frame's field, or log, in the store."""
    return "/".join([*(escaped(step) for step in path), name]) if path else f"/{name}"


def escaped(step: str) -> str:
    """Return a node's name as a part of a path."""
    return step.replace("~", "~0").replace("/", "~1")
