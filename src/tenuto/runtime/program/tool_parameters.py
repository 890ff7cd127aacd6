"""What arguments a tool takes: the schema that a model is shown, and the check that each call has to pass."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from tenuto.argument import refuse
from tenuto.codec import JSON, dumps, loads
from tenuto.errors import InvalidInput
from tenuto.messages.tool_arguments import UNPARSED
from tenuto.runtime.session.json_schema import JsonSchema, PlainSchema, Problem, path_of, sentence, shown
from tenuto.writing.error_record import text_of

INVALID_ARGUMENTS = "invalid_arguments"

NOTHING: dict[str, JSON] = {"type": "object", "properties": {}}
"""The schema of a tool that declares nothing: providers want an object."""


class Arguments(NamedTuple):
    """Arguments that passed the check: the values that a tool runs with, and the same as plain data."""

    values: dict[str, Any]
    data: Mapping[str, JSON]


class ArgumentsInvalid(Exception):
    """The arguments do not fit; the record is what the model is shown."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        message = f"The arguments do not fit, and nothing was run. {sentence(problems)}"
        super().__init__(message)
        listed: list[JSON] = [*shown(problems)]
        self.record: dict[str, JSON] = {"category": INVALID_ARGUMENTS, "message": message, "problems": listed}


class Parameters(Protocol):
    """The parameters of a tool."""

    @property
    def schema(self) -> Mapping[str, JSON]:
        """Their JSON Schema, an object's."""
        ...

    def check(self, given: dict[str, JSON]) -> Arguments:
        """Return the arguments that a tool runs with; raise `ArgumentsInvalid`."""
        ...


class AnyParameters:
    """The parameters of a tool that declares none: it takes what the model says."""

    schema: Mapping[str, JSON] = NOTHING

    def check(self, given: dict[str, JSON]) -> Arguments:
        """See `Parameters.check`."""
        return Arguments(given, given)


class SchemaParameters:
    """Parameters that are declared by a JSON Schema."""

    def __init__(self, schema: Mapping[str, Any], tool: str) -> None:
        self._declared = JsonSchema(schema, f"parameters of the tool {tool!r}")
        self.schema: Mapping[str, JSON] = self._declared.plain
        if self.schema.get("type") != "object":
            raise InvalidInput(f'The parameters of the tool {tool!r} must be a schema with "type": "object".')

    def check(self, given: dict[str, JSON]) -> Arguments:
        """See `Parameters.check`."""
        if found := self._declared.problems(given):
            raise ArgumentsInvalid(found)
        return Arguments(given, given)


class TypedParameters:
    """Parameters that Pydantic checks: a type that is read from an object."""

    def __init__(self, adapter: TypeAdapter[Any], tool: str) -> None:
        try:
            made: dict[str, Any] = adapter.json_schema(schema_generator=PlainSchema)
        except (PydanticUserError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"The parameters of the tool {tool!r} have no JSON Schema: {first_line(error)}."
            ) from error
        if made.get("type") != "object" and "$ref" not in made:
            raise InvalidInput(f"The parameters of the tool {tool!r} must be those of an object.")
        if "$ref" in made:  # of a type that contains itself; providers want the object at the top
            made = {**made["$defs"][made["$ref"].rpartition("/")[2]], **made}
            del made["$ref"]
        made.pop("title", None)
        self.schema: Mapping[str, JSON] = loads(dumps(made, f"parameters of {tool}"), "parameters")
        self._adapter = adapter

    def check(self, given: dict[str, JSON]) -> Arguments:
        """See `Parameters.check`."""
        try:
            made = self._adapter.validate_json(dumps(given, "arguments"))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            raise ArgumentsInvalid([Problem(path_of(each["loc"]), each["msg"]) for each in problems]) from error
        except Exception as error:  # a validator of the program that broke
            raise ArgumentsInvalid([Problem("", f"{type(error).__name__}: {text_of(error)}")]) from error
        try:
            data = self._adapter.dump_python(made, mode="json", warnings=False)
            dumps(data, "arguments")
        except Exception:
            data = given  # a default that is not plain data
        return Arguments(made if isinstance(made, dict) else data, data)


def parameters_of(declared: Any, tool: str) -> Parameters:
    """Return the parameters that a tool was declared with: a model, a JSON Schema, or None."""
    if declared is None:
        return AnyParameters()
    if isinstance(declared, AnyParameters | SchemaParameters | TypedParameters):
        return declared
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return TypedParameters(TypeAdapter(declared), tool)
    if not isinstance(declared, Mapping):
        refuse(f"parameters of the tool {tool!r}", "a Pydantic model, a JSON Schema, or None", declared)
    return SchemaParameters(declared, tool)


def check_arguments(parameters: Parameters, given: Any) -> Arguments:
    """Check the arguments of a call as a model wrote them; raise `ArgumentsInvalid`."""
    given = {} if given is None else given
    if not isinstance(given, Mapping) or (given.keys() == {UNPARSED} and isinstance(given[UNPARSED], str)):
        raise ArgumentsInvalid([Problem("", "They are not a JSON object.")])
    return parameters.check(dict(given))


def first_line(error: Exception) -> str:
    """Return what an error says first: Pydantic adds advice and an address."""
    return str(error).partition("\n")[0].removesuffix(".")
