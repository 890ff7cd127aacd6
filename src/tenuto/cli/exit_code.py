"""What a command ends with: one table of exit codes for all of them.

| code | meaning | such as |
|---|---|---|
| 0 | done | |
| 1 | done in part, or refused by a session | sessions that do not fit, a late answer, turns left to another worker |
| 2 | not attempted | a bad argument, a graph or program that cannot be imported, a store that cannot be opened |
"""

import asyncio
import json
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, TypeVar

import typer

from tenuto.errors import AnswerRefused, SessionError, TenutoError

T = TypeVar("T")


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    REFUSED = 1
    NOT_ATTEMPTED = 2

    @classmethod
    def of(cls, error: TenutoError) -> "ExitCode":
        """Return the code for an error that ended a command."""
        return cls.REFUSED if isinstance(error, SessionError | AnswerRefused) else cls.NOT_ATTEMPTED


def run_or_exit(work: Coroutine[Any, Any, T], *, as_json: bool = False) -> T:
    """Run a command's work; print an error of Tenuto's and exit with its code. `as_json` prints it for scripts too."""
    try:
        return asyncio.run(work)
    except TenutoError as error:
        if as_json:
            typer.echo(json.dumps({"error": {"category": error.category, "message": error.message}}))
        typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(ExitCode.of(error)) from error
