"""Upkeep: expiry, collection, pruning, vacuum.

Each verb works in small slices beside live turns and reports what it did.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tenuto.clock import to_duration
from tenuto.codec import encode
from tenuto.errors import StoredDataCorrupt, TenutoError, UpkeepFailed
from tenuto.model.report import DeleteReport, ExpiryReport, GcReport, PruneReport, VacuumReport
from tenuto.model.session import SessionKey
from tenuto.store.backend import Lock, columns_of, family_lock, session_lock
from tenuto.store.damage import name_of
from tenuto.store.damage import report as report_damage
from tenuto.store.facets.deletions import Deletions
from tenuto.store.rules.limits import check_count, check_delay
from tenuto.store.rules.parts.event_rules import decide_elide, gather_run_events
from tenuto.store.rules.plan import Ask, gather
from tenuto.store.rules.records import key_of
from tenuto.store.rules.rows import SessionRow
from tenuto.store.rules.verbs.collect import ROWS_PER_SLICE, decide_collect, gather_family
from tenuto.store.rules.verbs.lane_rules import is_live
from tenuto.store.rules.verbs.prune import decide_prune_run, decide_remove, gather_run

if TYPE_CHECKING:
    from tenuto.store.store import Store

R = TypeVar("R", GcReport, PruneReport, ExpiryReport)

DEFAULT_GRACE = 24 * 3600.0
"""How long something must have been unreachable before it is collected, in seconds."""

_PAGE = 100


class _Progress:
    """What a verb has done so far; a failure reports it."""

    def __init__(self, report: GcReport | PruneReport | ExpiryReport) -> None:
        self.report = report

    def add(self, **counts: Any) -> None:
        """Add to the counts, and to the tuples of keys."""
        sums = {name: getattr(self.report, name) + value for name, value in counts.items()}
        self.report = replace(self.report, **sums)

    @contextmanager
    def passing_over(self, what: str) -> Iterator[None]:
        """Go on after something that cannot be read, and name it in the report."""
        try:
            yield
        except StoredDataCorrupt as error:
            self.add(damaged=(report_damage(what, error),))


@asynccontextmanager
async def _reporting(verb: str, report: GcReport | PruneReport | ExpiryReport) -> AsyncIterator[_Progress]:
    progress = _Progress(report)
    try:
        yield progress
    except TenutoError as error:
        raise UpkeepFailed(
            f"{verb} stopped part-way: {error.message} {_next(error)}; what it did so far is in `report`.",
            report=progress.report,
        ) from error


def _next(error: TenutoError) -> str:
    return "Run it again" if error.retryable else "Running it again does not help before that is mended"


class Upkeep:
    """Housekeeping for a store; run it from one place or many, as often as you like."""

    def __init__(self, store: "Store", deletions: Deletions) -> None:
        self._store = store
        self._deletions = deletions

    async def expire(self) -> ExpiryReport:
        """Delete every session whose `expires_at` has come; one that a runner holds is left and named.

        What cannot be read stops nothing else: it is named in the report.
        """
        async with _reporting("Expiry", ExpiryReport()) as progress:
            async with self._store.backend.view() as view:
                rows = await view.read("expired", self._store.now())
                ((now,),) = await view.read("lease_moment", self._store.now())
            for row in rows:
                with progress.passing_over(name_of(row)):
                    session = SessionRow(*row)
                    key = key_of(session)
                    if is_live(session, now):
                        progress.add(held=(key,))
                        continue
                    await self._store.bury(key)
                    progress.add(deleted=(key,))
                    await self.sweep_deleted(key)
        return _as(progress.report, ExpiryReport)

    async def gc(self, *, grace: float = DEFAULT_GRACE) -> GcReport:
        """Remove entries, branches, big values and events that nobody has reached for `grace` seconds.

        Heads, checkpoints, forks and every run that can still be gone on with keep what they reach. A cascading delete
        that was cut off is finished first; one that has been done for so long is forgotten. A second call removes
        nothing more. A family of forks with something that cannot be read is left and named.
        """
        term = _term(grace)
        async with _reporting("Collection", GcReport()) as progress:
            progress.add(sessions=await self.finish_deletes())
            await self._total("sweep_deletions", self._store.now(), term)
            last = 0
            while families := await self._families(last):
                for family in families:
                    try:
                        await self._collect(family, term, progress)
                    except StoredDataCorrupt as error:
                        progress.add(damaged=(report_damage(await self._family_name(family), error),))
                last = families[-1]
            await self._sweep_contents(term, progress)
            async for removed in self._slices("sweep_events"):
                progress.add(events=removed)
        return _as(progress.report, GcReport)

    async def finish_deletes(self) -> int:
        """Go on with every cascading delete that was cut off; return how many sessions had still to be ended.

        Cheap when there is none. Each session ends in the life it had when it was found, or not at all.
        """
        return await self._deletions.finish()

    async def prune(
        self,
        *,
        receipts_older_than: float | None = None,
        events_older_than: float | None = None,
        events_keep: int | None = None,
        chunks_older_than: float | None = None,
        runs_older_than: float | None = None,
        inputs_older_than: float | None = None,
        outgoing_older_than: float | None = None,
    ) -> PruneReport:
        """Remove what is old, by age in seconds or by count per session; what is not named is left alone.

        Events leave a floor behind, so that a reader below it is told; chunks of runs that are over leave an `elided`
        event for each stretch of them, and everything else stays where it is. Runs go with their checkpoints, waits
        and the effects whose outcome is known, once their invocation is over (a suspended one is not), except each
        session's current one; ids that were never saved go with their last run.

        Input goes once it was consumed or cancelled that long ago and its run has ended, and its key is forgotten with
        it: the same key is then new input, so this age is how long a sender may repeat itself. Outgoing items go that
        long after they were due (or sent, if later) once they are done or expired. Usage stays: it is the ledger.
        """
        for age in (
            *(receipts_older_than, events_older_than, chunks_older_than, runs_older_than),
            *(inputs_older_than, outgoing_older_than),
        ):
            if age is not None:
                _term(age)
        if events_keep is not None:
            check_count(events_keep, "events_keep")
        async with _reporting("Pruning", PruneReport()) as progress:
            if receipts_older_than is not None:
                async for removed in self._slices("prune_receipts", *self._cut(receipts_older_than)):
                    progress.add(receipts=removed)
            if events_older_than is not None:
                await self._store.backend.write("floor_events_by_age", *self._cut(events_older_than))
            if events_keep is not None:
                await self._store.backend.write("floor_events_by_count", events_keep)
            if events_older_than is not None or events_keep is not None:
                async for removed in self._slices("sweep_events"):
                    progress.add(events=removed)
            if chunks_older_than is not None:
                await self._prune_chunks(chunks_older_than, progress)
            if runs_older_than is not None:
                await self._prune_runs(runs_older_than, progress)
            if inputs_older_than is not None:
                async for removed in self._slices("prune_inputs", *self._cut(inputs_older_than)):
                    progress.add(inputs=removed)
            if outgoing_older_than is not None:
                async for removed in self._slices("prune_outgoing", *self._cut(outgoing_older_than)):
                    progress.add(outgoing=removed)
        return _as(progress.report, PruneReport)

    async def vacuum(self, *, pages: int = 1000) -> VacuumReport:
        """Give up to `pages` free pages back to the file system; `Unsupported` where the backend does that by
        itself.
        """
        freed, left = await self._store.backend.vacuum(check_count(pages, "pages"))
        return VacuumReport(pages_freed=freed, pages_left=left)

    async def sweep_deleted(self, key: SessionKey) -> DeleteReport:
        """Remove what a deleted session left behind, and count it."""
        rows = await self._store.backend.read("session_by_key", *columns_of(key))
        if not rows:
            return DeleteReport()
        progress = _Progress(GcReport())
        row = SessionRow(*rows[0])
        dropped = await self._collect(row.family, _term(DEFAULT_GRACE), progress)
        events = await self._total("sweep_events_of", row.sid)
        mine = sorted({content for session, content in dropped if session == row.sid})
        await self._store.backend.write("loosen_contents", key.tenant, encode(mine))
        contents = await self._total("sweep_contents", self._store.now(), _term(DEFAULT_GRACE)) if mine else 0
        done = _as(progress.report, GcReport)
        return DeleteReport(entries=done.entries, branches=done.branches, events=events, contents=contents)

    def _cut(self, seconds: float) -> tuple[int | None, int]:
        """Return the parameters of a cut-off: the time, if a test gives it, and the age."""
        return self._store.now(), _term(seconds)

    async def _families(self, after: int) -> list[int]:
        return [family for (family,) in await self._store.backend.read("families", after, _PAGE)]

    async def _family_name(self, family: int) -> str:
        rows = await self._store.backend.read("family_name", family)
        return f"the family of {name_of(rows[0])}" if rows else f"family {family}"

    async def _collect(self, family: int, grace: int, progress: _Progress) -> list[tuple[int, str]]:
        more, removed = True, 0
        dropped: list[tuple[int, str]] = []
        while more:
            collected = await self._store.backend.transact(
                partial(gather_family, family, self._store.now()),
                partial(decide_collect, grace),
                family_lock(family),
            )
            report, more = collected.report, collected.more
            progress.add(entries=report.entries, branches=report.branches)
            removed += report.entries + report.branches
            dropped += collected.dropped
        progress.add(families=1 if removed else 0, waiting=report.waiting)
        return dropped

    async def _sweep_contents(self, grace: int, progress: _Progress) -> None:
        now = self._store.now()
        await self._store.backend.write("mark_contents", now)
        async for removed in self._slices("sweep_contents", now, grace):
            progress.add(contents=removed)
        ((waiting,),) = await self._store.backend.read("loose_contents")
        progress.add(waiting=waiting)

    async def _prune_chunks(self, age: float, progress: _Progress) -> None:
        cut, last = self._cut(age), (0, "")
        while runs := await self._store.backend.read("runs_with_chunks", *cut, *last, _PAGE):
            for session, run_id in runs:
                with progress.passing_over(f"run {run_id}"):
                    lock = Lock("lock_run", run_id)
                    read = partial(gather_run_events, session, run_id)
                    progress.add(chunks=await self._store.backend.transact(read, decide_elide, lock))
            last = runs[-1]

    async def _prune_runs(self, age: float, progress: _Progress) -> None:
        cut, last = self._cut(age), ""
        while runs := await self._store.backend.read("old_runs", *cut, last, _PAGE):
            for (run_id,) in runs:
                with progress.passing_over(f"run {run_id}"):
                    lock = Lock("lock_run", run_id)
                    counts = await self._store.backend.transact(partial(gather_run, run_id), decide_prune_run, lock)
                    progress.add(**counts)
            ((last,),) = runs[-1:]
        for row in await self._store.backend.read("headless"):
            with progress.passing_over(name_of(row)):
                key = key_of(SessionRow(*row))
                read = partial(gather, Ask(key=key, relatives=True), self._store.now())
                removed = await self._store.backend.transact(read, decide_remove, session_lock(key))
                progress.add(rows=removed)

    async def _slices(self, name: str, *params: object) -> AsyncIterator[int]:
        """Repeat a sliced statement until it finds nothing more; yield how much each slice removed."""
        while True:
            rows = await self._store.backend.write(name, *params, ROWS_PER_SLICE)
            yield sum(int(row[0]) for row in rows)
            if len(rows) < ROWS_PER_SLICE:
                return

    async def _total(self, name: str, *params: object) -> int:
        return sum([removed async for removed in self._slices(name, *params)])


def _term(seconds: float) -> int:
    return to_duration(check_delay(seconds, "an age"))


def _as(report: object, kind: type[R]) -> R:
    assert isinstance(report, kind)
    return report
