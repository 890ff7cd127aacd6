"""What `tenuto state` prints: for people, or as JSON."""

import json
from dataclasses import dataclass
from typing import Any

import typer

from tenuto.states.graph_reader import GraphReader
from tenuto.states.stored_states import Findings, StoredStates, Tallies
from tenuto.states.tally import Tally


@dataclass(slots=True)
class Report:
    """The findings of a command, of one graph or of programs.

    `asks` means that nobody said what to do with sessions without an owner. `passed` and `failed` are what is said of
    those that do and those that do not, and `runs` says whether runs were looked at.
    """

    states: StoredStates
    graph: GraphReader | None
    asks: bool
    passed: str = ""
    failed: str = ""
    runs: bool = True

    @property
    def found(self) -> list[Findings]:
        """The findings by name; those of a graph, also if there is nothing of it."""
        if self.graph is None:
            return [self.states.findings[name] for name in sorted(self.states.findings)]
        reader = self.graph
        return [self.states.findings.get(reader.name) or Findings(reader.name, reader.target, reader.run_target)]

    @property
    def count(self) -> int:
        """How many sessions and runs did not pass."""
        return sum(each.failed for each in self.found)

    @property
    def ok(self) -> bool:
        """Whether everything passed."""
        return not self.count and not (self.asks and self.states.others[None])


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the report."""
    if as_json:
        typer.echo(json.dumps(_as_json(report)))
        return
    for each in report.found:
        if report.graph is None:
            typer.secho(each.name, bold=True)
        _print_findings(each, report)
    _print_others(report)
    typer.secho(f"{report.count} failed." if report.count else "Nothing failed.", fg="red" if report.count else "green")


def _print_findings(found: Findings, report: Report) -> None:
    indent = "" if report.graph is not None else "  "
    parts = [("Sessions", found.sessions, found.target, True)]
    if report.runs:
        parts.append(("Suspended runs", found.suspended, found.run_target, report.graph is not None))
        parts.append(("Checkpoints to resume from", found.checkpoints, found.run_target, False))
    for title, tallies, target, always in parts:
        if tallies or always:
            typer.echo(f"{indent}{title}, to version {target!r}:{'' if tallies else ' none'}")
        for version in sorted(tallies):
            _print_tally(tallies[version], report, indent)
    for name, count in sorted(found.fields.items()):
        noun = "1 session has" if count == 1 else f"{count} sessions have"
        typer.secho(f"{indent}{noun} a field {name!r} that the code does not name.", fg="yellow")


def _print_tally(tally: Tally, report: Report, indent: str) -> None:
    counts = [f"{tally.passed} {report.passed}"]
    if tally.failed:
        counts.append(f"{tally.failed} {report.failed}")
    if tally.left:
        counts.append(f"{tally.left} deleted or migrated meanwhile")
    typer.echo(f"{indent}  version {tally.version!r}: {', '.join(counts)}")
    for reason in tally.reasons.values():
        typer.secho(f"{indent}    {reason.count} x {reason.category}: {reason.text}", fg="red")
        more = ["..."] if reason.count > len(reason.examples) else []
        typer.echo(f"{indent}      {', '.join([*map(str, reason.examples), *more])}")


def _print_others(report: Report) -> None:
    for owner, count in sorted(report.states.others.items(), key=lambda each: each[0] or ""):
        if owner is not None:
            typer.echo(f"Skipped: {count} created by {owner!r}")
        elif report.asks:
            typer.secho(
                f"Skipped: {count} without an owner. Include them with --unowned if they belong to this graph, or skip "
                "them with --no-unowned.",
                fg="yellow",
            )
        else:
            typer.echo(f"Skipped: {count} without an owner")


def _as_json(report: Report) -> dict[str, Any]:
    others = {owner: number for owner, number in report.states.others.items() if owner is not None}
    rest = {"others": others, "unowned": report.states.others[None]}
    if report.graph is None:
        programs = {each.name: _parts(each, report) for each in report.found}
        return {"ok": report.ok, "programs": programs, **rest}
    (found,) = report.found
    return {"graph": found.name, "ok": report.ok, **_parts(found, report), **rest}


def _parts(found: Findings, report: Report) -> dict[str, Any]:
    parts: dict[str, Any] = {"sessions": _tallies(found.sessions, found.target)}
    if report.runs:
        parts["suspended"] = _tallies(found.suspended, found.run_target)
        parts["checkpoints"] = _tallies(found.checkpoints, found.run_target)
        parts["unnamed_fields"] = dict(sorted(found.fields.items()))
    return parts


def _tallies(tallies: Tallies, target: str) -> dict[str, Any]:
    return {"target": target, "versions": [_tally(tallies[version]) for version in sorted(tallies)]}


def _tally(tally: Tally) -> dict[str, Any]:
    reasons = [
        {
            "category": reason.category,
            "reason": reason.text,
            "count": reason.count,
            "examples": [{"session_id": key.session_id, "tenant": key.tenant} for key in reason.examples],
        }
        for reason in tally.reasons.values()
    ]
    return {
        "version": tally.version,
        "passed": tally.passed,
        "failed": tally.failed,
        "left": tally.left,
        "reasons": reasons,
    }
