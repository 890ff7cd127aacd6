"""The journal of a run: what it leaves in the store, and from which its frames can be put up again.

A checkpoint's cursor names, per frame, the node it stands before; the fields of all frames are its document and logs
(`ledger.py`). Of a fan-out under way, `sub/fan/*` is the log of its instances that are done (`progress.py`), and the
cursor names it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tenuto.codec import JSON
from tenuto.errors import (
    CheckpointSaveFailed,
    LaneLost,
    NotJson,
    SessionSaveFailed,
    SuspensionPersistenceFailed,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.checkpoint.cursor import ResumePoints
from tenuto.graph.checkpoint.fan_out_progress import At, FanOutProgress, Record, way_to
from tenuto.graph.checkpoint.ledger import Ledger, all_joined, joined, log_name
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.event_queue import trace_context
from tenuto.graph.session.own import ForeignSession, OwnSession, path_of, save_error, size_of
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.model.commit import EndRun, OpenWait, Receipt
from tenuto.model.run import RunStatus
from tenuto.model.wait import WaitKind, WaitStatus
from tenuto.writing.changes import CheckpointDraft, LogChange
from tenuto.writing.error_record import error_record
from tenuto.writing.run_writer import RunWriter

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame, GraphRun
    from tenuto.graph.runtime.runtime_writer import RuntimeWriter

PROGRESS = "*"


@dataclass(slots=True)
class GraphJournal:
    """Writes what a run leaves: checkpoints, saves of its session, its end; and knows what an earlier run of it left.

    Without `every_node` nothing is written before a save, a suspension or the end. Without a turn there is no place to
    write a run to, only, perhaps, a session of the user's own.
    """

    turn: "RunWriter | RuntimeWriter | None"
    schema_version: str
    progress: FanOutProgress = field(default_factory=FanOutProgress)
    step: int = -1
    session: OwnSession | ForeignSession | None = None
    every_node: bool = True
    beside: dict[str, JSON] = field(default_factory=dict)
    graph: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    stops: ResumePoints = field(init=False)
    _cursor: dict[str, Any] = field(default_factory=dict)
    _unwritten: bool = False
    _failed: CheckpointSaveFailed | None = None
    _unsure: Callable[[bool], None] | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.stops = ResumePoints(self.ledger)
        if isinstance(self.session, OwnSession):
            self.ledger.names = self.session.plan.names

    @property
    def has_session(self) -> bool:
        """Whether there is a session to save."""
        return self.session is not None

    async def begin(self, frame: "GraphFrame", state: Any) -> None:
        """Stand before the first node. With checkpoints this is the first, so that nothing is lost in that node."""
        if not self.stops:
            self._cursor = {"frames": [{"path": [], "node": frame.graph.entry}]}
            if isinstance(self.session, OwnSession):
                for name in self.session.plan.logs:
                    self.ledger.stores(name, frame, self.session.loaded.counts.get(name, 0))
            if self.every_node:
                await self._migrated(frame)
                logs = self._collected([(frame, state)])
                self.ledger.pending = all_joined(self.ledger.pending, logs)
        if self.every_node and self.turn is not None and not self.turn.begun:
            self._unwritten = True
            await self._write({})

    def go_on(self, stops: list[dict[str, Any]]) -> None:
        """Stand where a stored run stood; its first write says so too."""
        self._cursor = {"frames": stops}
        self._unwritten = True

    async def stand_here(self) -> None:
        """Leave a checkpoint where a stored run goes on, before it does."""
        await self._write({})

    async def stopped(self) -> None:
        """Leave a checkpoint of a run that stops, if it has none, or if instances that are done wait to be written."""
        if self.every_node and self._failed is None and (self._unwritten or self.progress.waits):
            await self._write({})

    async def flush(self) -> None:
        """Write the instances that are done and wait for it; the cursor stays before their fan-out."""
        if self.progress.waits:
            await self._write()

    async def completed(self, frame: "GraphFrame", state: Any, following: str | None, step: int) -> None:
        """Leave a checkpoint: the frame goes on at `following`; the frames above it stand where they were."""
        assert self.turn is not None
        self.step = max(self.step, step)
        self.progress.clear()
        # What a save left there decides what is written now.
        await self._checked(self.turn, self._settle())
        logs = self._stand([*frame.above(), (frame, state)], (*frame.scope.namespace, following), after=False)
        await self._write(logs)

    def _stand(
        self, frames: "list[tuple[GraphFrame, Any]]", nodes: Sequence[str | None], *, after: bool
    ) -> dict[str, LogChange]:
        """Let the cursor stand at these nodes, one per frame, the last one before or `after` its node."""
        stops: list[dict[str, Any]] = [
            {"path": list(owner.scope.namespace), "node": nodes[at]} for at, (owner, _) in enumerate(frames)
        ]
        if after:
            stops[-1]["after"] = True
        self._cursor = {"frames": stops}
        return self._collected(frames)

    def _collected(self, frames: "list[tuple[GraphFrame, Any]]") -> dict[str, LogChange]:
        """Collect what is to be written; after a value that cannot be, nothing more is written of this run."""
        assert self.turn is not None
        try:
            return self.ledger.collect(frames)
        except NotJson as error:
            self._failed = _unwritten(self.turn, error)
            raise self._failed from error

    async def save(self, frame: "GraphFrame", state: Any, *, end: EndRun | None = None) -> None:
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
                logs, items = self._session_logs(session.plan, frame, state)
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

    def _session_logs(
        self, plan: SessionPlan, frame: "GraphFrame", state: Any
    ) -> tuple[dict[str, LogChange], dict[str, list[Any]]]:
        """Return what a save writes to the session's logs, and per log the items it has beyond what is settled."""
        fields = frame.graph.schema.fields
        logs, items = {}, {}
        for name in sorted(plan.logs):
            column = fields[plan.fields[name]]
            change, items[name] = self.ledger.change(name, frame, state.__dict__[column.name], column)
            if (whole := joined(self.ledger.pending.get(name), change)) is not None:
                logs[name] = whole
        return logs, items

    def _session_landed(
        self, frame: "GraphFrame", state: Any, items: dict[str, list[Any]], preview: bool, landed: bool
    ) -> None:
        if not landed:
            return
        session = self.session
        assert isinstance(session, OwnSession)
        assert self.turn is not None
        for name, added in items.items():
            self.ledger.pending.pop(name, None)
            if not (preview and self.ledger.previewed(name, added)):
                self.ledger.stores(name, frame, len(state.__dict__[session.plan.fields[name]]))
        session.saved(self.turn, state, sum(size_of(added) for added in items.values()))

    async def _settle(self) -> None:
        """Find out whether a write whose reply was lost has landed."""
        if self.turn is not None:
            landed = await self.turn.resolve() is not None
            told, self._unsure = self._unsure, None
            if told is not None:
                told(landed)

    async def _migrated(self, frame: "GraphFrame") -> None:
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
                self.ledger.pending[name] = LogChange(items=column.dump(held), anew=True)
        self._unsure = None
        self._migration_landed(frame, session, True)

    def _migration_landed(self, frame: "GraphFrame", session: OwnSession, landed: bool) -> None:
        if not landed:
            return
        for name in session.plan.logs:
            self.ledger.stores(name, frame, len(session.loaded.values.get(session.plan.fields[name], ())))
        session.loaded = session.loaded._replace(rewrite=None)

    async def finish(self, frame: "GraphFrame", state: Any) -> None:
        """Write the end of a run that came to END, and with it its session."""
        end = EndRun(status=RunStatus.COMPLETED)
        if self.session is not None and self.session.plan.auto_save:
            await self.save(frame, state, end=end)
            if isinstance(self.session, OwnSession):
                return
        if self.turn is not None and self.turn.begun:
            await self._checked(self.turn, self.turn.write(end=end))

    async def suspend(self, signal: Suspending, run: "GraphRun") -> tuple[str, Any]:
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
        # A node that runs again is the same step again, as it is after a crash.
        again = not signal.completed and signal.step is not None
        self.step = max(self.step, signal.step - 1 if again and signal.step is not None else run.step)
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
            logs = all_joined(self.ledger.pending, logs)
            receipt = await turn.write(
                point=self._point(**_told(session, run, frames[0][0], outermost)),
                logs=logs,
                save=own.save_of(outermost) if own and saves else None,
                end=EndRun(status=RunStatus.SUSPENDED),
                waits=signal.waits or (_wait_for(signal, linear),),
            )
        except LaneLost:
            raise
        except TenutoError as error:
            with suppress(TenutoError):
                receipt = await turn.resolve()
            if receipt is None or not turn.ended:
                raise SuspensionPersistenceFailed(
                    f"The pause at node {signal.node!r} could not be written: {error.message}",
                    key=turn.key,
                    **path_of(error),
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
        """Write the end of a run that failed; a save that may yet succeed leaves it open, to be repeated."""
        if isinstance(self.session, OwnSession):
            self.session.forget()
        repeatable = isinstance(error, SessionSaveFailed) and error.retryable
        if repeatable and isinstance(self.session, OwnSession) and self.turn is not None:
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

    def fan_out(self, frame: "GraphFrame", node: str, count: int) -> "FanOutRun | None":
        """Begin an execution of a fan-out; None where nothing is kept of it, as inside parallel branches."""
        way = way_to(frame, node) if self.every_node else None
        if way is None:
            return None
        path, at = way
        return FanOutRun(self, at, count, self.progress.begin(log_name(path, PROGRESS), at, count))

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
                changes = all_joined(self.ledger.pending, logs or {})
                self.ledger.pending = {}
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
            self.ledger.pending = all_joined(changes, self.ledger.pending)
            self.progress.put_back(done)

    async def _checked(self, turn: "RunWriter | RuntimeWriter", writing: Awaitable[Any]) -> None:
        try:
            await writing
        except LaneLost:
            raise
        except TenutoError as error:
            raise _unwritten(turn, error) from error

    def _point(self, **told: Any) -> CheckpointDraft:
        place = {"graph": self.graph, "step": self.step, "underway": self.progress.underway}
        cursor = self._cursor | place | self.beside | told
        version = self.schema_version
        if isinstance(self.session, OwnSession):
            # A fork at this point is a session, so the point is of the session's version; the state's stands beside it.
            cursor["session"] = session_note(self.session.plan, version)
            version = self.session.plan.schema_version
        return CheckpointDraft(
            step=max(self.step, 0), cursor=cursor, document=self.ledger.document, schema_version=version
        )


@dataclass(frozen=True, slots=True)
class FanOutRun:
    """One execution of a fan-out: `done` is what an earlier run of it left, by index."""

    journal: GraphJournal
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


def _unwritten(turn: "RunWriter | RuntimeWriter", error: TenutoError) -> CheckpointSaveFailed:
    return CheckpointSaveFailed(
        f"The run {turn.run_id} of {turn.key} could not be written: {error.message}",
        key=turn.key,
        run_id=turn.run_id,
        operation_id=turn.operation_id,
        **path_of(error),
    )


def _told(
    session: OwnSession | ForeignSession | None, run: "GraphRun", frame: "GraphFrame", state: Any
) -> dict[str, Any]:
    """Return what a pause tells whoever resumes it: of a session beside it, and the trace to link to."""
    told: dict[str, Any] = {}
    if isinstance(session, ForeignSession):
        told |= session.marks(state)
    if trace := trace_context(run.audience(frame.graph)):
        told["trace"] = trace
    return told


def _wait_for(signal: Suspending, frames: "list[tuple[GraphFrame, Any]]") -> OpenWait:
    """Return the wait of a pause: it takes fields of the outermost graph and of the innermost, and no other names."""
    names = [name for frame, _ in (frames[0], frames[-1]) for name in frame.graph.schema.fields]
    return OpenWait(
        kind=WaitKind.SIGNAL,
        signal_id=signal.descriptor.signal_id,
        timeout=signal.timeout,
        metadata=dict(signal.descriptor.metadata),
        schema={"type": "object", "properties": {name: {} for name in names}, "additionalProperties": False},
    )


def session_note(plan: SessionPlan, state_version: str) -> dict[str, Any]:
    """Return what a checkpoint tells of a session in it: the state's version, and which names are the session's."""
    mapping = {name: field for name, field in plan.fields.items() if name != field}
    return {"state_version": state_version, "logs": sorted(plan.logs), "mapping": mapping}
