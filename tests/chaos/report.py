"""What a run prints."""

from collections.abc import Iterator

from tests.chaos.run import Result

_SHOWN = 40


def lines(result: Result) -> Iterator[str]:
    """Yield the report of a run, line by line."""
    plan = result.plan
    yield f"chaos: {plan.seconds:g} s on {plan.store}, seed {plan.seed}"
    for title, counts in result.counts.items():
        yield f"{title}:"
        for name, count in sorted(counts.items()):
            yield f"  {name:28}{count:8}"
    for violation in result.violations[:_SHOWN]:
        yield f"  {violation}"
    if len(result.violations) > _SHOWN:
        yield f"  and {len(result.violations) - _SHOWN} more"
    for each in result.short:
        yield f"  too little: {each}"
    if result.short:
        yield "does not count"
    yield f"violations: {len(result.violations)}"
