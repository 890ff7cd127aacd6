"""How a demonstration is shown: one table of both sides, then what is claimed of Tenuto and whether it holds."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing looked at on both sides."""

    what: str
    tenuto: str
    langgraph: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence about Tenuto that this run has tried."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What a run has found out. The figures are what was measured; the rows say it in words."""

    name: str
    title: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    tenuto: dict[str, Any]
    langgraph: dict[str, Any]

    @property
    def holds(self) -> bool:
        """Return whether Tenuto did all that is claimed."""
        return all(claim.holds for claim in self.claims)


def peer() -> str:
    """Return the name and the version of what Tenuto is shown beside."""
    return f"LangGraph {version('langgraph')}"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what every demonstration takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    return parser


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Show on a terminal what is going on; it stays out of the result."""
    with Console(stderr=True).status(what, refresh_per_second=4):
        yield


def present(demonstration: Demonstration, *, as_json: bool) -> int:
    """Print it and return the exit code."""
    if as_json:
        packages = ("langgraph", "langgraph-checkpoint-sqlite", "aiosqlite")
        versions = {name: version(name) for name in ("tenuto", *packages)}
        print(json.dumps(asdict(demonstration) | {"versions": versions, "holds": demonstration.holds}, indent=2))
    else:
        _print(demonstration, Console(highlight=False))
    return 0 if demonstration.holds else 1


def _print(demonstration: Demonstration, console: Console) -> None:
    table = Table(title=demonstration.title, title_justify="left", show_lines=True)
    for heading in ("", "Tenuto", f"{peer()}, SQLite saver"):
        table.add_column(heading, overflow="fold")
    for row in demonstration.rows:
        table.add_row(row.what, row.tenuto, row.langgraph)
    console.print(table)
    for claim in demonstration.claims:
        console.print(f"{'[green]holds[/]' if claim.holds else '[bold red]does not hold[/]'}  {claim.text}")


def yes(value: bool) -> str:
    """Return it as a word."""
    return "yes" if value else "no"
