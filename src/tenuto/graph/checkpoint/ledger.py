"""What of a run's fields is still to be written.

A field's name in the store begins with its frame's path (`/field`, `sub/field`); the fields of a session have the
session's own names. A field that only grows is a log, of which only what was added is written: what its list has beyond
the position up to which the run's `LogTracker` knows it to be stored. The others form the document.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.graph.checkpoint.journal_frame import JournalFrame
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.graph.state import Field, Schema
from tenuto.model.session import Ends, LogEnd
from tenuto.plain_data import common
from tenuto.writing.changes import LogChange
from tenuto.writing.log_tracker import LogTracker

Path = tuple[str, ...]

_UNKNOWN: Any = object()
"""Stands for stored entries that were never read here; nothing equals it."""


class Preview(NamedTuple):
    """What a save wrote of a log before its node had returned: the entries after those that are settled."""

    settled: int
    items: list[Any]


class _Log(NamedTuple):
    """A log, and the frame it belongs to; one of a stored run has none before its frame is restored."""

    frame: JournalFrame | None
    value: list[Any]
    column: Field


@dataclass(slots=True)
class Ledger:
    """The fields of a run at its cursor, and which of them still have to be written.

    `names` are those that a session has other names for. `rewrites` are the logs that the next write rewrites, each
    with how many entries it keeps, and at which end if not its present one. A preview is stored, and is compared with
    what its node returns in the end.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    rewrites: dict[str, tuple[int, LogEnd | None]] = field(default_factory=dict)
    _logs: dict[str, _Log] = field(default_factory=dict)
    _previews: dict[str, Preview] = field(default_factory=dict)
    _dumps: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def name(self, path: Path, name: str) -> str:
        """Return a field's name in the store."""
        return self.names[name] if not path and name in self.names else log_name(path, name)

    def begin(self, frame: JournalFrame, plan: SessionPlan, loaded: Mapping[str, Any], tracker: LogTracker) -> None:
        """Begin with a session's logs as they were loaded; what a lost runner wrote ahead of them is not trusted."""
        for name in plan.logs:
            column = frame.graph.schema.fields[plan.fields[name]]
            self._logs[name] = _Log(frame, loaded.get(column.name, []), column)
            if name in tracker.ahead:
                self._previews[name] = Preview(tracker.stored(name), [_UNKNOWN])

    def restore(self, path: Path, schema: Schema, state: Any, changed: Collection[str] = ()) -> None:
        """Begin with the fields of a stored frame; those that are `changed` are written whole with the next write."""
        for name, column in schema.fields.items():
            key, value = self.name(path, name), state.__dict__[name]
            if column.reducer.is_log:
                self._logs[key] = _Log(None, value, column)
                if name in changed:
                    column.dump(value)  # what cannot be written is refused here, before anything is
                    self.rewrites[key] = (0, None)
            elif name in changed:
                self.document[key] = self._dumped(key, value, column)

    def adopt(self, frame: JournalFrame) -> None:
        """Let a restored frame have the logs that were restored for it."""
        for name, column in frame.graph.schema.fields.items():
            if column.reducer.is_log:
                key = self.name(frame.scope.namespace, name)
                self._logs[key] = self._logs[key]._replace(frame=frame)

    def distrust(self, ends: Ends, known: Ends) -> None:
        """Treat what a lost runner wrote to logs after its last checkpoint as an unknown preview."""
        for name in self._logs.keys() & ends.keys():
            if ends[name] != known.get(name):
                self._previews[name] = Preview(known[name].position if name in known else 0, [_UNKNOWN])

    def collect(self, frames: Iterable[tuple[JournalFrame, Any]]) -> None:
        """Move on to the fields of these frames; a preview that turns out to differ from them is written again."""
        self.document, before, self._logs = {}, self._logs, {}
        for frame, state in frames:
            for name, column in frame.graph.schema.fields.items():
                value = state.__dict__[name]
                key = self.name(frame.scope.namespace, name)
                if not column.reducer.is_log:
                    self.document[key] = self._dumped(key, value, column)
                    continue
                self._logs[key] = _Log(frame, value, column)
                preview = self._previews.pop(key, None)
                if key not in before or before[key].frame is not frame:
                    self.rewrites[key] = (0, None)
                elif preview is not None and key not in self.rewrites:
                    same = common(preview.items, column.dump(value[preview.settled :], preview.settled))
                    if same < len(preview.items):
                        self.rewrites[key] = (preview.settled + same, None)

    def changes(self, tracker: LogTracker) -> dict[str, LogChange]:
        """Return what is to be written of all logs; of one with a preview nothing, before its node has returned."""
        found = {
            key: self.change(key, log.value, log.column, tracker)[0]
            for key, log in self._logs.items()
            if key not in self._previews
        }
        return {key: change for key, change in found.items() if change is not None}

    def change(self, key: str, value: Any, column: Field, tracker: LogTracker) -> tuple[LogChange | None, Preview]:
        """Return what is to be written of a log that is this list, and what it has then beyond what is settled."""
        if key in self.rewrites:
            kept, keep = self.rewrites[key]
            items = column.dump(value[kept:], kept)
            settled = len(self._logs[key].value)
            return LogChange(items, True, kept, keep), Preview(settled, items[settled - kept :])
        settled, before = self._previews.get(key) or (tracker.position(key), [])
        items = column.dump(value[settled:], settled) if settled < len(value) else []
        same = common(before, items)
        if same < len(before):
            return LogChange(items[same:], True, settled + same), Preview(settled, items)
        return LogChange(items[same:]) if same < len(items) else None, Preview(settled, items)

    def landed(self, logs: Iterable[str], previews: Mapping[str, Preview] | None = None) -> None:
        """Note that these logs are written, with these previews."""
        for key in logs:
            self.rewrites.pop(key, None)
        for key, preview in (previews or {}).items():
            if preview.items:
                self._previews[key] = preview
            else:
                self._previews.pop(key, None)

    def _dumped(self, key: str, value: Any, column: Field) -> Any:
        """Return a field as plain data, the same object as long as the field is."""
        known = self._dumps.get(key)
        if known is None or known[0] is not value:
            known = self._dumps[key] = (value, column.dump(value))
        return known[1]


def log_name(path: Path, name: str) -> str:
    """Return the name of a frame's field, or log, in the store."""
    return "/".join([*(escaped(step) for step in path), name]) if path else f"/{name}"


def escaped(step: str) -> str:
    """Return a node's name as a part of a path."""
    return step.replace("~", "~0").replace("/", "~1")
