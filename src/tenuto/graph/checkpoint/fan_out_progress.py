"""How far the fan-out under way has come, kept so that instances that are done do not run again.

All of it is one log, that of the fan-out whose node the cursor stands before (`fan/*`, or `sub/fan/*` in a subgraph).
An entry is an instance that is done: its `index`, `of` how many, and its `result` or `error`. A fan-out inside an
instance has its entries there too, with `at`: the way down to it in steps of three, which are the instance (null:
inside a subgraph instead), the node in it, and which execution of that node this is, because loops inside an instance
have no cursor. An entry `again` takes back what was kept at its `at` and below: that is being tried again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenuto.codec import JSON
from tenuto.errors import CheckpointRecordInvalid
from tenuto.writing.changes import LogChange

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame

At = tuple[int | str | None, ...]
Record = dict[str, Any]
"""What an instance left: `result`, its fields as plain data, or `error`."""


@dataclass(slots=True)
class FanOutProgress:
    """What is kept, and what waits to be written: `batch` entries at a time."""

    batch: int = 1
    _log: str | None = None
    _written: bool = False
    _found: dict[At, dict[int, Record]] = field(default_factory=dict)
    _begun: set[At] = field(default_factory=set)
    _below: dict[At, set[At]] = field(default_factory=dict)
    _waiting: list[JSON] = field(default_factory=list)

    @classmethod
    def found(cls, batch: int, log: str | None, entries: Iterable[Any]) -> "FanOutProgress":
        """Return the progress an earlier run left; what was kept below an instance that is done is of no use."""
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
        """Begin an execution of a fan-out; return, once, what its instances that are done left."""
        if not at and (log != self._log or at in self._begun):
            self.clear()
            self._log = log
        elif at in self._begun:
            self.take_back(at)
        if any(record["of"] != count for record in self._found.get(at, {}).values()):
            raise CheckpointRecordInvalid(
                f"A fan-out of {log!r} has {count} items now, not as many as when its checkpoint was written.", at=at
            )
        self._begun.add(at)
        self._enter(at)
        return self._found.pop(at, {})

    def add(self, at: At, index: int, count: int, record: Record) -> bool:
        """Keep what an instance left; return whether it is time to write."""
        self._drop(self._below.get((*at, index), ()))
        place = {"at": list(at)} if at else {}
        self._waiting.append({"index": index, "of": count, **place, **record})
        return len(self._waiting) >= self.batch

    def take_back(self, at: At) -> None:
        """Keep nothing more of what is at a place, or in an instance, and below: it is tried again."""
        below = [place for place in (*self._begun, *self._found) if place[: len(at)] == at]
        if below:
            self._drop(below)
            self._waiting.append({"at": list(at), "again": True})

    def clear(self) -> None:
        """Forget a fan-out that is over."""
        if self._log is not None:
            self._log, self._written = None, False
            self._found, self._begun, self._below, self._waiting = {}, set(), {}, []

    @property
    def underway(self) -> str | None:
        """The log of the fan-out under way, once something stands in it."""
        return self._log if self._written else None

    @property
    def waits(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._waiting)

    def take(self) -> dict[str, LogChange]:
        """Return what waits, as a change of the log; it waits no longer."""
        if self._log is None or not self._waiting:
            return {}
        change = LogChange(items=self._waiting, anew=not self._written)
        self._waiting, self._written = [], True
        return {self._log: change}

    def put_back(self, changes: Mapping[str, LogChange]) -> None:
        """Let what was taken wait again: nobody knows whether it was written, and twice does no harm."""
        for log, change in changes.items():
            if log == self._log:
                self._waiting[:0] = change.items
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


def _instances(at: At) -> list[At]:
    """Return the instances a place is in, outermost first, each as the place of its fan-out and its index."""
    return [at[: step + 1] for step in range(0, len(at), 3) if at[step] is not None]


def way_to(frame: "GraphFrame", node: str) -> tuple[tuple[str, ...], At] | None:
    """Return the path of the outermost fan-out that a node is or runs in, and the way from there down to the node.

    None inside parallel branches, which run again as a whole, and where there are no checkpoints at all.
    """
    at: At = ()
    while not frame.linear:
        if frame.parent is None or frame.scope.branch_name_chain[-1] is not None:
            return None
        at = (frame.scope.fan_out_index_chain[-1], node, frame.rounds[node], *at)
        node, frame = frame.scope.namespace[-1], frame.parent
    return (*frame.scope.namespace, node), at
