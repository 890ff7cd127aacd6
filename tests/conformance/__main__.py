"""Run fixtures: `python -m tests.conformance DIR_OR_FILE...`."""

import asyncio
import sys
from pathlib import Path

from tests.conformance.adapter.loader import fixtures_in
from tests.conformance.adapter.running import Report, run_fixture


def main(arguments: list[str]) -> int:
    """Run the fixtures of the files and folders that are named, and tell how they went."""
    if not arguments:
        print(__doc__)
        return 2
    try:
        fixtures = list(fixtures_in(map(Path, arguments)))
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    reports = [asyncio.run(run_fixture(fixture)) for fixture in fixtures]
    for report in reports:
        _tell(report)
    failed = [report for report in reports if report.problems]
    waiting = [report for report in reports if report.pending and not report.problems]
    if waiting:
        print(f"{len(waiting)} not run yet")
    print(f"{len(reports) - len(failed) - len(waiting)} passed, {len(failed)} failed")
    return 1 if failed else 0


def _tell(report: Report) -> None:
    word = "FAILED" if report.problems else "not run yet" if report.pending else "passed"
    print(f"{word:12} {report.fixture}")
    for line in report.problems:
        print(f"    {line}")
    for case, place, decision in report.deviations:
        print(f"    known deviation: {case}: {place}: {decision}")
    for line in report.pending:
        print(f"    not run yet: {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
