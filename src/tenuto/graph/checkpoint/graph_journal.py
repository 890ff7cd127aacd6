"""The journal of a run: what it leaves in the store, from which its frames can be restored.

A checkpoint's cursor names, per frame, the node that comes next; the fields of all frames are its document and logs
(`ledger.py`). Of a fan-out under way, `sub/fan/*` is the log of its finished instances (`fan_out_progress.py`), and the
cursor names it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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
from tenuto.graph.checkpoint.fan_out_progress import At, FanOutProgress, FanOutRun
from tenuto.graph.checkpoint.journal_frame import JournalFrame
from tenuto.graph.checkpoint.journal_writer import JournalWriter
from tenuto.graph.checkpoint.ledger import Ledger, Path, Preview, log_name
from tenuto.graph.checkpoint.suspend_request import SuspendRequest
from tenuto.graph.session.foreign_session import ForeignSession
from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.save_error import path_of, save_error
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.model.commit import EndRun, Receipt
from tenuto.model.run import RunStatus
from tenuto.model.wait import Wait, WaitStatus
from tenuto.writing.changes import CheckpointDraft, LogChange, RunWrite
from tenuto.writing.error_record import error_record
from tenuto.writing.log_tracker import LogTracker

PROGRESS = "*"


Frames = Sequence[tuple[JournalFrame, Any]]
"""Frames, outermost first, each with its state."""


@dataclass(slots=True, kw_only=True)
class GraphJournal:
    """Writes what a run leaves: checkpoints, saves of its session, its end; and knows what an earlier run of it left.

    Without `every_node` nothing is written before a save, a suspension or the end. Without a writer the run itself is
    not stored, only, perhaps, a session in the user's own store. `points` are where the frames of an earlier run
    resume; `cursor` is where that run stopped, which the first write repeats.
    """

    writer: JournalWriter | None
    graph: str
    schema_version: str
    every_node: bool
    session: OwnSession | ForeignSession | None
    progress: FanOutProgress
    ledger: Ledger
    points: ResumePoints
    step: int = -1
    beside: Mapping[str, JSON] = field(default_factory=dict)
    cursor: Mapping[str, Any] | None = None
    _unwritten: bool = field(init=False)
    _failed: CheckpointSaveFailed | None = None
    _unsure: Callable[[bool], None] | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._unwritten = self.cursor is not None

    async def begin(self, frame: JournalFrame, state: Any) -> None:
        """Begin before the first node; with checkpoints one is written here, so that nothing is lost in that node."""
        if not self.points:
            self.cursor = {"frames": [{"path": [], "node": frame.graph.entry}]}
            if isinstance(self.session, OwnSession) and self.writer is not None:
                self.ledger.begin(frame, self.session.plan, self.session.loaded.values, self.writer.run.logs)
            if self.every_node:
                await self._migrated()
                self._collect([(frame, state)])
        if self.every_node and self.writer is not None and not self.writer.begun:
            self._unwritten = True
            await self._write()

    async def repeat_cursor(self) -> None:
        """Write a checkpoint where a stored run resumes, before it does."""
        await self._write()

    async def _flush(self) -> None:
        """Write the finished instances that are not written yet; the cursor stays before their fan-out."""
        if self.progress.is_unwritten:
            await self._write(only_progress=True)

    async def completed(self, frames: Frames, following: str | None, step: int) -> None:
        """Write a checkpoint: the innermost frame continues at `following`, the others stay where they were."""
        assert self.writer is not None
        self.step = max(self.step, step)
        self.progress.clear()
        # What a save has written decides what is written now.
        await self._checked(self.writer, self._settle())
        innermost, _ = frames[-1]
        self._move_to(frames, (*innermost.scope.namespace, following), after=False)
        await self._write()

    def _move_to(self, frames: Frames, nodes: Sequence[str | None], *, after: bool) -> None:
        """Let the cursor point at these nodes, one per frame, the last one before or `after` its node."""
        places: list[dict[str, Any]] = [
            {"path": list(owner.scope.namespace), "node": nodes[at]} for at, (owner, _) in enumerate(frames)
        ]
        if after:
            places[-1]["after"] = True
        self.cursor = {"frames": places}
        self._collect(frames)

    def _collect(self, frames: Frames) -> None:
        with self._refused():
            self.ledger.collect(frames)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """Refuse a value that cannot be written; after it, nothing more is written of this run."""
        assert self.writer is not None
        try:
            yield
        except NotJson as error:
            self._failed = _unwritten(self.writer, error)
            raise self._failed from error

    def _changes(self) -> dict[str, LogChange]:
        assert self.writer is not None
        with self._refused():
            return self.ledger.changes(self.writer.run.logs)

    async def save(self, frame: JournalFrame, state: Any, *, end: EndRun | None = None) -> None:
        """Save the session as it is in a state, which may be a preview of what the node will return.

        The next write compares: entries that are stored already are not written again, others replace them.
        """
        session = self.session
        if isinstance(session, ForeignSession):
            await session.save(state)
            return
        assert session is not None
        assert self.writer is not None
        written: tuple[Any, ...] = ()
        async with self._writing:
            try:
                await self._settle()
                await self._migrated()
                logs, previews = self._session_logs(session.plan, frame, state, self.writer.run.logs)
                save = session.save_of(state)
                noted = self._unsure = partial(self._session_landed, state, previews)
                written = (logs, save, end)
                await self.writer.write(RunWrite(logs=logs, save=save, end=end))
            except TenutoError as error:
                operation_id = self.writer.run.operation_id
                repeat: Callable[[], Any] = partial(self.save, frame, state, end=end)
                if written:
                    repeat = partial(self.writer.repeat, operation_id, *written)
                failure = save_error(error, session.key, operation_id, state, repeat)
                raise failure from (None if failure is error else error)
            self._unsure = None
            noted(True)

    def _session_logs(
        self, plan: SessionPlan, frame: JournalFrame, state: Any, tracker: LogTracker
    ) -> tuple[dict[str, LogChange], dict[str, Preview]]:
        """Return what a save writes to the session's logs, and what each has beyond what is settled."""
        logs, previews = {}, {}
        for name in sorted(plan.logs):
            column = frame.graph.schema.fields[plan.fields[name]]
            change, previews[name] = self.ledger.change(name, state.__dict__[column.name], column, tracker)
            if change is not None:
                logs[name] = change
        return logs, previews

    def _session_landed(self, state: Any, previews: dict[str, Preview], landed: bool) -> None:
        if not landed:
            return
        session = self.session
        assert isinstance(session, OwnSession)
        assert self.writer is not None
        self.ledger.landed(previews, previews)
        added = [preview.items for preview in previews.values()]
        session.saved(self.writer.run.life, self.writer.run.base, state, added)

    async def _settle(self) -> None:
        """Find out whether a write whose reply was lost has landed."""
        if self.writer is not None:
            landed = await self.writer.resolve() is not None
            noted, self._unsure = self._unsure, None
            if noted is not None:
                noted(landed)

    async def _migrated(self) -> None:
        """Write the session as its migrations left it, before anything else of this run reaches it.

        That is the same state in other words: runs that are paused on the session can be resumed as before.
        """
        session = self.session
        if not isinstance(session, OwnSession) or session.loaded.rewrite is None:
            return
        assert self.writer is not None
        logs, save = session.migration()
        self._unsure = partial(self._migration_landed, session)
        try:
            await self.writer.write(RunWrite(logs=logs, save=save))
        except VersionConflict as error:
            self._unsure = None
            if not session.overwrites:
                raise save_error(error, session.key, self.writer.run.operation_id, None, None) from error
            session.migrate_with_save()
            # Others changed the session; the run's own view of all of it will overwrite theirs.
            self.ledger.rewrites |= dict.fromkeys(session.plan.logs, (0, None))
        self._unsure = None
        session.migrated()

    def _migration_landed(self, session: OwnSession, landed: bool) -> None:
        if landed:
            session.migrated()

    async def finish(self, frame: JournalFrame, state: Any) -> None:
        """Write the end of a run that reached END, and with it its session."""
        end = EndRun(status=RunStatus.COMPLETED)
        if self.session is not None and self.session.plan.auto_save:
            await self.save(frame, state, end=end)
            if isinstance(self.session, OwnSession):
                return
        if self.writer is not None and self.writer.begun:
            await self._checked(self.writer, self.writer.write(RunWrite(end=end)))

    async def suspend(self, request: SuspendRequest, step: int, trace: str | None) -> tuple[Wait | None, Any]:
        """Write the pause, and with it the session, in one commit; return the wait and the outermost state.

        Under the runtime the wait is None: it is opened by the commit that ends the turn.

        `step` is the last one the run took; `trace` is for whoever resumes it to link to.
        """
        writer, session = self.writer, self.session
        if writer is None:
            raise request.not_stored()
        _, outermost = request.frames[0]
        # A node that runs again is the same step again, as it is after a crash.
        self.step = max(self.step, step if request.completed else request.step - 1)
        own = session if isinstance(session, OwnSession) else None
        saves = own is not None and own.plan.auto_save
        receipt: Receipt | None = None
        try:
            await self._settle()
            if saves:
                await self._migrated()
            self._move_to(request.linear(), request.namespace, after=request.completed)
            if request.completed:
                self.progress.clear()
            logs = self._changes() | self.progress.drain()
            notes: dict[str, Any] = session.marks(outermost) if isinstance(session, ForeignSession) else {}
            if trace:
                notes["trace"] = trace
            receipt = await writer.write(
                RunWrite(
                    point=self._point(**notes),
                    logs=logs,
                    save=own.save_of(outermost) if own and saves else None,
                    end=EndRun(status=RunStatus.SUSPENDED),
                    waits=request.open_waits(),
                )
            )
        except LaneLost:
            raise
        except TenutoError as error:
            with suppress(TenutoError):
                receipt = await writer.resolve()
            if receipt is None or not writer.ended:
                raise SuspensionPersistenceFailed(
                    f"The pause at node {request.node!r} could not be written: {error.message}",
                    key=writer.run.key,
                    **path_of(error),
                ) from error
        wait = request.opened(writer.run.key, writer.run.run_id, receipt)
        if own and saves:
            own.saved(writer.run.life, writer.run.base, outermost, ())
        elif isinstance(session, ForeignSession) and session.plan.auto_save:
            await self._save_beside(session, outermost, receipt.wait_ids[0])
        return wait, outermost

    async def _save_beside(self, session: ForeignSession, state: Any, wait_id: str) -> None:
        """Save a user's own session after the pause; if that fails, there is no pause either."""
        try:
            await session.save(state)
        except TenutoError as error:
            assert self.writer is not None
            with suppress(TenutoError):  # then it stays, and a resume repairs the session
                await self.writer.settle(wait_id, WaitStatus.CANCELLED)
            raise SuspensionPersistenceFailed(
                f"The session could not be saved with the pause, which was cancelled: {error.message}"
            ) from error

    async def failed(self, error: TenutoError) -> None:
        """Write the end of a run that failed; a save that may yet succeed leaves it open, to be repeated."""
        if isinstance(self.session, OwnSession):
            self.session.forget()
        repeatable = isinstance(error, SessionSaveFailed) and error.retryable
        if repeatable and isinstance(self.session, OwnSession) and self.writer is not None:
            self.writer.release()
        else:
            await self._ended(EndRun(status=RunStatus.FAILED, error=error_record(error)))

    async def interrupted(self) -> None:
        """Write the end of a run that was stopped; it can be resumed from its last checkpoint."""
        if isinstance(self.session, OwnSession):
            self.session.forget()
        await self._ended(EndRun(status=RunStatus.INTERRUPTED))

    async def _ended(self, end: EndRun) -> None:
        writer = self.writer
        if writer is None or writer.run.lost is not None:
            return
        await self._settle()
        if writer.ended:
            return
        if self.every_node and self._failed is None and (self._unwritten or self.progress.is_unwritten):
            await self._write()
        if writer.begun or isinstance(self.session, OwnSession):
            await self._checked(writer, writer.write(RunWrite(end=end)))

    def fan_out(self, path: Path, at: At, count: int) -> FanOutRun:
        """Begin an execution of a fan-out; `path` is that of the outermost one it runs in, `at` the way down to it."""
        done = self.progress.begin(log_name(path, PROGRESS), at, count)
        return FanOutRun(self.progress, at, count, done, self._flush)

    async def _write(self, *, only_progress: bool = False) -> None:
        """Write a checkpoint; `only_progress`, if there are instances that another write did not include already."""
        assert self.writer is not None
        changes: dict[str, LogChange] = {}
        done: dict[str, LogChange] = {}
        try:
            async with self._writing:
                if self._failed is not None:
                    raise self._failed  # what comes after it would be in the wrong place
                if only_progress and not self.progress.is_unwritten:
                    return
                await self._checked(self.writer, self._settle())
                changes = self._changes()
                done = self.progress.drain()
                await self._checked(self.writer, self.writer.write(RunWrite(self._point(), changes | done)))
                self.ledger.landed(changes)
                self._unwritten = False
        except CheckpointSaveFailed as error:
            self._failed = error
            raise
        except asyncio.CancelledError:
            self._unsure = partial(self._checkpoint_landed, changes, done)
            raise

    def _checkpoint_landed(self, changes: dict[str, LogChange], done: dict[str, LogChange], landed: bool) -> None:
        if landed:
            self.ledger.landed(changes)
        else:
            self.progress.put_back(done)

    async def _checked(self, writer: JournalWriter, writing: Awaitable[Any]) -> None:
        try:
            await writing
        except LaneLost:
            raise
        except TenutoError as error:
            raise _unwritten(writer, error) from error

    def _point(self, **notes: Any) -> CheckpointDraft:
        place = {"graph": self.graph, "step": self.step, "underway": self.progress.underway}
        cursor = {**(self.cursor or {}), **place, **self.beside, **notes}
        version = self.schema_version
        if isinstance(self.session, OwnSession):
            # A fork at this point is a session, so it has the session's version; the state's is in the note.
            cursor["session"] = self.session.plan.note(version)
            version = self.session.plan.schema_version
        return CheckpointDraft(
            step=max(self.step, 0), cursor=cursor, document=self.ledger.document, schema_version=version
        )


def _unwritten(writer: JournalWriter, error: TenutoError) -> CheckpointSaveFailed:
    return CheckpointSaveFailed(
        f"The run {writer.run.run_id} of {writer.run.key} could not be written: {error.message}",
        key=writer.run.key,
        run_id=writer.run.run_id,
        operation_id=writer.run.operation_id,
        **path_of(error),
    )
