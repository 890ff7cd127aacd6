"""More resumes of fan-outs, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

RESTARTED = """
subgraph:
  name: steps
  state:
    fields: {input: {type: int, default: 0}, mid: {type: int, default: 0}, out: {type: int, default: 0}}
  entry: step_a
  nodes:
    step_a: {update_from_field: {mid: input, multiplier: 2}}
    step_b: {flaky_per_index: {fail_first_run_indices: [1], success_compute: {out: mid}}}
  edges: [{from: step_a, to: step_b}, {from: step_b, to: END}]
state:
  fields:
    items: {type: list<int>, default: [1, 2, 3]}
    results: {type: list<int>, reducer: append, default: []}
entry: process
nodes:
  process:
    fan_out:
      {subgraph: steps, items_field: items, item_field: input, collect_field: out, target_field: results,
       error_policy: fail_fast, concurrent_mode: serial}
edges: [{from: process, to: END}]
initial_state: {}
checkpointer: in_memory
first_run_expected_error: {category: node_exception, raised_from: process}
saved_record_assertions:
  fan_out_progress:
    process:
      instance_count: 3
      instances:
        - {state: completed, result: 2, result_is_error: false}
        - {state: in_flight, completed_inner_positions: [{node_name: step_a, attempt_index: 0}], result_is_error: false}
        - {state: not_started, completed_inner_positions: [], result_is_error: false}
  fan_out_node_in_completed_positions: false
resume:
  from_first_run: true
  expected:
    final_state: {items: [1, 2, 3], results: [2, 4, 6]}
    instances_skipped_during_resume: [0]
    instances_executed_during_resume: [1, 2]
  invariants:
    instance_1_executes_step_a_on_resume: true
    instance_1_executes_step_b_on_resume: true
    instance_0_executes_step_a_on_resume: false
    instance_1_attempt_index_on_resume: 0
    instance_1_resume_attempt_count: 1
    no_duplicate_results: true
    results_list_length: 3
"""

RETRIED = """
subgraph:
  name: steps
  state: {fields: {input: {type: int, default: 0}, mid: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: step_a
  nodes:
    step_a: {update_from_field: {mid: input}}
    step_b:
      flaky_resume_aware:
        fail_first_invocation_count: 2
        fail_resumed_invocation_count: 1
        category: provider_unavailable
        on_success: {out: mid}
  edges: [{from: step_a, to: step_b}, {from: step_b, to: END}]
state:
  fields:
    items: {type: list<int>, default: [7]}
    results: {type: list<int>, reducer: append, default: []}
entry: process
nodes:
  process:
    fan_out:
      subgraph: steps
      items_field: items
      item_field: input
      collect_field: out
      target_field: results
      concurrent_mode: serial
      instance_middleware: [{type: retry, max_attempts: 2, backoff: {type: deterministic, seconds: 0}}]
edges: [{from: process, to: END}]
initial_state: {}
checkpointer: in_memory
first_run_expected_error: {category: node_exception, raised_from: process}
saved_record_assertions:
  fan_out_progress:
    process:
      instance_count: 1
      instances:
        - {state: in_flight, completed_inner_positions: [{node_name: step_a, attempt_index: 1}]}
resume:
  from_first_run: true
  expected:
    final_state: {items: [7], results: [7]}
    successful_attempt_index_during_resume: 0
  invariants:
    instance_0_attempt_index_on_resume: 0
    instance_0_resume_attempt_count: 2
    attempt_index_reset_to_zero_on_resume: true
"""

DRIFTED = """
subgraph:
  name: scorer
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: score
  nodes: {score: {flaky_per_index: {fail_first_run_indices: [1], success_compute: {out: input}}}}
  edges: [{from: score, to: END}]
cases:
  - name: more_items
    state:
      fields:
        items: {type: list<int>, default: [10, 20, 30]}
        results: {type: list<int>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          {subgraph: scorer, items_field: items, item_field: input, collect_field: out, target_field: results,
           concurrent_mode: serial}
    edges: [{from: process, to: END}]
    initial_state: {}
    checkpointer: in_memory
    first_run_expected_error: {category: node_exception, raised_from: process}
    resume:
      from_first_run: true
      resume_with_modified_items: {items: [10, 20, 30, 40]}
      expected_error: {category: checkpoint_record_invalid, flaky_call_count: 0}
      expected: {instances_executed_during_resume: []}
  - name: as_many_others
    state:
      fields:
        items: {type: list<int>, default: [10, 20, 30]}
        results: {type: list<int>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          {subgraph: scorer, items_field: items, item_field: input, collect_field: out, target_field: results,
           concurrent_mode: serial}
    edges: [{from: process, to: END}]
    initial_state: {}
    checkpointer: in_memory
    first_run_expected_error: {category: node_exception, raised_from: process}
    resume:
      from_first_run: true
      resume_with_modified_items: {items: [50, 60, 70], results: [5]}
      expected: {final_state: {items: [50, 60, 70], results: [5, 10, 60, 70]}}
      invariants: {resumed_correlation_id_matches_original: true}
"""

SEEDED = """
subgraph:
  name: scorer
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: score
  nodes: {score: {update_from_field: {out: input}}}
  edges: [{from: score, to: END}]
state:
  fields:
    items: {type: list<int>, default: []}
    results: {type: list<int>, reducer: append, default: []}
    errors: {type: list<error_entry>, reducer: append, default: []}
entry: process
nodes:
  process:
    fan_out:
      {subgraph: scorer, items_field: items, item_field: input, collect_field: out, target_field: results,
       error_policy: collect, errors_field: errors}
edges: [{from: process, to: END}]
initial_state: {}
checkpointer: in_memory
seeded_record:
  state: {items: [1, 2, 3, 4], results: [], errors: []}
  completed_positions: []
  fan_out_progress:
    - namespace: []
      fan_out_node_name: process
      instance_count: 4
      instances:
        - {state: completed, result: {fan_out_index: "0", category: node_exception}, result_is_error: true}
        - {state: completed, result: 22}
        - {state: in_flight, completed_inner_positions: []}
        - {state: not_started}
resume:
  from_seeded_record: true
  expected:
    final_state:
      {items: [1, 2, 3, 4], results: [22, 3, 4], errors: [{fan_out_index: "0", category: node_exception}]}
    instances_skipped_during_resume: [0, 1]
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("restarted", "[{node_name: step_a, attempt_index: 0}]", "[]"),
    ("restarted", "{node_name: step_a, attempt_index: 0}", "{node_name: step_b, attempt_index: 0}"),
    ("restarted", "{node_name: step_a, attempt_index: 0}", "{node_name: step_a, attempt_index: 1}"),
    ("restarted", "completed_inner_positions: [], result", "completed_inner_positions: [{node_name: step_a}], result"),
    ("restarted", "result: 2,", "result: 2, completed_inner_positions: [{node_name: step_b}],"),
    ("restarted", "instance_1_executes_step_a_on_resume: true", "instance_1_executes_step_a_on_resume: false"),
    ("restarted", "instance_0_executes_step_a_on_resume: false", "instance_0_executes_step_a_on_resume: true"),
    ("restarted", "instance_1_executes_step_b_on_resume: true", "instance_1_executes_step_z_on_resume: false"),
    ("restarted", "instance_1_resume_attempt_count: 1", "instance_1_resume_attempt_count: 2"),
    ("restarted", "results_list_length: 3", "results_list_length: 2"),
    ("retried", "instance_0_resume_attempt_count: 2", "instance_0_resume_attempt_count: 1"),
    ("retried", "{node_name: step_a, attempt_index: 1}", "{node_name: step_a, attempt_index: 0}"),
    ("retried", "fail_resumed_invocation_count: 1", "fail_resumed_invocation_count: 2"),
    ("drifted", "{items: [10, 20, 30, 40]}", "{items: [10, 20, 31]}"),
    ("drifted", "      resume_with_modified_items: {items: [10, 20, 30, 40]}\n", ""),
    ("drifted", "{items: [10, 20, 30, 40]}", "{hovercraft: [10, 20, 30, 40]}"),
    ("drifted", "flaky_call_count: 0", "flaky_call_count: 1"),
    ("drifted", "results: [5, 10, 60, 70]", "results: [10, 60, 70]"),
    ("seeded", "instance_count: 4", "instance_count: 3"),
    ("seeded", "results: [22, 3, 4]", "results: [2, 3, 4]"),
    ("seeded", '{fan_out_index: "0", category: node_exception}]}', "{fan_out_index: 0, category: node_exception}]}"),
    ("seeded", "instances_skipped_during_resume: [0, 1]", "instances_skipped_during_resume: [1]"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
