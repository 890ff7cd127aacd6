"""A case's migrations of stored state."""

from collections.abc import Callable
from typing import Any

from tests.conformance.adapter.records import Record
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, listing

Migrate = Callable[[dict[str, Any]], dict[str, Any]]


def migrations_of(spec: Any, record: Record) -> list[tuple[str, str, Migrate]]:
    """Return a case's migrations, each of which writes down that it was called."""
    found = []
    for entry in listing(spec or [], "migrations"):
        given = known(entry, ("from_version", "to_version", "migrate"), "a migration")
        if given["migrate"] not in MIGRATIONS:
            raise DirectiveUnknown(f"migrate {given['migrate']}")
        source, target = str(given["from_version"]), str(given["to_version"])
        found.append((source, target, _recorded(f"{source}->{target}", MIGRATIONS[given["migrate"]], record)))
    return found


def _recorded(name: str, migrate: Migrate, record: Record) -> Migrate:
    def recorded(state: dict[str, Any]) -> dict[str, Any]:
        record.migration_calls.append(name)
        if migrate is _forbidden:
            record.forbidden_migrations.append(name)
        return migrate(state)

    return recorded


def _forbidden(_: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError("this migration must not be called")


def _key_error(state: dict[str, Any]) -> dict[str, Any]:
    return {"x": state["a field that is not there"]}


MIGRATIONS: dict[str, Migrate] = {
    "add_new_field_default": lambda state: {**state, "new_field": "v2_default"},
    "add_ten_to_value": lambda state: {**state, "value": state["value"] + 10},
    "add_v2_field": lambda state: {**state, "v2_field": "v2_default"},
    "add_v3_field": lambda state: {**state, "v3_field": "v3_default"},
    "identity_passthrough": lambda state: state,
    "irrelevant": _forbidden,
    "multiply_value_by_two": lambda state: {**state, "value": state["value"] * 2},
    "raises_keyerror": _key_error,
    "should_not_run": _forbidden,
}
