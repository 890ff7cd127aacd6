"""The adapter itself: it must not pass what is wrong, nor skip what it does not know."""

from pathlib import Path

import pytest
import yaml

from tests.conformance.adapter import pending
from tests.conformance.adapter.loader import conformance_root
from tests.conformance.selftest.trials import report_of

GOOD = """
state:
  fields:
    v: {type: int, default: 0}
    log: {type: list<string>, reducer: append, default: []}
entry: a
nodes:
  a: {update: {v: 1, log: [a]}}
  b: {update_from_field: {v: v, multiplier: 5}}
edges:
  - {from: a, to: b}
  - {from: b, to: END}
observers:
  - {name: obs, attach: graph, target: outer, behavior: record}
expected:
  final_state: {v: 5, log: [a]}
  execution_order: [a, b]
  observer_events:
    obs:
      - {step: 0, phase: started, node_name: a}
      - {step: 0, phase: completed, node_name: a, post_state: {v: 1, log: [a]}}
      - {step: 1, phase: started, node_name: b}
      - {step: 1, phase: completed, node_name: b}
  observer_event_invariants: {a_node_events_count: 2}
"""


RESUMED = """
subgraph:
  name: cell
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: work
  nodes:
    work: {flaky_per_index: {fail_first_run_indices: [1], success_compute: {out: input}}}
  edges: [{from: work, to: END}]
state:
  schema_version: v1
  fields:
    v: {type: int, default: 0}
    items: {type: list<int>, default: [10, 20, 30]}
    results: {type: list<int>, reducer: append, default: []}
entry: a
nodes:
  a: {update: {v: 1}}
  fan:
    fan_out:
      {subgraph: cell, items_field: items, item_field: input, collect_field: out, target_field: results,
       concurrent_mode: serial}
edges:
  - {from: a, to: fan}
  - {from: fan, to: END}
checkpointer: in_memory
first_run_expected_error: {category: node_exception, raised_from: fan}
saved_record_assertions:
  state: {v: 1, items: [10, 20, 30], results: []}
  completed_positions:
    - {namespace: [], node_name: a, step: 0, attempt_index: 0}
  fan_out_progress:
    fan:
      instance_count: 3
      instances:
        - {state: completed, result: 10, result_is_error: false, result_present: true}
        - {state: in_flight, result_is_error: false}
        - {state_one_of: [not_started], result_is_error: false}
  fan_out_node_in_completed_positions: false
every_save_assertions: {schema_version: v1}
resume:
  from_first_run: true
  expected:
    final_state: {v: 1, items: [10, 20, 30], results: [10, 20, 30]}
    nodes_executed_during_resume: [fan, work]
    nodes_skipped_during_resume: [a]
    instances_executed_during_resume: [1, 2]
    instances_skipped_during_resume: [0]
    successful_attempt_index_during_resume: 0
    migrations_run: []
  invariants: {resumed_correlation_id_matches_original: true, instance_1_attempt_index_on_resume: 0}
"""

SEEDED = """
state: {schema_version: v2, fields: {x: {type: int, default: 0}, new_field: {type: string, default: d}}}
entry: a
nodes:
  a: {update: {}}
  b: {update_from_field: {x: x, multiplier: 10}}
edges: [{from: a, to: b}, {from: b, to: END}]
checkpointer: sqlite
seeded_record:
  schema_version: v1
  state: {x: 4}
  completed_positions: [{namespace: [], node_name: a, step: 0, attempt_index: 0}]
migrations: [{from_version: v1, to_version: v2, migrate: add_new_field_default}]
resume:
  from_seeded_record: true
  expected:
    final_state: {x: 40, new_field: v2_default}
    nodes_skipped_during_resume: [a]
    migrations_run: [v1->v2]
  invariants: {migration_count: 1, single_migration_invocation: true}
"""


async def test_what_holds_passes(tmp_path: Path) -> None:
    report = await report_of(GOOD, tmp_path)
    assert report.problems == []
    assert report.pending == []


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("final_state: {v: 5, log: [a]}", "final_state: {v: 6, log: [a]}"),
        ("final_state: {v: 5, log: [a]}", "final_state: {v: 5}"),
        ("execution_order: [a, b]", "execution_order: [a]"),
        ("- {step: 1, phase: completed, node_name: b}", "- {step: 2, phase: completed, node_name: b}"),
        ("      - {step: 1, phase: completed, node_name: b}\n", ""),
        ("post_state: {v: 1, log: [a]}", "post_state: {v: 1}"),
        ("node_name: a}\n", "node_name: a, error: node_exception}\n"),
        ("a_node_events_count: 2", "a_node_events_count: 3"),
        ("expected:", "expected_error: {category: node_exception}\nexpected:"),
        ("expected:", "expected_compile_error: dangling_edge\nexpected:"),
        ("expected:", "expected_compile_warning: [projection_reducer_round_trip]\nexpected:"),
        ("a: {update: {v: 1, log: [a]}}", "a: {raises: boom}"),
        ("expected:", "expected:\n  invariants: {drain_waited_for_all_events: true}"),
        ("expected:", "expected:\n  no_propagated_error: false"),
    ],
)
async def test_what_does_not_hold_fails(true: str, false: str, tmp_path: Path) -> None:
    assert true in GOOD
    assert (await report_of(GOOD.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize("text", [RESUMED, SEEDED])
async def test_a_resume_that_holds_passes(text: str, tmp_path: Path) -> None:
    assert (await report_of(text, tmp_path)).problems == []


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("raised_from: fan", "raised_from: a"),
        ("state: {v: 1, items", "state: {v: 2, items"),
        ("node_name: a, step: 0", "node_name: a, step: 1"),
        ("instance_count: 3", "instance_count: 4"),
        ("completed, result: 10", "completed, result: 11"),
        ("state: in_flight", "state: not_started"),
        ("state: in_flight", "state: completed"),
        ("result_present: true", "result_present: false"),
        ("state_one_of: [not_started]", "state_one_of: [in_flight]"),
        ("fan_out_node_in_completed_positions: false", "fan_out_node_in_completed_positions: true"),
        ("every_save_assertions: {schema_version: v1}", "every_save_assertions: {schema_version: v2}"),
        ("results: [10, 20, 30]}", "results: [10, 20]}"),
        ("nodes_executed_during_resume: [fan, work]", "nodes_executed_during_resume: [work]"),
        ("nodes_skipped_during_resume: [a]", "nodes_skipped_during_resume: [work]"),
        ("nodes_skipped_during_resume: [a]", "nodes_skipped_during_resume: [hovercraft]"),
        ("instances_executed_during_resume: [1, 2]", "instances_executed_during_resume: [2]"),
        ("instances_skipped_during_resume: [0]", "instances_skipped_during_resume: []"),
        ("successful_attempt_index_during_resume: 0", "successful_attempt_index_during_resume: 1"),
        ("migrations_run: []", "migrations_run: [v1->v2]"),
        ("matches_original: true", "matches_original: false"),
        ("instance_1_attempt_index_on_resume: 0", "instance_1_attempt_index_on_resume: 1"),
        ("checkpointer: in_memory", "checkpointer: in_memory\ncrash_injection: {after_node: a}"),
        ("checkpointer: in_memory", "checkpointer: hovercraft"),
        ("checkpointer: in_memory", ""),
        ("  from_first_run: true\n", ""),
        ("  from_first_run: true\n", "  from_first_run: true\n  hovercraft: 1\n"),
    ],
)
async def test_a_resume_that_does_not_hold_fails(true: str, false: str, tmp_path: Path) -> None:
    assert true in RESUMED
    assert (await report_of(RESUMED.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("final_state: {x: 40,", "final_state: {x: 0,"),
        ("new_field: v2_default", "new_field: d"),
        ("migrate: add_new_field_default", "migrate: should_not_run"),
        ("migrate: add_new_field_default", "migrate: hovercraft"),
        ("migrations_run: [v1->v2]", "migrations_run: []"),
        ("migration_count: 1", "migration_count: 2"),
        ("nodes_skipped_during_resume: [a]", "nodes_skipped_during_resume: [b]"),
        ("completed_positions: [{namespace: [],", "completed_positions: [{namespace: [a],"),
        ("  from_seeded_record: true", "  from_first_run: true"),
    ],
)
async def test_a_seeded_record_that_does_not_hold_fails(true: str, false: str, tmp_path: Path) -> None:
    assert true in SEEDED
    assert (await report_of(SEEDED.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("entry: a", "entry: a\nhovercraft: 1"),
        ("{type: int, default: 0}", "{type: int, default: 0, hovercraft: 1}"),
        ("reducer: append", "reducer: hovercraft"),
        ("a: {update: {v: 1, log: [a]}}", "a: {hovercraft: 1}"),
        ("{from: a, to: b}", "{from: a, to: b, hovercraft: 1}"),
        ("behavior: record", "behavior: hovercraft"),
        ("execution_order: [a, b]", "hovercraft: [a, b]"),
        ("- {step: 0, phase: started, node_name: a}", "- {hovercraft: 0}"),
        ("a_node_events_count: 2", "hovercraft: 2"),
        ("a_node_events_count: 2", "hovercraft_node_events_count: 2"),
        ("expected:", "expected_error: {hovercraft: 1}\nexpected:"),
        ("observers:", "middleware: {per_node: {a: [{type: hovercraft}]}}\nobservers:"),
    ],
)
async def test_a_name_that_is_not_known_fails(known: str, unknown: str, tmp_path: Path) -> None:
    assert known in GOOD
    report = await report_of(GOOD.replace(known, unknown, 1), tmp_path)
    assert any("hovercraft" in problem for problem in report.problems)


async def test_what_the_engine_cannot_do_yet_is_told_and_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pending.NOT_RUN_YET, "observers", "nobody looks")
    report = await report_of(GOOD, tmp_path)
    assert report.pending == ["case: needs observers: nobody looks"]


async def test_a_batched_checkpointer_must_say_its_batch(tmp_path: Path) -> None:
    report = await report_of(GOOD + "checkpointer: {kind: in_memory_batched}\n", tmp_path)
    assert any("flushed at a time" in problem for problem in report.problems)


async def test_what_is_not_yaml_fails(tmp_path: Path) -> None:
    assert (await report_of("a: [", tmp_path)).problems


def test_the_place_of_the_fixtures_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path))
    assert conformance_root() == tmp_path
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path / "nowhere"))
    assert conformance_root() is None


def test_the_good_fixture_is_read_in_order() -> None:
    assert list(yaml.safe_load(GOOD)["nodes"]) == ["a", "b"]
