"""Programs: what a turn runs. A compiled graph is one, and so is any async function."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, cast, get_type_hints, overload, runtime_checkable

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from typing_extensions import TypeVar

from tenuto.argument import check_kind, check_map, refuse
from tenuto.codec import encode
from tenuto.errors import InvalidInput, ProgramNotRegistered
from tenuto.migration import Migrate
from tenuto.quote import quote
from tenuto.runtime.program.output_form import is_plain, read_output
from tenuto.runtime.program.program_name import accepted_versions, version_text
from tenuto.runtime.program.tool import Tool, child_tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.program.turn_state import typed_state
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.state_shape import StateShape
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.words import JSON, Seconds

OutT = TypeVar("OutT")
OutT_co = TypeVar("OutT_co", covariant=True)


@runtime_checkable
class Program(Protocol[OutT_co]):
    """What a turn can run. Programs are registered and looked up by name and version."""

    @property
    def name(self) -> str:
        """The name that sessions know it by."""
        ...

    @property
    def version(self) -> str:
        """Its version; a session runs on the version it was created with."""
        ...

    async def run(self, turn: Turn) -> OutT_co:
        """Run within a turn and return its output, or raise; an exception fails the turn."""
        ...


_CONVERSATION = ProgramTraits()


def traits_of(program: Program[Any]) -> ProgramTraits:
    """Return how a program stores its sessions; a program that declares nothing, as a conversation."""
    declared = getattr(program, "declares", _CONVERSATION)
    return declared if isinstance(declared, ProgramTraits) else _CONVERSATION


Function: TypeAlias = Callable[[Turn[Any]], Awaitable[OutT]]
ModelT = TypeVar("ModelT", bound=BaseModel)


class FunctionProgram(Generic[OutT_co]):
    """An async function as a program: what it returns is the output.

    After a suspension, or when its runner was lost, it runs again from the beginning: the results of `turn.effect` and
    the answers to `turn.wait` are read back, and `once` keeps it from adding anything twice.
    """

    def __init__(
        self,
        function: Function[OutT_co],
        definition: Definition,
        *,
        shape: StateShape | None,
        accepts: frozenset[str],
        steps: int | None = None,
    ) -> None:
        self.name = definition.name
        self.version = definition.version
        self.definition = definition
        self.accepts = accepts
        self.declares = _CONVERSATION if steps is None else ProgramTraits(steps=steps)
        if shape is not None:
            self.declares = ProgramTraits(
                schema_version=shape.version,
                reads=shape.check_version,
                first_document=shape.blank,
                state=shape,
                steps=steps,
            )
        self.__doc__ = function.__doc__
        self._function = function

    def __repr__(self) -> str:
        return f"<program {self.name}@{self.version}>"

    async def run(self, turn: Turn) -> OutT_co:
        """See `Program.run`."""
        if self.declares.state is not None and (state := typed_state(context_of(turn))) is not None:
            state.follow()  # one that does not fit fails the turn before anything is called
        result: Any = self._function(turn)
        if not isinstance(result, Awaitable):
            raise InvalidInput(f"The program {self.name} is a plain function; declare it with `async def`.")
        made: OutT_co = self._plain(await result)
        return made

    @cached_property
    def types_output(self) -> bool:
        """Whether the annotation declares a type whose values are not JSON themselves."""
        return self._returns is not None and not is_plain(self._declared)

    def reads_output(self, output: JSON) -> OutT_co:
        """Return what the function returned, from its stored form; `InvalidInput` if its annotation does not fit."""
        try:
            return cast("OutT_co", output if self._returns is None else self._returns.validate_json(encode(output)))
        except ValidationError as error:
            raise self._misfit("what is stored as its output", error) from error

    def _plain(self, returned: Any) -> Any:
        """Return what the function returned as plain data, in the form that its annotation says."""
        if self._returns is None:
            return returned
        try:
            checked = self._returns.validate_python(returned)
            return self._returns.dump_python(checked, mode="json", by_alias=True, warnings="error")
        except (ValidationError, PydanticSerializationError) as error:
            raise self._misfit("what it returned", error) from error

    @cached_property
    def _returns(self) -> TypeAdapter[Any] | None:
        """The declared type of the output; None if it is not declared, or cannot be read."""
        try:
            return None if self._declared in (Any, JSON) else TypeAdapter(self._declared)
        except Exception:  # Pydantic cannot describe it
            return None

    @cached_property
    def _declared(self) -> Any:
        try:
            return get_type_hints(self._function, include_extras=True).get("return", Any)
        except Exception:  # it names what only a type checker sees
            return Any

    def _misfit(self, what: str, error: Exception) -> InvalidInput:
        return InvalidInput(f"The program {self.name}: {what} does not fit the annotation of its function: {error}")

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, timeout: Seconds | None = None
    ) -> Tool:
        """Return the tool that asks a separate session of this program; the docstring describes it by default."""
        return child_tool(self, name=name, description=description, timeout=timeout, said=self.__doc__)


@overload
def program(function: Callable[[Turn], Awaitable[OutT]], /) -> FunctionProgram[OutT]: ...


@overload
def program(
    *,
    state: type[ModelT],
    name: str | None = None,
    version: str | int = "1",
    accepts: Iterable[str | int] = (),
    migrations: Mapping[tuple[str, str], Migrate] | None = None,
    definition: Definition | None = None,
    steps: int | None = None,
) -> Callable[[Callable[[Turn[ModelT]], Awaitable[OutT]]], FunctionProgram[OutT]]: ...


@overload
def program(
    *,
    name: str | None = None,
    version: str | int = "1",
    accepts: Iterable[str | int] = (),
    definition: Definition | None = None,
    steps: int | None = None,
) -> Callable[[Callable[[Turn], Awaitable[OutT]]], FunctionProgram[OutT]]: ...


def program(
    function: Function[Any] | None = None,
    /,
    *,
    state: type[BaseModel] | None = None,
    name: str | None = None,
    version: str | int = "1",
    accepts: Iterable[str | int] = (),
    migrations: Mapping[tuple[str, str], Migrate] | None = None,
    definition: Definition | None = None,
    steps: int | None = None,
) -> Any:
    """Make an async function a program, by default under its own name: `@program` or `@program(name=..., ...)`.

    `state` is a Pydantic model: what `turn.state` is an instance of, and what the session's document is checked with.
    It is stored under the model's `schema_version`, a text of the class; `migrations` lead to it from older versions,
    each a function from the old fields to the new ones. `accepts` names older versions of the program whose sessions
    this one continues where theirs is not registered. `definition` has the prompt, model and tools of a new session.
    `steps` is how many steps or model calls a turn may take; by default, as many as the runtime says.
    """
    if migrations and state is None:
        raise InvalidInput("`migrations` lead to the version of a `state`; declare one.")
    shape = None if state is None else StateShape(state, check_map(migrations or {}, "migrations"))
    versions = accepted_versions(accepts)
    if definition is not None:
        check_kind(definition, Definition, "definition")
    if steps is not None and (type(steps) is not int or steps < 1):
        refuse("steps", "a whole number from 1", steps)

    def made(body: Function[OutT]) -> FunctionProgram[OutT]:
        called = name or (definition.name if definition else getattr(body, "__name__", ""))
        if not called:
            raise InvalidInput("A program needs a name and a version.")
        known = definition or Definition(name=called)
        label = called if known.label == known.name else known.label
        known = known.changed(name=called, version=version_text(version), label=label)
        return FunctionProgram(body, known, shape=shape, accepts=versions, steps=steps)

    return made if function is None else made(function)


class Programs:
    """The programs a runtime can run, by name and version; a name alone means the one registered last."""

    def __init__(self, programs: Iterable[Program[Any]] = ()) -> None:
        self._programs: dict[tuple[str, str], Program[Any]] = {}
        self._latest: dict[str, Program[Any]] = {}
        for each in programs:
            if not isinstance(each, Program):
                raise _no_program(each)
            if (each.name, each.version) in self._programs:
                raise InvalidInput(f"The program {each.name}@{each.version} is registered twice.")
            self._programs[each.name, each.version] = each
            self._latest[each.name] = each

    @property
    def by_name(self) -> dict[str, Program[Any]]:
        """The programs, by `name@version`."""
        return {f"{name}@{version}": each for (name, version), each in self._programs.items()}

    @property
    def names(self) -> list[str]:
        """The programs' names and versions, as `name@version`."""
        return list(self.by_name)

    def latest(self, name: str) -> Program[Any]:
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

    def definition(self, program: Program[Any] | str | Definition) -> Definition:
        """Return the definition of a new session: the one passed, the program's own, or one with name and version."""
        if isinstance(program, Definition):
            self.of(program)
            return program
        found = self.latest(program if isinstance(program, str) else self._registered(program))
        known = getattr(found, "definition", None)
        return known if isinstance(known, Definition) else Definition(name=found.name, version=found.version)

    def _registered(self, program: Any) -> str:
        """Return the full name of a program of this runtime; another one, even of the same name, is refused."""
        if not isinstance(program, Program):
            raise InvalidInput(f"{quote(program)} is not a program, its name, or a definition.")
        name = f"{program.name}@{program.version}"
        if self.by_name.get(name) is not program:
            raise self._unknown(name, f"The program {quote(name)} is not registered here")
        return name

    def has(self, definition: Definition | None) -> bool:
        """Return whether a session's own version of its program is registered."""
        return definition is not None and (definition.name, definition.version) in self._programs

    def of(self, definition: Definition | None) -> Program[Any]:
        """Return the program of a session: its version of it, or the one registered last that accepts that version."""
        if definition is None:
            raise self._unknown(
                None,
                "The session has no program: it was not created by a runtime, or its definition is not a program's. "
                "Set one with an action that returns `session.with_definition(name=...)`",
            )
        found = self._running(definition.name, definition.version)
        if found is None:
            name = f"{definition.name}@{definition.version}"
            raise self._unknown(
                name, f"The session's program {name} is not registered here; the session can be read but not run"
            )
        return found

    def read_output(self, returned_by: Any, stored: JSON) -> Any:
        """Return the output of a run that is over as its program, or one that accepts its version, declares it.

        `returned_by` is its name and version, noted if it declares a type. If neither is registered, it is JSON.
        """
        if returned_by is None:
            return stored
        name, version = returned_by
        return read_output(self._running(name, version), stored)

    def _running(self, name: str, version: str) -> Program[Any] | None:
        """Return the program that runs what a version of it began."""
        if (found := self._programs.get((name, version))) is not None:
            return found
        others = (each for (called, _), each in reversed(self._programs.items()) if called == name)
        return next((each for each in others if version in getattr(each, "accepts", ())), None)

    def _unknown(self, name: str | None, what: str) -> ProgramNotRegistered:
        registered = ", ".join(self.names) or "none"
        return ProgramNotRegistered(f"{what}. Registered: {registered}.", program=name, registered=self.names)


def _no_program(given: object) -> InvalidInput:
    way = "call its `as_program()`" if hasattr(given, "as_program") else "decorate an async function with @program"
    return InvalidInput(f"{quote(given)} is not a program: {way}.")
