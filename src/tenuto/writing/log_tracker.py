"""Where the logs of a run end in the store, and so how much of each has been written.

A log is a list that is only added to, and a position in it is an index, so an end says both. Two ends count: the
session's own, as its head has it, and the run's, which is ahead of it where the run wrote entries on branches of its
own that no save has taken along. Log names with a slash (a frame's path, then the field) live with the run alone.
"""

from collections.abc import Iterable, Mapping

from tenuto.model.commit import Append, LogWrite, Receipt, Reset
from tenuto.model.session import Ends, LogEnd
from tenuto.writing.changes import Base, LogChange


class LogTracker:
    """The ends of one run's logs, moved by its commits.

    `base` is the session as the run knows it: what its last save, or its load, left.
    """

    __slots__ = ("_ends", "_own", "_partly", "base")

    def __init__(self, base: Base | None = None) -> None:
        self.base = Base() if base is None else base
        self._ends: dict[str, LogEnd] = dict(self.base.ends)
        self._own: set[str] = set()
        self._partly: dict[str, LogEnd | None] = {}

    def stand(self, base: Base) -> None:
        """Start from a session as its head has it."""
        self.base = base
        self._ends = dict(base.ends)

    def continue_from(self, ends: Ends, *, own: bool = False) -> None:
        """Start from the ends of a stored run; with `own`, what it wrote ahead of the session counts as this run's."""
        self._ends = dict(ends)
        if own:
            self._own = {name for name, end in ends.items() if "/" not in name and end != self.base.ends.get(name)}

    def stored(self, name: str) -> int:
        """Return how many entries of a session's log its head has."""
        end = self.base.ends.get(name)
        return 0 if end is None else end.position

    def has(self, name: str) -> bool:
        """Tell whether a session has a log, be it empty."""
        return name in self.base.ends

    @property
    def ahead(self) -> frozenset[str]:
        """The session's logs that the run has written on branches of its own, which no save has taken along."""
        return frozenset(self._own)

    def write(self, name: str, change: LogChange) -> LogWrite:
        """Return the store's operation for a change of a log."""
        return operation_of(change, self._ends.get(name))

    def overwrite(self, name: str, change: LogChange | None) -> LogWrite:
        """Return the operation that makes a log what this run has, whatever others made of it."""
        end, own = self._ends.get(name), name in self._own
        if change is not None and (change.anew or own):
            return operation_of(change, end)
        items = tuple(change.items) if change else ()
        if own:
            return Append(items=items)
        return Append(items=items, base=end) if end is not None else Reset(items=items)

    def put_back(self, logs: Mapping[str, LogChange]) -> dict[str, LogChange]:
        """Return what a save writes that leaves behind what the run has written ahead."""
        back = dict(logs)
        for name in self._own:
            end, change = self.base.ends.get(name), back.get(name) or LogChange(items=())
            if not change.anew:
                change = LogChange(items=change.items, anew=True, kept=end.position if end else 0, keep=end)
            back[name] = change
        return back

    def note_part(self, name: str) -> None:
        """Note that a part of a log is written ahead of its commit, which may yet fail."""
        self._partly.setdefault(name, self._ends.get(name))

    def without_parts(self, logs: Mapping[str, LogChange]) -> dict[str, LogChange]:
        """Return changes that continue from before what was written ahead for a commit that then failed."""
        self._ends |= {name: end for name, end in self._partly.items() if end is not None}
        changes = dict(logs)
        for name, end in self._partly.items():
            change = changes.get(name) or LogChange(items=())
            if not change.anew:
                changes[name] = LogChange(items=change.items, anew=True, kept=end.position if end else 0)
        return changes

    def landed(self, receipt: Receipt, logs: Iterable[str], *, saved: bool) -> None:
        """Note where the logs end after a commit that wrote these; a save makes them the session's."""
        self._ends.update(receipt.ends)
        if saved:
            self._own.clear()
            self.base = Base(version=receipt.version, ends=receipt.ends)
        else:
            self._own.update(name for name in logs if "/" not in name)

    def complete(self) -> None:
        """Note that the commit stands whose parts were written ahead."""
        self._partly = {}


def operation_of(change: LogChange, end: LogEnd | None) -> LogWrite:
    """Return the store's operation for a change of a log that ends here."""
    items = tuple(change.items)
    if not change.anew:
        return Append(items=items)
    kept_at = change.keep or end
    keep = kept_at._replace(position=change.kept) if kept_at is not None and change.kept else None
    return Reset(items=items, keep=keep)
