"""The journal of a run: what it leaves in the store, and from which its frames can be put up again.

A checkpoint's cursor names, per frame, the node it stands before; the fields of all frames are its document, the fields
that only grow are logs, of which only what was added is written. Both have names that begin with the frame's path
(`/field`, `sub/field`); a session's fields have the session's own names, and reach its head with a save. Of a fan-out
under way, `sub/fan/*` is the log of its instances that are done (`progress.py`), and the cursor names it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tenuto.codec import JSON
from tenuto.errors import (
    CheckpointRecordInvalid,
    CheckpointSaveFailed,
    LaneLost,
    SessionSaveFailed,
    SuspensionPersistenceFailed,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.keeping import ForeignSession, OwnSession, save_error, size_of
from tenuto.graph.observers import trace_context
from tenuto.graph.progress import At, Progress, Record, way_to
from tenuto.graph.sessions import Loaded, SessionPlan
from tenuto.graph.state import Field, Schema, rebuilt
from tenuto.graph.suspending import Suspending
from tenuto.model.commit import EndRun, OpenWait, Receipt
from tenuto.model.run import RunStatus, WaitStatus
from tenuto.model.session import Ends
from tenuto.session.turn import Base, Found, LogChange, Point, Turn, error_record

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph
    from tenuto.graph.run import Frame, Run

_PROGRESS = "*"


_UNKNOWN: Any = object()
"""Stands for stored entries nobody here has seen; nothing equals it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where a frame goes on: its state, and the node that comes next (None: the end), or was left (`after`)."""

    state: Any
    node: str | None
    after: bool
    schema: Schema


@dataclass(slots=True)
class Journal:
    """Writes what a run leaves: checkpoints, saves of its session, its end; and knows what an earlier run of it left.

    Without `every_node` nothing is written before a save, a suspension or the end. Without a turn there is no place to
    write a run to, only, perhaps, a session of the user's own.
    """

    turn: Turn | None
    schema_version: str
    progress: Progress = field(default_factory=Progress)
    step: int = -1
    session: OwnSession | ForeignSession | None = None
    every_node: bool = True
    beside: dict[str, JSON] = field(default_factory=dict)
    points: dict[tuple[str, ...], Stop] = field(default_factory=dict)
    _names: Mapping[str, str] = field(default_factory=dict)
    _saved: dict[str, tuple[Any, int]] = field(default_factory=dict)
    _previews: dict[str, list[Any]] = field(default_factory=dict)
    _cursor: dict[str, Any] = field(default_factory=dict)
    _document: dict[str, Any] = field(default_factory=dict)
    _unwritten: bool = False
    _failed: CheckpointSaveFailed | None = None
    _unsure: Callable[[bool], None] | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _pending: dict[str, LogChange] = field(default_factory=dict)
    _dumps: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _rebased: Ends | None = None

    def __post_init__(self) -> None:
        if isinstance(self.session, OwnSession):
            self._names = self.session.plan.names

    @property
    def has_session(self) -> bool:
        """Whether there is a session to save."""
        return self.session is not None

    async def begin(self, frame: "Frame", state: Any) -> None:
        """Stand before the first node. With checkpoints this is the first, so that nothing is lost in that node."""
        if not self.points:
            self._cursor = {"frames": [{"path": [], "node": frame.graph.entry}]}
            if isinstance(self.session, OwnSession):
                counts = self.session.loaded.counts
                self._saved = {name: (frame, counts.get(name, 0)) for name in self.session.plan.logs}
            if self.every_node:
                await self._migrated(frame)
                logs: dict[str, LogChange] = {}
                self._collect(frame, state, (), self._document, logs)
                self._pending = _all_joined(self._pending, logs)
        if self.every_node and self.turn is not None and not self.turn.begun:
            self._unwritten = True
            await self._write({})

    async def stopped(self) -> None:
        """Leave a checkpoint of a run that stops, if it has none, or if instances that are done wait to be written."""
        if self.every_node and self._failed is None and (self._unwritten or self.progress.waits):
            await self._write({})

    async def flush(self) -> None:
        """Write the instances that are done and wait for it; the cursor stays before their fan-out."""
        if self.progress.waits:
            await self._write()

    async def completed(self, frame: "Frame", state: Any, following: str | None, step: int) -> None:
        """Leave a checkpoint: the frame goes on at `following`; the frames above it stand where they were."""
        assert self.turn is not None
        self.step = max(self.step, step)
        self.progress.clear()
        # What a save left there decides what is written now.
        await self._checked(self.turn, self._settle())
        logs = self._stand([*frame.above(), (frame, state)], (*frame.scope.namespace, following), after=False)
        await self._write(logs)

    def _stand(
        self, frames: "list[tuple[Frame, Any]]", nodes: Sequence[str | None], *, after: bool
    ) -> dict[str, LogChange]:
        """Let the cursor stand at these nodes, one per frame, the last one before or `after` its node."""
        stops: list[dict[str, Any]] = []
        document: dict[str, Any] = {}
        logs: dict[str, LogChange] = {}
        for index, (owner, held) in enumerate(frames):
            path = owner.scope.namespace
            stops.append({"path": list(path), "node": nodes[index]})
            self._collect(owner, held, path, document, logs)
        if after:
            stops[-1]["after"] = True
        self._cursor, self._document = {"frames": stops}, document
        return logs

    async def save(self, frame: "Frame", state: Any, *, end: EndRun | None = None) -> None:
        """Save the session as it is in a state, which may be a preview of what the node will return.

        The next write compares: entries that stand already are not written again, others are written in their place.
        """
        session = self.session
        if isinstance(session, ForeignSession):
            await session.save(state)
            return
        assert session is not None
        assert self.turn is not None
        written: tuple[Any, ...] = ()
        async with self._writing:
            try:
                await self._settle()
                await self._migrated(frame)
                logs, items = self._session_logs(frame, state)
                save = session.save_of(state)
                told = self._unsure = partial(self._session_landed, frame, state, items, end is None)
                written = (logs, save, end)
                await self.turn.write(logs=logs, save=save, end=end)
            except TenutoError as error:
                operation_id = self.turn.operation_id
                repeat: Callable[[], Any] = partial(self.save, frame, state, end=end)
                if written:
                    repeat = partial(self.turn.repeat, operation_id, *written)
                told_error = save_error(error, session.key, operation_id, state, repeat)
                raise told_error from (None if told_error is error else error)
            self._unsure = None
            told(True)

    def _session_logs(self, frame: "Frame", state: Any) -> tuple[dict[str, LogChange], dict[str, list[Any]]]:
        """Return what a save writes to the session's logs, and per log the items it has beyond what is settled."""
        plan, fields = self.session.plan, frame.graph.schema.fields  # type: ignore[union-attr]
        logs, items = {}, {}
        for name in sorted(plan.logs):
            column = fields[plan.fields[name]]
            change, items[name] = self._change(name, frame, state.__dict__[column.name], column)
            if (joined := _joined(self._pending.get(name), change)) is not None:
                logs[name] = joined
        return logs, items

    def _session_landed(
        self, frame: "Frame", state: Any, items: dict[str, list[Any]], preview: bool, landed: bool
    ) -> None:
        if not landed:
            return
        session = self.session
        assert isinstance(session, OwnSession)
        assert self.turn is not None
        for name, added in items.items():
            self._pending.pop(name, None)
            if preview and (added or name in self._previews):
                self._previews[name] = added
            else:
                self._written(name, frame, state.__dict__[session.plan.fields[name]])
        session.saved(self.turn, state, sum(size_of(added) for added in items.values()))

    async def _settle(self) -> None:
        """Find out whether a write whose reply was lost has landed."""
        if self.turn is not None:
            landed = await self.turn.resolve() is not None
            told, self._unsure = self._unsure, None
            if told is not None:
                told(landed)

    async def _migrated(self, frame: "Frame") -> None:
        """Write the session as its migrations left it, before anything else of this run reaches it.

        That is the same state in other words: runs that are paused on the session go on from it as before.
        """
        session = self.session
        if not isinstance(session, OwnSession) or session.loaded.rewrite is None:
            return
        assert self.turn is not None
        logs, save = session.migration()
        self._unsure = partial(self._migration_landed, frame, session)
        try:
            await self.turn.write(logs=logs, save=save)
        except VersionConflict as error:
            self._unsure = None
            if not session.overwrites:
                raise save_error(error, session.key, self.turn.operation_id, None, None) from error
            session.removed = session.loaded.rewrite.removed
            # Others moved on; the run's own view of the whole session will be written over theirs.
            for name in session.plan.logs:
                column = frame.graph.schema.fields[session.plan.fields[name]]
                held = session.loaded.values.get(column.name, [])
                self._pending[name] = LogChange(items=column.dump(held), anew=True)
        self._unsure = None
        self._migration_landed(frame, session, True)

    def _migration_landed(self, frame: "Frame", session: OwnSession, landed: bool) -> None:
        if not landed:
            return
        for name in session.plan.logs:
            self._saved[name] = (frame, len(session.loaded.values.get(session.plan.fields[name], ())))
        session.loaded = session.loaded._replace(rewrite=None)

    async def finish(self, frame: "Frame", state: Any) -> None:
        """Write the end of a run that came to END, and with it its session."""
        end = EndRun(status=RunStatus.COMPLETED)
        if self.session is not None and self.session.plan.auto_save:
            await self.save(frame, state, end=end)
            if isinstance(self.session, OwnSession):
                return
        if self.turn is not None and self.turn.begun:
            await self._checked(self.turn, self.turn.write(end=end))

    async def suspend(self, signal: Suspending, run: "Run") -> tuple[str, Any]:
        """Write the pause, and with it the session, in one commit; return the wait's id and the outermost state."""
        turn, session = self.turn, self.session
        if turn is None:
            raise SuspensionPersistenceFailed(
                f"Node {signal.node!r} suspends, but the graph has no store to be paused in; give it a session store "
                "or a checkpointer."
            )
        frames = [*signal.frame.above(), (signal.frame, signal.state)]
        linear = [pair for pair in frames if pair[0].linear]
        outermost = frames[0][1]
        self.step = max(self.step, run.step)
        own = session if isinstance(session, OwnSession) else None
        saves = own is not None and own.plan.auto_save
        receipt: Receipt | None = None
        try:
            await self._settle()
            if saves:
                await self._migrated(frames[0][0])
            logs = self._stand(linear, signal.namespace, after=signal.completed)
            if signal.completed:
                self.progress.clear()
            else:
                logs |= self.progress.take()
            logs = _all_joined(self._pending, logs)
            receipt = await turn.write(
                point=self._point(**_told(session, run, frames[0][0], outermost)),
                logs=logs,
                save=own.save_of(outermost) if own and saves else None,
                end=EndRun(status=RunStatus.SUSPENDED),
                waits=(_wait_for(signal),),
            )
        except LaneLost:
            raise
        except TenutoError as error:
            with suppress(TenutoError):
                receipt = await turn.resolve()
            if receipt is None or not turn.ended:
                raise SuspensionPersistenceFailed(
                    f"The pause at node {signal.node!r} could not be written: {error.message}", key=turn.key
                ) from error
        wait_id = receipt.wait_ids[0]
        if own and saves:
            own.saved(turn, outermost, 0)
        elif isinstance(session, ForeignSession) and session.plan.auto_save:
            await self._save_beside(session, outermost, wait_id)
        return wait_id, outermost

    async def _save_beside(self, session: ForeignSession, state: Any, wait_id: str) -> None:
        """Save a user's own session after the pause; if that fails, there is no pause either."""
        try:
            await session.save(state)
        except TenutoError as error:
            assert self.turn is not None
            with suppress(TenutoError):  # then it stays, and a resume makes the session good
                await self.turn.settle(wait_id, WaitStatus.CANCELLED)
            raise SuspensionPersistenceFailed(
                f"The session could not be saved with the pause, which was taken back: {error.message}"
            ) from error

    async def failed(self, error: TenutoError) -> None:
        """Write the end of a run that failed; a save that failed leaves the run open for the save to be repeated."""
        if isinstance(self.session, OwnSession):
            self.session.forget()
        if isinstance(error, SessionSaveFailed) and isinstance(self.session, OwnSession) and self.turn is not None:
            self.turn.release()
        else:
            await self._ended(EndRun(status=RunStatus.FAILED, error=error_record(error)))

    async def interrupted(self) -> None:
        """Write the end of a run that was stopped; it can be resumed from its last checkpoint."""
        if isinstance(self.session, OwnSession):
            self.session.forget()
        await self._ended(EndRun(status=RunStatus.INTERRUPTED))

    async def _ended(self, end: EndRun) -> None:
        turn = self.turn
        if turn is None or turn.lost is not None:
            return
        await self._settle()
        if turn.ended:
            return
        await self.stopped()
        if turn.begun or isinstance(self.session, OwnSession):
            await self._checked(turn, turn.write(end=end))

    def fan_out(self, frame: "Frame", node: str, count: int) -> "Execution | None":
        """Begin an execution of a fan-out; None where nothing is kept of it, as inside parallel branches."""
        way = way_to(frame, node) if self.every_node else None
        if way is None:
            return None
        path, at = way
        return Execution(self, at, count, self.progress.begin(_log_name(path, _PROGRESS), at, count))

    def entry(self) -> Any:
        """Return the outermost state a stored run goes on with; None for a new run."""
        point = self.points.get(())
        return point.state if point else None

    def take_point(self, path: tuple[str, ...]) -> Stop | None:
        """Return, once, where a frame is to go on."""
        return self.points.pop(path, None)

    def adopt(self, frame: "Frame", state: Any) -> None:
        """Take a frame that was put up again for one whose logs are written already, or wait to be."""
        for name, column in frame.graph.schema.fields.items():
            if column.reducer.is_log:
                self._saved[self._name(frame.scope.namespace, name)] = (frame, len(state.__dict__[name]))

    def replace(self, path: tuple[str, ...], state: Any, names: Iterable[str]) -> None:
        """Put a state in the place of a stored one, from which it differs in these fields."""
        point = self.points[path]
        self.points[path] = replace(point, state=state)
        for name in names:
            column = point.schema.fields[name]
            if column.reducer.is_log:
                items = column.dump(state.__dict__[name])
                self._pending[self._name(path, name)] = LogChange(items=items, anew=True)
            else:
                key = self._name(path, name)
                self._document[key] = self._dumped(key, state.__dict__[name], column)

    def rebase(self, plan: SessionPlan, loaded: Loaded, base: Base) -> None:
        """Put the session as it is now under a stored run; what the run itself had added is added again."""
        point = self.points[()]
        values = dict(loaded.values)
        for name in plan.logs:
            field = plan.fields[name]
            begins = base.ends[name].position if name in base.ends else 0
            own = point.state.__dict__[field][begins:]
            self._pending.pop(name, None)
            if own:
                self._pending[name] = LogChange(items=point.schema.fields[field].dump(own))
                values[field] = [*values.get(field, []), *own]
            if loaded.rewrite is not None:
                items = point.schema.fields[field].dump(values.get(field, []))
                self._pending[name] = LogChange(items=items, anew=True)
        state = rebuilt(point.state, {**point.state.__dict__, **values})
        self.replace((), state, [name for name in values if not point.schema.fields[name].reducer.is_log])
        self._rebased = loaded.base.ends

    def insist(self, plan: SessionPlan, names: Iterable[str]) -> None:
        """Write these logs whole: others wrote to them, of which the stored run knows nothing."""
        point = self.points[()]
        for name in plan.logs & set(names):
            field = plan.fields[name]
            items = point.schema.fields[field].dump(point.state.__dict__[field])
            self._pending[name] = LogChange(items=items, anew=True)

    def begins_at(self, ends: Ends) -> Ends:
        """Return the log ends a run that goes on from a checkpoint begins at."""
        if self._rebased is None:
            return ends
        return {**{name: end for name, end in ends.items() if "/" in name}, **self._rebased}

    def distrust(self, ends: Ends, known: Ends) -> None:
        """Take what a lost runner wrote to the session's logs after its last checkpoint for a preview nobody knows."""
        for name in self._names.values():
            if name in ends and ends[name] != known.get(name):
                self._previews[name] = [_UNKNOWN]

    async def _write(self, logs: Mapping[str, LogChange] | None = None) -> None:
        """Write a checkpoint; without logs, only if something waits that another's write did not take along."""
        assert self.turn is not None
        changes: dict[str, LogChange] = {}
        done: dict[str, LogChange] = {}
        try:
            async with self._writing:
                if self._failed is not None:
                    raise self._failed  # what comes after it would stand in the wrong place
                if logs is None and not self.progress.waits:
                    return
                await self._checked(self.turn, self._settle())
                changes = _all_joined(self._pending, logs or {})
                self._pending = {}
                done = self.progress.take()
                await self._checked(self.turn, self.turn.write(point=self._point(), logs=changes | done))
                self._unwritten = False
        except CheckpointSaveFailed as error:
            self._failed = error
            raise
        except asyncio.CancelledError:
            self._unsure = partial(self._checkpoint_landed, changes, done)
            raise

    def _checkpoint_landed(self, changes: dict[str, LogChange], done: dict[str, LogChange], landed: bool) -> None:
        if not landed:
            self._pending = _all_joined(changes, self._pending)
            self.progress.put_back(done)

    async def _checked(self, turn: Turn, writing: Awaitable[Any]) -> None:
        try:
            await writing
        except LaneLost:
            raise
        except TenutoError as error:
            raise CheckpointSaveFailed(
                f"The run {turn.run_id} of {turn.key} could not be written: {error.message}",
                key=turn.key,
                run_id=turn.run_id,
                operation_id=turn.operation_id,
            ) from error

    def _point(self, **told: Any) -> Point:
        cursor = self._cursor | {"step": self.step, "underway": self.progress.underway} | self.beside | told
        version = self.schema_version
        if isinstance(self.session, OwnSession):
            # A fork at this point is a session, so the point is of the session's version; the state's stands beside it.
            cursor["session"] = _session_note(self.session.plan, version)
            version = self.session.plan.schema_version
        return Point(step=max(self.step, 0), cursor=cursor, document=self._document, schema_version=version)

    def _collect(
        self, frame: "Frame", state: Any, path: tuple[str, ...], document: dict[str, Any], logs: dict[str, LogChange]
    ) -> None:
        for name, column in frame.graph.schema.fields.items():
            value = state.__dict__[name]
            key = self._name(path, name)
            if not column.reducer.is_log:
                document[key] = self._dumped(key, value, column)
                continue
            change, _ = self._change(key, frame, value, column)
            if change is not None:
                logs[key] = change
            self._written(key, frame, value)

    def _change(self, key: str, frame: "Frame", value: Any, column: Field) -> tuple[LogChange | None, list[Any]]:
        """Return what is to be written of a log, and all it has beyond what is settled."""
        known = self._saved.get(key)
        anew = known is None or known[0] is not frame
        start = 0 if anew or known is None else known[1]
        items = column.dump(value[start:]) if anew or start < len(value) else []
        preview = self._previews.get(key)
        if preview is not None:
            same = _common(preview, items)
            if same < len(preview):
                return LogChange(items=items[same:], anew=True, kept=start + same), items
            return (LogChange(items=items[same:]) if items[same:] else None), items
        return (LogChange(items=items, anew=anew) if anew or items else None), items

    def _written(self, key: str, frame: "Frame", value: Any) -> None:
        self._saved[key] = (frame, len(value))
        self._previews.pop(key, None)

    def _name(self, path: tuple[str, ...], name: str) -> str:
        """Return the name of a field in the store: the session's own, or the run's."""
        return self._names[name] if not path and name in self._names else _log_name(path, name)

    def rewrite(self, path: tuple[str, ...], schema: Schema, state: Any) -> None:
        """Write the whole state of a frame anew with the next checkpoint."""
        for name, column in schema.fields.items():
            key, value = self._name(path, name), state.__dict__[name]
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


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a fan-out: `done` is what an earlier run of it left, by index."""

    journal: Journal
    at: At
    count: int
    done: dict[int, Record]

    async def keep(self, index: int, record: Record) -> None:
        """Keep what an instance left, now or, if they are written in batches, a little later."""
        if self.journal.progress.add(self.at, index, self.count, record):
            await self.journal.flush()

    def try_again(self, index: int) -> None:
        """Forget what ran inside an instance: it begins anew."""
        self.journal.progress.take_back((*self.at, index))

    async def close(self) -> None:
        """Write what still waits; of a fan-out inside an instance, it waits for the one outside."""
        if not self.at:
            await self.journal.flush()


def _joined(begun: LogChange | None, change: LogChange | None) -> LogChange | None:
    if begun is None or change is None or change.anew:
        return change or begun
    return LogChange(items=[*begun.items, *change.items], anew=begun.anew, kept=begun.kept)


def _all_joined(begun: Mapping[str, LogChange], changes: Mapping[str, LogChange]) -> dict[str, LogChange]:
    return {**begun, **{name: _joined(begun.get(name), change) or change for name, change in changes.items()}}


def _common(stored: list[Any], items: list[Any]) -> int:
    for index, (old, new) in enumerate(zip(stored, items, strict=False)):
        if old != new:
            return index
    return min(len(stored), len(items))


def _told(session: OwnSession | ForeignSession | None, run: "Run", frame: "Frame", state: Any) -> dict[str, Any]:
    """Return what a pause tells whoever resumes it: of a session beside it, and the trace to link to."""
    told: dict[str, Any] = {}
    if isinstance(session, ForeignSession):
        told |= session.marks(state)
    if trace := trace_context(run.audience(frame.graph)):
        told["trace"] = trace
    return told


def _wait_for(signal: Suspending) -> OpenWait:
    descriptor = signal.descriptor
    return OpenWait(
        kind="signal", signal_id=descriptor.signal_id, timeout=signal.timeout, metadata=dict(descriptor.metadata)
    )


def restore(found: Found, graph: "CompiledGraph[Any]") -> Journal:
    """Put together the points at which the frames of a stored run go on, migrated and validated."""
    cursor, note, plan = found.checkpoint.cursor, found.checkpoint.cursor.get("session"), graph.session
    if note is not None and (plan is None or plan.own is None):
        raise _misfit(f"The run belongs to {found.checkpoint.key}, but the graph keeps no sessions in that store.")
    version = found.checkpoint.schema_version if note is None else note["state_version"]
    underway = cursor["underway"]
    progress = Progress.found(graph.fan_out_batch, underway, found.logs.get(underway, ()))
    journal = Journal(
        None, graph.kind.schema_version, progress, step=cursor["step"], every_node=graph.store is not None
    )
    if note is not None and plan is not None:
        journal._names = plan.names
    graphs: list[tuple[tuple[str, ...], CompiledGraph[Any], dict[str, Any]]] = []
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
        graphs.append((path, owner, entry))
    raw = [_values(found, path, note) for path, _, _ in graphs]
    migrated = graph.migrations.apply(version, graph.kind.schema_version, raw)
    for (path, owner, entry), values in zip(graphs, migrated, strict=True):
        try:
            state = owner.kind.model_validate(values)
        except ValidationError as error:
            raise _misfit(f"The stored state does not fit {owner.kind.__name__}: {error}") from error
        stop = Stop(state=state, node=entry["node"], after=entry.get("after", False), schema=owner.schema)
        journal.points[path] = stop
    renamed = note is not None and plan is not None and note != _session_note(plan, version)
    if version == graph.kind.schema_version and not renamed:
        journal._document = dict(found.checkpoint.document)
    else:
        # From the next checkpoint on, everything is kept under the new version, logs that were written before too.
        for path, owner, _ in graphs:
            journal.rewrite(path, owner.schema, journal.points[path].state)
    journal._cursor = {"frames": cursor["frames"]}
    journal.beside = {"session_id": cursor["session_id"]} if cursor.get("session_id") else {}
    journal._unwritten = True
    return journal


def _session_note(plan: SessionPlan, state_version: str) -> dict[str, Any]:
    """Return what a checkpoint tells of a session in it: the state's version, and which names are the session's."""
    mapping = {name: field for name, field in plan.fields.items() if name != field}
    return {"state_version": state_version, "logs": sorted(plan.logs), "mapping": mapping}


def _values(found: Found, path: tuple[str, ...], note: dict[str, Any] | None) -> dict[str, Any]:
    """Return the stored fields of one frame, logs among them, by the state's names."""
    prefix = _log_name(path, "")
    stored = {**found.checkpoint.document, **found.logs}
    inner = {name: name.removeprefix(prefix) for name in stored if name.startswith(prefix)}
    values = {own: stored[name] for name, own in inner.items() if "/" not in own and own != _PROGRESS}
    if not path and note is not None:
        names = [name for name in found.checkpoint.document if "/" not in name]
        names += [name for name in note["logs"] if name in found.logs]
        values |= {note["mapping"].get(name, name): stored[name] for name in names}
    return values


def _misfit(message: str) -> CheckpointRecordInvalid:
    return CheckpointRecordInvalid(f"{message} Deploy the graph that wrote the checkpoint, or start anew.")


def _log_name(path: tuple[str, ...], name: str) -> str:
    return "/".join([*(_escaped(step) for step in path), name]) if path else f"/{name}"


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
