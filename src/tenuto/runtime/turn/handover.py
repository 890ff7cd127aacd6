"""Changes that a program's own engine passes to its turn, to be written with the next save."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.writing.changes import CheckpointDraft, LogChange


@dataclass(slots=True)
class Handover:
    """The changes of logs as the run has to write them; the turn's replica has the session after them.

    The two differ where a run has written entries ahead of the save, on its own branches. `copied` are the replica's
    lists of the session's logs, and their lengths at the handover: entries added later are written too. Without
    `saves`, the session's head does not move. `landed` says that the changes are stored.
    """

    logs: Mapping[str, LogChange]
    copied: Mapping[str, tuple[list[Any], int]]
    point: CheckpointDraft | None = None
    saves: bool = True
    carries: bool = False
    landed: bool = False

    def stored(self, head: Mapping[str, LogChange], now: Mapping[str, list[Any]]) -> dict[str, LogChange]:
        """Return the changes of logs to write, from the changes of the head and the replica's current lists."""
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
