"""`tenuto session`: look at sessions, answer what they wait for, stop their runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from tenuto.cli.places import Address, AsJson, Schema, opening
from tenuto.errors import AnswerRefused, SessionError, TenutoError
from tenuto.model.run import StopKind
from tenuto.model.session import ANY_TENANT, SessionFilter, SessionKey, SessionStatus, SessionSummary
from tenuto.model.wait import Wait
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.info import RunInfo

sessions = typer.Typer(help="Look at sessions, answer them, stop them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The session's id.")]
Tenant = Annotated[str, typer.Option(help="The session's tenant.", show_default="none")]
Work = Callable[[SessionRuntime], Awaitable[Any]]


@sessions.command("list")
def list_sessions(
    store: Address,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default="all tenants")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Only those of this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""

    async def work(runtime: SessionRuntime) -> Any:
        asked = ANY_TENANT if tenant is None else tenant
        return await runtime.list(SessionFilter(tenant=asked, status=status), limit=limit)

    page = _run(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"sessions": [_summary(each) for each in page], "next": page.next}))
        return
    rows = [
        (each.session_id, each.agent or "", each.status, each.version, each.counts.get("messages", 0), each.title or "")
        for each in page
    ]
    _table(("session", "program", "status", "version", "messages", "title"), rows)


@sessions.command("show")
def show(session_id: Id, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False) -> None:
    """Show a session: its state and its last turns."""

    async def work(runtime: SessionRuntime) -> Any:
        key = SessionKey(session_id, tenant=tenant)
        return await runtime.get(key), await runtime.runs(key, limit=10)

    session, runs = _run(store, schema, as_json, work)
    definition = session.definition
    told = {
        "session_id": session.session_id,
        "tenant": tenant,
        "status": str(session.status),
        "version": session.version,
        "program": f"{definition.name}@{definition.version}" if definition else None,
        "metadata": dict(session.metadata),
        "document": dict(session.document),
        "logs": {name: list(items) for name, items in session.logs.items()},
        "runs": [_turn(each) for each in runs],
    }
    if as_json:
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{session_id}: {told['status']}, version {session.version}, program {told['program'] or 'none'}")
    for name, value in session.document.items():
        typer.echo(f"  {name} = {json.dumps(value)}")
    for message in session.messages:
        typer.echo(f"  {_line(message)}")
    columns = ("turn", "run", "status", "steps", "waits for", "error")
    _table(
        columns,
        [(r.run.number, r.run_id, r.status, r.run.steps, ", ".join(r.wait_kinds), _error(r.run.error)) for r in runs],
    )


@sessions.command("waits")
def waits(session_id: Id, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False) -> None:
    """List what a session waits for."""

    async def work(runtime: SessionRuntime) -> Any:
        key = SessionKey(session_id, tenant=tenant)
        await runtime.info(key)
        return await runtime.waits(key)

    found = _run(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"waits": [_wait(each) for each in found]}))
        return
    _table(
        ("wait", "kind", "signal", "deadline", "metadata"),
        [(w.wait_id, w.kind, w.signal_id or "", w.deadline or "", json.dumps(dict(w.metadata))) for w in found],
    )


@sessions.command("answer")
def answer(
    wait_id: Annotated[str, typer.Argument(help="The wait's id, from `tenuto session waits`.")],
    value: Annotated[str, typer.Argument(help="The answer as JSON: true, 7, '{\"approved\": true}'.")],
    store: Address,
    tenant: Tenant = "",
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Answer what a session waits for; a worker goes on with it."""
    try:
        given = json.loads(value)
    except ValueError as error:
        raise typer.BadParameter(f"the answer {value!r} is not JSON: {error}.") from error

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).answer(wait_id, given, run=False)

    answered = _run(store, schema, as_json, work)
    left = [_wait(each) for each in answered.open_waits]
    if as_json:
        told = {"session_id": answered.session_id, "run_id": answered.run_id, "continues": answered.continues}
        typer.echo(json.dumps({**told, "open_waits": left}))
        return
    then = "a worker goes on with it" if answered.continues else f"it still waits for {len(left)} more"
    typer.echo(f"Answered; session {answered.session_id!r}: {then}.")


@sessions.command("stop")
def stop(
    session_id: Id,
    store: Address,
    kind: Annotated[StopKind, typer.Option(help="interrupt can be gone on with, abort cannot.")] = StopKind.INTERRUPT,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    tenant: Tenant = "",
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Ask the session's run to stop; the request stands on that run, wherever it runs."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.stop(SessionKey(session_id, tenant=tenant), kind=kind, reason=reason)

    reply = _run(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"answer": str(reply.answer), "run_status": str(reply.status)}))
        return
    typer.echo(f"The stop is {reply.answer}; the run was found {reply.status}.")


def _run(url: str, schema: str | None, as_json: bool, work: Work) -> Any:
    """Do something on a store; what the session refuses ends the program with 1, anything else with 2."""

    async def run() -> Any:
        async with opening(url, schema, migrate=False) as store, SessionRuntime(store) as runtime:
            return await work(runtime)

    try:
        return asyncio.run(run())
    except TenutoError as error:
        if as_json:
            typer.echo(json.dumps({"error": {"category": error.category, "message": error.message}}))
        typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(1 if isinstance(error, SessionError | AnswerRefused) else 2) from error


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print columns that are never folded: ids are there to be copied."""
    lines = [columns, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _summary(each: SessionSummary) -> dict[str, Any]:
    return {
        "session_id": each.session_id,
        "tenant": each.key.tenant,
        "program": each.agent,
        "status": str(each.status),
        "version": each.version,
        "counts": dict(each.counts),
        "title": each.title,
        "user_id": each.user_id,
        "created_at": each.created_at.isoformat(),
        "updated_at": each.updated_at.isoformat(),
    }


def _turn(each: RunInfo) -> dict[str, Any]:
    return {
        "run_id": each.run_id,
        "number": each.run.number,
        "status": str(each.status),
        "steps": each.run.steps,
        "waits_for": list(each.wait_kinds),
        "error": each.run.error,
    }


def _wait(each: Wait) -> dict[str, Any]:
    return {
        "wait_id": each.wait_id,
        "run_id": each.run_id,
        "kind": each.kind,
        "signal_id": each.signal_id,
        "deadline": each.deadline.isoformat() if each.deadline else None,
        "metadata": dict(each.metadata),
    }


def _line(message: Any) -> str:
    return f"{message['role']}: {message.get('content', '')}" if isinstance(message, dict) else json.dumps(message)


def _error(error: Any) -> str:
    return f"{error.get('category')}: {error.get('message')}" if isinstance(error, dict) else ""
