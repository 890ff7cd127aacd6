"""Where the logs of a run end in the store, and therefore how much of each has been written.

A log is a list that only grows, and a position in it is an index, so an end is also a length. A log has two ends: the
session's, in its head, and the run's, which is ahead of it if the run wrote entries on its own branches that have not
been saved. Logs whose names contain a slash (a frame's path, then the field) belong to the run alone.
"""

from collections.abc import Mapping, Sequence

from tenuto.codec import JSON
from tenuto.model.commit import Append, LogWrite, Receipt, Reset
from tenuto.model.session import Ends, LogEnd
from tenuto.writing.changes import Base, LogChange


class LogTracker:
    """The ends of one run's logs, moved by its commits.

    `base` is the session as the run knows it, after its last save or its load. For a log that is ahead of it, `_own`
    has the number of entries it shares with the session's log, and the entries that follow them.
    """

    __slots__ = ("_ends", "_own", "_partly", "base")

    def __init__(self, base: Base | None = None) -> None:
        self.base = Base() if base is None else base
        self._ends: dict[str, LogEnd] = dict(self.base.ends)
        self._own: dict[str, tuple[int, list[JSON]]] = {}
        self._partly: dict[str, LogEnd | None] = {}

    def stand(self, base: Base) -> None:
        """Start from a session's head."""
        self.base = base
        self._ends = dict(base.ends)

    def continue_from(self, ends: Ends, *, own: bool = False) -> None:
        """Start from the ends of a stored run; with `own`, its unsaved entries count as written by this run.

        Those entries have to be read, and passed to `recall`.
        """
        self._ends = dict(ends)
        if own:
            ahead = {name for name, end in ends.items() if "/" not in name and end != self.base.ends.get(name)}
            self._own = {name: (self.stored(name), []) for name in ahead}

    def recall(self, name: str, kept: int, items: Sequence[JSON]) -> None:
        """Set the entries of a log that is ahead: the first `kept` of the session's, then these."""
        self._own[name] = (kept, list(items))

    def stored(self, name: str) -> int:
        """Return how many entries a log has in the session's head."""
        end = self.base.ends.get(name)
        return 0 if end is None else end.position

    def position(self, name: str) -> int:
        """Return how many entries of a log the run has written; parts of a commit that failed do not count."""
        end = self._partly[name] if name in self._partly else self._ends.get(name)
        return 0 if end is None else end.position

    def length(self, name: str, change: LogChange | None) -> int:
        """Return how many entries of a log the run has written after a change."""
        if change is None:
            return self.position(name)
        return (change.kept if change.anew else self.position(name)) + len(change.items)

    def after(self, name: str, change: LogChange | None) -> tuple[int, list[JSON]]:
        """Return what a session's log is after a change, as `_own` has it."""
        kept, items = self._own.get(name) or (self.stored(name), [])
        if change is None:
            return kept, items
        if not change.anew:
            return kept, [*items[: self.position(name) - kept], *change.items]
        if change.keep is not None or change.kept <= kept:
            return change.kept, list(change.items)
        return kept, [*items[: change.kept - kept], *change.items]

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
            kept = change.kept if change.anew else self.stored(name)
            back[name] = LogChange(items=change.items, anew=True, kept=kept, keep=change.keep or end)
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

    def landed(self, receipt: Receipt, logs: Mapping[str, LogChange], *, saved: bool) -> None:
        """Note where the logs end after a commit that wrote these; a save moves the session's ends too.

        A second call with the same receipt changes nothing.
        """
        if saved:
            self._own.clear()
            self.base = Base(version=receipt.version, ends=receipt.ends)
        else:
            for name, change in logs.items():
                if "/" not in name:
                    self._write_ahead(name, change, receipt.ends[name])
        self._ends.update(receipt.ends)

    def _write_ahead(self, name: str, change: LogChange, end: LogEnd) -> None:
        if change.anew or name not in self._own:
            self._own[name] = self.after(name, change)
        else:  # in place, because a run with many checkpoints does this each time
            kept, items = self._own[name]
            items[end.position - len(change.items) - kept :] = change.items

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
