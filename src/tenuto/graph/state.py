"""Typed state: immutable, merged field by field, so that an untouched field is neither copied nor validated again."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tenuto.codec import JSON
from tenuto.errors import ReducerError, StateValidationError
from tenuto.graph.reducers import Reducer, last_write_wins
from tenuto.plain_data import plain

S = TypeVar("S", bound="State")

_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)


class State(BaseModel):
    """The state of a graph.

    Declared fields, each with its reducer in `Annotated`; `last_write_wins` where none is given.

    `schema_version` is the version of the class given to the builder, and is what checkpoints and sessions are kept
    under.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    schema_version: ClassVar[str] = ""

    def __repr__(self) -> str:
        """Name the class and its fields, not their values: a state can be large."""
        return f"<{type(self).__name__} {', '.join(type(self).model_fields)}>"

    __str__ = __repr__


class SessionState(BaseModel):
    """Names the fields of a graph's state that are kept between turns; all others are scratch.

    A field is the state's field of the same name, unless the builder is given a mapping. Its reducer, type and default
    are those the state declares. `schema_version` is the version session records are kept under.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    schema_version: ClassVar[str] = ""


class Series(dict[str, Any]):
    """Several updates that are applied one after the other; as a mapping it shows the last value of each field."""

    def __init__(self, parts: list[Mapping[str, Any]]) -> None:
        super().__init__({name: value for part in parts for name, value in part.items()})
        self.parts = parts


class Field:
    """One declared field: how an update is checked and merged."""

    __slots__ = ("_dump", "adapter", "check", "name", "reducer", "reducers")

    def __init__(self, name: str, annotation: Any, reducers: list[Reducer]) -> None:
        self.name = name
        self.reducers = reducers
        self.reducer = reducers[0] if reducers else last_write_wins
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=None if _has_own_config(annotation) else _ANY_TYPE)
        self.adapter = adapter
        self.check = adapter.validator.validate_python
        # It warns of values that are not of the declared type, which `plain` finds itself.
        self._dump = partial(adapter.dump_python, mode="json", warnings=False)

    def dump(self, value: Any, start: int = 0) -> JSON:
        """Return a value, or a list's items from `start` on, as plain data; `NotJson` if it would change."""
        return plain(value, self._dump, self.check, self.name, start)


class Schema:
    """What a state class declares."""

    def __init__(self, kind: type[State]) -> None:
        self.kind = kind
        self.fields = {
            name: Field(name, info.annotation, [meta for meta in info.metadata if isinstance(meta, Reducer)])
            for name, info in kind.model_fields.items()
        }

    def initial(self, given: State | Mapping[str, Any] | None) -> State:
        """Return the state a run begins with: the defaults, replaced by what the caller gave."""
        if isinstance(given, self.kind):
            return given
        values = dict(given.__dict__) if isinstance(given, State) else dict(given or {})
        try:
            return self.kind.model_validate(values)
        except ValidationError as error:
            raise StateValidationError(f"The initial state of {self.kind.__name__} is not valid: {error}") from error

    def merge(self, state: S, update: Any, graph: str, node: str) -> S:
        """Return the state with an update merged through the reducers of its fields."""
        if not isinstance(update, Mapping):
            raise StateValidationError(
                f"Node {node!r} of graph {graph!r} returned {type(update).__name__}; return a mapping of fields.",
                **place_of(graph, node, state),
            )
        values = dict(state.__dict__)
        for part in update.parts if isinstance(update, Series) else (update,):
            for name, value in part.items():
                field = self.fields.get(name)
                if field is None:
                    raise StateValidationError(
                        f"Node {node!r} of graph {graph!r} updates {name!r}, which {self.kind.__name__} does not "
                        "declare.",
                        **place_of(graph, node, state),
                        field=name,
                    )
                values[name] = self._reduced(field, values[name], value, state, graph, node)
        return rebuilt(state, values)

    def _reduced(self, field: Field, prior: Any, value: Any, state: State, graph: str, node: str) -> Any:
        try:
            return field.reducer.reduce(prior, value, field.check)
        except ValidationError as error:
            raise StateValidationError(
                f"Node {node!r} of graph {graph!r} gives {field.name!r} a value that does not fit: {error}",
                **place_of(graph, node, state),
                field=field.name,
            ) from error
        except Exception as error:
            raise ReducerError(
                f"Reducer {field.reducer.name} of {field.name!r} cannot take what node {node!r} returned: {error}.",
                **place_of(graph, node, state),
                field=field.name,
                reducer=field.reducer.name,
            ) from error


def place_of(graph: str, node: str, state: Any) -> dict[str, Any]:
    """Return the details of an error that say where in a graph it was raised."""
    return {"graph": graph, "node_name": node, "recoverable_state": state}


def _has_own_config(annotation: Any) -> bool:
    """Return whether pydantic takes a type's configuration from the type alone."""
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    is_typed_dict = hasattr(annotation, "__total__")  # of either typing module
    return is_model or is_dataclass(annotation) or is_typed_dict


@cache
def schema_of(kind: type[State]) -> Schema:
    """Return a state class's schema, made once."""
    return Schema(kind)


def rebuilt(state: S, values: dict[str, Any]) -> S:
    """Return a state with these values, which are known to be valid."""
    new = object.__new__(type(state))
    object.__setattr__(new, "__dict__", values)
    object.__setattr__(new, "__pydantic_fields_set__", state.__pydantic_fields_set__)
    object.__setattr__(new, "__pydantic_extra__", None)
    object.__setattr__(new, "__pydantic_private__", None)
    return new
