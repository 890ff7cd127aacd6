"""Invariants over spans and logs, each under its own name.

Those that restate a tree must have had one checked for the same run; the others are decided from the spans and lines
themselves.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tenuto.observe.attributes import IMPLEMENTATION
from tenuto.observe.otel import INVOCATION
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import OUTER
from tests.conformance.adapter.span_checks import is_uuid4, traces, tracing
from tests.observe.trees import Branch

Invariant = Callable[[Any, Check], bool]
ATTRIBUTION = ("implementation.name", "implementation.version")


def check_span_invariant(name: str, value: Any, check: Check) -> bool:
    """Check an invariant if it is one over spans or logs; tell whether it is."""
    if name not in INVARIANTS:
        return False
    check.holds(f"invariant {name} = {value!r} does not hold", INVARIANTS[name](value, check))
    return True


def _asserts(held: Callable[[Check], bool]) -> Invariant:
    """Return an invariant that is true or false; false asserts the opposite."""
    return lambda value, check: held(check) == bool(value)


def _restates(*words: str) -> Invariant:
    return lambda value, check: value is True and check.passed(*words)


def _roots(check: Check) -> list[Branch]:
    return [root for roots in traces(check).values() for root in roots]


def _all(check: Check) -> list[Branch]:
    return [each for root in _roots(check) for each in root]


def _parent(check: Check) -> list[Branch]:
    """Return the spans of the calling invocation's trace."""
    return [each for root in next(iter(traces(check).values()), []) for each in root]


def _detached(check: Check) -> list[Branch]:
    """Return the roots of the other traces."""
    return [root for roots in list(traces(check).values())[1:] for root in roots]


def _linking(check: Check) -> list[Branch]:
    """Return the spans of the calling invocation's trace that dispatched detached work."""
    return [each for each in _parent(check) if each.span.links]


def _per_run(name: str, check: Check) -> list[set[Any]]:
    """Return the values of an attribute in each run."""
    runs = range(len(check.record.runs))
    prefixed = f"openarmature.{name}"
    return [{(span.attributes or {}).get(prefixed) for span in tracing(check).spans(run)} for run in runs]


def _one_value(values: set[Any]) -> bool:
    return len(values) == 1 and None not in values


def _uniform(name: str) -> Invariant:
    """Return the invariant that every span of the run has one value, which is the one given, or any."""

    def held(value: Any, check: Check) -> bool:
        found = {each.said(name) for each in _all(check)}
        if isinstance(value, str):
            return all(map(is_uuid4, found)) and _one_value(found) if value == "<uuid>" else found == {value}
        return _one_value(found) == bool(value)

    return held


def _uuids(check: Check) -> bool:
    found = set().union(*_per_run("correlation_id", check))
    return bool(found) and all(map(is_uuid4, found))


def _each_run_has_one(check: Check) -> bool:
    found = _per_run("correlation_id", check)
    return bool(found) and all(map(_one_value, found))


def _runs_differ(check: Check) -> bool:
    found = _per_run("correlation_id", check)
    return len(found) > 1 and len(set().union(*found)) == len(found)


def _instances(check: Check, name: str | None = None) -> list[Branch]:
    found = [each for each in _all(check) if each.said("fan_out.parent_node_name") is not None]
    return [each for each in found if name is None or each.said("fan_out.parent_node_name") == name]


def _unique_indices(value: Any, check: Check) -> bool:
    indices = [each.said("node.fan_out_index") for each in _instances(check, value)]
    return bool(indices) and len(set(indices)) == len(indices)


def _index_range(value: Any, check: Check) -> bool:
    low, high = value
    return {each.said("node.fan_out_index") for each in _instances(check)} == set(range(low, high + 1))


def _attempts(check: Check) -> list[Branch]:
    """Return the invocation's children that are attempts at a node whose body was entered more than once for it."""
    again = {entry.node for entry in check.record.entered(check.run) if entry.graph == OUTER and entry.attempt_index}
    return [each for each in _roots(check)[0].below if each.span.name in again]


def _apart(check: Check) -> bool:
    return len(traces(check)) > 1 and all(len(roots) == 1 for roots in traces(check).values())


def _link_count(value: Any, check: Check) -> bool:
    return [len(each.span.links) for each in _linking(check)] == [value]


def _same_invocation(check: Check) -> bool:
    roots = _roots(check)
    named = all(root.span.name == INVOCATION for root in roots)
    return len(roots) > 1 and named and _one_value({root.said("invocation_id") for root in roots})


def _errors(spans: Iterable[Branch]) -> bool:
    found = list(spans)
    return bool(found) and all(each.status == "ERROR" for each in found)


def _exceptions(check: Check) -> bool:
    spans = [*_linking(check), *_detached(check)]
    return len(spans) > 1 and all(each.exceptions for each in spans)


def _line_values(name: str, check: Check) -> list[Any]:
    return [line.attributes.get(name) for line in tracing(check).lines(check.run.number)]


def _lines_carry(name: str) -> Invariant:
    def held(value: Any, check: Check) -> bool:
        return set(_line_values(name, check)) == {value}

    return held


def _lines_have_their_spans(check: Check) -> bool:
    """Tell whether every line has the id of the span of the node that wrote it."""
    spans = {f"{(each.span.get_span_context() or _NOWHERE).span_id:016x}": each for each in _all(check)}
    lines = tracing(check).lines(check.run.number)
    found = [(line, spans.get(line.attributes.get("span_id", ""))) for line in lines]
    return bool(found) and all(
        span is not None
        and span.said("node.namespace") == line.namespace
        and span.said("node.attempt_index") == line.attempt_index
        for line, span in found
    )


class _NOWHERE:
    span_id = 0


def _same_path(check: Check) -> bool:
    first, *others = [check.record.execution_order(run) for run in check.record.runs]
    return bool(others) and bool(first) and all(each == first for each in others)


def _same_count(check: Check) -> bool:
    counts = [len(tracing(check).spans(run)) for run in range(len(check.record.runs))]
    return len(counts) > 1 and len(set(counts)) == 1 and counts[0] > 0


def _attributed(roots: Iterable[Branch]) -> bool:
    found = list(roots)
    return bool(found) and all(
        isinstance(root.said(name), str) and root.said(name) for root in found for name in ATTRIBUTION
    )


def _attributed_only_at_roots(check: Check) -> bool:
    inner = [each for each in _all(check) if each.span.name != INVOCATION]
    return bool(inner) and all(each.said(name) is None for each in inner for name in ATTRIBUTION)


def _dispatchers(check: Check) -> list[Branch]:
    return [each for each in _all(check) if each.said("parallel_branches.branch_count") is not None]


def _retried_branches(check: Check) -> list[Branch]:
    found = [each for each in _all(check) if each.said("parallel_branches.parent_node_name") is not None]
    return [each for each in found if each.said("node.attempt_index")]


def _from_the_events(check: Check) -> bool:
    """Tell whether the branches' spans have the attempts that the branches' events have."""
    events = {(e.node_name, e.attempt_index) for e in check.events() if e.branch_name is not None}
    found = [each for each in _all(check) if each.said("parallel_branches.parent_node_name") is not None]
    spans = {(each.span.name, each.said("node.attempt_index")) for each in found}
    return spans == events and any(attempt for _, attempt in spans)


def _suspended(spans: Iterable[Branch]) -> bool:
    found = list(spans)
    return bool(found) and all((each.said("outcome"), each.status) == ("suspended", "OK") for each in found)


def _signalled(check: Check) -> bool:
    return any(each.said("suspension.signal_id") for each in _all(check))


_TREE = _restates("span_tree", "otel_spans", "traces", "parent_trace")

INVARIANTS: dict[str, Invariant] = {
    # observability
    "all_attempt_spans_error": _asserts(lambda check: _errors(_attempts(check))),
    "all_correlation_ids_uuidv4": _asserts(_uuids),
    "all_instance_trace_ids_distinct": _asserts(_apart),
    "all_logs_carry_correlation_id": _lines_carry("openarmature.correlation_id"),
    "all_logs_same_trace_id": _asserts(lambda check: _one_value(set(_line_values("trace_id", check)))),
    "always_emit_invariant_applies_to_every_invocation_span": _asserts(lambda check: _attributed(_roots(check))),
    "attempt_indices": lambda value, check: [each.said("node.attempt_index") for each in _attempts(check)] == value,
    "attributes_absent_on_inner_spans": _asserts(_attributed_only_at_roots),
    "attributes_on_invocation_span_only": _asserts(_attributed_only_at_roots),
    "attribution_attrs_absent_on_inner_spans_both_traces": _asserts(_attributed_only_at_roots),
    "attribution_attrs_on_detached_child_invocation_span": _asserts(lambda check: _attributed(_detached(check))),
    "attribution_attrs_on_parent_invocation_span": _asserts(lambda check: _attributed(_parent(check)[:1])),
    "branch_count_is_dispatched_count_not_declared": _TREE,
    "callable_branch_attempt_index_sourced_from_node_event_not_zero": _asserts(_from_the_events),
    "callable_branch_renders_one_span_keyed_by_branch_name": _TREE,
    "callable_branch_span_has_no_inner_node_spans": _TREE,
    "correlation_id_consistency": _uniform("correlation_id"),
    "correlation_id_consistent_across_traces": _uniform("correlation_id"),
    "correlation_id_is_uuidv4": _asserts(_uuids),
    "correlation_id_uniform_across_tree": _uniform("correlation_id"),
    "correlation_ids_differ_across_invocations": _asserts(_runs_differ),
    "detached_invocation_id_equals_parent": _asserts(_same_invocation),
    "dispatch_span_link_count": _link_count,
    "distinct_trace_ids": _asserts(_apart),
    "each_instance_trace_roots_in_invocation_span_sharing_parent_invocation_id": _asserts(_same_invocation),
    "each_invocation_correlation_id_uniform": _asserts(_each_run_has_one),
    "error_status_on_detached_instance_invocation_span": _asserts(lambda check: _errors(_detached(check))),
    "error_status_on_detached_invocation_span": _asserts(lambda check: _errors(_detached(check))),
    "error_status_on_parent_dispatch_span": _asserts(lambda check: _errors(_linking(check))),
    "error_status_on_parent_fan_out_node_span": _asserts(lambda check: _errors(_linking(check))),
    "exception_event_on_both_error_spans": _asserts(_exceptions),
    "fan_out_index_range": _index_range,
    "fan_out_node_span_link_count": _link_count,
    "implementation_name_matches_canonical_value": _asserts(
        lambda check: {root.said("implementation.name") for root in _roots(check)} == {IMPLEMENTATION}
    ),
    "implementation_name_non_empty": _asserts(lambda check: _attributed(_roots(check))),
    "implementation_version_non_empty": _asserts(lambda check: _attributed(_roots(check))),
    "log_span_ids_match_active_span_at_emission": _asserts(_lines_have_their_spans),
    "log_trace_ids_differ_when_detached": _asserts(
        lambda check: len(set(_line_values("trace_id", check)) - {None}) == len(traces(check)) > 1
    ),
    "no_instance_spans_in_parent_trace": _asserts(
        lambda check: bool(_linking(check)) and not any(each.below for each in _linking(check))
    ),
    "retry_callable_branch_dispatch_span_attempt_index_is_one": _asserts(
        lambda check: {each.said("node.attempt_index") for each in _retried_branches(check)} == {1}
    ),
    "same_execution_path": _asserts(_same_path),
    "sibling_attempt_count_under_invocation": lambda value, check: len(_attempts(check)) == value,
    "sibling_parallel_branches_node_spans_per_attempt": lambda value, check: len(_dispatchers(check)) == value,
    "span_count_equal_across_runs": _asserts(_same_count),
    "unique_fan_out_indices_under": _unique_indices,
    "when_skipped_branch_emits_no_span": _TREE,
    # sessions
    "all_logs_carry_session_id": _lines_carry("openarmature.session_id"),
    "session_id_uniform_across_span_tree": _uniform("session_id"),
    # suspension
    "invocation_span_carries_outcome_suspended": _asserts(lambda check: _suspended(_roots(check))),
    "node_span_carries_suspension_attributes": _asserts(_signalled),
    "otel_status_code_is_OK_per_4_2_mapping": _asserts(
        lambda check: _suspended(each for each in _all(check) if each.said("outcome"))
    ),
}
