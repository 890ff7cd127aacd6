"""The progress of a fan-out, kept so that finished instances do not run again.

All of it is one log, that of the fan-out whose node the cursor points at (`fan/*`, or `sub/fan/*` in a subgraph). An
entry is a finished instance: its `index`, `of` how many, and its `result` or `error`. A fan-out inside an instance has
its entries there too, with `at`: the way down to it in steps of three, which are the instance (null: inside a subgraph
instead), the node in it, and which execution of that node this is, because loops inside an instance have no cursor. An
entry `again` revokes what was kept at its `at` and below: that is being tried again.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import CheckpointRecordInvalid
from tenuto.writing.changes import LogChange

At = tuple[int | str | None, ...]
Record = dict[str, Any]
"""What an instance left: `result`, its fields as plain data, or `error`."""


@dataclass(slots=True)
class FanOutProgress:
    """What is kept, and what is still to be written: `batch` entries at a time."""

    batch: int = 1
    _log: str | None = None
    _written: bool = False
    _found: dict[At, dict[int, Record]] = field(default_factory=dict)
    _begun: set[At] = field(default_factory=set)
    _below: dict[At, set[At]] = field(default_factory=dict)
    _unwritten: list[JSON] = field(default_factory=list)

    @classmethod
    def restored(cls, batch: int, log: str | None, entries: Iterable[Any]) -> "FanOutProgress":
        """Return the progress an earlier run left; what was kept below a finished instance is dropped."""
        kept: dict[At, dict[int, Record]] = {}
        for entry in entries:
            at = tuple(entry.get("at", ()))
            if "again" in entry:
                kept = {place: records for place, records in kept.items() if place[: len(at)] != at}
            else:
                kept.setdefault(at, {})[entry["index"]] = entry
        progress = cls(batch, log, log is not None)
        for at, records in kept.items():
            if not any(instance[-1] in kept.get(instance[:-1], ()) for instance in _instances(at)):
                progress._found[at] = records
                progress._enter(at)
        return progress

    def begin(self, log: str, at: At, count: int) -> dict[int, Record]:
        """Begin an execution of a fan-out; return, once, what its finished instances left."""
        if not at and (log != self._log or at in self._begun):
            self.clear()
            self._log = log
        elif at in self._begun:
            self.revoke(at)
        if any(record["of"] != count for record in self._found.get(at, {}).values()):
            raise CheckpointRecordInvalid(
                f"A fan-out of {log!r} has {count} items, but had another number when its checkpoint was written.",
                at=at,
            )
        self._begun.add(at)
        self._enter(at)
        return self._found.pop(at, {})

    def add(self, at: At, index: int, count: int, record: Record) -> bool:
        """Keep what an instance left; return whether a batch is full."""
        self._drop(self._below.get((*at, index), ()))
        place = {"at": list(at)} if at else {}
        self._unwritten.append({"index": index, "of": count, **place, **record})
        return len(self._unwritten) >= self.batch

    def revoke(self, at: At) -> None:
        """Drop what is kept at a place, or in an instance, and below: it is tried again."""
        below = [place for place in (*self._begun, *self._found) if place[: len(at)] == at]
        if below:
            self._drop(below)
            self._unwritten.append({"at": list(at), "again": True})

    def clear(self) -> None:
        """Forget a fan-out that is over."""
        if self._log is not None:
            self._log, self._written = None, False
            self._found, self._begun, self._below, self._unwritten = {}, set(), {}, []

    @property
    def underway(self) -> str | None:
        """The log of the fan-out under way, once something is written to it."""
        return self._log if self._written else None

    @property
    def is_unwritten(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._unwritten)

    def drain(self) -> dict[str, LogChange]:
        """Return what is still to be written, as a change of the log, and count it as written."""
        if self._log is None or not self._unwritten:
            return {}
        change = LogChange(items=self._unwritten, anew=not self._written)
        self._unwritten, self._written = [], True
        return {self._log: change}

    def put_back(self, changes: Mapping[str, LogChange]) -> None:
        """Write again what was drained: it may not have been written, and writing it twice does no harm."""
        for log, change in changes.items():
            if log == self._log:
                self._unwritten[:0] = change.items
                self._written = not change.anew

    def _enter(self, at: At) -> None:
        for instance in _instances(at):
            self._below.setdefault(instance, set()).add(at)

    def _drop(self, places: Iterable[At]) -> None:
        for at in list(places):
            self._begun.discard(at)
            self._found.pop(at, None)
            for instance in _instances(at):
                beside = self._below.get(instance, set())
                beside.discard(at)
                if not beside:
                    self._below.pop(instance, None)


@dataclass(frozen=True, slots=True)
class FanOutRun:
    """One execution of a fan-out: `done` is what an earlier run of it left, by index; `flush` writes its progress."""

    progress: FanOutProgress
    at: At
    count: int
    done: dict[int, Record]
    flush: Callable[[], Awaitable[None]]

    async def keep(self, index: int, record: Record) -> None:
        """Keep what an instance left, now or, if they are written in batches, a little later."""
        if self.progress.add(self.at, index, self.count, record):
            await self.flush()

    def try_again(self, index: int) -> None:
        """Forget what ran inside an instance: it starts over."""
        self.progress.revoke((*self.at, index))

    async def close(self) -> None:
        """Write the rest; a fan-out inside an instance leaves that to the outermost one."""
        if not self.at:
            await self.flush()


def _instances(at: At) -> list[At]:
    """Return the instances a place is in, outermost first, each as the place of its fan-out and its index."""
    return [at[: step + 1] for step in range(0, len(at), 3) if at[step] is not None]
