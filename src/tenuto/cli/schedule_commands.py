"""`tenuto schedule`: list the schedules of all sessions or of one; pause, resume and remove them."""

import json
from collections.abc import Mapping
from shlex import quote
from textwrap import shorten
from typing import Annotated, Any

import typer

from tenuto.cli.parameters import Address, AsJson, Schema
from tenuto.cli.session_store import Id, Tenant, on_sessions, print_table
from tenuto.messages import text_of
from tenuto.model.schedule import Schedule
from tenuto.model.session import Page
from tenuto.runtime.runtime import SessionRuntime

schedules = typer.Typer(help="List, pause, resume and remove schedules of sessions.", no_args_is_help=True)

_MOST_SHOWN = 40

Name = Annotated[str, typer.Argument(help="The schedule's name, from `tenuto schedule list`.")]


@schedules.command("list")
def list_schedules(
    store: Address,
    session_id: Annotated[str | None, typer.Argument(help="Only this session's.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default="all tenants")] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused/--not-paused", help="Only those that are paused, or only the others.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Continue after a page: its `next`.", show_default=False)] = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List schedules, of all sessions or of one, each with its next occurrence."""
    if session_id is not None and (paused, after) != (None, None):
        raise typer.BadParameter("--paused and --after select among all sessions; leave out the session's id.")

    async def work(runtime: SessionRuntime) -> Any:
        if session_id is not None:
            return Page(await runtime.for_tenant(tenant or "").session(session_id).schedules())
        within = runtime.across_tenants() if tenant is None else runtime.for_tenant(tenant)
        return await within.schedules(paused=paused, limit=limit, after=after)

    page = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"schedules": [_report(each) for each in page], "next": page.next}))
        return
    several = tenant is None and any(each.key.tenant for each in page)
    named = [] if session_id is not None else ["session", "tenant"] if several else ["session"]
    columns = (*named, "schedule", "when", "message", "next", "last sent", "paused")
    rows = [(*(each.key.session_id, each.key.tenant)[: len(named)], *_cells(each)) for each in page]
    print_table(columns, rows)
    if page.next is not None:
        typer.echo(f"There are more: repeat this with --after {quote(page.next)}")


@schedules.command("pause")
def pause(
    session_id: Id,
    name: Name,
    store: Address,
    reason: Annotated[str, typer.Option(help="The reason to record.")] = "It was paused.",
    tenant: Tenant = "",
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Let a schedule not send until it is resumed."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).session(session_id).pause_schedule(name, reason)

    found = on_sessions(store, schema, as_json, work)
    typer.echo(json.dumps(_report(found)) if as_json else f"{name!r} is paused: {found.paused}")


@schedules.command("resume")
def resume(
    session_id: Id, name: Name, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False
) -> None:
    """Let a paused schedule send again, from its next occurrence on."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).session(session_id).resume_schedule(name)

    found = on_sessions(store, schema, as_json, work)
    typer.echo(json.dumps(_report(found)) if as_json else f"{name!r} is sent next at {_time(found.next_at)}.")


@schedules.command("remove")
def remove(
    session_id: Id, name: Name, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False
) -> None:
    """Remove a schedule; what it has sent already stays."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).session(session_id).unschedule(name)

    removed = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"removed": removed}))
        return
    typer.echo(f"{name!r} is removed." if removed else f"Session {session_id!r} has no schedule {name!r}.")


def _cells(each: Schedule) -> tuple[Any, ...]:
    message = each.message
    said = text_of(message) if isinstance(message, Mapping) else json.dumps(message)
    short = shorten(said, _MOST_SHOWN, placeholder=" ...")
    return each.name, _times(each), short, _time(each.next_at), _time(each.fired_at), each.paused or ""


def _report(each: Schedule) -> dict[str, Any]:
    return {
        "session_id": each.key.session_id,
        "tenant": each.key.tenant,
        "name": each.name,
        "message": each.message,
        "every": each.every,
        "cron": each.cron,
        "tz": each.tz,
        "missed": str(each.missed),
        "when_waiting": str(each.when_waiting),
        "next_at": each.next_at.isoformat(),
        "fired_at": each.fired_at.isoformat() if each.fired_at else None,
        "paused": each.paused,
    }


def _times(each: Schedule) -> str:
    return f"every {each.every:g} s" if each.cron is None else f"{each.cron} {each.tz}"


def _time(moment: Any) -> str:
    return moment.isoformat(timespec="seconds") if moment else ""
