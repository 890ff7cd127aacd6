"""What a command ends with: one table of exit codes for all of them.

| code | meaning | such as |
|---|---|---|
| 0 | done | |
| 1 | done in part, or refused by a session | sessions that do not fit, a late answer, turns left to another worker |
| 2 | not attempted | a bad argument, a graph or runtime that cannot be imported, a store that cannot be opened |

With `--json`, an error is one JSON object on standard output, and nothing else is printed.
"""

import asyncio
import json
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from tenuto.errors import AnswerRefused, InvalidInput, SessionError, TenutoError

T = TypeVar("T")

_UsageError: Any = typer.BadParameter.__bases__[0]
"""What Typer raises for arguments it refuses; depending on its version, it is Click's or its own."""


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    REFUSED = 1
    NOT_ATTEMPTED = 2

    @classmethod
    def of(cls, error: TenutoError) -> "ExitCode":
        """Return the code for an error that ended a command."""
        return cls.REFUSED if isinstance(error, SessionError | AnswerRefused) else cls.NOT_ATTEMPTED


class Commands(TyperGroup):
    """Commands whose refused arguments are reported as JSON, too, where `--json` is among them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        if "--json" not in ctx.args:
            return super().invoke(ctx)
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _print_json(InvalidInput.category, error.format_message())
            raise typer.Exit(ExitCode.NOT_ATTEMPTED) from error


def run_or_exit(work: Coroutine[Any, Any, T], *, as_json: bool = False) -> T:
    """Run a command's work; print an error of Tenuto's, as text or as JSON, and exit with its code."""
    try:
        return asyncio.run(work)
    except TenutoError as error:
        if as_json:
            _print_json(error.category, error.message)
        else:
            typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(ExitCode.of(error)) from error


def _print_json(category: str, message: str) -> None:
    typer.echo(json.dumps({"error": {"category": category, "message": message}}))
