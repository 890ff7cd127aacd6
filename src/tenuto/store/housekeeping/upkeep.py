"""Upkeep: expiry, collection, pruning, vacuum.

Each verb works in small slices beside live turns and reports what it did.
"""

from functools import partial

from tenuto.clock import to_duration
from tenuto.errors import StoredDataCorrupt
from tenuto.model.report import ExpiryReport, GcReport, PruneReport, VacuumReport
from tenuto.store.backend import Lock
from tenuto.store.facets.damage import name_of
from tenuto.store.facets.damage import report as report_damage
from tenuto.store.housekeeping.deletions import Deletions
from tenuto.store.housekeeping.sweep import DEFAULT_GRACE, Progress, Sweep, reporting
from tenuto.store.rules.lane_row import is_live
from tenuto.store.rules.limits import check_count, check_delay, if_given
from tenuto.store.rules.plan import Ask
from tenuto.store.rules.records import key_of
from tenuto.store.rules.rows import SessionRow
from tenuto.store.rules.verbs.event_rules import decide_elide, gather_run_events
from tenuto.store.rules.verbs.prune import decide_prune_run, decide_remove, gather_run
from tenuto.store.store_context import StoreContext, transact

_PAGE = 100


class Upkeep:
    """Housekeeping for a store; run it from one place or many, as often as you like."""

    def __init__(self, store: StoreContext, deletions: Deletions, sweep: Sweep) -> None:
        self._store = store
        self._deletions = deletions
        self._sweep = sweep

    async def expire(self) -> ExpiryReport:
        """Delete every session whose `expires_at` has come; one that a runner holds is left and named.

        What cannot be read stops nothing else: it is named in the report.
        """
        async with reporting("Expiry", ExpiryReport()) as progress:
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
                    await self._deletions.bury(key)
                    progress.add(deleted=(key,))
                    await self._sweep.deleted(key)
        return progress.report

    async def gc(self, *, grace: float = DEFAULT_GRACE) -> GcReport:
        """Remove entries, branches, big values and events that nobody has reached for `grace` seconds.

        Heads, checkpoints, forks and every run that can still be resumed keep what they reach. A cascading delete
        that was cut off is finished first; one that was done before that is forgotten. A second call removes
        nothing more. A family of forks with something that cannot be read is left and named.
        """
        term = _term(grace)
        async with reporting("Collection", GcReport()) as progress:
            progress.add(sessions=await self.finish_deletes())
            await self._sweep.total("sweep_deletions", self._store.now(), term)
            last = 0
            while families := await self._store.backend.read("families", last, _PAGE):
                for (family,) in families:
                    try:
                        await self._sweep.family(family, term, progress)
                    except StoredDataCorrupt as error:
                        progress.add(damaged=(report_damage(await self._family_name(family), error),))
                ((last,),) = families[-1:]
            await self._sweep_contents(term, progress)
            await self._sweep.count(progress, "events", "sweep_events")
        return progress.report

    async def finish_deletes(self) -> int:
        """Continue every cascading delete that was cut off; return how many sessions had still to be ended.

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

        Events leave a floor behind, so that a reader below it notices; chunks of runs that are over leave an `elided`
        event for each stretch of them, and everything else stays where it is. Runs go with their checkpoints, waits
        and the effects whose outcome is known, once their invocation is over (a suspended one is not), except each
        session's current one; ids that were never saved go with their last run.

        Input goes once it was consumed or cancelled that long ago and its run has ended, and its key is forgotten with
        it: the same key is then new input, so this age is how long a sender may repeat itself. Outgoing items go that
        long after they were due (or sent, if later) once they are done or expired. Usage stays: it is the ledger.
        """
        ages = (receipts_older_than, events_older_than, chunks_older_than, runs_older_than)
        for age in (*ages, inputs_older_than, outgoing_older_than):
            if_given(check_delay, age, "an age")
        if_given(check_count, events_keep, "events_keep")
        async with reporting("Pruning", PruneReport()) as progress:
            if receipts_older_than is not None:
                await self._sweep.count(progress, "receipts", "prune_receipts", *self._cut(receipts_older_than))
            if events_older_than is not None:
                await self._store.backend.write("floor_events_by_age", *self._cut(events_older_than))
            if events_keep is not None:
                await self._store.backend.write("floor_events_by_count", events_keep)
            if events_older_than is not None or events_keep is not None:
                await self._sweep.count(progress, "events", "sweep_events")
            if chunks_older_than is not None:
                await self._prune_chunks(chunks_older_than, progress)
            if runs_older_than is not None:
                await self._prune_runs(runs_older_than, progress)
            if inputs_older_than is not None:
                await self._sweep.count(progress, "inputs", "prune_inputs", *self._cut(inputs_older_than))
            if outgoing_older_than is not None:
                await self._sweep.count(progress, "outgoing", "prune_outgoing", *self._cut(outgoing_older_than))
        return progress.report

    async def vacuum(self, *, pages: int = 1000) -> VacuumReport:
        """Give up to `pages` free pages back to the file system; `Unsupported` where the backend does that by
        itself.
        """
        freed, left = await self._store.backend.vacuum(check_count(pages, "pages"))
        return VacuumReport(pages_freed=freed, pages_left=left)

    def _cut(self, seconds: float) -> tuple[int | None, int]:
        """Return the parameters of a cut-off: the time, if a test gives it, and the age."""
        return self._store.now(), _term(seconds)

    async def _family_name(self, family: int) -> str:
        rows = await self._store.backend.read("family_name", family)
        return f"the family of {name_of(rows[0])}" if rows else f"family {family}"

    async def _sweep_contents(self, grace: int, progress: Progress[GcReport]) -> None:
        now = self._store.now()
        await self._store.backend.write("mark_contents", now)
        await self._sweep.count(progress, "contents", "sweep_contents", now, grace)
        ((waiting,),) = await self._store.backend.read("loose_contents")
        progress.add(waiting=waiting)

    async def _prune_chunks(self, age: float, progress: Progress[PruneReport]) -> None:
        cut, last = self._cut(age), (0, "")
        while runs := await self._store.backend.read("runs_with_chunks", *cut, *last, _PAGE):
            for session, run_id in runs:
                with progress.passing_over(f"run {run_id}"):
                    read, lock = partial(gather_run_events, session, run_id), Lock("lock_run", run_id)
                    progress.add(chunks=await self._store.backend.transact(read, decide_elide, lock))
            last = runs[-1]

    async def _prune_runs(self, age: float, progress: Progress[PruneReport]) -> None:
        cut, last = self._cut(age), ""
        while runs := await self._store.backend.read("old_runs", *cut, last, _PAGE):
            for (run_id,) in runs:
                with progress.passing_over(f"run {run_id}"):
                    read, lock = partial(gather_run, run_id), Lock("lock_run", run_id)
                    progress.add(**await self._store.backend.transact(read, decide_prune_run, lock))
            ((last,),) = runs[-1:]
        for row in await self._store.backend.read("headless"):
            with progress.passing_over(name_of(row)):
                key = key_of(SessionRow(*row))
                progress.add(rows=await transact(self._store, Ask(key=key, relatives=True), decide_remove))


def _term(seconds: float) -> int:
    return to_duration(check_delay(seconds, "an age"))
