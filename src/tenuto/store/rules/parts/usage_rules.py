"""The usage of a commit, and sums over it."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from tenuto.errors import UsageOutOfRange
from tenuto.model.token_usage import NewUsage, UsageReport, UsageTotals
from tenuto.store.rules.limits import MAX_COUNT
from tenuto.store.rules.plan import Draft, Row, Write
from tenuto.store.rules.rows import UsageRow

TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")
_tokens: Callable[[NewUsage], tuple[int, ...]] = attrgetter(*TOKENS)

SPLIT = 2**26
"""Sums are made of high and low halves, so that no database's own arithmetic overflows."""


def usage_meaning(usage: tuple[NewUsage, ...]) -> list[Any]:
    """Return what counts for the intent hash."""
    return ["usage", [[each.model, each.source, *_tokens(each)] for each in usage]]


def usage_writes(draft: Draft, writes: list[Write]) -> None:
    """Add the rows of the commit's usage, numbered within its operation."""
    row, commit = draft.row, draft.commit
    run_id = draft.run.run_id if draft.run else None
    rows = [
        UsageRow(row.sid, row.life, commit.operation_id, ordinal, run_id, each.source, each.model, *_tokens(each))
        for ordinal, each in enumerate(commit.usage)
    ]
    writes.append(Write("insert_usage", rows))


def report_of(rows: Iterable[Row], sessions: int) -> UsageReport:
    """Add up sums by model and by source: both, the calls, and high and low halves of each count."""
    models: dict[str, dict[str, int]] = {}
    sources: dict[str, dict[str, int]] = {}
    total = dict.fromkeys(("calls", *TOKENS), 0)
    for model, source, calls, *halves in rows:
        of_model = models.setdefault(model, dict.fromkeys(total, 0))
        of_source = sources.setdefault(source, dict.fromkeys(total, 0))
        counts = {name: halves[2 * i] * SPLIT + halves[2 * i + 1] for i, name in enumerate(TOKENS)}
        for name, count in {"calls": calls, **counts}.items():
            for sums in (of_model, of_source, total):
                sums[name] += count
    for name, count in total.items():
        if count > MAX_COUNT:
            raise UsageOutOfRange(f"The sum of {name} is {count}, over 2^53 - 1; sum fewer sessions.", name=name)
    by_model = {model: UsageTotals(**models[model]) for model in sorted(models)}
    by_source = {source: UsageTotals(**sources[source]) for source in sorted(sources)}
    return UsageReport(total=UsageTotals(**total), by_model=by_model, by_source=by_source, sessions=sessions)
