"""The eight reducers: how an update is merged with what a field held before.

A reducer gets the prior value, the update, and `check`, which validates a value against the field's declared type.
For an update it cannot merge it raises `TypeError`, which the engine reports as `reducer_error` with field and node.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic.fields import FieldInfo

Check = Callable[[Any], Any]
Reduce = Callable[[Any, Any, Check], Any]


@dataclass(frozen=True, slots=True)
class Reducer:
    """A named reducer.

    `is_log` says that it only ever extends; `idempotent`, that merging a field's own value again changes nothing.
    `fault` is what is wrong with its arguments, reported when a graph is compiled with it.
    """

    name: str
    reduce: Reduce
    is_log: bool = False
    idempotent: bool = False
    fault: str | None = None


def _a_list(update: Any, what: str) -> list[Any]:
    if not isinstance(update, list):
        raise TypeError(f"{what} takes a list, got {type(update).__name__}")
    return update


def _replace(_prior: Any, update: Any, check: Check) -> Any:
    return check(update)


def _append(prior: Any, update: Any, check: Check) -> Any:
    return [*_a_list(prior, "append"), *check(_a_list(update, "append"))]


def _merge(prior: Any, update: Any, check: Check) -> Any:
    if not isinstance(prior, Mapping) or not isinstance(update, Mapping):
        raise TypeError(f"merge takes a mapping, got {type(update).__name__}")
    return {**prior, **check(update)}


def _concat_flatten(prior: Any, update: Any, check: Check) -> Any:
    parts = [_a_list(part, "each element for concat_flatten") for part in _a_list(update, "concat_flatten")]
    if not parts:
        return prior
    return [*_a_list(prior, "concat_flatten"), *check([item for part in parts for item in part])]


def _merge_all(prior: Any, update: Any, check: Check) -> Any:
    for part in _a_list(update, "merge_all"):
        prior = _merge(prior, part, check)
    return prior


last_write_wins = Reducer("last_write_wins", _replace, idempotent=True)
append = Reducer("append", _append, is_log=True)
merge = Reducer("merge", _merge, idempotent=True)
concat_flatten = Reducer("concat_flatten", _concat_flatten, is_log=True)
merge_all = Reducer("merge_all", _merge_all)


def bounded_append(max_len: int) -> Reducer:
    """Append, then drop what exceeds `max_len` from the front; an empty update changes nothing."""

    def reduce(prior: Any, update: Any, check: Check) -> Any:
        if not _a_list(update, "bounded_append"):
            return prior
        return [*_a_list(prior, "bounded_append"), *check(update)][-max_len:]

    sound = type(max_len) is int and max_len > 0
    fault = None if sound else f"bounded_append needs max_len of 1 or more, got {max_len!r}"
    return Reducer("bounded_append", reduce, fault=fault)


def dedupe_append(key: Callable[[Any], Any] | None = None) -> Reducer:
    """Append the items whose key was not seen before, in the prior items or earlier in the update; the first wins."""

    def reduce(prior: Any, update: Any, check: Check) -> Any:
        of = key or (lambda item: item)
        seen = {of(item) for item in _a_list(prior, "dedupe_append")}
        fresh = []
        for item in check(_a_list(update, "dedupe_append")):
            if (mark := of(item)) not in seen:
                seen.add(mark)
                fresh.append(item)
        return [*prior, *fresh]

    return Reducer("dedupe_append", reduce, is_log=True, idempotent=True)


def merge_by_key(key: Callable[[Any], Any] | None) -> Reducer:
    """Replace, in place, the items with the same key, the last of them where there are several; append the others."""

    def reduce(prior: Any, update: Any, check: Check) -> Any:
        assert key is not None
        merged = list(_a_list(prior, "merge_by_key"))
        places = {key(item): index for index, item in enumerate(merged)}
        for item in check(_a_list(update, "merge_by_key")):
            mark = key(item)
            if mark in places:
                merged[places[mark]] = item
            else:
                places[mark] = len(merged)
                merged.append(item)
        return merged

    return Reducer("merge_by_key", reduce, idempotent=True, fault=None if key else "merge_by_key needs a key")


_FACTORIES: tuple[Any, ...] = (bounded_append, dedupe_append, merge_by_key)


def misplaced(field: FieldInfo) -> str | None:
    """Return what is wrong with a field whose reducer would silently be ignored; None if nothing is.

    `Annotated` may contain anything that is not called: texts, pydantic's constraints and validators, classes, marks of
    other libraries. A function there, an uncalled factory of ours, and a reducer that is not at the field itself (but
    in a union, in a list's items, behind an alias, or in place of a default) are meant as reducers.
    """
    for mark in field.metadata:
        if any(mark is factory for factory in _FACTORIES):
            return f"has {mark.__name__} for its reducer, which is a function that makes one: call it."
        if mark is Reducer or (callable(mark) and not isinstance(mark, type | Reducer) and not _is_pydantics(mark)):
            name = getattr(mark, "__name__", repr(mark))
            return (
                f"has {name!r} in Annotated, which is not a reducer; use one of tenuto.graph.reducers, such as append, "
                "or a Reducer made of your own function."
            )
    if isinstance(field.default, Reducer):
        return f"has the reducer {field.default.name} as its default; put it into Annotated."
    if hidden := next(_hidden(field.annotation, set()), None):
        return f"has the reducer {hidden} inside its type; put it into Annotated around the whole type."
    return None


def _is_pydantics(mark: Any) -> bool:
    return hasattr(mark, "__get_pydantic_core_schema__") or hasattr(mark, "__get_pydantic_json_schema__")


def _hidden(annotation: Any, seen: set[int]) -> Iterator[str]:
    """Yield the names of reducers anywhere below a type."""
    if id(annotation) in seen:
        return
    seen.add(id(annotation))
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Reducer) or any(mark is factory for factory in _FACTORIES):
            yield getattr(mark, "name", None) or mark.__name__
    aliased = getattr(annotation, "__value__", None)
    for part in (*get_args(annotation), *(() if aliased is None else (aliased,))):
        yield from _hidden(part, seen)
