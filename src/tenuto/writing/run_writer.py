"""Writes one run of a program, with or without a session, as a series of commits.

An engine passes fields, changes of logs, and its position; it does not deal with commits. Logs and fields whose names
contain a slash (a frame's path, then the field) belong to the run; the others belong to the session and reach its head
with a save.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import StoreError, TenutoError, VersionConflict
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, Commit, EndRun, NewCheckpoint, Receipt, SettleWait, TakeRun
from tenuto.model.lane import Lane, Rearm
from tenuto.model.run import RunRef
from tenuto.model.session import Ends, SessionKey
from tenuto.model.wait import WaitStatus
from tenuto.store.held_lanes import HeldLane
from tenuto.store.host import worker_name
from tenuto.store.keeper import Holding
from tenuto.store.store import Store
from tenuto.writing.changes import Base, LogChange, RunWrite, Save
from tenuto.writing.held_values import HeldValues
from tenuto.writing.lane_claim import free_lane, lane_lost
from tenuto.writing.liveness import live_run_ids
from tenuto.writing.log_tracker import LogTracker
from tenuto.writing.slices import MAX_ENTRIES, slices

_OVERWRITES = "!"
"""The suffix of the operation id of a save's second attempt, which overwrites what others wrote."""


@dataclass(slots=True)
class RunWriter:
    """Writes the commits of one run. They are numbered, so that a lost reply is resolved by repeating the commit.

    Each acknowledges the one before it, so that only the last one's receipt is kept.

    Under a lane every commit carries its generation and the last one frees it. From the commit that begins the run to
    the one that ends it, the store's keeper renews it; if it is lost, `lost` says why and the run's task is cancelled.
    """

    store: Store
    key: SessionKey
    life: int | None = None
    lane: Lane | None = None
    run_id: str = field(default_factory=new_id)
    attempt: int = 1
    logs: LogTracker = field(default_factory=LogTracker)
    lost: TenutoError | None = None
    operation_id: str = ""
    acknowledges: str | None = None
    event_seq: int = 0
    ended: bool = False
    _unsure: "tuple[str, Mapping[str, LogChange], Save | None, EndRun | None] | None" = None
    _first: BeginRun | TakeRun | None = None
    _resumes: bool = False
    _rearm: Rearm | None = None
    _known_commit: int | None = None
    _again: "Callable[[], Awaitable[Receipt]] | None" = None
    _commits: int = 0
    _slices: set[str] = field(default_factory=set)
    _handles: HeldValues = field(default_factory=HeldValues)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _held: HeldLane = field(default_factory=HeldLane)
    _holding: Holding | None = None
    _task: "asyncio.Task[Any] | None" = None

    @classmethod
    def under(cls, store: Store, lane: Lane, acknowledges: str | None = None) -> "RunWriter":
        """Return a writer under a lane, which is renewed from now on."""
        turn = cls(store, lane.key, lane.life, lane, acknowledges=acknowledges)
        turn._hold(lane)
        return turn

    @classmethod
    def rearming(cls, store: Store, lane: Lane, commit_number: int, acknowledges: str | None) -> "RunWriter":
        """Return a writer whose first commit re-arms the session's free lane, if nothing was committed since."""
        turn = cls(store, lane.key, lane.life, lane, acknowledges=acknowledges)
        turn._rearm = Rearm(nonce=lane.nonce, ttl=store.keeper.ttl)
        turn._known_commit = commit_number
        return turn

    @classmethod
    def after(cls, former: "RunWriter", run_id: str, receipt: Receipt) -> "RunWriter":
        """Return a writer whose run began in the commit that ended the former one, under the same lane."""
        turn = cls(former.store, former.key, former.life, former.lane, run_id)
        turn.acknowledges, turn.event_seq = receipt.operation_id, receipt.event_seq
        turn.stand(Base(version=receipt.version, ends=receipt.ends))
        if former.lane is not None:
            turn._hold(former.lane)
        return turn

    @property
    def run(self) -> "RunWriter":
        """This writer itself; a journal's writer may be a wrapper around it."""
        return self

    @property
    def base(self) -> Base:
        """The session as the run knows it, after its last save or its load."""
        return self.logs.base

    def stand(self, base: Base) -> None:
        """Set the point of the session that the run starts from."""
        self.logs.stand(base)

    def begins(
        self,
        *,
        invocation_id: str,
        correlation_id: str,
        origin_id: str | None = None,
        fresh: bool = True,
        ends: Ends | None = None,
        budget: int | None = None,
    ) -> None:
        """Make the first commit begin the run: of a new invocation, or, with `ends`, resumed from there.

        The session counts the latter as a resume.
        """
        self._resumes = ends is not None
        more = {"origin_id": origin_id, "fresh": fresh, "ends": ends, "budget": budget}
        self._first = begin_run(self.store, self.run_id, invocation_id, correlation_id, **more)
        if ends is not None:
            self.logs.continue_from(ends)

    def takes(self, run_id: str, attempt: int, ends: Ends, gone: str | None = None, *, moved: bool = False) -> None:
        """Make the first commit take over a run whose runner is gone, at these log ends.

        With `moved`, the commit moves the run to these ends, based on the session as the writer knows it now.
        """
        self.run_id, self.attempt = run_id, attempt + 1
        live_run_ids.add(run_id)
        take = TakeRun(run_id=run_id, attempt=attempt, worker=worker_name(), gone=gone, ttl=self.store.keeper.ttl)
        if moved:
            take = replace(take, base_version=self.logs.base.version, base_ends=self.logs.base.ends, ends=ends)
        self._first = take
        self.logs.continue_from(ends, own=True)

    @property
    def begun(self) -> bool:
        """Whether the run has a row in the store."""
        return self._first is None

    @property
    def in_doubt(self) -> bool:
        """Whether it is unknown if the last commit landed; until that is resolved, nothing else can be written."""
        return self._again is not None

    async def write(self, what: RunWrite) -> Receipt:
        """Write one commit of this run.

        A big value that is the same object as last time is written as its handle, which costs nothing.
        """
        async with self.writing:
            return await self.write_next(what)

    async def write_next(self, what: RunWrite, parts: Mapping[str, Any] | None = None) -> Receipt:
        """Write one commit for a caller that holds `writing`, and has held it since it decided what to write.

        `parts` are the commit's other parts, by field name.
        """
        point, logs, save, end, waits, settled = what
        operation_id = self._next_operation()
        if point is not None or save is not None:
            logs = await self._write_ahead(operation_id, self.logs.without_parts(logs))
        commit = {"end": end, "open_waits": waits, "settle_waits": settled} | dict(parts or {})
        if point is not None:
            commit.setdefault("steps", point.step)
            commit["checkpoint"] = NewCheckpoint(
                step=point.step,
                cursor=point.cursor,
                document=self._short(point.document),
                schema_version=point.schema_version,
            )
        self._unsure = (operation_id, logs, save, end)

        async def land() -> Receipt:
            receipt = await self._land(operation_id, commit, logs, save)
            self._unsure = self._again = None
            self._landed(receipt, logs, save, end)
            self.logs.complete()
            for document in (point.document if point else {}, save.document if save else {}):
                if document:
                    self._handles.remember(document)
            return receipt

        self._again = land
        return await self._try(land)

    async def _try(self, land: "Callable[[], Awaitable[Receipt]]") -> Receipt:
        try:
            return await land()
        except StoreError:
            raise
        except TenutoError:
            self._again = None  # refused: it did not land
            raise

    async def write_again(self) -> Receipt | None:
        """Repeat the last commit under its own operation id, if an error left it in doubt.

        For a caller that has held `writing` since: nothing else is written before this is resolved.
        """
        return await self._try(self._again) if self._again is not None else None

    async def resolve(self) -> Receipt | None:
        """Ask whether the last commit, whose reply was an error, landed after all; if so, return its receipt."""
        if self._unsure is None:
            return None
        operation_id, logs, save, end = self._unsure
        receipt = await self.store.receipt(self.key, operation_id)
        if receipt is None and save is not None:
            receipt = await self.store.receipt(self.key, operation_id + _OVERWRITES)
        self._unsure = None
        if receipt is not None:
            self._landed(receipt, logs, save, end)
        if operation_id != self.operation_id:
            return None  # a part that was written ahead of a commit, and the commit itself was not tried
        if receipt is not None:
            self.logs.complete()
        return receipt

    async def _write_ahead(self, operation_id: str, logs: Mapping[str, LogChange]) -> Mapping[str, LogChange]:
        """Write most of a large change ahead, on the run's own branches, where it is not visible yet; return the rest.

        A second call for the same operation continues with the part that failed.
        """
        if sum(len(change.items) for change in logs.values()) <= MAX_ENTRIES:
            return logs
        rest, number = dict(logs), 0
        for name, change in logs.items():
            items, written = list(change.items), 0
            for part in slices(change._replace(items=items)):
                number += 1
                await self._write_slice(f"{operation_id}.{number}", name, part)
                written += len(part.items)
            if written:
                rest[name] = LogChange(items=items[written:])
        return rest

    async def _write_slice(self, operation_id: str, name: str, part: LogChange) -> None:
        if operation_id in self._slices:
            return
        self.logs.note_part(name)
        self._unsure = (operation_id, {name: part}, None, None)
        receipt = await self._land(operation_id, {"end": None}, {name: part}, None)
        self._landed(receipt, {name: part}, None, None)
        self._slices.add(operation_id)

    def _next_operation(self) -> str:
        self._commits += 1
        self.operation_id = f"{self.run_id}/{self.attempt}/{self._commits}"
        return self.operation_id

    async def settle(self, wait_id: str, status: WaitStatus) -> None:
        """Settle a wait of a run that is over."""
        assert self.life is not None
        settled = (SettleWait(wait_id=wait_id, status=status),)
        await self.store.commit(
            Commit(key=self.key, operation_id=self._next_operation(), life=self.life, settle_waits=settled)
        )

    async def repeat(self, operation_id: str, logs: Mapping[str, LogChange], save: Save, end: EndRun | None) -> Receipt:
        """Repeat the save of a turn that is over, because its reply was lost or the store was not available."""
        parts: dict[str, Any] = {"end": end, "open_waits": (), "settle_waits": ()}
        try:
            return await self._land(operation_id, parts, await self._write_ahead(operation_id, logs), save)
        finally:
            self.release()

    async def _land(
        self, operation_id: str, parts: dict[str, Any], logs: Mapping[str, LogChange], save: Save | None
    ) -> Receipt:
        plain = {name: self.logs.write(name, change) for name, change in logs.items()}
        if save is None:
            return await self._commit(operation_id, parts | {"logs": plain})
        saving = {
            "save": True,
            "carries": save.carries,
            "removed": save.removed,
            "schema_version": save.schema_version,
            "expected_version": self.logs.base.version,
            "document": self._short(save.document),
        }
        owned = {} if save.owner is None else {"profile": {"agent": save.owner}}
        try:
            return await self._commit(operation_id, parts | saving | owned | {"logs": plain})
        except VersionConflict as conflict:
            if not save.overwrites or self.lane is not None or conflict.expected is None:
                raise
        saving |= {"expected_version": None, "document": self._short(save.whole())}
        over = {name: self.logs.overwrite(name, logs.get(name)) for name in sorted(save.logs)}
        own = {name: write for name, write in plain.items() if name not in save.logs}
        return await self._commit(operation_id + _OVERWRITES, parts | saving | {"logs": own | over})

    def _short(self, document: Mapping[str, JSON]) -> Mapping[str, Any]:
        """Return a document with handles in place of big values that the store already holds."""
        return self._handles.short(document) if document else {}

    async def _commit(self, operation_id: str, parts: dict[str, Any]) -> Receipt:
        run = self._first or RunRef(run_id=self.run_id, attempt=self.attempt)
        at_once = parts["end"] is not None or self.lane is not None
        saving_plainly = parts.get("save") and parts["expected_version"] is not None and at_once
        if isinstance(run, BeginRun) and not saving_plainly:
            ends = run.ends if run.ends is not None else self.logs.base.ends
            run = replace(run, base_version=self.logs.base.version, base_ends=self.logs.base.ends, ends=ends)
        if self.lane is not None:
            over = parts["end"] is not None and "next_run" not in parts
            parts = parts | {"generation": self.lane.generation, "disarm": over}
        if self._resumes and isinstance(run, BeginRun):
            parts = parts | {"count_resume": True}
        if self._rearm is not None:
            parts = parts | {"rearm": self._rearm, "expected_commit": self._known_commit}
        if self.life is None:
            self.life = await self.store.life(self.key)
        heard = None if self.acknowledges == operation_id else self.acknowledges
        commit = Commit(key=self.key, operation_id=operation_id, life=self.life, heard=heard, run=run, **parts)
        return await self.store.commit(commit)

    def _landed(self, receipt: Receipt, logs: Mapping[str, LogChange], save: Save | None, end: EndRun | None) -> None:
        self.logs.landed(receipt, logs, saved=save is not None)
        self.event_seq = receipt.event_seq
        self.acknowledges = receipt.operation_id
        begins, self._first = self._first is not None, None
        rearmed, self._rearm = self._rearm is not None, None
        if end is not None:
            self.ended = True
            self.release()
        elif rearmed and self.lane is not None:
            self._hold(self.lane)
        elif begins and self.lane is None:
            self._hold(RunRef(run_id=self.run_id, attempt=self.attempt))

    def _hold(self, held: Lane | RunRef) -> None:
        self._task = asyncio.current_task()
        self._holding = self.store.keeper.hold(held, self._lose)
        self._held.hold(self.store, held)

    def runs_in(self, task: "asyncio.Task[Any] | None") -> None:
        """Set the task to cancel if the lane is lost: a different one from the one that began the turn, or none."""
        self._task = task
        if task is not None:
            self._held.enter()

    def _lose(self) -> None:
        if self._holding is None:
            return  # reported too late: the turn is over, and its task does something else
        self.lost = lane_lost(self.key, self.lane, self._holding.cause)
        if self._task is not None:
            self._task.cancel()

    @property
    def has_lapsed(self) -> bool:
        """Whether the lane was not renewed in time, as far as this process knows."""
        return self._holding is not None and self._holding.has_lapsed

    async def make_sure(self) -> None:
        """Ask the store whether a lane that has lapsed is still this turn's; raise `lost` if it is not.

        A process that was suspended for a while does this before it makes a call to the outside.
        """
        holding = self._holding
        if holding is None or await self.store.keeper.confirm(holding):
            return
        self.lost = lane_lost(self.key, self.lane, holding.cause)
        raise self.lost

    def release(self) -> None:
        """Stop renewing the lane or run; a second call does nothing."""
        live_run_ids.discard(self.run_id)
        if self._holding is not None:
            self.store.keeper.release(self._holding)
            self._holding = None
        self._held.release()

    async def abandon(self) -> None:
        """Free the lane of a turn that ends without a commit; a lane that cannot be freed lapses by itself."""
        holding = self._holding
        self.release()
        if self.lane is not None and holding is not None and self.lost is None:
            await free_lane(self.store, self.lane)


def begin_run(store: Store, run_id: str, invocation_id: str, correlation_id: str, **parts: Any) -> BeginRun:
    """Return the commit part that begins a run of this process, and count the run among `live_run_ids`."""
    live_run_ids.add(run_id)
    return BeginRun(
        run_id=run_id,
        invocation_id=invocation_id,
        correlation_id=correlation_id,
        worker=worker_name(),
        ttl=store.keeper.ttl,
        **parts,
    )
