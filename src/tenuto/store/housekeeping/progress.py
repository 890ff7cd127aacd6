"""How far a verb of upkeep has come; a failure reports it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from tenuto.errors import StoredDataCorrupt, TenutoError, UpkeepFailed
from tenuto.model.report import ExpiryReport, GcReport, PruneReport
from tenuto.store.facets.damage import report as report_damage


class Progress:
    """What a verb has done so far."""

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
async def reporting(verb: str, report: GcReport | PruneReport | ExpiryReport) -> AsyncIterator[Progress]:
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
