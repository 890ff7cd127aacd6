"""Mocks that fail: `raises` and the `flaky` family."""

import builtins
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenuto.graph import State
from tenuto.graph.engine.scope import current_scope
from tests.conformance.adapter.records import Record
from tests.conformance.adapter.vocabulary import FixtureProblem, known, listing, mapping

Directive = Callable[[Any], Awaitable[Mapping[str, Any]]]
SUCCESS = ("success_update", "on_success", "success_compute")


class MockError(Exception):
    """An error a node raises on purpose; a category and a mark are there only if the fixture gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The body a directive stands in."""

    graph: str
    node: str
    kind: type[State]
    record: Record

    def __str__(self) -> str:
        return f"{self.graph}.{self.node}"

    def read(self, given: Any, state: Any) -> dict[str, Any]:
        """Return an update whose values may name fields to read."""
        return {
            name: getattr(state, value) if isinstance(value, str) and value in self.kind.model_fields else value
            for name, value in mapping(given or {}, str(self)).items()
        }


def mock_error(message: str, category: str | None = None, transient: bool | None = None) -> MockError:
    """Return an error with what it is to expose."""
    error = MockError(message)
    if category is not None:
        error.category = category  # type: ignore[attr-defined]
    if transient is not None:
        error.transient = transient  # type: ignore[attr-defined]
    return error


def raising(spec: Any, category: str | None, place: Place) -> Directive:
    """`raises`, with its sibling `error_category`."""

    def error() -> BaseException:
        if isinstance(spec, str):
            return mock_error(spec, category)
        given = known(spec, ("category", "message", "exception_kind"), f"raises of {place}")
        message = str(given.get("message", given.get("category", "raised")))
        if "exception_kind" in given:
            return _host_exception(given["exception_kind"], message)
        return mock_error(message, given.get("category", category))

    error()

    async def directive(_: Any) -> Mapping[str, Any]:
        place.record.mock_calls[place.record.run_number] += 1
        raise error()

    return directive


def _host_exception(kind: str, message: str) -> BaseException:
    found = getattr(builtins, kind, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        raise FixtureProblem(f"exception_kind {kind} is no exception of the host")
    return found(message)


def flaky(spec: Any, place: Place) -> Directive:
    """`flaky`, in its three forms."""
    given = known(
        spec,
        ("failure_sequence", "fail_first_invocation_only", "fail_count", "category", "message", *SUCCESS),
        f"flaky of {place}",
    )
    if "failure_sequence" in given:
        sequence = [
            _sequenced(entry, place) for entry in listing(given["failure_sequence"], f"failure_sequence of {place}")
        ]
        return _mock(place, given, lambda attempt, _: sequence[attempt]() if attempt < len(sequence) else None)
    category, message = given.get("category"), given.get("message")
    if given.get("fail_first_invocation_only"):
        error = partial(mock_error, message or "first run", category)
        return _mock(place, given, lambda _, __: error() if place.record.run_number == 0 else None)
    count = given["fail_count"]
    return _mock(
        place,
        given,
        lambda attempt, _: mock_error(message or f"attempt {attempt}", category) if attempt < count else None,
    )


def _sequenced(spec: Any, place: Place) -> Callable[[], BaseException | None]:
    if spec is None:
        return lambda: None
    given = known(spec, ("transient", "category", "message", "cause"), f"failure_sequence of {place}")

    def error() -> BaseException:
        raised = mock_error(given.get("message", ""), given.get("category"), given.get("transient"))
        raised.__cause__ = _cause(given.get("cause"), place)
        return raised

    return error


def _cause(spec: Any, place: Place) -> BaseException | None:
    if spec is None:
        return None
    given = known(spec, ("category", "message", "cause"), f"cause at {place}")
    error = mock_error(given.get("message", ""), given.get("category"))
    error.__cause__ = _cause(given.get("cause"), place)
    return error


def flaky_by_index(spec: Any, place: Place) -> Directive:
    """Fail by the item's value, or the first attempts of every instance."""
    given = known(spec, ("fail_when_idx", "fail_count_per_idx", "category", *SUCCESS), f"flaky_by_index of {place}")
    category = given.get("category")
    if "fail_count_per_idx" in given:
        count = given["fail_count_per_idx"]
        return _mock(place, given, lambda attempt, _: mock_error("throttled", category) if attempt < count else None)

    def verdict(_: int, state: Any) -> BaseException | None:
        item = getattr(state, place.record.structure.item_fields[place.graph])
        return mock_error(f"item {item} fails", category) if item == given["fail_when_idx"] else None

    return _mock(place, given, verdict)


def flaky_per_index(spec: Any, place: Place) -> Directive:
    """Fail by the instance's position."""
    given = known(
        spec, ("fail_first_run_indices", "always_fail_indices", "category", *SUCCESS), f"flaky_per_index of {place}"
    )
    always, first = given.get("always_fail_indices", []), given.get("fail_first_run_indices", [])

    def verdict(_: int, __: Any) -> BaseException | None:
        scope = current_scope()
        index = scope.fan_out_index if scope else None
        fails = index in always or (index in first and place.record.run_number == 0)
        return mock_error(f"instance {index} fails", given.get("category")) if fails else None

    return _mock(place, given, verdict)


def flaky_instance_only(spec: Any, place: Place) -> Directive:
    """Fail the first whole-subgraph runs of each instance."""
    given = known(spec, ("fail_count_per_instance", "category", *SUCCESS), f"flaky_instance_only of {place}")
    count, category = given["fail_count_per_instance"], given.get("category")
    return _mock(place, given, lambda attempt, _: mock_error("instance fails", category) if attempt < count else None)


def flaky_resume_aware(spec: Any, place: Place) -> Directive:
    """Fail so many attempts in the first invocation, and so many in a resumed one."""
    keys = ("fail_first_invocation_count", "fail_resumed_invocation_count", "category", *SUCCESS)
    given = known(spec, keys, f"flaky_resume_aware of {place}")

    def verdict(attempt: int, _: Any) -> BaseException | None:
        first = place.record.run_number == 0
        count = given["fail_first_invocation_count" if first else "fail_resumed_invocation_count"]
        return mock_error(f"attempt {attempt}", given.get("category")) if attempt < count else None

    return _mock(place, given, verdict)


def _mock(place: Place, given: dict[str, Any], verdict: Callable[[int, Any], BaseException | None]) -> Directive:
    success = next((given[word] for word in SUCCESS if word in given), None)

    async def directive(state: Any) -> Mapping[str, Any]:
        error = verdict(place.record.attempt(place.graph, place.node), state)
        if error is not None:
            raise error
        return place.read(success, state)

    return directive
