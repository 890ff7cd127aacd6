"""What an engine of its own hands a turn to be written with its next save."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.writing.changes import CheckpointDraft, LogChange


@dataclass(slots=True)
class Handover:
    """The changes of logs as the run has to write them; the turn's copy shows what they make of the session.

    The two differ where a run has written entries ahead of the save, on branches of its own. `copied` are the copy's
    own lists of the session's logs, and how long they were when this was handed over: what comes after that is written
    too. Without `saves` the session's head stays where it is. `landed` says that it is in the store.
    """

    logs: Mapping[str, LogChange]
    copied: Mapping[str, tuple[list[Any], int]]
    point: CheckpointDraft | None = None
    saves: bool = True
    carries: bool = False
    landed: bool = False

    def stored(self, head: Mapping[str, LogChange], now: Mapping[str, list[Any]]) -> dict[str, LogChange]:
        """Return what is to be written to logs, given the changes of the head and the copy's lists by now."""
        changes = {name: change for name, change in head.items() if name not in self.copied} | dict(self.logs)
        for name, (items, count) in self.copied.items():
            if name not in now:
                changes.pop(name, None)
            elif now[name] is not items:
                changes[name] = LogChange(items=list(now[name]), anew=True)
            elif later := items[count:]:
                change = changes.get(name)
                changes[name] = change._replace(items=[*change.items, *later]) if change else LogChange(items=later)
        return changes
