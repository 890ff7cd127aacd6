"""What is expected of saves, of the newest record, and of a resumed run."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

from tests.conformance.adapter.checkpoints import Checkpoints, Save, completed, position
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import Entry, Run, plain
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, listing


def checkpoints_of(check: Check) -> Checkpoints:
    if check.record.checkpoints is None:
        raise DirectiveUnknown("what is expected of checkpoints in a case without a checkpointer")
    return check.record.checkpoints


def first_run(check: Check) -> Run:
    if check.record.first_run is None:
        raise DirectiveUnknown("what is expected of a first run in a case without one")
    return check.record.first_run


def _resumed(check: Check) -> Run:
    if check.record.resumed_run is None:
        raise DirectiveUnknown("what is expected of a resumed run in a case without one")
    return check.record.resumed_run


def check_place(what: str, save: Save, check: Check) -> None:
    """See that the last position, which comes from events, is where the store has the run, as far as it says that."""
    if not save.completed_positions or save.initial:
        return
    last, (path, step) = save.completed_positions[-1], save.place
    if check.record.structure.fan_outs or check.record.structure.dispatchers:
        # The steps of instances and branches are counted too.
        check.holds(f"{what}: the store has step {step}", step >= last["step"], last)
    else:
        check.equal(f"{what}: place in the store", (last["namespace"], last["step"]), (list(path), step))


def checkpoint_saves(expected: Any, check: Check) -> None:
    """Compare every save of the run, in order."""
    found = checkpoints_of(check).of(check.run)
    wanted = listing(expected, "checkpoint_saves")
    check.equal("number of checkpoint_saves", len(wanted), len(found))
    for index, (one, save) in enumerate(zip(wanted, found, strict=False)):
        keys = ("after_node", "state", "completed_positions")
        told = {
            "after_node": save.completed_positions[-1]["node_name"] if save.completed_positions else None,
            "state": save.state,
            "completed_positions": save.completed_positions,
        }
        check.subset(f"checkpoint_saves[{index}]", known(one, keys, "checkpoint_saves"), told)
        check_place(f"checkpoint_saves[{index}]", save, check)


def _entered(check: Check) -> list[Entry]:
    mine = _resumed(check).invocation_id
    return [entry for entry in check.record.entries if entry.invocation_id == mine]


def _names_known(expected: Any, what: str, check: Check) -> list[str]:
    names = listing(expected, what)
    check.equal(f"{what} that are no nodes", [], sorted(set(names) - check.record.structure.nodes))
    return names


def nodes_executed(expected: Any, check: Check) -> None:
    """Compare the bodies that ran in the resumed run; a subgraph's own node has none, and may be left out."""
    names = _names_known(expected, "nodes_executed_during_resume", check)
    ran = {entry.node for entry in _entered(check)} - (check.record.structure.wrappers - set(names))
    check.equal("nodes_executed_during_resume", sorted(names), sorted(ran))


def nodes_skipped(expected: Any, check: Check) -> None:
    """See that these bodies did not run in the resumed run."""
    names = _names_known(expected, "nodes_skipped_during_resume", check)
    ran = {entry.node for entry in _entered(check)}
    check.equal("nodes_skipped_during_resume that ran", [], [name for name in names if name in ran])


def _instances(check: Check) -> list[int]:
    """Return the instances that ran in the resumed run, by their place in the outermost fan-out."""
    chains = [[index for index in entry.instance if index is not None] for entry in _entered(check)]
    return sorted({chain[0] for chain in chains if chain})


def instances_executed(expected: Any, check: Check) -> None:
    """Compare the instances that ran in the resumed run."""
    check.equal("instances_executed_during_resume", sorted(expected), _instances(check))


def instances_skipped(expected: Any, check: Check) -> None:
    """Compare the instances that had run before, and did not run again."""
    started = [event for event in check.events() if event.phase == "started" and event.fan_out_config is not None]
    counts = [
        event.fan_out_config.item_count for event in started if event.fan_out_config and len(event.namespace) == 1
    ]
    every = range(max(counts, default=0))
    ran = _instances(check)
    check.equal("instances_skipped_during_resume", sorted(expected), [index for index in every if index not in ran])


def successful_attempt(expected: Any, check: Check) -> None:
    """Compare the attempt of the resumed run that succeeded."""
    mine = check.record.events(check.main, _resumed(check))
    ended = [event for event in mine if event.phase == "completed" and event.error is None]
    check.equal("successful_attempt_index_during_resume", expected, ended[-1].attempt_index if ended else None)


def migrations_run(expected: Any, check: Check) -> None:
    """Compare the migrations that were called."""
    check.equal("migrations_run", expected, check.record.migration_calls)


def _save_order(check: Check) -> bool:
    saves = checkpoints_of(check).of(check.run)
    ended = [position(event) for event in completed(check.events(), check.record)]
    return (
        bool(saves)
        and [last for save in saves if not save.of_instance for last in save.completed_positions[-1:]] == ended
    )


def _one_correlation(check: Check) -> bool:
    """Tell whether both runs, their events and their saves all carry the same correlation id."""
    runs = (first_run(check), _resumed(check))
    events = [event.scope.correlation_id for run in runs for event in check.record.events(check.main, run)]
    saves = [save.correlation_id for run in runs for save in checkpoints_of(check).of(run)]
    kept = {*events, *saves, *(run.correlation_id for run in runs)}
    return bool(events) and bool(saves) and len(kept) == 1


def _is_uuid4(text: str | None) -> bool:
    try:
        return text is not None and UUID(text).version == 4 and str(UUID(text)) == text
    except ValueError:
        return False


def _ids_differ(check: Check) -> bool:
    return None not in (first_run(check).invocation_id, _resumed(check).invocation_id) and (
        first_run(check).invocation_id != _resumed(check).invocation_id
    )


def _fresh(check: Check) -> bool:
    earlier = {first_run(check).invocation_id, *_callers(check)}
    return _is_uuid4(_resumed(check).invocation_id) and _resumed(check).invocation_id not in earlier


def _callers(check: Check) -> list[Any]:
    return [check.spec.get("caller_invocation_id"), check.spec["resume"].get("caller_invocation_id")]


def _attempts_reset(check: Check) -> bool:
    mine = check.record.events(check.main, _resumed(check))
    return bool(mine) and mine[0].phase == "started" and mine[0].attempt_index == 0


def _first_attempt_of(index: int, check: Check) -> int | None:
    mine = [event for event in check.record.events(check.main, _resumed(check)) if event.fan_out_index == index]
    return mine[0].attempt_index if mine else None


def _inner_runs(check: Check) -> set[tuple[int, ...]]:
    """Return the chains of instances in which a fan-out that runs inside another ran bodies."""
    chains = {tuple(index for index in entry.instance if index is not None) for entry in _entered(check)}
    return {chain for chain in chains if len(chain) == 2}


def _all_inner_run(check: Check) -> bool:
    outer = [event for event in check.events() if event.fan_out_config is not None and event.phase == "started"]
    counts = {event.fan_out_index_chain: event.fan_out_config.item_count for event in outer if event.fan_out_config}
    wanted = {
        (chain[0], index) for chain, count in counts.items() if chain and chain[0] is not None for index in range(count)
    }
    return bool(wanted) and _inner_runs(check) == wanted


def _legacy_not_applied(check: Check) -> bool:
    """Tell whether every instance that the entry without a lineage calls completed ran in every outer instance."""
    entries = check.spec["seeded_record"]["fan_out_progress"]
    legacy = [entry for entry in entries if entry["namespace"] and not entry.get("enclosing_fan_out_lineage")]
    done = {i for entry in legacy for i, each in enumerate(entry["instances"]) if each["state"] == "completed"}
    outer = {chain[0] for chain in _inner_runs(check)}
    return bool(done) and bool(outer) and {(one, other) for one in outer for other in done} <= _inner_runs(check)


def _own_progress(check: Check) -> dict[int, tuple[set[int], set[int]]]:
    """Return, by outer instance, which inner instances its own entry of the seeded record calls completed, and which
    not.
    """
    found = {}
    for entry in check.spec["seeded_record"]["fan_out_progress"]:
        if lineage := entry.get("enclosing_fan_out_lineage"):
            done = {index for index, each in enumerate(entry["instances"]) if each["state"] == "completed"}
            found[lineage[0]["fan_out_index"]] = (done, set(range(entry["instance_count"])) - done)
    return found


def _matched_per_lineage(check: Check) -> bool:
    """Tell whether what ran in the outer instances is what their own entries leave to be done, and differs."""
    wanted = {(outer, inner) for outer, (_, rest) in _own_progress(check).items() for inner in rest}
    return len({frozenset(rest) for _, rest in _own_progress(check).values()}) > 1 and _inner_runs(check) == wanted


def _skips_only_its_own(check: Check) -> bool:
    ran = _inner_runs(check)
    own = _own_progress(check)
    return bool(own) and all(
        {inner for inner in done | rest if (outer, inner) not in ran} == done for outer, (done, rest) in own.items()
    )


def _none_skipped_for_another(check: Check) -> bool:
    """Tell whether every instance ran that is completed only in the entry of another outer instance."""
    own = _own_progress(check)
    elsewhere = {(o, i) for o, (_, rest) in own.items() for done, _ in own.values() for i in done & rest}
    return bool(elsewhere) and elsewhere <= _inner_runs(check)


def _batches_only_instances(check: Check) -> bool:
    """Tell whether instances were saved a batch at a time, the rest before the node, and every node at once."""
    saves = checkpoints_of(check).of(check.run)
    sizes = [len(save.instances) for save in saves if save.of_instance]
    full = checkpoints_of(check).batch
    ended = len(completed(check.events(), check.record))
    return bool(sizes) and set(sizes[:-1]) <= {full} and not saves[-1].of_instance and len(saves) - len(sizes) == ended


def _monotonic(check: Check) -> bool:
    times = [save.last_saved_at for save in checkpoints_of(check).saves]
    return bool(times) and all(one <= other for one, other in pairwise(times))


def _positions_in_order(check: Check) -> bool:
    """Tell whether the steps increase within every record."""
    records = [[each["step"] for each in save.completed_positions] for save in checkpoints_of(check).saves]
    return any(records) and all(one < other for steps in records for one, other in pairwise(steps))


def _ids_are_uuids(check: Check) -> bool:
    """Tell whether the run's id is a new one, and that of its records."""
    saved = [save.invocation_id for save in checkpoints_of(check).of(check.run)] if check.record.checkpoints else []
    return all(map(_is_uuid4, [check.run.invocation_id, *saved]))


def _interrupted_inside(check: Check) -> Save | None:
    """Return the record the first run left, if its place is inside a subgraph."""
    newest = checkpoints_of(check).newest(first_run(check))
    return newest if newest is not None and newest.parent_states else None


def _from_parent_states(check: Check) -> bool:
    """Tell whether the subgraph went on below the outer states of the record, whose work was not done again."""
    record = _interrupted_inside(check)
    if record is None:
        return False
    at, events = record.completed_positions[-1]["namespace"], check.record.events(check.main, _resumed(check))
    first = events[0] if events else None
    outside = {each["node_name"] for each in record.completed_positions if len(each["namespace"]) < len(at)}
    below = first is not None and list(first.namespace[:-1]) == at and plain(first.parent_states)
    return below == record.parent_states and not outside & {entry.node for entry in _entered(check)}


def _first_inside_not_again(check: Check) -> bool:
    """Tell whether the node with which the interrupted subgraph began was done, and did not run again."""
    record = _interrupted_inside(check)
    if record is None:
        return False
    at = record.completed_positions[-1]["namespace"]
    began = next(each["node_name"] for each in record.completed_positions if each["namespace"] == at)
    return began not in {entry.node for entry in _entered(check)}


def _of_instance(index: int, entry: Entry) -> bool:
    """Tell whether a body ran in an instance of the outermost fan-out."""
    return [each for each in entry.instance if each is not None][:1] == [index]


def _executes(found: re.Match[str], check: Check) -> Any:
    index, node = int(found[1]), found[2]
    if node not in check.record.structure.nodes:
        raise DirectiveUnknown(f"node {node} of invariant {found[0]}")
    return any(entry.node == node and _of_instance(index, entry) for entry in _entered(check))


def _attempt_count(found: re.Match[str], check: Check) -> Any:
    mine = [entry for entry in _entered(check) if _of_instance(int(found[1]), entry)]
    return len({entry.attempt_index for entry in mine})


TRUTHS: dict[str, Callable[[Check], bool]] = {
    "all_inner_instances_re_run_in_every_outer_instance": _all_inner_run,
    "attempt_index_reset_to_zero_on_resume": _attempts_reset,
    "batching_scoped_to_fan_out_internal_saves_only": _batches_only_instances,
    "completed_positions_step_monotonic": _positions_in_order,
    "correlation_id_uniform_across_both_runs": _one_correlation,
    "each_outer_instance_skips_only_its_own_completed_inner_instances": _skips_only_its_own,
    "first_and_resumed_invocation_ids_differ": _ids_differ,
    "first_run_correlation_id_is_uuidv4": lambda check: _is_uuid4(first_run(check).correlation_id),
    "inner_first_node_not_re_run": _first_inside_not_again,
    "invocation_id_is_uuidv4": _ids_are_uuids,
    "inner_fan_out_progress_matched_per_enclosing_lineage": _matched_per_lineage,
    "last_saved_at_monotonic_across_saves": _monotonic,
    "legacy_unlineaged_entry_not_applied_to_nested_fan_out": _legacy_not_applied,
    "no_inner_instance_skipped_across_enclosing_instances": _none_skipped_for_another,
    "no_new_correlation_id_generated_on_resume": _one_correlation,
    "resumed_correlation_id_matches_original": _one_correlation,
    "resumed_invocation_id_differs_from_original": _ids_differ,
    "resumed_run_correlation_id_matches_first": _one_correlation,
    "resumed_run_invocation_id_is_fresh_uuidv4": _fresh,
    "resumed_run_invocation_id_not_caller_supplied": lambda check: (
        _resumed(check).invocation_id not in (None, *_callers(check))
    ),
    "save_order_matches_completed_event_order": _save_order,
    "single_migration_invocation": lambda check: len(check.record.migration_calls) == 1,
    "subgraph_re_entry_uses_parent_states": _from_parent_states,
}
"""Invariants that hold or do not; the fixture says which."""

VALUES: dict[str, Callable[[Check], Any]] = {
    "first_run_correlation_id": lambda check: first_run(check).correlation_id,
    "first_run_invocation_id": lambda check: first_run(check).invocation_id,
    "migration_count": lambda check: len(check.record.migration_calls),
    "migration_invocation_count": lambda check: len(check.record.migration_calls),
    "resumed_run_correlation_id": lambda check: _resumed(check).correlation_id,
    "save_count": lambda check: len(checkpoints_of(check).of(check.run)),
    "saved_record_correlation_id": lambda check: _one(
        [save.correlation_id for save in checkpoints_of(check).of(first_run(check))]
    ),
}
"""Invariants whose value is given."""

PATTERNS: dict[str, Callable[[re.Match[str], Check], Any]] = {
    r"instance_(\d+)_attempt_index_on_resume": lambda found, check: _first_attempt_of(int(found[1]), check),
    r"instance_(\d+)_executes_(.+)_on_resume": _executes,
    r"instance_(\d+)_resume_attempt_count": _attempt_count,
}
"""Invariants that name an instance, and whose value is given."""


def _one(values: Sequence[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else values


def check_checkpoint_invariant(name: str, value: Any, check: Check) -> bool:
    """Check an invariant of saves and resumes; return whether it is one."""
    if name in TRUTHS:
        check.holds(f"invariant {name} = {value!r} does not hold", TRUTHS[name](check) == bool(value))
    elif name in VALUES:
        check.equal(f"invariant {name}", value, VALUES[name](check))
    else:
        for pattern, told in PATTERNS.items():
            if found := re.fullmatch(pattern, name):
                check.equal(f"invariant {name}", value, told(found, check))
                return True
        return False
    return True
