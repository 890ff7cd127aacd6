"""`tenuto schedule`: list, pause, resume and remove the schedules of a session."""

import json
from typing import Annotated, Any

import typer

from tenuto.cli.parameters import Address, AsJson, Schema
from tenuto.cli.session_store import Id, Tenant, on_sessions, print_table
from tenuto.model.schedule import Schedule
from tenuto.runtime.runtime import SessionRuntime

schedules = typer.Typer(help="List, pause, resume and remove the schedules of a session.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The schedule's name, from `tenuto schedule list`.")]


@schedules.command("list")
def list_schedules(
    session_id: Id, store: Address, tenant: Tenant = "", schema: Schema = None, as_json: AsJson = False
) -> None:
    """List a session's schedules, each with its next occurrence."""

    async def work(runtime: SessionRuntime) -> Any:
        return await runtime.for_tenant(tenant).session(session_id).schedules()

    found = on_sessions(store, schema, as_json, work)
    if as_json:
        typer.echo(json.dumps({"schedules": [_report(each) for each in found]}))
        return
    rows = [(each.name, _times(each), _time(each.next_at), _time(each.fired_at), each.paused or "") for each in found]
    print_table(("schedule", "when", "next", "last sent", "paused"), rows)


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
