"""What a function's signature and docstring say about it as a tool."""

import inspect
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, get_origin

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from tenuto.errors import InvalidInput
from tenuto.quote import quote
from tenuto.runtime.program.doc_sections import read_docstring
from tenuto.runtime.program.tool_parameters import TypedParameters, first_line
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.json_schema import PlainSchema
from tenuto.words import JSON

_TURN, _BOUND = "turn", ("self", "cls")
_ONLY_THESE = ConfigDict(extra="forbid")  # a model that invents a parameter is shown so, and can correct itself
_REFUSED = (PydanticUserError, TypeError, ValueError, AttributeError, NameError)
"""What Pydantic raises for a type that it cannot read, depending on what is wrong with it."""

_AS_IT_IS = ConfigDict(ser_json_inf_nan="constants")  # NaN would become null; the codec refuses it by name
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any, config=_AS_IT_IS)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """The name, description and parameters of a function, and the type of what it returns, if it is annotated.

    `turn` is the name of the parameter that takes the turn, None if there is none.
    """

    name: str
    description: str
    parameters: TypedParameters
    turn: str | None
    is_async: bool
    returns: TypeAdapter[Any] | None

    def plain(self, result: Any) -> JSON:
        """Return a result as plain data, in the form that its annotation says."""
        made: JSON = (self.returns or _ANYTHING).dump_python(result, mode="json", warnings=False)
        return made

    def result_schema(self) -> JSON:
        """Return the JSON Schema of what the function is annotated to return; None if it is not annotated."""
        if self.returns is None:
            return None
        try:
            schema = self.returns.json_schema(schema_generator=PlainSchema)
        except _REFUSED as error:
            raise _unreadable(self.name, "what it returns", error) from error
        schema.pop("title", None)
        return schema or None


def read_signature(function: Any, name: str | None, description: str | None) -> ToolSignature:
    """Return what a function declares as a tool; raise `InvalidInput` if it cannot be one, naming the parameter."""
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"{quote(function)} is not a function, so it cannot be a tool.")
    called = name or getattr(inspect.unwrap(function), "__name__", "")
    if not called or called == "<lambda>":
        raise InvalidInput(f"{quote(function)} has no name that a model could call; pass `name=`.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The tool {called!r} has no signature that can be read: {error}.") from error
    inner = _body(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidInput(f"The tool {called!r} is a generator; a tool returns one value.")
    said = read_docstring(inspect.getdoc(function if inspect.isroutine(function) else inner))
    turn, fields = _read_parameters(called, signature, inner, said.parameters)
    returns = _evaluated(signature.return_annotation, inner, called, "what it returns")
    return ToolSignature(
        name=called,
        description=said.description if description is None else description,
        parameters=_parameters(fields, called),
        turn=turn,
        is_async=inspect.iscoroutinefunction(inner),
        returns=None if returns is inspect.Signature.empty else _adapter(returns, called),
    )


def _body(function: Any) -> Any:
    """Return the function that a decorated, bound or partial one leads to, or that an object is called by."""
    inner = inspect.unwrap(function)
    while hasattr(inner, "func"):
        inner = inspect.unwrap(inner.func)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _read_parameters(
    tool: str, signature: inspect.Signature, body: Any, said: Mapping[str, str]
) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the parameter for the turn, if there is one, and the types of the others."""
    turn, fields = None, dict[str, Any]()
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in _NAMED:
            raise InvalidInput(
                f"The tool {tool!r} takes {parameter}, but a model names each parameter that it passes: declare each "
                "as an ordinary one."
            )
        annotation, is_bare = parameter.annotation, parameter.annotation is inspect.Parameter.empty
        if at == 0 and is_bare and name in _BOUND:
            raise InvalidInput(
                f"The tool {tool!r} is a method: make a tool of it where it is bound, `tool(object.{tool})`."
            )
        if _is_turn(annotation, body) or (at == 0 and is_bare and name == _TURN):
            if turn is not None:
                raise InvalidInput(f"The tool {tool!r} takes the turn twice, as {turn!r} and as {name!r}.")
            turn = name
            continue
        wanted = _evaluated(annotation, body, tool, f"its parameter {name!r}")
        fields[name] = _field(Any if is_bare else wanted, parameter.default, said.get(name))
    return turn, fields


def _is_turn(annotation: Any, body: Any) -> bool:
    if isinstance(annotation, str):
        if annotation.partition("[")[0].rpartition(".")[2] == Turn.__name__:
            return True  # it may be imported for type checkers only
        try:
            annotation = _resolved(annotation, body)
        except Exception:
            return False  # refused as a parameter, with its name
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, Turn)


def _evaluated(annotation: Any, body: Any, tool: str, what: str) -> Any:
    try:
        return _resolved(annotation, body)
    except Exception as error:
        raise InvalidInput(
            f"The tool {tool!r}: the annotation of {what}, {quote(annotation)}, cannot be resolved: {error}. Name a "
            "type that is defined in the module of the function, at its top."
        ) from error


def _resolved(annotation: Any, body: Any) -> Any:
    """Return an annotation with the names in its texts resolved, in the module of the function."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    if annotation is None or annotation is inspect.Parameter.empty:
        return annotation
    known = getattr(body, "__globals__", {})
    return typing.get_type_hints(holder, globalns=known, localns=known, include_extras=True)["it"]


def _field(wanted: Any, default: Any, said: str | None) -> Any:
    """Return the type of a field, with its default and description; one in its annotation takes precedence."""
    if isinstance(default, FieldInfo):
        wanted = Annotated[wanted, default]
    elif default is not inspect.Parameter.empty:
        wanted = Annotated[wanted, Field(default=default)]
    info = FieldInfo.from_annotation(wanted)
    if said and not info.description:
        wanted = Annotated[wanted, Field(description=said)]
    return wanted if info.is_required() else NotRequired[wanted]


def _typed_dict(fields: Mapping[str, Any]) -> Any:
    make: Any = TypedDict  # its names are not a literal
    made = make("arguments", dict(fields))
    made.__pydantic_config__ = _ONLY_THESE
    return made


def _parameters(fields: Mapping[str, Any], tool: str) -> TypedParameters:
    """Return the parameters of a function; a type that Pydantic cannot describe is refused, with its parameter."""
    try:
        return _described(fields, tool)
    except (*_REFUSED, InvalidInput) as error:
        for name, each in fields.items():
            try:
                _described({name: each}, tool)
            except (*_REFUSED, InvalidInput) as found:
                raise _unreadable(tool, f"its parameter {name!r}", found) from found
        raise _unreadable(tool, "one of its parameters", error) from error


def _described(fields: Mapping[str, Any], tool: str) -> TypedParameters:
    return TypedParameters(TypeAdapter(_typed_dict(fields)), tool)


def _adapter(kind: Any, tool: str) -> TypeAdapter[Any]:
    """Return the adapter of what a function returns."""
    try:
        with suppress(PydanticUserError):  # a model has its own settings
            return TypeAdapter(kind, config=_AS_IT_IS)
        return TypeAdapter(kind)
    except _REFUSED as error:
        raise _unreadable(tool, "what it returns", error) from error


def _unreadable(tool: str, what: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"The tool {tool!r}: {what} has a type that JSON cannot have: {first_line(error)}.")
