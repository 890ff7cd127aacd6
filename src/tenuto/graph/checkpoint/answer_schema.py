"""The JSON Schema of a pause's answer: the fields it may name, each with what its declared type takes."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from tenuto.codec import JSON, encode
from tenuto.graph.state import Field, Schema

_LONGEST = 2000
"""How many characters a field's schema may have: it is stored with each pause."""

_SAYS_NOTHING = frozenset({"title", "description", "default", "examples", "discriminator", "uniqueItems"})
_BY_NAME = frozenset({"properties", "patternProperties", "$defs"})
_IN_A_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ITSELF = frozenset({"items", "additionalProperties"})
_CONVERTS = frozenset({"function-before", "function-wrap", "function-plain"})
_LOOSENS = ("validate_by_name", "populate_by_name", "coerce_numbers_to_str")


class _Quiet(GenerateJsonSchema):
    def emit_warning(self, kind: Any, detail: str) -> None:
        """Pass over what cannot be said, such as a default that is not JSON."""


def answer_schema(schemas: Iterable[Schema]) -> JSON:
    """Return the schema of an answer with fields of these states; of two of the same name, the first one counts."""
    fields: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for schema in schemas:
        for name, field in schema.fields.items():
            if name not in fields:
                fields[name] = _with_definitions(_taken(field), shared)
    made = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**made, "$defs": shared} if shared else made


def _with_definitions(taken: Mapping[str, Any], shared: dict[str, Any]) -> Mapping[str, Any]:
    """Return a field's schema without its definitions, which are added to the shared ones."""
    mine = taken.get("$defs", {})
    if any(shared.get(name, each) != each for name, each in mine.items()):
        return _kind_of(taken)  # another type has that name
    shared.update(mine)
    return {name: each for name, each in taken.items() if name != "$defs"}


@cache
def _taken(field: Field) -> Mapping[str, Any]:
    """Return the schema of what a field's type takes; an open one where that is not known, a vague one if it is long.

    A validator of the application that runs first may take anything, and turn it into what the type takes; a model may
    take its fields under several names.
    """
    try:
        made = field.adapter.json_schema(schema_generator=_Quiet)
        if _takes_more(field.adapter.core_schema):
            return {}
        made = _bare(made)
        return made if len(encode(made)) <= _LONGEST else _kind_of(made)
    except Exception:  # a type that JSON Schema cannot describe
        return {}


def _kind_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": schema["type"]} if "type" in schema else {}


def _takes_more(schema: Any) -> bool:
    """Return whether a core schema takes more than its JSON Schema says: before a validator, or by other names."""
    if isinstance(schema, dict):
        if schema.get("type") in _CONVERTS or isinstance(schema.get("validation_alias"), list):
            return True
        config = schema.get("config")
        if isinstance(config, dict) and any(config.get(name) for name in _LOOSENS):
            return True
        return any(_takes_more(each) for name, each in schema.items() if name not in ("metadata", "serialization"))
    return isinstance(schema, list | tuple) and any(map(_takes_more, schema))


def _bare(schema: Any) -> Any:
    """Return a schema without what checks nothing, or more than the type does."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _BY_NAME:
            found[name] = {key: _bare(each) for key, each in value.items()}
        elif name in _IN_A_LIST:
            found[name] = [_bare(each) for each in value]
        elif name not in _SAYS_NOTHING:
            found[name] = _bare(value) if name in _ITSELF else value
    return found
