"""Node bodies: directives, run in the order written."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tenuto.graph import save_session
from tenuto.graph.engine.scope import (
    current_attempt_index,
    current_invocation_id,
    get_invocation_metadata,
    set_invocation_metadata,
)
from tests.conformance.adapter import mocks
from tests.conformance.adapter.mocks import Directive, Place
from tests.conformance.adapter.records import Drain, can_be_changed
from tests.conformance.adapter.suspensions import hold_up, suspending, suspending_at_index
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mapping, only

Body = Callable[[Any], Awaitable[Mapping[str, Any]]]


def body_of(spec: dict[str, Any], place: Place) -> Body:
    """Return the async function that a plain node's directives describe."""
    steps = directives(spec, place)
    suspends = place.graph in place.record.structure.suspending or "conditional_suspend" in spec

    async def body(state: Any) -> Mapping[str, Any]:
        place.record.enter(place.graph, place.node, state)
        if not suspends:
            await hold_up(place.record)
        return await run_all(steps, state)

    return body


class SaveSession:
    """`explicit_save_session`: save the session with what the directives before it return."""

    def __init__(self, given: Any, place: Place) -> None:
        if given is not True:
            raise FixtureProblem(f"explicit_save_session of {place} must be true")
        self._record = place.record

    async def __call__(self, update: Mapping[str, Any]) -> None:
        await save_session(update)
        self._record.explicit_saves.append(self._record.run_number)


async def run_all(steps: list[Directive | SaveSession], state: Any) -> dict[str, Any]:
    """Run directives one after the other and return their updates as one."""
    update: dict[str, Any] = {}
    for step in steps:
        if isinstance(step, SaveSession):
            await step(update)
        else:
            update |= await step(state)
    return update


def directives(spec: dict[str, Any], place: Place) -> list[Directive | SaveSession]:
    """Return the directives of a body, in document order."""
    steps: list[Directive | SaveSession] = []
    for name, given in spec.items():
        if name == "error_category" or (name == "on_other_indices" and "conditional_suspend" in spec):
            continue
        if name == "raises":
            steps.append(mocks.raising(given, spec.get("error_category"), place))
        elif name == "conditional_suspend":
            steps.append(suspending_at_index(given, _otherwise(spec.get("on_other_indices"), place), place))
        elif name == "explicit_save_session":
            steps.append(SaveSession(given, place))
        elif name in DIRECTIVES:
            steps.append(DIRECTIVES[name](given, place))
        else:
            raise DirectiveUnknown(f"{name} at node {place}")
    return steps


def _otherwise(spec: Any, place: Place) -> Directive | None:
    """`on_other_indices`: a body of its own."""
    if spec is None:
        return None
    steps = directives(mapping(spec, f"on_other_indices of {place}"), place)

    async def otherwise(state: Any) -> Mapping[str, Any]:
        return await run_all(steps, state)

    return otherwise


def _literal(given: Any, place: Place) -> Directive:
    update = mapping(given, f"update of {place}")

    async def directive(_: Any) -> Mapping[str, Any]:
        return update

    return directive


def _pure(given: Any, place: Place) -> Directive:
    async def directive(state: Any) -> Mapping[str, Any]:
        return place.read(given, state)

    return directive


def _from_field(given: Any, place: Place) -> Directive:
    spec = mapping(given, f"update_from_field of {place}")
    target, source = only(
        {key: value for key, value in spec.items() if key != "multiplier"}, f"update_from_field of {place}"
    )

    async def directive(state: Any) -> Mapping[str, Any]:
        return {target: getattr(state, source) * spec.get("multiplier", 1)}

    return directive


def _from_state(given: Any, place: Place) -> Directive:
    for operation in mapping(given, f"update_pure_from_state of {place}").values():
        if operation != "input_times_two":
            raise DirectiveUnknown(f"operation {operation} at {place}")

    async def directive(state: Any) -> Mapping[str, Any]:
        return dict.fromkeys(given, state.input * 2)

    return directive


def _noop(given: Any, place: Place) -> Directive:
    if given is not True:
        raise FixtureProblem(f"noop of {place} must be true")
    return _literal({}, place)


def _sleep(given: Any, _: Place) -> Directive:
    async def directive(_: Any) -> Mapping[str, Any]:
        await asyncio.sleep(given / 1000)
        return {}

    return directive


def _log(given: Any, place: Place) -> Directive:
    spec = known(given, ("message", "level"), f"emits_log of {place}")
    level = logging.getLevelNamesMapping()[str(spec.get("level", "info")).upper()]

    async def directive(_: Any) -> Mapping[str, Any]:
        logging.getLogger("tests.conformance").log(level, spec["message"])
        return {}

    return directive


def _augment(given: Any, place: Place) -> Directive:
    values = mapping(given, f"augment_metadata of {place}")

    async def directive(_: Any) -> Mapping[str, Any]:
        set_invocation_metadata(**values)
        return {}

    return directive


def _capture(given: Any, place: Place) -> Directive:
    async def directive(_: Any) -> Mapping[str, Any]:
        view = get_invocation_metadata()
        place.record.metadata_reads += 1
        place.record.mutable_reads += can_be_changed(view)
        return {given: dict(view)}

    return directive


def _drain(given: Any, place: Place) -> Directive:
    spec = known(given, ("timeout_seconds", "snapshot_observer"), f"invoke_drain_events_for of {place}")
    record, timeout = place.record, spec.get("timeout_seconds")

    async def directive(_: Any) -> Mapping[str, Any]:
        assert record.graph is not None
        mine = current_invocation_id()
        assert mine is not None
        begun = time.monotonic()
        summary = await record.graph.drain_events_for(mine, timeout=timeout)
        record.node_drains[mine, place.node] = Drain(
            timeout=timeout,
            elapsed=time.monotonic() - begun,
            undelivered_count=summary.undelivered_count,
            timeout_reached=summary.timeout_reached,
        )
        if observer := spec.get("snapshot_observer"):
            bucket = [event for event in record.events(observer) if event.scope.invocation_id == mine]
            record.node_snapshots[mine, place.node] = {observer: bucket}
        return {}

    return directive


def _query(given: Any, place: Place) -> Directive:
    spec = known(given, ("observer_name", "method", "state_field"), f"capture_queryable_observer_read_into of {place}")
    queryable = place.record.queryables[spec["observer_name"]]
    read = queryable.reader(spec["method"])
    place.record.captured_fields.add(spec["state_field"])

    async def directive(_: Any) -> Mapping[str, Any]:
        if queryable.waits(spec["method"]):
            assert place.record.graph is not None
            await place.record.graph.drain_events_for(str(current_invocation_id()))
        return {spec["state_field"]: read()}

    return directive


def _drop(given: Any, place: Place) -> Directive:
    spec = known(given, ("observer_name",), f"then_drop_for_current_invocation of {place}")

    async def directive(_: Any) -> Mapping[str, Any]:
        place.record.queryables[spec["observer_name"]].drop(current_invocation_id())
        return {}

    return directive


def _absent(given: Any, place: Place) -> Directive:
    place.record.absence_fields.add(given)

    async def directive(_: Any) -> Mapping[str, Any]:
        mine = current_invocation_id()
        return {given: all(not each.has_bucket(mine) for each in place.record.queryables.values())}

    return directive


def _per_attempt(given: Any, place: Place) -> Directive:
    behaviours: dict[int, list[Directive | SaveSession]] = {}
    for entry in listing(given, f"per_attempt_behavior of {place}"):
        spec = dict(entry)
        attempt = spec.pop("attempt")
        spec.pop("succeeds", None)
        behaviours[attempt] = directives(spec, place)

    async def directive(state: Any) -> Mapping[str, Any]:
        return await run_all(behaviours[current_attempt_index()], state)

    return directive


DIRECTIVES: dict[str, Callable[[Any, Place], Directive]] = {
    "augment_metadata": _augment,
    "capture_invocation_metadata_into": _capture,
    "capture_queryable_observer_read_into": _query,
    "emits_log": _log,
    "flaky": mocks.flaky,
    "flaky_by_index": mocks.flaky_by_index,
    "flaky_instance_only": mocks.flaky_instance_only,
    "flaky_per_index": mocks.flaky_per_index,
    "flaky_resume_aware": mocks.flaky_resume_aware,
    "invoke_drain_events_for": _drain,
    "noop": _noop,
    "per_attempt_behavior": _per_attempt,
    "sleep_ms": _sleep,
    "suspend_with_descriptor": suspending,
    "then_assert_bucket_absent_into": _absent,
    "then_drop_for_current_invocation": _drop,
    "update": _literal,
    "update_from_field": _from_field,
    "update_pure": _pure,
    "update_pure_from_state": _from_state,
}
