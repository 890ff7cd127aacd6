"""Programs: what a turn runs. A compiled graph is one, and so is any async function."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, overload, runtime_checkable

from tenuto.argument import check_kind
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, ProgramNotRegistered
from tenuto.quote import quote
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.traits import ProgramTraits


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a program: `completed` with its output, or `errored` with the exception."""

    outcome: str
    output: JSON = None
    error: Exception | None = None


@runtime_checkable
class Program(Protocol):
    """What a turn can run. Programs are registered and looked up by name and version."""

    name: str
    version: str

    async def run(self, turn: Turn) -> Result:
        """Run within a turn and return the result as data; an exception is a result too."""
        ...


_CONVERSATION = ProgramTraits()


def traits_of(program: Program) -> ProgramTraits:
    """Return how a program stores its sessions; a program that declares nothing, as a conversation."""
    declared = getattr(program, "declares", _CONVERSATION)
    return declared if isinstance(declared, ProgramTraits) else _CONVERSATION


Function = Callable[[Turn], Awaitable[JSON]]


class FunctionProgram:
    """An async function as a program: what it returns is the output.

    After a suspension, or when its runner was lost, it runs again from the beginning: the results of `turn.effect` and
    the answers to `turn.wait` are read back, and `once` keeps it from adding anything twice.
    """

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


class Programs:
    """The programs a runtime can run, by name and version; a name alone means the one registered last."""

    def __init__(self, programs: Iterable[Program] = ()) -> None:
        self._programs: dict[tuple[str, str], Program] = {}
        self._latest: dict[str, Program] = {}
        for each in programs:
            if not isinstance(each, Program):
                raise InvalidInput(f"{each!r} is not a program: it needs a name, a version and an async `run(turn)`.")
            if (each.name, each.version) in self._programs:
                raise InvalidInput(f"The program {each.name}@{each.version} is registered twice.")
            self._programs[each.name, each.version] = each
            self._latest[each.name] = each

    @property
    def names(self) -> list[str]:
        """The programs' names and versions, as `name@version`."""
        return [f"{name}@{version}" for name, version in self._programs]

    def latest(self, name: str) -> Program:
        """Return a program by its name, or by `name@version`; `ProgramNotRegistered` if there is none."""
        check_kind(name, str, "program")
        bare, _, version = name.partition("@")
        found = self._programs.get((bare, version)) if version else self._latest.get(bare)
        if found is None:
            raise self._unknown(name, f"No program named {quote(name)} is registered here")
        return found

    def version_of(self, name: str) -> str:
        """Return the version of the program that is registered under a name."""
        return self.latest(name).version

    def definition(self, program: str | Definition) -> Definition:
        """Return the definition of a new session: the one passed, the program's own, or one with name and version."""
        if isinstance(program, Definition):
            self.of(program)
            return program
        found = self.latest(program)
        known = getattr(found, "definition", None)
        return known if isinstance(known, Definition) else Definition(name=found.name, version=found.version)

    def of(self, definition: Definition | None) -> Program:
        """Return the program of a session, in the version it was created with."""
        if definition is None:
            raise self._unknown(
                None,
                "The session has no program: it was not created by a runtime, or its definition is not a program's. "
                "Set one with an action that returns `session.with_definition(name=...)`",
            )
        found = self._programs.get((definition.name, definition.version))
        if found is None:
            name = f"{definition.name}@{definition.version}"
            raise self._unknown(
                name, f"The session's program {name} is not registered here; the session can be read but not run"
            )
        return found

    def _unknown(self, name: str | None, what: str) -> ProgramNotRegistered:
        registered = ", ".join(self.names) or "none"
        return ProgramNotRegistered(f"{what}. Registered: {registered}.", program=name, registered=self.names)
