"""`make bench`: take every measure, or those whose name contains a word; fail if a bar does not hold.

A whole run writes `bench/results.json`; a run of some measures only prints.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.harness import Measure, Result, Scene, bars
from bench.measures import (
    calls,
    crowd,
    engine,
    file,
    fork,
    handles,
    history,
    listing,
    load,
    postgres,
    resume,
    runtime,
    sessions,
    stream,
    turn,
    workers,
)

RESULTS = Path(__file__).parent / "results.json"
MEASURES: tuple[Measure, ...] = (
    *turn.MEASURES,
    *crowd.MEASURES,
    *history.MEASURES,
    *load.MEASURES,
    *fork.MEASURES,
    *file.MEASURES,
    *postgres.MEASURES,
    *listing.MEASURES,
    *engine.MEASURES,
    *resume.MEASURES,
    *sessions.MEASURES,
    *runtime.MEASURES,
    *stream.MEASURES,
    *calls.MEASURES,
    *handles.MEASURES,
    *workers.MEASURES,
)


def main() -> int:
    """Run the bench and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="take only measures whose name contains this")
    word = parser.parse_args().word
    wanted = [measure for measure in MEASURES if word.lower() in measure.name.lower()]
    if not wanted:
        parser.error(f"no measure has {word!r} in its name: {'; '.join(measure.name for measure in MEASURES)}")
    if unknown := bars().keys() - {measure.name for measure in MEASURES}:
        parser.error(f"bars.toml has bars for what is not measured: {'; '.join(sorted(unknown))}")
    console = Console()
    results = asyncio.run(_take(wanted, console))
    console.print(_table(results))
    if len(wanted) == len(MEASURES):
        RESULTS.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    return int(any(result.holds is False for result in results))


async def _take(measures: Sequence[Measure], console: Console) -> list[Result]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    limits, results = bars(), []
    # It draws between rounds only: a drawing thread would count as CPU time of what is measured.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        whole = progress.add_task("all measures", total=len(measures))
        for measure in measures:
            progress.print(measure.name)
            with TemporaryDirectory(prefix="tenuto-bench-") as folder:
                task = progress.add_task(measure.name, total=None)
                progress.refresh()
                value = await measure.run(Scene(Path(folder), progress, task))
                progress.remove_task(task)
            results.append(Result.of(measure, value, limits.get(measure.name)))
            progress.advance(whole)
    return results


def _table(results: Sequence[Result]) -> Table:
    table = Table("name", title="bench", title_justify="left")
    for column in ("value", "unit", "bar", "holds"):
        table.add_column(column, justify="right" if column == "value" else "left", no_wrap=True)
    shown = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}
    for result in results:
        table.add_row(result.name, f"{result.value:g}", result.unit, result.bar or "", shown[result.holds])
    return table


if __name__ == "__main__":
    sys.exit(main())
