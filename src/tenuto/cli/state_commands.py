"""`tenuto state`: check and migrate stored sessions."""

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from tenuto.cli.exit_code import ExitCode, run_or_exit
from tenuto.cli.parameters import Address, AsJson, Schema, compiled_graph, load_graph_source, open_existing
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.graph.stored_states import DEFAULT_BATCH, Step, StoredStates, Tally
from tenuto.model.session import ANY_TENANT

states = typer.Typer(help="Check and migrate stored sessions after a state change.", no_args_is_help=True)

Place = Annotated[
    str,
    typer.Argument(
        help="Import path module:name of a compiled graph, or of a function that takes the store and returns one."
    ),
]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant's sessions.", show_default="all tenants")]
Owner = Annotated[
    str | None,
    typer.Option(help="Name of the graph or program that created the sessions.", show_default="the graph's name"),
]
Unowned = Annotated[
    bool | None,
    typer.Option(
        "--unowned/--no-unowned",
        help="Include sessions without an owner, such as old ones and those created by hand.",
        show_default="exits with 1 if there are any",
    ),
]

Tallies = dict[str, list[Tally]]
Work = Callable[[StoredStates, Progress], Awaitable[Tallies]]


@states.command("check")
def check(
    place: Place,
    store: Address,
    tenant: Tenant = None,
    schema: Schema = None,
    owner: Owner = None,
    unowned: Unowned = None,
    as_json: AsJson = False,
) -> None:
    """Try the graph's migrations on every session and suspended run it has stored; write nothing.

    Sessions of other graphs and programs are skipped and counted. Exits with 0 if all of the graph's sessions fit, and
    with 1 if some do not, or if some have no owner.
    """

    async def work(found: StoredStates, progress: Progress) -> Tallies:
        versions = await found.versions()
        sessions = await found.check(versions, _steps(progress, "sessions", sum(versions.values())))
        suspended = await found.check_suspended(_steps(progress, "suspended runs", None))
        return {"sessions": sessions, "suspended": suspended}

    options = {"tenant": ANY_TENANT if tenant is None else tenant, "owner": owner, "unowned": bool(unowned)}
    found, tallies = _run(place, store, work, schema=schema, migrate=False, as_json=as_json, **options)
    _report(found, tallies, as_json=as_json, passed="fit", failed="do not fit", asks=unowned is None)


@states.command("migrate")
def migrate(
    place: Place,
    store: Address,
    tenant: Tenant = None,
    schema: Schema = None,
    owner: Owner = None,
    unowned: Unowned = None,
    batch: Annotated[int, typer.Option(min=1, help="How many sessions to list at a time.")] = DEFAULT_BATCH,
    as_json: AsJson = False,
) -> None:
    """Migrate every stored session of the graph; run it again to continue where it stopped.

    Sessions of other graphs and programs are skipped and counted. Suspended runs are migrated when they are resumed.
    Exits with 0 if nothing is left to do, and with 1 if something is, or if some sessions have no owner.
    """

    async def work(found: StoredStates, progress: Progress) -> Tallies:
        versions = await found.versions()
        old = sum(count for version, count in versions.items() if version != found.plan.schema_version)
        return {"sessions": await found.migrate(versions, _steps(progress, "sessions", old))}

    options = {
        "tenant": ANY_TENANT if tenant is None else tenant,
        "owner": owner,
        "unowned": bool(unowned),
        "batch": batch,
    }
    found, tallies = _run(place, store, work, schema=schema, migrate=True, as_json=as_json, **options)
    _report(found, tallies, as_json=as_json, passed="migrated", failed="left unchanged", asks=unowned is None)


def _run(
    place: str, url: str, work: Work, *, schema: str | None, migrate: bool, as_json: bool, **options: Any
) -> tuple[StoredStates, Tallies]:
    """Import the graph, open the store, do the work."""
    source = load_graph_source(place)

    async def run() -> tuple[StoredStates, Tallies]:
        console = Console(stderr=True)
        async with open_existing(url, schema, migrate=migrate) as store:
            graph = source if isinstance(source, CompiledGraph) else source(store)
            if inspect.isawaitable(graph):
                graph = await graph
            found = StoredStates(compiled_graph(graph, place), store, **options)
            with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
                return found, await work(found, progress)

    return run_or_exit(run(), as_json=as_json)


def _steps(progress: Progress, what: str, total: int | None) -> Step:
    task = progress.add_task(what, total=total)
    return lambda: progress.advance(task)


def _report(found: StoredStates, tallies: Tallies, *, as_json: bool, passed: str, failed: str, asks: bool) -> None:
    """Print what was done and exit with 1 if something is left; `asks` if nobody said what to do without an owner."""
    targets = {"sessions": found.plan.schema_version, "suspended": found.graph.kind.schema_version}
    count = sum(tally.failed for each in tallies.values() for tally in each)
    unsure = asks and found.others[None]
    if as_json:
        parts = {
            name: {"target": targets[name], "versions": [_tally_json(t) for t in each]}
            for name, each in tallies.items()
        }
        report = {"graph": found.graph.name, "ok": not count and not unsure, **parts}
        others = {owner: number for owner, number in found.others.items() if owner is not None}
        typer.echo(json.dumps({**report, "others": others, "unowned": found.others[None]}))
    else:
        titles = {"sessions": "Sessions", "suspended": "Suspended runs"}
        for name, each in tallies.items():
            typer.echo(f"{titles[name]}, to version {targets[name]!r}:{'' if each else ' none'}")
            for tally in each:
                _print_tally(tally, passed, failed)
        _print_others(found, asks=asks)
        typer.secho(f"{count} failed." if count else "Nothing failed.", fg="red" if count else "green")
    if count or unsure:
        raise typer.Exit(ExitCode.REFUSED)


def _print_others(found: StoredStates, *, asks: bool) -> None:
    for owner, count in sorted(found.others.items(), key=lambda each: each[0] or ""):
        if owner is not None:
            typer.echo(f"Skipped: {count} created by {owner!r}")
        elif asks:
            typer.secho(
                f"Skipped: {count} without an owner. Include them with --unowned if they belong to this graph, or skip "
                "them with --no-unowned.",
                fg="yellow",
            )
        else:
            typer.echo(f"Skipped: {count} without an owner")


def _print_tally(tally: Tally, passed: str, failed: str) -> None:
    counts = [f"{tally.passed} {passed}"]
    if tally.failed:
        counts.append(f"{tally.failed} {failed}")
    if tally.left:
        counts.append(f"{tally.left} deleted or migrated meanwhile")
    typer.echo(f"  version {tally.version!r}: {', '.join(counts)}")
    for reason in tally.reasons.values():
        typer.secho(f"    {reason.count} x {reason.category}: {reason.text}", fg="red")
        more = ["..."] if reason.count > len(reason.examples) else []
        typer.echo(f"      {', '.join([*map(str, reason.examples), *more])}")


def _tally_json(tally: Tally) -> dict[str, Any]:
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
