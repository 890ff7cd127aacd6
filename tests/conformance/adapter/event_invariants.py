"""Invariants over a list of events, whether all of a run's or an accumulator's at some moment.

"Inner" means inside an instance or a branch. Names that begin with a node's name are read as patterns.
"""

import re
from collections.abc import Callable
from typing import Any

from tenuto.graph.events.node_event import NodeEvent
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, mapping

Events = list[NodeEvent]
Invariant = Callable[[Any, Events, Check], bool]


def check_event_invariants(expected: Any, events: Events, check: Check) -> None:
    """Check named invariants over events; an unknown name is a failure."""
    for name, value in mapping(expected, "event invariants").items():
        held = _invariant(name, check)(value, events, check)
        check.holds(f"invariant {name} = {value!r} does not hold", held, _summary(events))


def _invariant(name: str, check: Check) -> Invariant:
    if name in INVARIANTS:
        return INVARIANTS[name]
    for pattern, make in PATTERNS:
        if found := re.fullmatch(pattern, name):
            structure = check.record.structure
            branches = {branch for branches in structure.dispatchers.values() for branch in branches}
            for subject in (found[1], f"{found[1]}_node"):
                if subject in structure.nodes | branches:
                    return make(subject)
            if (role := structure.in_role(found[1])) is not None:
                return make(role)
    raise DirectiveUnknown(f"event invariant {name}")


def _summary(events: Events) -> list[str]:
    return [f"{'/'.join(e.namespace)}:{e.phase}#{e.attempt_index}@{e.fan_out_index}~{e.branch_name}" for e in events]


def _of(node: str, events: Events) -> Events:
    return [event for event in events if event.node_name == node]


def _inner(events: Events, check: Check) -> Events:
    return [event for event in events if check.record.structure.is_inner(event)]


def _set(wanted: Any, found: Any) -> bool:
    return bool(_frozen(wanted) == _frozen(found))


def _frozen(values: Any) -> set[Any]:
    return {tuple(value) if isinstance(value, list | tuple) else value for value in values}


def _unique(keys: list[Any]) -> bool:
    return bool(keys) and len(set(keys)) == len(keys)


def asserts(value: Any, held: bool) -> bool:
    """Tell whether a truth value asserts what was found; false asserts the opposite."""
    return held == bool(value)


def _inner_identities(value: Any, events: Events, check: Check) -> bool:
    inner = _inner(events, check)
    keys = [(e.namespace, e.fan_out_index, e.branch_name, e.attempt_index, e.phase) for e in inner]
    return asserts(value, _unique(keys))


def _no_branch_name(value: Any, events: Events, _: Check) -> bool:
    nodes = known(value, ("nodes",), "outermost_events_have_no_branch_name")["nodes"]
    return all(_of(node, events) and all(e.branch_name is None for e in _of(node, events)) for node in nodes)


def _branch_names(value: Any, events: Events, _: Check) -> bool:
    return all(
        _of(node, events) and all(event.branch_name == branch for event in _of(node, events))
        for node, branch in mapping(value, "inner_events_carry_correct_branch_name").items()
    )


def _per_instance(value: Any, events: Events, check: Check) -> bool:
    inner = _inner(events, check)
    counts = {index: sum(e.fan_out_index == index for e in inner) for index in {e.fan_out_index for e in inner}}
    return bool(counts) and all(count == value for count in counts.values())


def _branch_order(value: Any, events: Events, _: Check) -> bool:
    started = [e.branch_name for e in events if e.phase == "started" and e.branch_name is not None]
    return bool(list(dict.fromkeys(started)) == value)


def _in_fan_out(events: Events, check: Check) -> Events:
    return [event for event in events if check.record.structure.in_fan_out(event)]


def _plain_branches(events: Events, check: Check) -> Events:
    """Return the events of the branches in which nothing fans out."""
    spreading = {event.branch_name for event in _in_fan_out(events, check)}
    return [event for event in _inner(events, check) if event.branch_name not in spreading]


def _both_carried(value: Any, events: Events, check: Check) -> bool:
    found = _in_fan_out(events, check)
    carried = all(e.branch_name is not None and e.fan_out_index is not None for e in found)
    return asserts(value, bool(found) and carried)


def _only_branch_carried(value: Any, events: Events, check: Check) -> bool:
    found = _plain_branches(events, check)
    return asserts(value, bool(found) and all(e.branch_name is not None and e.fan_out_index is None for e in found))


def _called(events: Events, check: Check) -> Events:
    """Return the events of branches that are functions."""
    calls = {(node, b) for node, bs in check.record.structure.dispatchers.items() for b in bs if "call" in bs[b]}
    return [event for event in events if event.namespace[-2:] in calls]


def _current_attempts(value: Any, events: Events, check: Check) -> bool:
    """Tell whether branches carry the attempt of their node: the one it began last before them."""
    held, attempts = True, {}
    for event in events:
        if event.node_name in check.record.structure.dispatchers and event.phase == "started":
            attempts[event.namespace] = event.attempt_index
        elif event in _called(events, check):
            held = held and event.attempt_index == attempts.get(event.namespace[:-1])
    return asserts(value, held and bool(_called(events, check)))


def _both_phases_on_retry(value: Any, events: Events, check: Check) -> bool:
    phases = {str(event.phase) for event in _called(events, check) if event.attempt_index == 1}
    return asserts(value, phases == {"started", "completed"}) and _current_attempts(value, events, check)


INVARIANTS: dict[str, Invariant] = {
    "branch_started_event_order": _branch_order,
    "callable_branch_events_report_current_attempt_index": _current_attempts,
    "callable_branch_started_and_completed_carry_attempt_index_one_on_retry": _both_phases_on_retry,
    "fan_out_indices_seen": lambda value, events, check: _set(value, [e.fan_out_index for e in _inner(events, check)]),
    "fan_out_inner_branch_name_seen": lambda value, events, check: _set(
        [value], [e.branch_name for e in _in_fan_out(events, check)]
    ),
    "fan_out_inner_events_carry_both_branch_name_and_fan_out_index": _both_carried,
    "fan_out_inner_fan_out_indices_seen": lambda value, events, check: _set(
        value, [e.fan_out_index for e in _in_fan_out(events, check)]
    ),
    "inner_attempt_indices_seen": lambda value, events, check: _set(
        value, [e.attempt_index for e in _inner(events, check)]
    ),
    "inner_branch_names_seen": lambda value, events, check: _set(value, [e.branch_name for e in _inner(events, check)]),
    "inner_event_count": lambda value, events, check: len(_inner(events, check)) == value,
    "inner_event_identities_unique": _inner_identities,
    "inner_event_pair_count_per_instance": _per_instance,
    "inner_events_attempt_indices_seen": lambda value, events, check: _set(
        value, [e.attempt_index for e in _inner(events, check)]
    ),
    "inner_events_carry_correct_branch_name": _branch_names,
    "inner_events_have_fan_out_index": lambda value, events, check: asserts(
        value, bool(_inner(events, check)) and all(e.fan_out_index is not None for e in _inner(events, check))
    ),
    "inner_fan_out_indices_seen": lambda value, events, check: _set(
        value, [e.fan_out_index for e in _inner(events, check)]
    ),
    "no_events_for_node": lambda value, events, _: not _of(value, events),
    "outermost_events_have_no_branch_name": _no_branch_name,
    "plain_inner_branch_name_seen": lambda value, events, check: _set(
        [value], [e.branch_name for e in _plain_branches(events, check)]
    ),
    "plain_inner_events_carry_branch_name_but_no_fan_out_index": _only_branch_carried,
}


def _count(node: str) -> Invariant:
    return lambda value, events, _: len(_of(node, events)) == value


def _every(node: str, holds: Callable[[NodeEvent], bool]) -> Invariant:
    return lambda value, events, _: asserts(value, bool(_of(node, events)) and all(map(holds, _of(node, events))))


def _innermost_index(event: NodeEvent) -> bool:
    chain = [index for index in event.fan_out_index_chain if index is not None]
    return bool(chain) and event.fan_out_index == chain[-1]


def _seen(node: str, read: Callable[[NodeEvent], Any]) -> Invariant:
    return lambda value, events, _: _set(value, [read(event) for event in _of(node, events)])


def _unique_by_chain(node: str) -> Invariant:
    def held(value: Any, events: Events, _: Check) -> bool:
        return asserts(value, _unique([(e.fan_out_index_chain, e.attempt_index, e.phase) for e in _of(node, events)]))

    return held


def _repeated_scalar(node: str) -> Invariant:
    def held(value: Any, events: Events, _: Check) -> bool:
        pairs = [(e.fan_out_index, e.attempt_index, e.phase) for e in _of(node, events)]
        return asserts(value, bool(pairs) and not _unique(pairs))

    return held


def _present(node: str, phase: str) -> Invariant:
    def held(value: Any, events: Events, _: Check) -> bool:
        return asserts(value, any(event.phase == phase for event in _of(node, events)))

    return held


def _branch_attempts(branch: str) -> Invariant:
    def held(value: Any, events: Events, _: Check) -> bool:
        return _set(value, [event.attempt_index for event in events if event.branch_name == branch])

    return held


NODE = r"(.+?)(?:_node)?"
PATTERNS: list[tuple[str, Callable[[str], Invariant]]] = [
    (rf"{NODE}_events_count", _count),
    (rf"{NODE}_fan_out_index_absent", lambda node: _every(node, lambda event: event.fan_out_index is None)),
    (rf"{NODE}_fan_out_index_chain_empty", lambda node: _every(node, lambda event: not event.fan_out_index_chain)),
    (rf"{NODE}_fan_out_index_chains_seen", lambda node: _seen(node, lambda event: event.fan_out_index_chain)),
    (rf"{NODE}_branch_name_chains_seen", lambda node: _seen(node, lambda event: event.branch_name_chain)),
    (rf"{NODE}_scalar_fan_out_index_equals_innermost_chain_element", lambda node: _every(node, _innermost_index)),
    (rf"{NODE}_scalar_branch_name_absent", lambda node: _every(node, lambda event: event.branch_name is None)),
    (rf"{NODE}_event_identities_unique_by_chain", _unique_by_chain),
    (rf"{NODE}_scalar_fan_out_index_not_unique_across_outer_instances", _repeated_scalar),
    (rf"{NODE}_started_present", lambda node: _present(node, "started")),
    (rf"{NODE}_completed_present", lambda node: _present(node, "completed")),
    (r"(.+)_inner_attempt_indices_seen", _branch_attempts),
    (r"(.+)_callable_branch_attempt_indices_seen", _branch_attempts),
    (rf"{NODE}_attempt_indices_seen", lambda node: _seen(node, lambda event: event.attempt_index)),
]
"""A name's pattern, with the node's or branch's name as its group, and what makes its invariant."""
