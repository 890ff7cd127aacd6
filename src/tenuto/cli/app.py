"""The command line: `tenuto graph`, `tenuto state`, `tenuto session` and `tenuto worker`."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from tenuto.cli.places import Address, AsJson, Schema, named, opening
from tenuto.cli.session import sessions
from tenuto.cli.worker_command import worker
from tenuto.errors import TenutoError
from tenuto.graph.compiled import CompiledGraph
from tenuto.graph.engine.choice import Choice
from tenuto.graph.stored_states import DEFAULT_BATCH, Reason, Step, StoredStates, Tally
from tenuto.model.session import ANY_TENANT

app = typer.Typer(help="Tenuto holds an agent's session.", no_args_is_help=True, add_completion=False)
graphs = typer.Typer(help="Look at graphs.", no_args_is_help=True)
app.add_typer(graphs, name="graph")
states = typer.Typer(help="Bring stored sessions along when a state changes.", no_args_is_help=True)
app.add_typer(states, name="state")
app.add_typer(sessions, name="session")
app.command("worker")(worker)

Place = Annotated[str, typer.Argument(help="Where the graph is: module:name, a graph or a function of the store.")]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant's sessions.", show_default="all tenants")]

Owner = Annotated[
    str | None, typer.Option(help="Whose sessions: the graph's, or a program's of it.", show_default="the graph's name")
]
Unowned = Annotated[
    bool | None,
    typer.Option(
        "--unowned/--no-unowned",
        help="Also sessions that do not say whose they are, as older ones and those made by hand.",
        show_default="ends with 1 if there are any",
    ),
]

Work = Callable[[StoredStates, Progress], Awaitable[dict[str, list[Tally]]]]


@app.callback()
def main_options() -> None:
    """Tenuto holds an agent's session: one identity, one typed state, one transcript."""


@graphs.command("show")
def show(
    place: Annotated[str, typer.Argument(help="Where the compiled graph is: module:name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print nodes and edges for scripts.")] = False,
) -> None:
    """Print a graph as a Mermaid flowchart."""
    graph = load_graph(place)
    if as_json:
        edges = {name: _leads_to(edge) for name, edge in graph.edges.items()}
        typer.echo(json.dumps({"name": graph.name, "entry": graph.entry, "nodes": list(graph.nodes), "edges": edges}))
    else:
        typer.echo(graph.to_mermaid(), nl=False)


def _leads_to(edge: Any) -> str | list[str]:
    if not isinstance(edge, Choice):
        return str(edge)
    return "conditional" if edge.targets is None else [str(target) for target in edge.targets]


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
    """Try the graph's migrations over every session and suspended run it has stored; write nothing.

    Those of other graphs and programs are left alone and counted. Ends with 0 if all of the graph's fit, and with 1 if
    some do not, or if it is not known whose some are.
    """

    async def work(found: StoredStates, progress: Progress) -> dict[str, list[Tally]]:
        versions = await found.versions()
        sessions = await found.check(versions, _steps(progress, "sessions", sum(versions.values())))
        suspended = await found.check_suspended(_steps(progress, "suspended runs", None))
        return {"sessions": sessions, "suspended": suspended}

    options = {"tenant": ANY_TENANT if tenant is None else tenant, "owner": owner, "unowned": bool(unowned)}
    found, tallies = _run(place, store, work, schema=schema, migrate=False, **options)
    _tell(found, tallies, as_json=as_json, done="fit", kept="do not", asks=unowned is None)


@states.command("migrate")
def migrate(
    place: Place,
    store: Address,
    tenant: Tenant = None,
    schema: Schema = None,
    owner: Owner = None,
    unowned: Unowned = None,
    batch: Annotated[int, typer.Option(min=1, help="How many sessions are listed at a time.")] = DEFAULT_BATCH,
    as_json: AsJson = False,
) -> None:
    """Write every session of the graph as its migrations leave it; run it again to go on where it stopped.

    Sessions of other graphs and programs are left alone and counted. Suspended runs are migrated when they are resumed.
    Ends with 0 if nothing is left to do, and with 1 if something is, or if it is not known whose some are.
    """

    async def work(found: StoredStates, progress: Progress) -> dict[str, list[Tally]]:
        versions = await found.versions()
        old = sum(count for version, count in versions.items() if version != found.plan.schema_version)
        return {"sessions": await found.migrate(versions, _steps(progress, "sessions", old))}

    options = {
        "tenant": ANY_TENANT if tenant is None else tenant,
        "owner": owner,
        "unowned": bool(unowned),
        "batch": batch,
    }
    found, tallies = _run(place, store, work, schema=schema, migrate=True, **options)
    _tell(found, tallies, as_json=as_json, done="migrated", kept="left as they were", asks=unowned is None)


def _run(
    place: str, url: str, work: Work, *, schema: str | None, migrate: bool, **options: Any
) -> tuple[StoredStates, dict[str, list[Tally]]]:
    """Open the store, find the graph, do the work; what keeps it from being done at all ends the program with 2."""
    found_there = _import(place)

    async def run() -> tuple[StoredStates, dict[str, list[Tally]]]:
        console = Console(stderr=True)
        async with opening(url, schema, migrate=migrate) as store:
            graph = found_there if isinstance(found_there, CompiledGraph) else found_there(store)
            if inspect.isawaitable(graph):
                graph = await graph
            found = StoredStates(_graph(graph, place), store, **options)
            with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
                return found, await work(found, progress)

    try:
        return asyncio.run(run())
    except TenutoError as error:
        typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(2) from error


def _steps(progress: Progress, what: str, total: int | None) -> Step:
    task = progress.add_task(what, total=total)
    return lambda: progress.advance(task)


def _tell(
    found: StoredStates, tallies: dict[str, list[Tally]], *, as_json: bool, done: str, kept: str, asks: bool
) -> None:
    targets = {"sessions": found.plan.schema_version, "suspended": found.graph.kind.schema_version}
    failed = sum(tally.failed for each in tallies.values() for tally in each)
    unsure = asks and found.others[None]
    if as_json:
        parts = {
            name: {"target": targets[name], "versions": [_plain(t) for t in each]} for name, each in tallies.items()
        }
        told = {"graph": found.graph.name, "ok": not failed and not unsure, **parts}
        others = {owner: count for owner, count in found.others.items() if owner is not None}
        typer.echo(json.dumps({**told, "others": others, "unowned": found.others[None]}))
    else:
        titles = {"sessions": "Sessions", "suspended": "Suspended runs"}
        for name, each in tallies.items():
            typer.echo(f"{titles[name]}, to version {targets[name]!r}:{'' if each else ' none'}")
            for tally in each:
                _tell_of(tally, done, kept)
        _tell_of_others(found, asks=asks)
        typer.secho("Nothing failed." if not failed else f"{failed} {kept}.", fg="red" if failed else "green")
    if failed or unsure:
        raise typer.Exit(1)


def _tell_of_others(found: StoredStates, *, asks: bool) -> None:
    for owner, count in sorted(found.others.items(), key=lambda each: each[0] or ""):
        if owner is not None:
            typer.echo(f"Left alone: {count} made by {owner!r}")
        elif asks:
            typer.secho(
                f"Left alone: {count} that do not say whose they are. Take them in with --unowned if they are this "
                "graph's, or leave them with --no-unowned.",
                fg="yellow",
            )
        else:
            typer.echo(f"Left alone: {count} that do not say whose they are")


def _tell_of(tally: Tally, done: str, kept: str) -> None:
    counts = [f"{tally.passed} {done}"]
    if tally.failed:
        counts.append(f"{tally.failed} {kept}")
    if tally.left:
        counts.append(f"{tally.left} gone or up to date meanwhile")
    typer.echo(f"  version {tally.version!r}: {', '.join(counts)}")
    for reason in tally.reasons.values():
        typer.secho(f"    {reason.count} x {reason.category}: {reason.text}", fg="red")
        typer.echo(f"      {', '.join(map(str, reason.examples))}{', ...' if _more(reason) else ''}")


def _plain(tally: Tally) -> dict[str, Any]:
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


def _more(reason: Reason) -> bool:
    return reason.count > len(reason.examples)


def load_graph(place: str) -> CompiledGraph[Any]:
    """Return the compiled graph that `module:name` leads to, or say what is wrong with it."""
    return _graph(_import(place), place)


def _graph(found: Any, place: str) -> CompiledGraph[Any]:
    if not isinstance(found, CompiledGraph):
        raise typer.BadParameter(f"{place!r} is not a compiled graph, nor does it return one.")
    return found


def _import(place: str) -> Any:
    found = named(place)
    if not isinstance(found, CompiledGraph) and not callable(found):
        module, _, name = place.partition(":")
        raise typer.BadParameter(f"{name!r} of {module!r} is not a compiled graph, nor a function that makes one.")
    return found


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
