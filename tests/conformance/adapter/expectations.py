"""The `expected` blocks: one function per name."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenuto.graph.engine.cause import derived_category
from tenuto.graph.events.node_event import NodeEvent
from tests.conformance.adapter import checkpoint_checks, record_checks, session_checks, span_checks, suspension_checks
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.event_invariants import check_event_invariants
from tests.conformance.adapter.invariants import check_invariants
from tests.conformance.adapter.records import Drain, Run, can_be_changed, plain
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, listing, mapping

Expectation = Callable[[Any, Check], Awaitable[None] | None]


def _final_state(expected: Any, check: Check) -> None:
    found = check.run.state
    if found is None:
        check.problems.append("final_state: the run did not complete")
        return
    wanted = dict(mapping(expected, "final_state"))
    if "errors_list_length" in wanted and "errors_list_length" not in found:
        length = wanted.pop("errors_list_length")
        unnamed = check.record.structure.errors_fields - wanted.keys()
        check.holds("errors_list_length: there is no errors field", bool(unnamed))
        for name in unnamed:
            check.equal(f"length of {name}", length, len(found[name]))
        found = {key: value for key, value in found.items() if key not in unnamed}
    for name in check.record.structure.errors_fields & wanted.keys():
        _error_records(name, wanted.pop(name), found[name], check)
        found = {key: value for key, value in found.items() if key != name}
    check.equal("final_state", wanted, found)


def _error_records(name: str, expected: Any, found: list[Any], check: Check) -> None:
    wanted = listing(expected, f"final_state.{name}")
    check.equal(f"length of {name}", len(wanted), len(found))
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        check.subset(f"{name}[{index}]", one, other)


def _bounds(expected: Any, check: Check) -> None:
    for name, bounds in mapping(expected, "final_state_bounds").items():
        given = known(bounds, ("min", "max"), f"final_state_bounds.{name}")
        value = (check.run.state or {}).get(name)
        inside = isinstance(value, int) and given.get("min", value) <= value <= given.get("max", value)
        check.holds(f"{name} is not within {given}", inside, value)


def _execution_order(expected: Any, check: Check) -> None:
    check.equal("execution_order", expected, check.record.execution_order(check.run))


def _no_propagated_error(expected: Any, check: Check) -> None:
    check.equal("no_propagated_error", expected, check.run.error is None)


def _recoverable_state(expected: Any, check: Check) -> None:
    check.equal("recoverable_state", expected, plain(getattr(check.run.error, "recoverable_state", None)))


def _observer_events(expected: Any, check: Check) -> None:
    wanted = {check.main: expected} if isinstance(expected, list) else mapping(expected, "observer_events")
    for observer, events in wanted.items():
        _events(f"events of {observer}", events, check.record.events(observer, check.run), check)


def _events(what: str, expected: Any, found: list[NodeEvent], check: Check) -> None:
    wanted = listing(expected, what)
    check.equal(f"number of {what}", len(wanted), len(found))
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        check.event(f"{what}[{index}]", one, other)


def _delivery_order(expected: Any, check: Check) -> None:
    wanted = [known(entry, ("observer", "step", "phase"), "delivery_order") for entry in expected]
    named = {entry["observer"] for entry in wanted}
    mine = [(name, event) for name, event in check.record.deliveries if name in named]
    found = [
        {"observer": name, "step": event.step, "phase": str(event.phase)}
        for name, event in mine
        if event.scope.invocation_id == check.run.invocation_id
    ]
    check.equal("delivery_order", wanted, found)


def _recovered_event(expected: Any, check: Check) -> None:
    given = known(expected, ("node_name", "post_state", "error_absent"), "expected_observer_event")
    ended = [event for event in check.events() if event.phase == "completed" and event.node_name == given["node_name"]]
    if len(ended) != 1:
        check.problems.append(f"expected_observer_event: one completed event expected, found {len(ended)}")
        return
    recovered = ended[0].error is not None and check.run.error is None
    if recovered and check.deviates("expected_observer_event", Decision.RECOVERED_ATTEMPT_KEEPS_ITS_ERROR):
        check.equal("expected_observer_event.post_state beside an error", None, plain(ended[0].post_state))
        return
    if "post_state" in given:
        check.equal("expected_observer_event.post_state", given["post_state"], plain(ended[0].post_state))
    if "error_absent" in given:
        check.equal("expected_observer_event.error_absent", given["error_absent"], ended[0].error is None)


def _attempt_events(expected: Any, check: Check) -> None:
    keys = ("attempt_index", "phase", "node_name", "error_category")
    wanted = [known(entry, keys, "expected_attempt_events") for entry in listing(expected, "expected_attempt_events")]
    names = {entry["node_name"] for entry in wanted}
    found = [event for event in check.events() if event.node_name in names]
    check.equal("number of expected_attempt_events", len(wanted), len(found))
    for index, (one, event) in enumerate(zip(wanted, found, strict=False)):
        told = {
            "attempt_index": event.attempt_index,
            "phase": str(event.phase),
            "node_name": event.node_name,
            "error_category": derived_category(event.error) if event.error else None,
        }
        check.equal(f"expected_attempt_events[{index}]", {"error_category": None, **one}, told)


def _isolation_event(expected: Any, check: Check) -> None:
    keys = ("event_name", "wrapped_node_lineage", "pre_state", "post_state", "caught_exception")
    given = dict(known(expected, keys, "expected_failure_isolation_event"))
    found = check.isolated()
    if len(found) != 1:
        check.problems.append(f"expected_failure_isolation_event: one expected, found {len(found)}")
        return
    event = found[0]
    if "wrapped_node_lineage" in given:
        lineage = ("namespace", "attempt_index", "fan_out_index", "branch_name")
        wanted = known(given.pop("wrapped_node_lineage"), lineage, "wrapped_node_lineage")
        told = {key: plain(getattr(event, key)) for key in lineage}
        check.subset("wrapped_node_lineage", wanted, told)
    if "caught_exception" in given:
        wanted = dict(known(given.pop("caught_exception"), ("category", "message", "chain"), "caught_exception"))
        caught = event.caught_exception
        if "chain" in wanted:
            _chain(wanted.pop("chain"), [link._asdict() for link in caught.chain], check)
        check.subset("caught_exception", wanted, {"category": caught.category, "message": caught.message})
    told = {"event_name": event.event_name, "pre_state": plain(event.pre_state), "post_state": plain(event.post_state)}
    check.subset("expected_failure_isolation_event", given, told)


def _chain(expected: Any, found: list[dict[str, Any]], check: Check) -> None:
    wanted = [known(link, ("carrier", "category", "message"), "chain") for link in listing(expected, "chain")]
    problems = len(check.problems)
    check.equal("length of chain", len(wanted), len(found))
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        check.subset(f"chain[{index}]", one, other)
    check.note("chain", problems)


def _no_isolation_event(expected: Any, check: Check) -> None:
    check.equal("no_failure_isolation_event", expected, not check.isolated())


def _empty_phases(expected: Any, check: Check) -> None:
    async def observer(_: Any) -> None:
        return None

    assert check.record.graph is not None
    try:
        check.record.graph.attach_observer(observer, phases=[])
    except Exception:
        refused = True
    else:
        refused = False
    check.equal("empty_phases_raises_at_registration", expected, refused)


def _drain_summary(expected: Any, check: Check) -> None:
    _summary("drain_summary", expected, check.run.drain, check)


def _summary(what: str, expected: Any, found: Drain | None, check: Check) -> None:
    given = known(expected, ("timeout_reached", "undelivered_count", "undelivered_count_min"), what)
    if found is None:
        check.problems.append(f"{what}: nothing was drained")
        return
    for key in ("timeout_reached", "undelivered_count"):
        if key in given:
            check.equal(f"{what}.{key}", given[key], getattr(found, key))
    least = given.get("undelivered_count_min", 0)
    check.holds(f"{what}: fewer undelivered than {least}", found.undelivered_count >= least, found.undelivered_count)


def _node_drain_summaries(expected: Any, check: Check) -> None:
    for node, summary in mapping(expected, "node_drain_summaries").items():
        found = check.record.node_drains.get((check.run.invocation_id, node))
        _summary(f"node_drain_summaries.{node}", summary, found, check)


def _snapshots(expected: Any, check: Check) -> None:
    for node, observer, wanted, found in _each_snapshot(expected, "node_accumulator_snapshots", check):
        _events(f"{observer} seen from {node}", wanted, found, check)


def _snapshot_invariants(expected: Any, check: Check) -> None:
    for _, _, wanted, found in _each_snapshot(expected, "node_accumulator_snapshot_invariants", check):
        check_event_invariants(wanted, found, check)


def _each_snapshot(expected: Any, what: str, check: Check) -> list[tuple[str, str, Any, list[NodeEvent]]]:
    found = []
    for node, observers in mapping(expected, what).items():
        taken = check.record.node_snapshots.get((check.run.invocation_id, node), {})
        for observer, wanted in mapping(observers, what).items():
            if observer in taken:
                found.append((node, observer, wanted, taken[observer]))
            else:
                check.problems.append(f"{what}: {node} took no snapshot of {observer}")
    return found


def _final_accumulator(expected: Any, check: Check) -> None:
    for observer, wanted in mapping(expected, "final_accumulator_state").items():
        _events(f"final bucket of {observer}", wanted, check.record.events(observer, check.run), check)


def _concurrency(expected: Any, check: Check) -> None:
    most = known(expected, ("max_in_flight",), "concurrency_invariant")["max_in_flight"]
    seen = check.record.max_in_flight
    check.holds(f"more than {most} instances in flight, or none", 0 < seen <= most, seen)


def _trace_records(expected: Any, check: Check) -> None:
    for name, entries in mapping(expected, "trace_records").items():
        found = check.record.trace_records.get((check.run.number, name), [])
        check.equal(f"number of trace_records.{name}", len(entries), len(found))
        for index, (one, other) in enumerate(zip(entries, found, strict=False)):
            keys = ("state_in", "partial_update_returned", "pre_seen", "post_seen")
            check.subset(f"trace_records.{name}[{index}]", known(one, keys, "trace_records"), other)


def _timing_records(expected: Any, check: Check) -> None:
    keys = ("node_name", "duration_ms", "outcome", "exception_category")
    wanted = [known(entry, keys, "timing_records") for entry in listing(expected, "timing_records")]
    found = check.record.timing_records[check.run.number]
    check.equal("number of timing_records", len(wanted), len(found))
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        check.subset(f"timing_records[{index}]", one, other)


def _direct_call_result(expected: Any, check: Check) -> None:
    given = known(expected, ("type", "value", "exception"), "direct_call_result")
    called = check.record.called
    raised = type(called).__name__ if isinstance(called, BaseException) else None
    check.equal("direct_call_result.exception", given.get("exception"), raised)
    if raised is not None or called is None:
        return
    if given.get("type") != "immutable_mapping":
        raise DirectiveUnknown(f"type {given.get('type')} at direct_call_result")
    check.holds("direct_call_result is not a mapping that cannot be changed", not can_be_changed(called))
    check.equal("direct_call_result.value", given.get("value"), dict(called))  # type: ignore[arg-type]


def _per_invocation(expected: Any, check: Check) -> None:
    keys = ("captured_bucket_is_non_empty", "captured_bucket_disjoint_from_invocation_1", "bucket_after_drop_is_absent")
    runs = {run.name: run for run in check.record.runs}
    first = _buckets(check.record.runs[0], check)
    for name, block in mapping(expected, "per_invocation").items():
        if name not in runs:
            check.problems.append(f"per_invocation: there was no invocation {name}")
            continue
        mine = _buckets(runs[name], check)
        found = {
            keys[0]: bool(mine),
            keys[1]: bool(mine) and not any(event in first for event in mine),
            keys[2]: all((runs[name].state or {})[field] for field in check.record.absence_fields),
        }
        check.subset(f"per_invocation.{name}", known(block, keys, f"per_invocation.{name}"), found)


def _buckets(run: Run, check: Check) -> list[Any]:
    """Return the events a run's nodes read from accumulators."""
    read = [(run.state or {}).get(field) or [] for field in sorted(check.record.captured_fields)]
    return [event for bucket in read for event in (bucket.values() if isinstance(bucket, dict) else bucket)]


def _expected_error_is_checked(_: Any, __: Check) -> None:
    """Leave `expected_error` to `check_error`, which also sees to runs without it."""


EXPECTATIONS: dict[str, Expectation] = {
    "checkpoint_saves": checkpoint_checks.checkpoint_saves,
    "concurrency_invariant": _concurrency,
    "delivery_order": _delivery_order,
    "direct_call_result": _direct_call_result,
    "drain_summary": _drain_summary,
    "empty_phases_raises_at_registration": _empty_phases,
    "every_save_assertions": record_checks.every_save,
    "execution_order": _execution_order,
    "expected_attempt_events": _attempt_events,
    "expected_error": _expected_error_is_checked,
    "expected_failure_isolation_event": _isolation_event,
    "expected_final_state": _final_state,
    "expected_observer_event": _recovered_event,
    "final_accumulator_state": _final_accumulator,
    "final_state": _final_state,
    "final_state_bounds": _bounds,
    "instances_executed_during_resume": checkpoint_checks.instances_executed,
    "instances_skipped_during_resume": checkpoint_checks.instances_skipped,
    "invariants": check_invariants,
    "latest_record_assertions": record_checks.latest_record,
    "migrations_run": checkpoint_checks.migrations_run,
    "no_failure_isolation_event": _no_isolation_event,
    "no_propagated_error": _no_propagated_error,
    "node_accumulator_snapshot_invariants": _snapshot_invariants,
    "node_accumulator_snapshots": _snapshots,
    "node_drain_summaries": _node_drain_summaries,
    "nodes_executed_during_resume": checkpoint_checks.nodes_executed,
    "nodes_skipped_during_resume": checkpoint_checks.nodes_skipped,
    "observer_event_invariants": check_invariants,
    "observer_events": _observer_events,
    "per_invocation": _per_invocation,
    "recoverable_state": _recoverable_state,
    "saved_record_assertions": record_checks.saved_record,
    "successful_attempt_index_during_resume": checkpoint_checks.successful_attempt,
    "timing_records": _timing_records,
    "trace_records": _trace_records,
    **session_checks.EXPECTATIONS,
    **span_checks.EXPECTATIONS,
    **suspension_checks.EXPECTATIONS,
}
