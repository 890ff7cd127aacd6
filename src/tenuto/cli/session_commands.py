"""`tenuto session`: list and show sessions, answer their waits, stop their runs."""

import json
from typing import Annotated, Any

import typer

from tenuto.cli.parameters import Address, AsJson, Schema
from tenuto.cli.session_store import Id, Tenant, on_sessions, print_table
from tenuto.model.run import RunStatus, StopAnswer, StopKind
from tenuto.model.session import Page, SessionStatus, SessionSummary
from tenuto.model.wait import Wait, WaitKind
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.info import RunView
from tenuto.words import SessionStatus as StatusWord
from tenuto.words import WaitKind as WaitWord

sessions = typer.Typer(help="List, show, answer and stop sessions.", no_args_is_help=True)

_TIME = "%Y-%m-%d %H:%M:%S"
_IN_COLUMNS = {"/step", "tool", "call_id", "token"}

_STOP_ANSWERS = {
    StopAnswer.RECORDED: "Stop recorded",
    StopAnswer.ALREADY: "A stop was already requested",
    StopAnswer.ENDED: "The run has already ended",
}
_SUSPENDED = "Nothing runs, so nothing was stopped; the run still takes answers"


@sessions.command("list")
def list_sessions(
    store: Address,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's sessions.", show_default="all tenants")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Only sessions with this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Continue after a page: its `next`.", show_default=False)] = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""

    async def work(runtime: SessionRuntime) -> Any:
        if tenant is None:
            return await runtime.across_tenants().list(status=wanted, limit=limit, after=after)
        return await runtime.for_tenant(tenant).list(status=wanted, limit=limit, after=after)

    wanted: StatusWord | None = status.value if status else None
    page = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"sessions": [_summary(each) for each in page], "next": page.next}))
        return
    rows = [
        (
            each.session_id,
            each.tenant,
            each.program or "",
            each.status,
            each.version,
            each.counts.get("messages", 0),
            each.title or "",
        )
        for each in page
    ]
    print_table(("session", "tenant", "program", "status", "version", "messages", "title"), rows)
    if page.next is not None:
        typer.echo(f"There are more: repeat this with --after {page.next}")


@sessions.command("show")
def show(session_id: Id, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False) -> None:
    """Show a session's state and its last ten turns."""

    async def work(runtime: SessionRuntime) -> Any:
        session = runtime.for_tenant(tenant).session(session_id)
        return await session.get(), await session.runs(limit=10)

    session, runs = on_sessions(store, schema, as_json, work)
    definition = session.definition
    report = {
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
        typer.echo(json.dumps(report))
        return
    typer.echo(f"{session_id}: {report['status']}, version {session.version}, program {report['program'] or 'none'}")
    for name, value in session.document.items():
        typer.echo(f"  {name} = {json.dumps(value)}")
    for message in session.messages:
        typer.echo(f"  {_line(message)}")
    columns = ("turn", "run", "status", "steps", "waits for", "error")
    print_table(
        columns,
        [(r.run.number, r.run_id, r.status, r.run.steps, ", ".join(r.wait_kinds), _error(r.run.error)) for r in runs],
    )


@sessions.command("waits")
def waits(
    store: Address,
    session_id: Annotated[
        str | None, typer.Argument(help="Only what this session and its children wait for.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default="all tenants")] = None,
    kind: Annotated[WaitKind | None, typer.Option(help="Only waits of this kind.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user's sessions.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Continue after a page: its `next`.", show_default=False)] = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List what is waited for: by all sessions, or by one and its children."""
    if session_id is not None and (kind, user, after) != (None, None, None):
        raise typer.BadParameter("--kind, --user and --after select among all sessions; leave out the session's id.")

    async def work(runtime: SessionRuntime) -> Any:
        if session_id is not None:
            return Page(await runtime.for_tenant(tenant or "").session(session_id).waits())
        within = runtime.across_tenants() if tenant is None else runtime.for_tenant(tenant)
        return await within.waits(kind=word, user_id=user, limit=limit, after=after)

    word: WaitWord | None = kind.value if kind else None
    page = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"waits": [_wait(each) for each in page], "next": page.next}))
        return
    columns = ("wait", "session", "tenant", "kind", "signal", "tool", "since", "deadline", "metadata")
    print_table(columns, [_cells(each) for each in page])
    if page.next is not None:
        typer.echo(f"There are more: repeat this with --after {page.next}")


@sessions.command("answer")
def answer(
    wait_id: Annotated[str, typer.Argument(help="The wait's id, from `tenuto session waits`.")],
    value: Annotated[str, typer.Argument(help="The answer as JSON: true, 7, '{\"approved\": true}'.")],
    store: Address,
    tenant: Tenant = "",
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Answer a wait; a worker resumes the session."""
    try:
        payload = json.loads(value)
    except ValueError as error:
        raise typer.BadParameter(f"the answer {value!r} is not JSON: {error}.") from error

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).answer(wait_id, payload, run=False)

    answered = on_sessions(store, schema, as_json, work)
    left = [_wait(each) for each in answered.open_waits]
    if as_json:
        report = {"session_id": answered.session_id, "run_id": answered.run_id, "continues": answered.continues}
        report["replayed"] = answered.replayed
        typer.echo(json.dumps({**report, "open_waits": left}))
        return
    then = "a worker resumes it" if answered.continues == "worker" else f"waits still open: {len(left)}"
    if answered.outcome is not None:
        then = f"it has continued: {answered.outcome.status}"
    said = "Answered before, in the same way" if answered.replayed else "Answered"
    typer.echo(f"{said}. Session {answered.session_id!r}: {then}.")


@sessions.command("stop")
def stop(
    session_id: Id,
    store: Address,
    kind: Annotated[StopKind, typer.Option(help="interrupt can be resumed; abort is final.")] = StopKind.INTERRUPT,
    reason: Annotated[str | None, typer.Option(help="The reason to record.")] = None,
    tenant: Tenant = "",
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Ask the session's current run to stop, in whichever process it runs."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).session(session_id).stop(kind.value, reason)

    reply = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"answer": str(reply.answer), "run_status": str(reply.status)}))
        return
    waits = reply.answer is StopAnswer.ENDED and reply.status is RunStatus.SUSPENDED
    said = _SUSPENDED if waits else _STOP_ANSWERS.get(reply.answer, reply.answer)
    typer.echo(f"{said} (run status: {reply.status}).")


def _summary(each: SessionSummary) -> dict[str, Any]:
    return {
        "session_id": each.session_id,
        "tenant": each.tenant,
        "program": each.program,
        "status": str(each.status),
        "version": each.version,
        "counts": dict(each.counts),
        "title": each.title,
        "preview": each.preview,
        "user_id": each.user_id,
        "created_at": each.created_at.isoformat(),
        "updated_at": each.updated_at.isoformat(),
    }


def _turn(each: RunView) -> dict[str, Any]:
    return {
        "run_id": each.run_id,
        "number": each.run.number,
        "status": str(each.status),
        "steps": each.run.steps,
        "waits_for": list(each.wait_kinds),
        "error": each.run.error,
    }


def _cells(each: Wait) -> tuple[Any, ...]:
    shown = {name: value for name, value in each.metadata.items() if name not in _IN_COLUMNS}
    since, until = each.created_at, each.deadline
    return (
        each.wait_id,
        each.session_id,
        each.tenant,
        each.kind,
        each.signal_id or "",
        each.tool or "",
        f"{since:{_TIME}}",
        f"{until:{_TIME}}" if until else "",
        json.dumps(shown),
    )


def _wait(each: Wait) -> dict[str, Any]:
    return {
        "wait_id": each.wait_id,
        "session_id": each.session_id,
        "tenant": each.tenant,
        "run_id": each.run_id,
        "invocation_id": each.invocation_id,
        "tool": each.tool,
        "arguments": dict(each.arguments),
        "graph": each.graph,
        "opened_at": each.created_at.isoformat(),
        "schema": each.schema,
        "kind": each.kind,
        "signal_id": each.signal_id,
        "deadline": each.deadline.isoformat() if each.deadline else None,
        "metadata": dict(each.metadata),
    }


def _line(message: Any) -> str:
    return f"{message['role']}: {message.get('content', '')}" if isinstance(message, dict) else json.dumps(message)


def _error(error: Any) -> str:
    return f"{error.get('category')}: {error.get('message')}" if isinstance(error, dict) else ""
