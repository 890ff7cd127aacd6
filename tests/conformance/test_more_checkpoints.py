"""More checkpoints, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.trials import report_of

RECORD = """
state: {schema_version: v1, fields: {a: {type: int, default: 0}, b: {type: int, default: 0}}}
entry: node_a
nodes:
  node_a: {update_pure: {a: 1}}
  node_b: {update_pure: {b: 2}}
edges: [{from: node_a, to: node_b}, {from: node_b, to: END}]
initial_state: {}
caller_correlation_id: corr-26
checkpointer: in_memory
expected:
  final_state: {a: 1, b: 2}
  latest_record_assertions:
    invocation_id: <uuid>
    correlation_id: corr-26
    state: {a: 1, b: 2}
    completed_positions:
      - {namespace: [], node_name: node_a, step: 0, attempt_index: 0}
      - {namespace: [], node_name: node_b, step: 1, attempt_index: 0}
    parent_states: []
    fan_out_progress: null
    last_saved_at: <timestamp>
    schema_version: v1
  invariants:
    invocation_id_is_uuidv4: true
    completed_positions_step_monotonic: true
    last_saved_at_monotonic_across_saves: true
    save_count: 2
"""

SUBGRAPH = """
subgraphs:
  inner:
    state: {fields: {seed: {type: int, default: 0}, one: {type: int, default: 0}, two: {type: int, default: 0}}}
    entry: inner_a
    nodes:
      inner_a: {update_from_field: {one: seed, multiplier: 2}}
      inner_b: {flaky: {fail_first_invocation_only: true, on_success: {two: 2}}}
    edges: [{from: inner_a, to: inner_b}, {from: inner_b, to: END}]
state:
  fields:
    start: {type: int, default: 0}
    one: {type: int, default: 0}
    two: {type: int, default: 0}
    done: {type: bool, default: false}
entry: outer_a
nodes:
  outer_a: {update_pure: {start: 21}}
  sub: {subgraph: inner, inputs: {seed: start}, outputs: {one: one, two: two}}
  outer_b: {update_pure: {done: true}}
edges: [{from: outer_a, to: sub}, {from: sub, to: outer_b}, {from: outer_b, to: END}]
initial_state: {}
checkpointer: in_memory
first_run_expected_error: {category: node_exception, raised_from: inner_b}
saved_record_assertions:
  state: {seed: 21, one: 42, two: 0}
  completed_positions:
    - {namespace: [], node_name: outer_a, step: 0, attempt_index: 0}
    - {namespace: [sub], node_name: inner_a, step: 1, attempt_index: 0}
  parent_states_present: true
  parent_states_outermost_first: true
resume:
  from_first_run: true
  expected:
    final_state: {start: 21, one: 42, two: 2, done: true}
    nodes_executed_during_resume: [inner_b, outer_b]
    nodes_skipped_during_resume: [outer_a, inner_a]
  invariants:
    subgraph_re_entry_uses_parent_states: true
    inner_first_node_not_re_run: true
"""

NO_MIGRATION = """
cases:
  - name: nothing_registered
    state: {schema_version: v2, fields: {x: {type: int, default: 0}}}
    entry: noop
    nodes: {noop: {update_pure: {}}}
    edges: [{from: noop, to: END}]
    initial_state: {}
    checkpointer: sqlite
    seeded_record: {schema_version: v1, state: {x: 4}, completed_positions: []}
    resume:
      from_seeded_record: true
      expected_error:
        category: checkpoint_state_migration_missing
        transient: false
        carries: {from_version: v1, to_version: v2, registered_migrations_count: 0}
      invariants: {error_category_not: [checkpoint_record_invalid, checkpoint_not_found]}
  - name: migrated_but_invalid
    state: {schema_version: v2, fields: {x: {type: int, default: 0}, must: {type: int, required: true}}}
    entry: noop
    nodes: {noop: {update_pure: {}}}
    edges: [{from: noop, to: END}]
    initial_state: {must: 1}
    checkpointer: sqlite
    seeded_record: {schema_version: v1, state: {x: no number}, completed_positions: []}
    migrations: [{from_version: v1, to_version: v2, migrate: identity_passthrough}]
    resume:
      from_seeded_record: true
      expected_error: {category: checkpoint_record_invalid}
      expected: {migrations_run: [v1->v2]}
      invariants:
        migration_count: 1
        error_category_not: [checkpoint_state_migration_missing, checkpoint_state_migration_failed]
"""

AMBIGUOUS = """
cases:
  - name: a_pair_twice
    state: {schema_version: v2, fields: {x: {type: int, default: 0}}}
    entry: noop
    nodes: {noop: {update_pure: {}}}
    edges: [{from: noop, to: END}]
    initial_state: {}
    checkpointer: sqlite
    migrations:
      - {from_version: v1, to_version: v2, migrate: should_not_run}
      - {from_version: v1, to_version: v2, migrate: irrelevant}
    expected_chain_ambiguity_error: checkpoint_state_migration_chain_ambiguous
  - name: two_shortest_ways
    state: {schema_version: v4, fields: {x: {type: int, default: 0}}}
    entry: noop
    nodes: {noop: {update_pure: {}}}
    edges: [{from: noop, to: END}]
    initial_state: {}
    checkpointer: sqlite
    seeded_record: {schema_version: v1, state: {x: 1}, completed_positions: []}
    migrations:
      - {from_version: v1, to_version: v2, migrate: should_not_run}
      - {from_version: v1, to_version: v3, migrate: should_not_run}
      - {from_version: v2, to_version: v4, migrate: should_not_run}
      - {from_version: v3, to_version: v4, migrate: should_not_run}
    resume:
      from_seeded_record: true
      expected_chain_ambiguity_error: checkpoint_state_migration_chain_ambiguous
      expected: {migrations_run: []}
  - name: two_shortest_ways_said_of_the_case
    state: {schema_version: v4, fields: {x: {type: int, default: 0}}}
    entry: noop
    nodes: {noop: {update_pure: {}}}
    edges: [{from: noop, to: END}]
    initial_state: {}
    checkpointer: sqlite
    seeded_record: {schema_version: v1, state: {x: 1}, completed_positions: []}
    migrations:
      - {from_version: v1, to_version: v2, migrate: should_not_run}
      - {from_version: v1, to_version: v3, migrate: should_not_run}
      - {from_version: v2, to_version: v4, migrate: should_not_run}
      - {from_version: v3, to_version: v4, migrate: should_not_run}
    expected_chain_ambiguity_error: checkpoint_state_migration_chain_ambiguous
"""

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

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []
