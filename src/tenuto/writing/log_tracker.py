"""Where the logs of a run end in the store, and therefore how much of each has been written.

A log is a list that only grows, and a position in it is an index, so an end is also a length. A log has two ends: the
session's, in its head, and the run's, which is ahead of it if the run wrote entries on its own branches that have not
been saved. Logs whose names contain a slash (a frame's path, then the field) belong to the run alone.
"""

from collections.abc import Iterable, Mapping

from tenuto.model.commit import Append, LogWrite, Receipt, Reset
from tenuto.model.session import Ends, LogEnd
from tenuto.writing.changes import Base, LogChange


class LogTracker:
    """The ends of one run's logs, moved by its commits.

    `base` is the session as the run knows it, after its last save or its load.
    """

    __slots__ = ("_ends", "_own", "_partly", "base")

    def __init__(self, base: Base | None = None) -> None:
        self.base = Base() if base is None else base
        self._ends: dict[str, LogEnd] = dict(self.base.ends)
        self._own: set[str] = set()
        self._partly: dict[str, LogEnd | None] = {}

    def stand(self, base: Base) -> None:
        """Start from a session's head."""
        self.base = base
        self._ends = dict(base.ends)

    def continue_from(self, ends: Ends, *, own: bool = False) -> None:
        """Start from the ends of a stored run; with `own`, its unsaved entries count as written by this run."""
        self._ends = dict(ends)
        if own:
            self._own = {name for name, end in ends.items() if "/" not in name and end != self.base.ends.get(name)}

    def stored(self, name: str) -> int:
        """Return how many entries a log has in the session's head."""
        end = self.base.ends.get(name)
        return 0 if end is None else end.position

    def has(self, name: str) -> bool:
        """Return whether the session has a log, even an empty one."""
        return name in self.base.ends

    @property
    def ahead(self) -> frozenset[str]:
        """The session's logs that the run has written on its own branches and not yet saved."""
        return frozenset(self._own)

    def write(self, name: str, change: LogChange) -> LogWrite:
        """Return the store's operation for a change of a log."""
        return operation_of(change, self._ends.get(name))

    def overwrite(self, name: str, change: LogChange | None) -> LogWrite:
        """Return the operation that makes a log what this run has, discarding what others wrote to it."""
        end, own = self._ends.get(name), name in self._own
        if change is not None and (change.anew or own):
            return operation_of(change, end)
        items = tuple(change.items) if change else ()
        if own:
            return Append(items=items)
        return Append(items=items, base=end) if end is not None else Reset(items=items)

    def put_back(self, logs: Mapping[str, LogChange]) -> dict[str, LogChange]:
        """Return the changes for a save that discards the run's unsaved entries."""
        back = dict(logs)
        for name in self._own:
            end, change = self.base.ends.get(name), back.get(name) or LogChange(items=())
            if not change.anew:
                change = LogChange(items=change.items, anew=True, kept=end.position if end else 0, keep=end)
            back[name] = change
        return back

    def note_part(self, name: str) -> None:
        """Note that a part of a log is written ahead of its commit, which may still fail."""
        self._partly.setdefault(name, self._ends.get(name))

    def without_parts(self, logs: Mapping[str, LogChange]) -> dict[str, LogChange]:
        """Return the changes, adjusted to discard parts that were written ahead for a commit that then failed."""
        self._ends |= {name: end for name, end in self._partly.items() if end is not None}
        changes = dict(logs)
        for name, end in self._partly.items():
            change = changes.get(name) or LogChange(items=())
            if not change.anew:
                changes[name] = LogChange(items=change.items, anew=True, kept=end.position if end else 0)
        return changes

    def landed(self, receipt: Receipt, logs: Iterable[str], *, saved: bool) -> None:
        """Note where the logs end after a commit that wrote these; a save moves the session's ends too."""
        self._ends.update(receipt.ends)
        if saved:
            self._own.clear()
            self.base = Base(version=receipt.version, ends=receipt.ends)
        else:
            self._own.update(name for name in logs if "/" not in name)

    def complete(self) -> None:
        """Note that the commit whose parts were written ahead has landed."""
        self._partly = {}


def operation_of(change: LogChange, end: LogEnd | None) -> LogWrite:
    """Return the store's operation for a change of a log that ends here."""
    items = tuple(change.items)
    if not change.anew:
        return Append(items=items)
    kept_at = change.keep or end
    keep = kept_at._replace(position=change.kept) if kept_at is not None and change.kept else None
    return Reset(items=items, keep=keep)
