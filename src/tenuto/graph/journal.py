"""The journal of a run: after every completed node, a checkpoint from which the frames can be put up again.

A checkpoint's cursor names, per frame, the node it stands before; the fields of all frames are its document, the fields
that only grow are logs, of which only what was added is written. A fan-out under way keeps each finished instance as an
entry of a log of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tenuto.errors import CheckpointRecordInvalid
from tenuto.graph.state import Field, Schema
from tenuto.session.turn import Found, LogChange, Turn

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph
    from tenuto.graph.run import Frame

_PROGRESS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a frame goes on: its state, the node that comes next (None: the end), and its name in the graph above."""

    state: Any
    node: str | None


@dataclass(slots=True)
class Journal:
    """Writes a run's checkpoints, and knows what an earlier run of it left."""

    turn: Turn
    schema_version: str
    step: int = -1
    points: dict[tuple[str, ...], Point] = field(default_factory=dict)
    finished: dict[tuple[str, ...], dict[int, dict[str, Any]]] = field(default_factory=dict)
    _saved: dict[str, tuple[Any, int]] = field(default_factory=dict)
    _cursor: dict[str, Any] = field(default_factory=dict)
    _document: dict[str, Any] = field(default_factory=dict)
    _underway: str | None = None
    _unwritten: bool = False
    _pending: dict[str, LogChange] = field(default_factory=dict)
    _dumps: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def enter(self, frame: "Frame", state: Any) -> None:
        """Stand before a new run's first node; its state is written with whatever is written first."""
        self._unwritten = True
        self._cursor = {"frames": [{"path": [], "node": frame.graph.entry}]}
        self._collect(frame, state, (), self._document, self._pending)

    async def stopped(self) -> None:
        """Leave a checkpoint of a run that stops without any, so that it can be resumed."""
        if self._unwritten:
            await self._write({})

    async def completed(self, frame: "Frame", state: Any, following: str | None, step: int) -> None:
        """Leave a checkpoint: the frame goes on at `following`; the frames above it stand where they were."""
        self.step = max(self.step, step)
        frames: list[dict[str, Any]] = []
        document: dict[str, Any] = {}
        logs: dict[str, LogChange] = {}
        path: tuple[str, ...] = ()
        above = frame.above()
        for index, (owner, held) in enumerate([*above, (frame, state)]):
            path = frame.scope.namespace[:index]
            last = index == len(above)
            frames.append({"path": list(path), "node": following if last else frame.scope.namespace[index]})
            self._collect(owner, held, path, document, logs)
        self._cursor, self._document = {"frames": frames}, document
        self._underway = None
        await self._write(logs)

    async def instance_finished(self, frame: "Frame", node: str, index: int, result: dict[str, Any]) -> None:
        """Keep what one instance of a fan-out left; the cursor stays before the fan-out node."""
        name = _log_name((*frame.scope.namespace, node), _PROGRESS)
        anew = self._underway != name
        self._underway = name
        change = LogChange(items=[{"index": index} | result], anew=anew)
        await self._write({name: change})

    def entry(self) -> Any:
        """Return the outermost state a stored run goes on with; None for a new run."""
        point = self.points.get(())
        return point.state if point else None

    def take_point(self, path: tuple[str, ...]) -> Point | None:
        """Return, once, where a frame is to go on."""
        return self.points.pop(path, None)

    def take_finished(self, frame: "Frame", node: str, count: int) -> dict[int, dict[str, Any]]:
        """Return, once, what the finished instances of a fan-out left."""
        path = (*frame.scope.namespace, node)
        found = self.finished.pop(path, {})
        if any(index >= count for index in found):
            raise CheckpointRecordInvalid(f"The fan-out {node!r} had other items when its checkpoint was written.")
        if found:
            self._underway = _log_name(path, _PROGRESS)
        return found

    def adopt(self, frame: "Frame", state: Any) -> None:
        """Take a frame that was put up again for one whose logs are written already."""
        for name, column in frame.graph.schema.fields.items():
            if column.reducer.is_log:
                self._saved[_log_name(frame.scope.namespace, name)] = (frame, len(state.__dict__[name]))

    async def _write(self, logs: Mapping[str, LogChange]) -> None:
        begun, self._pending, self._unwritten = self._pending, {}, False
        await self.turn.checkpoint(
            step=max(self.step, 0),
            cursor=self._cursor | {"step": self.step, "underway": self._underway},
            document=self._document,
            logs={**begun, **{name: _joined(begun.get(name), change) for name, change in logs.items()}},
            schema_version=self.schema_version,
        )

    def _collect(
        self, frame: "Frame", state: Any, path: tuple[str, ...], document: dict[str, Any], logs: dict[str, LogChange]
    ) -> None:
        for name, column in frame.graph.schema.fields.items():
            value = state.__dict__[name]
            key = _log_name(path, name)
            if not column.reducer.is_log:
                document[key] = self._dumped(key, value, column)
                continue
            known = self._saved.get(key)
            anew = known is None or known[0] is not frame
            start = 0 if anew or known is None else known[1]
            if anew or start < len(value):
                logs[key] = LogChange(items=column.dump(value[start:]), anew=anew)
                self._saved[key] = (frame, len(value))

    def rewrite(self, path: tuple[str, ...], schema: Schema, state: Any) -> None:
        """Write the whole state of a frame anew with the next checkpoint."""
        for name, column in schema.fields.items():
            key, value = _log_name(path, name), state.__dict__[name]
            if column.reducer.is_log:
                self._pending[key] = LogChange(items=column.dump(value), anew=True)
            else:
                self._document[key] = self._dumped(key, value, column)

    def _dumped(self, key: str, value: Any, column: Field) -> Any:
        """Return a field as plain data, the same object as long as the field is."""
        known = self._dumps.get(key)
        if known is None or known[0] is not value:
            known = self._dumps[key] = (value, column.dump(value))
        return known[1]


def _joined(begun: LogChange | None, change: LogChange) -> LogChange:
    if begun is None or change.anew:
        return change
    return LogChange(items=[*begun.items, *change.items], anew=True)


def restore(found: Found, graph: "CompiledGraph[Any]", turn: Turn) -> Journal:
    """Put together the points at which the frames of a stored run go on, migrated and validated."""
    cursor = found.checkpoint.cursor
    journal = Journal(turn, graph.kind.schema_version, step=cursor["step"])
    graphs: list[tuple[tuple[str, ...], CompiledGraph[Any], str | None]] = []
    owner = graph
    for entry in cursor["frames"]:
        path, node = tuple(entry["path"]), entry["node"]
        if path:
            inner = owner.nodes.get(path[-1])
            within = inner.graphs() if inner else []
            if len(within) != 1:
                raise _misfit(f"The graph {owner.name!r} has no subgraph node {path[-1]!r}.")
            owner = within[0]
        if node is not None and node not in owner.nodes:
            raise _misfit(f"The graph {owner.name!r} has no node {node!r}, where the run would go on.")
        graphs.append((path, owner, node))
    raw = [_values(found, path) for path, _, _ in graphs]
    migrated = graph.migrations.apply(found.checkpoint.schema_version, graph.kind.schema_version, raw)
    for (path, owner, node), values in zip(graphs, migrated, strict=True):
        try:
            state = owner.kind.model_validate(values)
        except ValidationError as error:
            raise _misfit(f"The stored state does not fit {owner.kind.__name__}: {error}") from error
        journal.points[path] = Point(state=state, node=node)
    if underway := cursor["underway"]:
        # Of a fan-out that is done, or was entered again, the log is of no use any more.
        *steps, _ = underway.split("/")
        path = tuple(_unescaped(step) for step in steps)
        journal.finished[path] = {item["index"]: item for item in found.logs.get(underway, ())}
    if found.checkpoint.schema_version == graph.kind.schema_version:
        journal._document = dict(found.checkpoint.document)
    else:
        # From the next checkpoint on, everything is kept under the new version, logs that were written before too.
        for path, owner, _ in graphs:
            journal.rewrite(path, owner.schema, journal.points[path].state)
    journal._cursor, journal._underway = {"frames": cursor["frames"]}, cursor["underway"]
    journal._unwritten = True
    return journal


def _values(found: Found, path: tuple[str, ...]) -> dict[str, Any]:
    """Return the stored fields of one frame, logs among them, by their own names."""
    prefix = _log_name(path, "")
    stored = {**found.checkpoint.document, **found.logs}
    names = {name: name.removeprefix(prefix) for name in stored if name.startswith(prefix)}
    return {own: stored[name] for name, own in names.items() if "/" not in own and own != _PROGRESS}


def _misfit(message: str) -> CheckpointRecordInvalid:
    return CheckpointRecordInvalid(f"{message} Deploy the graph that wrote the checkpoint, or start anew.")


def _log_name(path: tuple[str, ...], name: str) -> str:
    return "/".join([*(_escaped(step) for step in path), name]) if path else f"/{name}"


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
