"""What is expected of the error a run ends with, or of the one that a registration raises."""

from collections.abc import Callable
from typing import Any

from tenuto.errors import GraphRunError, TenutoError
from tenuto.graph.engine.cause import category_of, cause_chain, derived_category
from tenuto.graph.middleware import is_transient
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import plain
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, mapping

CARRIED = ("from_version", "to_version", "registered_migrations_count", "registry_description")


def check_error(expected: Any, check: Check) -> None:
    """Compare the run's error with `expected_error`; without one, the run must not fail."""
    error = check.run.error
    if expected is None:
        check.holds("the run failed", error is None, _told(error))
        return
    given = known(expected, (*ERROR_KEYS, "carries"), "expected_error")
    if error is None:
        check.problems.append(f"expected_error: {given.get('category')} expected, but the run completed")
        return
    problems = len(check.problems)
    for key, value in given.items():
        if key == "carries":
            _carries(value, error.details() if isinstance(error, TenutoError) else {}, check)
        else:
            check.equal(f"expected_error.{key}", value, ERROR_KEYS[key](error, check))
    check.note("expected_error", problems)


def _carries(expected: Any, found: dict[str, Any], check: Check) -> None:
    """Compare an error's data: their values, that they are there (`_present`), or what they say (`_mentions`)."""
    for key, value in mapping(expected, "carries").items():
        what = f"expected_error.carries.{key}"
        name = key.removesuffix("_present").removesuffix("_mentions")
        if name not in CARRIED:
            raise DirectiveUnknown(f"{key} at carries")
        if key.endswith("_present"):
            check.equal(what, value, found.get(name) is not None)
        elif key.endswith("_mentions"):
            for word in value if isinstance(value, list) else [value]:
                check.holds(f"{what}: {word} is not mentioned", str(word) in str(found.get(name)), found.get(name))
        else:
            check.subset("expected_error.carries", {name: value}, found)


def _told(error: BaseException | None) -> str | None:
    return None if error is None else " <- ".join(f"{link.category}: {link.message}" for link in cause_chain(error))


def _cause_type(error: BaseException, _: Check) -> dict[str, Any]:
    return {"exception_type": type(error.__cause__).__name__}


def _origin(error: BaseException, _: Check) -> str:
    """Return the message of what was raised first outside the engine; the engine's own, if nothing was."""
    current: BaseException | None = error
    while isinstance(current, GraphRunError):
        current = current.__cause__
    return str(current or error)


ERROR_KEYS: dict[str, Callable[[BaseException, Check], Any]] = {
    "branch_name": lambda error, _: getattr(error, "branch_name", None),
    "category": lambda error, _: category_of(error),
    "cause": _cause_type,
    "cause_message": _origin,
    "execution_order": lambda _, check: check.record.execution_order(check.run),
    "fan_out_category": lambda error, _: derived_category(error),
    "flaky_call_count": lambda _, check: check.record.mock_calls[check.run.number],
    "message": _origin,
    "raised_at": lambda error, check: "registration" if error is check.record.registration_error else "invoke",
    "raised_from": lambda error, _: getattr(error, "node_name", None),
    "recoverable_state": lambda error, _: plain(getattr(error, "recoverable_state", None)),
    "transient": lambda error, _: is_transient(error),
}
