"""What is expected of the newest checkpoint record that a run left, and of all of them."""

from datetime import datetime
from typing import Any

from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.events.node_event import NodeEvent
from tests.conformance.adapter.checkpoint_checks import check_place, checkpoints_of, first_run
from tests.conformance.adapter.checkpoints import Save
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import Record, Run, plain
from tests.conformance.adapter.seeding import INSTANCE
from tests.conformance.adapter.span_checks import is_uuid4
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, listing, mapping

FIELDS = (
    "completed_positions",
    "correlation_id",
    "invocation_id",
    "last_saved_at",
    "parent_states",
    "schema_version",
    "state",
)
ASKED = (
    "fan_out_node_in_completed_positions",
    "fan_out_progress",
    "parent_states_outermost_first",
    "parent_states_present",
)


def saved_record(expected: Any, check: Check) -> None:
    """Compare the newest record the first run left."""
    _record("saved_record_assertions", expected, first_run(check), check)


def latest_record(expected: Any, check: Check) -> None:
    """Compare the newest record of the run."""
    _record("latest_record_assertions", expected, check.run, check)


def _record(what: str, expected: Any, run: Run, check: Check) -> None:
    given = known(expected, (*FIELDS, *ASKED), what)
    newest = checkpoints_of(check).newest(run)
    if newest is None:
        check.problems.append(f"{what}: the run left no checkpoint")
        return
    check_place(what, newest, check)
    for name in FIELDS:
        if name in given:
            _field(f"{what}.{name}", given[name], getattr(newest, name), check)
    if "parent_states_present" in given:
        check.equal(f"{what}.parent_states_present", given["parent_states_present"], bool(newest.parent_states))
    if "parent_states_outermost_first" in given:
        held = _outermost_first(newest, run, check)
        check.equal(f"{what}.parent_states_outermost_first", given["parent_states_outermost_first"], held)
    progress = mapping(given.get("fan_out_progress") or {}, "fan_out_progress")
    found = _instances_of(newest, check.record.events(check.main, run), check.record)
    if "fan_out_progress" in given and not progress:
        check.holds(f"{what}.fan_out_progress: a fan-out is under way", not found, found)
    _progress(progress, found, check)
    if "fan_out_node_in_completed_positions" in given:
        named = {entry["node_name"] for entry in newest.completed_positions}
        there = bool(named & (progress.keys() or check.record.structure.fan_outs))
        check.equal("fan_out_node_in_completed_positions", given["fan_out_node_in_completed_positions"], there)


def _field(what: str, expected: Any, found: Any, check: Check) -> None:
    """Compare a field of a record: with a value, with nothing, or with what a placeholder stands for."""
    if expected is None:
        check.holds(f"{what} must be absent or empty", not found, found)
    elif expected == "<uuid>":
        check.holds(f"{what} is no UUID of version 4", is_uuid4(found), found)
    elif expected == "<timestamp>":
        check.holds(f"{what} is no instant", isinstance(found, datetime), found)
    elif expected == "<any-string>":
        # A state that declares no version has the empty one, which is a text too.
        empty = what.endswith("schema_version")
        check.holds(f"{what} is no text", isinstance(found, str) and (bool(found) or empty), found)
    elif isinstance(expected, str) and expected.startswith("<"):
        raise DirectiveUnknown(f"placeholder {expected} at {what}")
    else:
        check.equal(what, expected, found)


def _outermost_first(save: Save, run: Run, check: Check) -> bool:
    """Tell whether there is one state per graph around the place of the record, in their order and of their fields."""
    last = save.completed_positions[-1] if save.completed_positions else {"namespace": [], "step": None}
    at = last["namespace"]
    ended = [event for event in check.record.events(check.main, run) if event.step == last["step"]]
    if not ended or plain(ended[-1].parent_states) != save.parent_states:
        return False
    graph: GraphPlan[Any] | None = check.record.graph
    graphs = []
    for node in at:
        assert graph is not None
        graphs.append(graph)
        (graph,) = graph.nodes[node].graphs()
    declared = [set(each.schema.fields) for each in graphs]
    return bool(declared) and [set(state) for state in save.parent_states] == declared


def _progress(expected: dict[str, Any], found: dict[str, dict[str, Any]], check: Check) -> None:
    for node, block in expected.items():
        what = f"fan_out_progress.{node}"
        given = known(block, ("instance_count", "instances"), what)
        if node not in found:
            check.problems.append(f"{what}: the checkpoint has no progress of it")
            continue
        if "instance_count" in given:
            check.equal(f"{what}.instance_count", given["instance_count"], found[node]["instance_count"])
        wanted = listing(given["instances"], f"{what}.instances")
        check.equal(f"number of {what}.instances", len(wanted), len(found[node]["instances"]))
        for index, (one, other) in enumerate(zip(wanted, found[node]["instances"], strict=False)):
            _instance(f"{what}[{index}]", one, other, check)


def _instance(what: str, expected: Any, found: dict[str, Any], check: Check) -> None:
    given = dict(known(expected, (*INSTANCE, "state_one_of"), what))
    if "state_one_of" in given:
        allowed = given.pop("state_one_of")
        check.holds(f"{what}.state is none of {allowed}", found["state"] in allowed, found["state"])
    if "completed_inner_positions" in given:
        wanted = listing(given.pop("completed_inner_positions") or [], f"{what}.completed_inner_positions")
        for entry in wanted:
            known(entry, ("node_name", "attempt_index", "namespace", "step"), f"{what}.completed_inner_positions")
        _positions(what, wanted, found["completed_inner_positions"], check)
    check.subset(what, given, found)


def _positions(what: str, wanted: list[Any], found: list[dict[str, Any]], check: Check) -> None:
    check.equal(f"{what}: number of completed_inner_positions", len(wanted), len(found))
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        check.subset(f"{what}.completed_inner_positions[{index}]", one, other)


def _under_way(save: Save, events: list[NodeEvent], record: Record) -> tuple[tuple[str, ...], dict[int, Any]] | None:
    """Return the fan-out under way, and what of it is done; one with nothing done is only known by its events."""
    if save.progress is not None:
        return save.progress
    begun: dict[tuple[str, ...], bool] = {}
    for event in events:
        if event.fan_out_config is not None and not record.structure.is_inner(event):
            begun[event.namespace] = event.phase == "started" or event.error is not None
    open_ones = [path for path, unfinished in begun.items() if unfinished]
    return (open_ones[-1], {}) if open_ones else None


def _instances_of(save: Save, events: list[NodeEvent], record: Record) -> dict[str, dict[str, Any]]:
    """Return `fan_out_progress` by node: what the store has of it, and which other instances the events saw begin."""
    found = _under_way(save, events, record)
    if found is None:
        return {}
    path, done = found
    mine = [event for event in events if event.namespace == path and event.phase == "started"]
    config = mine[-1].fan_out_config if mine else None
    if config is None:
        raise AssertionError(f"no event tells how many instances {path} has")
    inside = [event for event in events if event.namespace[: len(path)] == path and len(event.namespace) > len(path)]
    begun = {event.fan_out_index_chain[len(path) - 1] for event in inside}
    collect = record.structure.collect_fields[path[-1]]
    instances = [
        _held(done.get(index), index in begun, collect) | _inside(index, len(path), inside)
        for index in range(config.item_count)
    ]
    return {path[-1]: {"instance_count": config.item_count, "instances": instances}}


def _held(done: dict[str, Any] | None, begun: bool, collect: str) -> dict[str, Any]:
    if done is None:
        return {"state": "in_flight" if begun else "not_started", "result_is_error": False, "result_present": False}
    if "error" in done:
        result = done["error"]
        return {"state": "completed", "result": result, "result_is_error": True, "result_present": bool(result)}
    present = collect in done["result"]
    told = {"state": "completed", "result_is_error": False, "result_present": present}
    return told | ({"result": done["result"][collect]} if present else {})


def _inside(index: int, depth: int, events: list[NodeEvent]) -> dict[str, Any]:
    """Return the nodes of an instance that are done: in its last attempt as a whole, if it was tried again."""
    mine = [event for event in events if event.fan_out_index_chain[depth - 1] == index]
    done: list[dict[str, Any]] = []
    tried: dict[tuple[str, ...], int] = {}
    for event in mine:
        again = event.attempt_index > tried.get(event.namespace, event.attempt_index)
        if event.phase == "started" and again and any(each["node_name"] == event.node_name for each in done):
            done.clear()  # a node that was done is tried again only with all that came after it
        tried[event.namespace] = event.attempt_index
        if event.phase == "completed" and event.error is None:
            done.append(
                {
                    "namespace": list(event.namespace[:-1]),
                    "node_name": event.node_name,
                    "step": event.step,
                    "attempt_index": event.attempt_index,
                }
            )
    return {"completed_inner_positions": done}


def every_save(expected: Any, check: Check) -> None:
    """Compare all saves of the case."""
    given = known(expected, ("schema_version",), "every_save_assertions")
    saves = checkpoints_of(check).saves
    check.holds("every_save_assertions: there was no save", bool(saves))
    structure = check.record.structure
    if structure.fan_outs:
        # The fixture speaks of instance saves and of the node's own: both must have been among them.
        check.equal("kinds of saves", {True, False}, {save.of_instance for save in saves})
    for index, save in enumerate(saves):
        check.equal(f"schema_version of save {index}", given["schema_version"], save.schema_version)
