"""Refusing what the adapter does not know: an unknown name is a failure, never a skip."""

from collections.abc import Iterable
from typing import Any


class FixtureProblem(Exception):
    """A fixture cannot be run as written; `category` is the specification's word for why."""

    category = "fixture_schema_invalid"

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.category}: {message}")


class DirectiveUnknown(FixtureProblem):
    """A directive, expectation or invariant that the adapter does not know."""

    category = "fixture_directive_unknown"


class PrimitiveMissing(FixtureProblem):
    """A back end that the adapter does not provide."""

    category = "harness_primitive_missing"


class VersionUnsupported(FixtureProblem):
    """A fixture that is newer than the adapter."""

    category = "fixture_version_unsupported"


def known(spec: Any, names: Iterable[str], place: str) -> dict[str, Any]:
    """Return a mapping whose keys are all known; refuse any other."""
    found = mapping(spec, place)
    if unknown := sorted(str(key) for key in found if key not in set(names)):
        raise DirectiveUnknown(f"{', '.join(unknown)} at {place}")
    return found


def mapping(spec: Any, place: str) -> dict[str, Any]:
    """Return what must be a mapping."""
    if not isinstance(spec, dict):
        raise FixtureProblem(f"{place} must be a mapping, found {type(spec).__name__}")
    return spec


def listing(spec: Any, place: str) -> list[Any]:
    """Return what must be a list."""
    if not isinstance(spec, list):
        raise FixtureProblem(f"{place} must be a list, found {type(spec).__name__}")
    return spec


def only(spec: dict[str, Any], place: str) -> tuple[str, Any]:
    """Return the one entry of a mapping that must have exactly one."""
    if len(spec) != 1:
        raise FixtureProblem(f"{place} must have exactly one key, found {sorted(spec)}")
    return next(iter(spec.items()))


def mentioned(spec: Any, names: Iterable[str]) -> bool:
    """Tell whether one of these is a key anywhere."""
    if isinstance(spec, dict):
        return any(key in names or mentioned(value, names) for key, value in spec.items())
    return isinstance(spec, list) and any(mentioned(each, names) for each in spec)
