"""JSON Schema: a schema is checked before it is relied on, and a value is checked whole."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from tenuto.codec import JSON, dumps, loads
from tenuto.errors import InvalidInput
from tenuto.quote import quote
from tenuto.writing.error_record import clipped, text_of

_MOST_PROBLEMS = 20
_LONGEST = 500
_NOTHING_FETCHED: Any = Registry()  # by default, the library loads what a reference names
_UNKNOWN: Any = None
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_FORMATS = FormatChecker()
"""The formats that are checked: the library's own, and those for which it would need more libraries."""


def _reads(kind: Any) -> Any:
    adapter = TypeAdapter(kind)

    def fits(given: object) -> bool:
        return not isinstance(given, str) or bool(adapter.validate_python(given) is not None)

    return fits


for _name, _kind in (("date-time", datetime), ("time", time), ("duration", timedelta)):
    _FORMATS.checks(_name, raises=ValueError)(_reads(_kind))


class PlainSchema(GenerateJsonSchema):
    """A JSON Schema without generated titles, which say nothing that a name does not say."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """See `GenerateJsonSchema`."""
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Pass over a default that is not JSON: it is left out of the schema."""


class ClosedSchema(PlainSchema):
    """The same, in which an object takes declared names only, unless its type says that it takes others too."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """See `GenerateJsonSchema`."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """See `GenerateJsonSchema`."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        """See `GenerateJsonSchema`."""
        return _closed(super().typed_dict_schema(schema))


def _closed(made: dict[str, Any]) -> dict[str, Any]:
    if made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    made.pop("title", None)
    return made


class Problem(NamedTuple):
    """What does not fit, and where: a path such as `.lines[2].price`, empty for the value itself."""

    path: str
    problem: str


class JsonSchema:
    """A JSON Schema that was checked: it is one, and what it refers to is in it."""

    def __init__(self, schema: Mapping[str, Any] | bool, what: str) -> None:
        self.plain: Any = loads(dumps(_plain(schema), what), what)
        dialect = self.plain.get("$schema", _DIALECT) if isinstance(self.plain, dict) else _DIALECT
        kind: Any = validator_for({"$schema": dialect}, _UNKNOWN) if isinstance(dialect, str) else _UNKNOWN
        if kind is _UNKNOWN:
            raise InvalidInput(f"The {what} is not a JSON Schema: its $schema, {quote(dialect)}, is unknown.")
        try:
            kind.check_schema(self.plain)
            _check_references(self.plain, dialect)
        except SchemaError as error:
            raise _refused(what, path_of(error.absolute_path), error.message) from error
        except Unresolvable as error:
            raise _refused(what, "", f"it refers to {error.ref!r}, which is not in it") from error
        except RecursionError as error:
            raise _refused(what, "", "it refers to itself, or is nested too deeply") from error
        self._validator: Draft202012Validator = kind(self.plain, registry=_NOTHING_FETCHED, format_checker=_FORMATS)
        try:
            self._validator.is_valid(None)
        except Exception as error:  # it refers to itself without end
            raise _refused(what, "", f"no value can be checked: {text_of(error)}") from error

    def problems(self, value: JSON) -> list[Problem]:
        """Return everything that does not fit, by path; nothing of a value that fits."""
        try:
            found = sorted(self._validator.iter_errors(value), key=lambda error: [str(p) for p in error.absolute_path])
        except Exception as error:  # it refers to itself without end
            return [Problem("", f"It cannot be checked: {text_of(error)}")]
        return [Problem(_place(leaf), _said(leaf)) for error in found for leaf in _narrowed(error)]


def shown(problems: Sequence[Problem]) -> list[dict[str, JSON]]:
    """Return problems as plain data, the first ones, each of a bounded length."""
    return [
        {"path": clipped(path, _LONGEST), "problem": clipped(problem, _LONGEST)}
        for path, problem in problems[:_MOST_PROBLEMS]
    ]


def sentence(problems: Sequence[Problem]) -> str:
    """Return problems as a sentence."""
    said = [f"{each['path']}: {each['problem']}" if each["path"] else str(each["problem"]) for each in shown(problems)]
    more = len(problems) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def path_of(parts: Iterable[Any]) -> str:
    """Return a path as text: `lines[2].price`."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".")


def _place(error: ValidationError) -> str:
    """Return where an error is; of something that is missing, where it should be."""
    parts: list[Any] = list(error.absolute_path)
    if error.validator == "required" and isinstance(error.validator_value, list):
        parts += [name for name in error.validator_value if error.message.startswith(f"{name!r} ")][:1]
    return path_of(parts)


def _narrowed(error: ValidationError) -> list[ValidationError]:
    """Return what is wrong with a value that fits none of several forms: with the only form of its kind, if it is one.

    So the path is named also in a model that may be null, and in one of several that differ in a constant field.
    """
    forms: dict[Any, list[ValidationError]] = {}
    for each in error.context or () if error.validator in ("anyOf", "oneOf") else ():
        forms.setdefault(each.schema_path[0], []).append(each)
    depth = len(error.absolute_path)
    near = [found for found in forms.values() if not any(_is_of_another_kind(each, depth) for each in found)]
    return [leaf for each in near[0] for leaf in _narrowed(each)] if len(near) == 1 else [error]


def _is_of_another_kind(error: ValidationError, depth: int) -> bool:
    below = len(error.absolute_path) - depth
    return (error.validator == "type" and below == 0) or (error.validator in ("const", "enum") and below == 1)


def _said(error: ValidationError) -> str:
    """Return what does not fit, and what was expected."""
    schema, given = error.schema, error.instance
    if not isinstance(given, Mapping):
        return error.message
    if error.validator != "additionalProperties" or not isinstance(schema, Mapping) or "patternProperties" in schema:
        return error.message
    declared = schema.get("properties", {})
    unknown = ", ".join(repr(name) for name in given if name not in declared)
    return f"{unknown} is not declared; expected {', '.join(map(repr, declared)) or 'nothing'}"


def _check_references(schema: Any, dialect: str) -> None:
    """Raise for a reference that leads nowhere, or out of the schema."""
    root = specification_with(dialect).create_resource(schema)
    left = [(root, Registry().with_resource("", root).resolver_with_root(root))]
    while left:
        resource, resolver = left.pop()
        if isinstance(resource.contents, Mapping):
            for name in ("$ref", "$dynamicRef"):
                if isinstance(reference := resource.contents.get(name), str):
                    resolver.lookup(reference)
        left += [(each, resolver.in_subresource(each)) for each in resource.subresources()]


def _refused(what: str, path: str, problem: str) -> InvalidInput:
    place = f" at {path}" if path else ""
    return InvalidInput(f"The {what} is not a JSON Schema{place}: {clipped(problem, _LONGEST)}.", path=path)


def _plain(value: Any) -> Any:
    """Return JSON data in the types of JSON: a mapping as a dict, a sequence as a list."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value
