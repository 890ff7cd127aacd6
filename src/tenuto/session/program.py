"""Programs: what a turn runs. A compiled graph is one, and so is any async function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, overload

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.session.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a program went: `completed` with its output, or `errored` with what it raised."""

    outcome: str
    output: JSON = None
    error: Exception | None = None


class Program(Protocol):
    """What a turn can run. Programs are registered, and found again, by name and version."""

    name: str
    version: str

    async def run(self, turn: Turn) -> Result:
        """Run within a turn and return how it went, as data."""
        ...


Function = Callable[[Turn], Awaitable[JSON]]


class FunctionProgram:
    """An async function as a program: what it returns is the output."""

    def __init__(self, function: Function, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.__doc__ = function.__doc__
        self._function = function

    async def run(self, turn: Turn) -> Result:
        """See `Program.run`."""
        try:
            return Result(outcome="completed", output=await self._function(turn))
        except Exception as error:
            return Result(outcome="errored", error=error)


@overload
def program(function: Function, /) -> FunctionProgram: ...


@overload
def program(*, name: str | None = None, version: str = "1") -> Callable[[Function], FunctionProgram]: ...


def program(function: Function | None = None, /, *, name: str | None = None, version: str = "1") -> Any:
    """Make an async function a program, by default under its own name: `@program` or `@program(name=..., ...)`."""

    def made(body: Function) -> FunctionProgram:
        called = name or getattr(body, "__name__", "")
        if not called or not version:
            raise InvalidInput("A program needs a name and a version.")
        return FunctionProgram(body, called, version)

    return made if function is None else made(function)
