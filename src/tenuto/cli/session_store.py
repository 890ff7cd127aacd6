"""What commands for sessions share: whose they are, a store without any program, and a table to print."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from tenuto.cli.exit_code import run_or_exit
from tenuto.cli.parameters import open_existing
from tenuto.runtime.runtime import SessionRuntime

Id = Annotated[str, typer.Argument(help="The session's id.")]
Tenant = Annotated[str, typer.Option(help="The session's tenant.", show_default="none")]


def on_sessions(url: str, schema: str | None, as_json: bool, work: Callable[[SessionRuntime], Awaitable[Any]]) -> Any:
    """Do something with the sessions of a store, without any program."""

    async def run() -> Any:
        async with open_existing(url, schema, migrate=False) as store, SessionRuntime(store) as runtime:
            return await work(runtime)

    return run_or_exit(run(), as_json=as_json)


def print_table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print columns that are never folded, so that ids can be copied."""
    lines = [columns, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
