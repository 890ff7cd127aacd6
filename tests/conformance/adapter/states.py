"""State classes from `state`."""

import copy
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, create_model

from tenuto.graph import State, reducers
from tenuto.graph.reducers import Reducer
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, mapping, only

SCALARS: dict[str, Any] = {"string": str, "str": str, "int": int, "float": float, "bool": bool, "any": Any}
REDUCERS: dict[str, Reducer] = {
    "last_write_wins": reducers.last_write_wins,
    "append": reducers.append,
    "merge": reducers.merge,
    "concat_flatten": reducers.concat_flatten,
    "merge_all": reducers.merge_all,
}


def state_class(name: str, spec: Any, undeclared: tuple[str, ...] = ()) -> type[State]:
    """Return the class a `state` block declares; a field only the caller names is declared too, of any type."""
    block = known(spec, ("fields", "schema_version"), f"state of {name}")
    fields = mapping(block.get("fields", {}), f"state.fields of {name}")
    declared: dict[str, Any] = {field: _field(f"{name}.{field}", given) for field, given in fields.items()}
    declared |= {field: (Any, None) for field in undeclared if field not in fields}
    kind: type[State] = create_model(f"{name.title().replace('_', '')}State", __base__=State, **declared)
    if "schema_version" in block:
        kind.schema_version = str(block["schema_version"])
    return kind


def _field(place: str, spec: Any) -> tuple[Any, Any]:
    given = known(spec, ("type", "default", "required", "reducer", "alt_reducer", "description"), place)
    annotation = type_of(str(given.get("type", "any")), place)
    for word in ("reducer", "alt_reducer"):
        if word in given:
            annotation = Annotated[annotation, reducer_of(given[word], place)]
    if given.get("required") or "default" not in given:
        return annotation, ...
    default = given["default"]
    return annotation, Field(default_factory=lambda: copy.deepcopy(default))


def type_of(text: str, place: str) -> Any:
    """Return the type a fixture names; a bareword that nobody defines is a map."""
    text = text.strip()
    if text in SCALARS:
        return SCALARS[text]
    if text == "list":
        return list[Any]
    if text == "dict":
        return dict[Any, Any]
    if found := re.fullmatch(r"list[<\[](.+)[>\]]", text):
        element: Any = type_of(found[1], place)
        return list[element]
    if found := re.fullmatch(r"dict[<\[]([^,]+),(.+)[>\]]", text):
        key, value = type_of(found[1], place), type_of(found[2], place)
        return dict[key, value]  # type: ignore[valid-type]
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return dict[str, Any]
    raise FixtureProblem(f"type {text!r} at {place}")


def reducer_of(spec: Any, place: str) -> Reducer:
    """Return a reducer given by name, or as a factory with its arguments."""
    if isinstance(spec, str):
        if spec == "dedupe_append":
            return reducers.dedupe_append()
        if spec not in REDUCERS:
            raise DirectiveUnknown(f"reducer {spec} at {place}")
        return REDUCERS[spec]
    factory, arguments = only(mapping(spec, place), place)
    match factory:
        case "bounded_append":
            return reducers.bounded_append(known(arguments, ("max_len",), place)["max_len"])
        case "dedupe_append":
            return reducers.dedupe_append(_accessor(known(arguments or {}, ("key",), place).get("key")))
        case "merge_by_key":
            return reducers.merge_by_key(_accessor(known(arguments, ("key",), place).get("key")))
    raise DirectiveUnknown(f"reducer {factory} at {place}")


def _accessor(field: str | None) -> Callable[[Any], Any] | None:
    return None if field is None else lambda item: item[field]
