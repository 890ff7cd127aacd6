"""Invariants of a case, each under its own name.

Some restate another assertion: for those it is enough that it was checked for the same run, and passed. The others are
decided from what was recorded, or by a probe.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tenuto.graph.engine.cause import category_of
from tenuto.graph.events.node_event import FailureIsolatedEvent, NodeEvent
from tests.conformance.adapter import session_checks, suspension_checks
from tests.conformance.adapter.checkpoint_checks import check_checkpoint_invariant
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.event_invariants import asserts, check_event_invariants
from tests.conformance.adapter.observers import InvocationAccumulator
from tests.conformance.adapter.records import Drain, plain
from tests.conformance.adapter.span_invariants import check_span_invariant
from tests.conformance.adapter.vocabulary import mapping

Invariant = Callable[[Any, Check], bool | Awaitable[bool]]
DRAIN_MARGIN_SECONDS = 0.25


async def check_invariants(expected: Any, check: Check) -> None:
    """Check named invariants; those over events may stand among them, and an unknown name is a failure."""
    for name, value in mapping(expected, "invariants").items():
        if check_checkpoint_invariant(name, value, check) or check_span_invariant(name, value, check):
            continue
        if truth := _truth(name, check):
            found = truth(check)
            held = found if isinstance(found, bool) else await found
            check.holds(f"invariant {name} = {value!r} does not hold", asserts(value, held))
            continue
        if name not in INVARIANTS:
            check_event_invariants({name: value}, check.events(), check)
            continue
        told = INVARIANTS[name](value, check)
        check.holds(f"invariant {name} = {value!r} does not hold", told if isinstance(told, bool) else await told)


def _truth(name: str, check: Check) -> Callable[[Check], bool | Awaitable[bool]] | None:
    """Return an invariant of sessions or suspension."""
    found = session_checks.TRUTHS.get(name) or suspension_checks.TRUTHS.get(name)
    return found or suspension_checks.named_truth(name, check)


def restates(*assertions: str) -> Invariant:
    """Return an invariant that one of these assertions already makes of the run; it must have passed."""
    return lambda value, check: value is True and check.passed(*assertions)


def _timely(value: Any, check: Check) -> bool:
    drains = [*check.record.node_drains.values(), *(run.drain for run in check.record.runs if run.drain)]
    limited = [drain for drain in drains if drain.timeout is not None]
    return asserts(value, bool(limited) and all(map(_in_time, limited)))


def _in_time(drain: Drain) -> bool:
    return drain.timeout is not None and drain.elapsed <= drain.timeout + DRAIN_MARGIN_SECONDS


async def _invocable_again(value: Any, check: Check) -> bool:
    graph = check.record.graph
    assert graph is not None
    state = plain(await graph.invoke(check.run.initial))
    await graph.drain(timeout=0)
    return asserts(value, state == check.run.state)


def _delivered_late(value: Any, check: Check) -> bool:
    timed_out = {invocation for (invocation, _), drain in check.record.node_drains.items() if drain.timeout_reached}
    late = [run for run in check.record.runs if run.invocation_id in timed_out]
    complete = all(
        {event.node_name for event in check.record.events(check.main, run) if event.phase == "completed"}
        == set(check.record.execution_order(run))
        for run in late
    )
    return asserts(value, bool(late) and complete)


def _distinct_ids(value: Any, check: Check) -> bool:
    ids = [run.invocation_id for run in check.record.runs]
    return asserts(value, None not in ids and len(set(ids)) == len(ids) > 1)


def _no_inner_nodes(value: Any, check: Check) -> bool:
    structure = check.record.structure
    branches = {name for names in structure.dispatchers.values() for name in names}
    events = check.events()
    held = bool(events) and all(event.node_name in branches | structure.dispatchers.keys() for event in events)
    return asserts(value, held)


def _skipped(check: Check) -> set[str]:
    """Return the branches whose `when` was false in the state their node was entered with."""
    entered = {
        entry.node: entry.state for entry in check.record.entries if entry.invocation_id == check.run.invocation_id
    }
    return {
        name
        for node, branches in check.record.structure.dispatchers.items()
        for name, branch in branches.items()
        if node in entered and "when" in branch and not entered[node][branch["when"]["field"]]
    }


def _branches_not_entered(value: Any, check: Check) -> bool:
    skipped = _skipped(check)
    entered = {entry.node for entry in check.record.entries if entry.graph.endswith(".call")}
    return asserts(value, bool(skipped) and not skipped & entered)


def _skipped_without_event(value: Any, check: Check) -> bool:
    skipped = _skipped(check)
    heard = {event.branch_name for event in check.events()} | {event.node_name for event in check.events()}
    return asserts(value, bool(skipped) and not skipped & heard)


def _another_type(value: Any, check: Check) -> bool:
    apart = not issubclass(FailureIsolatedEvent, NodeEvent)
    return asserts(value, apart and bool(check.isolated()) and bool(check.events()))


def _category_not(value: Any, check: Check) -> bool:
    return check.run.error is not None and category_of(check.run.error) not in value


def _results_length(value: Any, check: Check) -> bool:
    return check.run.state is not None and len(check.run.state["results"]) == value


def _adds_up(value: Any, check: Check) -> bool:
    """Tell whether every snapshot that was read is consistent; a lone counter always is."""
    snapshots = [
        found for found in (check.run.state or {}).values() if isinstance(found, dict) and "breakdown" in found
    ]
    return asserts(value, all(found["total"] == sum(found["breakdown"].values()) for found in snapshots))


async def _observer_without_influence(value: Any, check: Check) -> bool:
    """Run once more without the observer: the same path, and the same state apart from what was read from it."""
    graph = check.record.graph
    assert graph is not None
    outcome = await graph.run(check.run.initial)
    again = type(check.run)(number=-1, initial=check.run.initial, invocation_id=outcome.invocation_id)
    same_path = check.record.execution_order(again) == check.record.execution_order(check.run)
    read = set(check.record.captured_fields)
    states = [
        {key: item for key, item in state.items() if key not in read}
        for state in (plain(outcome.state), check.run.state or {})
    ]
    return asserts(value, same_path and states[0] == states[1])


def _not_mutable(value: Any, check: Check) -> bool:
    return asserts(value, check.record.metadata_reads > 0 and not check.record.mutable_reads)


def _droppable(value: Any, check: Check) -> bool:
    kept = check.record.queryables.values()
    return asserts(value, bool(kept) and all(callable(getattr(each, "drop", None)) for each in kept))


async def _kept_after_the_run(value: Any, check: Check) -> bool:
    """Run once more with a fresh accumulator that nobody drops from: its bucket is there after all is delivered."""
    graph, fresh = check.record.graph, InvocationAccumulator()
    assert graph is not None
    outcome = await graph.run(check.run.initial, observers=[fresh])
    await graph.drain()
    return asserts(value, fresh.has_bucket(outcome.invocation_id))


_FINAL = restates("final_state")
_ISOLATED = restates("expected_failure_isolation_event")
_ERROR = restates("expected_error")
_UNHEARD = restates("no_failure_isolation_event")
_SNAPSHOT = restates("node_accumulator_snapshots", "node_accumulator_snapshot_invariants")

INVARIANTS: dict[str, Invariant] = {
    # graph-engine
    "drain_covered_all_fan_out_instances_via_shared_invocation_id": _SNAPSHOT,
    "drain_covered_all_parallel_branches_via_shared_invocation_id": _SNAPSHOT,
    "drain_events_for_synchronized_accumulator_read": _SNAPSHOT,
    "drain_returned_within_timeout": _timely,
    "drain_returned_without_blocking_on_post_call_events": _SNAPSHOT,
    "drain_scopes_strictly_to_supplied_invocation_id": _SNAPSHOT,
    "drain_waited_for_all_events": restates("drain_summary"),
    "each_invocation_has_unique_invocation_id": _distinct_ids,
    "edge_resolution_failure_in_completed_event": restates("observer_events"),
    "graph_state_intact_after_per_invocation_drain_timeout": _invocable_again,
    "graph_state_intact_after_timeout": _invocable_again,
    "second_invocation_drain_independent_of_first": restates("drain_summary"),
    "workers_not_cancelled_on_per_invocation_drain_timeout": _delivered_late,
    # pipeline-utilities
    "absent_collect_field_yields_null_slot": _FINAL,
    "after_node_crash_rolls_node_forward": restates("nodes_skipped_during_resume"),
    "callable_branch_failure_isolated_and_degraded": _FINAL,
    "callable_branches_run_without_subgraph": _no_inner_nodes,
    "callable_receives_pre_merge_state": _FINAL,
    "callable_return_merges_via_reducer": _FINAL,
    "catch_matches_through_node_exception_carrier": _ISOLATED,
    "catch_non_matching_propagates": _ERROR,
    "category_not_masked_as_node_exception": _ISOLATED,
    "category_resolves_through_node_exception_wrapper": _ISOLATED,
    "caught_exception_category_null_for_non_categorized": _ISOLATED,
    "caught_exception_message_captures_str_exc": _ISOLATED,
    "chain_has_two_non_carrier_links": restates("chain"),
    "chain_includes_carrier_and_originating": restates("chain"),
    "contribution_is_the_degraded_update": _FINAL,
    "contributions_merge_via_parent_reducer": _FINAL,
    "default_predicate_catches_bare_exception": _ISOLATED,
    "degrade_does_not_suppress_reducer_error": _ERROR,
    "degrade_slot_rolled_forward_unchanged": restates("instances_skipped_during_resume"),
    "degrade_path_does_not_raise": _FINAL,
    "degraded_return_reaches_engine_with_on_caught": _FINAL,
    "derived_category_is_outermost_non_carrier_with_category": _ISOLATED,
    "engine_does_not_see_exception": _FINAL,
    "engine_sees_degraded_return": _FINAL,
    "error_category_not": _category_not,
    "event_is_distinct_from_node_event": _another_type,
    "event_name_is_caller_supplied": _ISOLATED,
    "extra_outputs_omission_is_null_slot": _FINAL,
    "extra_outputs_read_by_subgraph_field_name": _FINAL,
    "fan_in_does_not_raise": _FINAL,
    "framework_event_still_emits_with_on_caught": _ISOLATED,
    "matching_exception_caught": _ISOLATED,
    "migration_order_matches_chain": restates("migrations_run"),
    "migration_registry_not_consulted": lambda value, check: asserts(value, not check.record.migration_calls),
    "no_duplicate_error_entries": _FINAL,
    "no_duplicate_results": _FINAL,
    "no_event_when_catch_does_not_match": _UNHEARD,
    "no_event_when_predicate_does_not_match": _UNHEARD,
    "node_level_chain_is_single_non_carrier_link": restates("chain"),
    "non_matching_exception_propagates": _ERROR,
    "omitted_collect_field_yields_null_slot": _FINAL,
    "on_caught_fires_exactly_once": _FINAL,
    "on_caught_receives_original_exception": _FINAL,
    "outer_to_inner_ordering_load_bearing": _FINAL,
    "parent_keeps_prior_value": _FINAL,
    "results_list_length": _results_length,
    "retry_exhausts_before_isolation_catches": restates("expected_attempt_events"),
    "sibling_branch_completed": _FINAL,
    "skipped_branch_emits_no_event": _skipped_without_event,
    "skipped_branch_no_contribution": _FINAL,
    "strict_reducer_null_slot_raises": _ERROR,
    "uncategorized_cause_yields_null_derived_category": _ISOLATED,
    "uncovered_projected_field_skipped": _FINAL,
    "when_false_branch_skipped": _branches_not_entered,
    "when_true_branch_dispatches": _FINAL,
    # observability, the part without spans
    "accumulator_exposes_drop_method": _droppable,
    "caller_baseline_stable_across_attempts": _FINAL,
    "capture_after_augment_sees_write": _FINAL,
    "capture_before_augment_misses_write": _FINAL,
    "explicit_drop_removes_bucket": restates("per_invocation"),
    "no_auto_drop_on_completion_signal": _kept_after_the_run,
    "no_global_aggregator_layered_across_join": _FINAL,
    "observer_attach_emit_consume_cycle_works": restates("final_state_bounds"),
    "observer_does_not_mutate_state_or_influence_routing": _observer_without_influence,
    "outermost_read_sees_pre_fan_out_baseline_only": _FINAL,
    "outside_invocation_does_not_raise": restates("direct_call_result"),
    "outside_invocation_return_is_immutable": restates("direct_call_result"),
    "outside_invocation_returns_empty_mapping": restates("direct_call_result"),
    "per_instance_reads_isolated_from_siblings": _FINAL,
    "per_invocation_id_bucket_isolation": restates("per_invocation"),
    "prior_failed_attempt_writes_discarded": _FINAL,
    "read_does_not_raise_on_concurrent_write": lambda value, check: asserts(value, check.run.error is None),
    "read_is_consistent_no_torn_view": _adds_up,
    "read_returns_caller_baseline": _FINAL,
    "read_returns_immutable_mapping": _not_mutable,
    "read_returns_in_node_write": _FINAL,
    "read_returns_non_negative_integer": restates("final_state_bounds"),
    "snapshot_total_equals_sum_of_breakdown": _adds_up,
    "successful_attempt_writes_visible_downstream": _FINAL,
}
