"""Remove what is unreachable, slice by slice; a failure reports how far it has come."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from tenuto.clock import to_duration
from tenuto.codec import encode
from tenuto.errors import StoredDataCorrupt, TenutoError, UpkeepFailed
from tenuto.model.report import DeleteReport, ExpiryReport, GcReport, PruneReport
from tenuto.model.session import SessionKey
from tenuto.store.backend import columns_of, family_lock
from tenuto.store.facets.damage import report as report_damage
from tenuto.store.rules.rows import SessionRow, first_row
from tenuto.store.rules.verbs.collect import ROWS_PER_SLICE, decide_collect, gather_family
from tenuto.store.store_context import StoreContext

R = TypeVar("R", bound=GcReport | PruneReport | ExpiryReport)

DEFAULT_GRACE = 24 * 3600.0
"""How long something must have been unreachable before it is collected, in seconds."""


class Progress(Generic[R]):
    """What a verb has done so far."""

    def __init__(self, report: R) -> None:
        self.report = report

    def add(self, **counts: Any) -> None:
        """Add to the counts, and to the tuples of keys."""
        sums = {name: getattr(self.report, name) + value for name, value in counts.items()}
        self.report = replace(self.report, **sums)

    @contextmanager
    def passing_over(self, what: str) -> Iterator[None]:
        """Continue after something that cannot be read, and name it in the report."""
        try:
            yield
        except StoredDataCorrupt as error:
            self.add(damaged=(report_damage(what, error),))


@asynccontextmanager
async def reporting(verb: str, report: R) -> AsyncIterator[Progress[R]]:
    """Do a verb of upkeep; where it fails, say what it has done so far (`UpkeepFailed`)."""
    progress = Progress(report)
    try:
        yield progress
    except TenutoError as error:
        raise UpkeepFailed(
            f"{verb} stopped part-way: {error.message} {_next(error)}; what it did so far is in `report`.",
            report=progress.report,
        ) from error


def _next(error: TenutoError) -> str:
    return "Run it again" if error.retryable else "Running it again does not help before that is mended"


class Sweep:
    """Sweeps what deletes and collections leave behind."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def deleted(self, key: SessionKey) -> DeleteReport:
        """Remove what a deleted session left behind, and count it."""
        row = first_row(SessionRow, await self._store.backend.read("session_by_key", *columns_of(key)))
        if row is None:
            return DeleteReport()
        progress, grace = Progress(GcReport()), to_duration(DEFAULT_GRACE)
        dropped = await self.family(row.family, grace, progress)
        events = await self.total("sweep_events_of", row.sid)
        mine = sorted({content for session, content in dropped if session == row.sid})
        await self._store.backend.write("loosen_contents", key.tenant, encode(mine))
        contents = await self.total("sweep_contents", self._store.now(), grace) if mine else 0
        done = progress.report
        return DeleteReport(entries=done.entries, branches=done.branches, events=events, contents=contents)

    async def family(self, family: int, grace: int, progress: Progress[GcReport]) -> list[tuple[int, str]]:
        """Collect one family of forks; return which values which session released."""
        more, removed = True, 0
        dropped: list[tuple[int, str]] = []
        while more:
            collected = await self._store.backend.transact(
                partial(gather_family, family, self._store.now()), partial(decide_collect, grace), family_lock(family)
            )
            report, more = collected.report, collected.more
            progress.add(entries=report.entries, branches=report.branches)
            removed += report.entries + report.branches
            dropped += collected.dropped
        progress.add(families=1 if removed else 0, waiting=report.waiting)
        return dropped

    async def slices(self, name: str, *params: object) -> AsyncIterator[int]:
        """Repeat a sliced statement until it finds nothing more; yield how much each slice removed."""
        while True:
            rows = await self._store.backend.write(name, *params, ROWS_PER_SLICE)
            yield sum(int(row[0]) for row in rows)
            if len(rows) < ROWS_PER_SLICE:
                return

    async def count(self, progress: Progress[Any], what: str, name: str, *params: object) -> None:
        """Repeat a sliced statement until it finds nothing more; count what each slice removed as it goes."""
        async for removed in self.slices(name, *params):
            progress.add(**{what: removed})

    async def total(self, name: str, *params: object) -> int:
        """Repeat a sliced statement until it finds nothing more; return how much it removed."""
        return sum([removed async for removed in self.slices(name, *params)])
