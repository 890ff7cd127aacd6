"""`tenuto state`: check and migrate stored sessions."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from tenuto.cli.exit_code import ExitCode, run_or_exit
from tenuto.cli.parameters import AsJson, Schema, load_object, on_store, open_existing
from tenuto.cli.state_report import Report, print_report
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.model.session import ANY_TENANT
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.runtime import SessionRuntime
from tenuto.states.finder import AllPrograms, Finder, OneGraph
from tenuto.states.stored_states import DEFAULT_BATCH, StoredStates
from tenuto.states.tally import Step
from tenuto.store.open import Opening
from tenuto.store.store import Store

states = typer.Typer(help="Check and migrate stored sessions after a state change.", no_args_is_help=True)

Place = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME",
        help="Import path of a SessionRuntime, a program, a compiled graph, or a function of the store that returns a "
        "program or a graph.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="TENUTO_STORE",
        help="sqlite:///file.db or postgresql://...",
        show_default="the one that the runtime declares",
    ),
]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant's sessions.", show_default="all tenants")]
Owner = Annotated[
    str | None,
    typer.Option(
        help="Of a graph: name of the graph or program that created the sessions.", show_default="the graph's name"
    ),
]
Unowned = Annotated[
    bool | None,
    typer.Option(
        "--unowned/--no-unowned",
        help="Of a graph: include sessions without an owner, such as old ones and those created by hand.",
        show_default="exits with 1 if there are any",
    ),
]

Work = Callable[[StoredStates, Progress], Awaitable[None]]


@states.command("check")
def check(
    place: Place,
    store: Url = None,
    tenant: Tenant = None,
    schema: Schema = None,
    owner: Owner = None,
    unowned: Unowned = None,
    as_json: AsJson = False,
) -> None:
    """Try the migrations on every session, suspended run and resumable checkpoint; write nothing.

    Of a runtime, each session is checked with the program that would run it. Sessions of other graphs and programs are
    skipped and counted, and stored fields that the code does not name are reported. Exits with 0 if everything fits,
    and with 1 if something does not, or if a graph's store has sessions without an owner.
    """

    async def work(found: StoredStates, progress: Progress) -> None:
        await found.check(_steps(progress, "sessions", await found.count()))
        await found.check_suspended(_steps(progress, "suspended runs", None))
        await found.check_resumable(_steps(progress, "checkpoints", None))

    report = _run(place, store, work, schema=schema, tenant=tenant, owner=owner, unowned=unowned, as_json=as_json)
    report.passed, report.failed = "fit", "do not fit"
    _end(report, as_json=as_json)


@states.command("migrate")
def migrate(
    place: Place,
    store: Url = None,
    tenant: Tenant = None,
    schema: Schema = None,
    owner: Owner = None,
    unowned: Unowned = None,
    batch: Annotated[int, typer.Option(min=1, help="How many sessions to list at a time.")] = DEFAULT_BATCH,
    as_json: AsJson = False,
) -> None:
    """Migrate every stored session; run it again to continue where it stopped.

    Sessions of other graphs and programs are skipped and counted. Suspended runs are migrated when they are resumed.
    Exits with 0 if nothing is left to do, and with 1 if something is, or if a graph's store has sessions without an
    owner.
    """

    async def work(found: StoredStates, progress: Progress) -> None:
        await found.migrate(_steps(progress, "sessions", await found.count()))

    options: dict[str, Any] = {"tenant": tenant, "owner": owner, "unowned": unowned, "batch": batch}
    report = _run(place, store, work, schema=schema, as_json=as_json, writes=True, **options)
    report.passed, report.failed, report.runs = "migrated", "left unchanged", False
    _end(report, as_json=as_json)


def _run(
    place: str,
    url: str | None,
    work: Work,
    *,
    schema: str | None,
    tenant: str | None,
    owner: str | None,
    unowned: bool | None,
    as_json: bool,
    writes: bool = False,
    batch: int = DEFAULT_BATCH,
) -> Report:
    """Import what is named, open the store, do the work."""
    source = load_object(place)
    if not (isinstance(source, CompiledGraph | SessionRuntime | Program) or callable(source)):
        raise typer.BadParameter(
            f"{place!r} is not a runtime, a program or a compiled graph, and not a function that returns one."
        )

    async def run() -> Report:
        console = Console(stderr=True)
        async with _opening(source, url, schema, migrate=writes) as store:
            found = source if isinstance(source, CompiledGraph | SessionRuntime | Program) else source(store)
            if inspect.isawaitable(found):
                found = await found
            finder = _finder(found, store, place, owner=owner, unowned=unowned)
            wanted = ANY_TENANT if tenant is None else tenant
            states = StoredStates(store, finder, tenant=wanted, batch=batch)
            with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
                await work(states, progress)
            graph = finder.reader if isinstance(finder, OneGraph) else None
            return Report(states, graph=graph, asks=graph is not None and unowned is None)

    return run_or_exit(run(), as_json=as_json)


def _opening(source: Any, url: str | None, schema: str | None, *, migrate: bool) -> Opening:
    """Return what opens the store that is named, or the one that a runtime declares; only migrating may upgrade it."""
    if url is not None:
        return open_existing(url, schema, migrate=migrate)
    if not isinstance(source, SessionRuntime):
        raise typer.BadParameter("Name the store with --store, or a SessionRuntime that declares one.")
    declared = on_store(source, None, schema, pool_size=4)
    open_existing(declared.url, None)
    return declared.but(migrate=migrate)


def _finder(found: Any, store: Store, place: str, *, owner: str | None, unowned: bool | None) -> Finder:
    if isinstance(found, CompiledGraph):
        return OneGraph(found, store, owner=owner, unowned=bool(unowned))
    if owner is not None or unowned is not None:
        raise typer.BadParameter("--owner and --unowned are for a graph; sessions of programs say whose they are.")
    if isinstance(found, SessionRuntime):
        return AllPrograms(Programs(found.programs.values()), store)
    if isinstance(found, Program):
        return AllPrograms(Programs([found]), store)
    raise typer.BadParameter(f"{place!r} is not a compiled graph, a program or a runtime, and does not return one.")


def _steps(progress: Progress, what: str, total: int | None) -> Step:
    task = progress.add_task(what, total=total)
    return lambda: progress.advance(task)


def _end(report: Report, *, as_json: bool) -> None:
    print_report(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(ExitCode.REFUSED)
