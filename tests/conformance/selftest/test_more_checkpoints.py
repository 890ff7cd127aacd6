"""More checkpoints, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

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

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("record", "invocation_id: <uuid>", "invocation_id: other"),
    ("record", "correlation_id: corr-26\n    state", "correlation_id: <uuid>\n    state"),
    ("record", "state: {a: 1, b: 2}\n    comp", "state: {a: 1}\n    comp"),
    ("record", "node_name: node_b, step: 1", "node_name: node_b, step: 2"),
    ("record", "parent_states: []", "parent_states: [{a: 1}]"),
    ("record", "fan_out_progress: null", "fan_out_progress: {node_a: {instance_count: 1, instances: []}}"),
    ("record", "last_saved_at: <timestamp>", "last_saved_at: null"),
    ("record", "last_saved_at: <timestamp>", "last_saved_at: <hovercraft>"),
    ("record", "schema_version: v1\n  inv", "schema_version: null\n  inv"),
    ("record", "schema_version: v1\n  inv", "schema_version: v2\n  inv"),
    ("record", "schema_version: v1\n  inv", "hovercraft: v1\n  inv"),
    ("record", "is_uuidv4: true", "is_uuidv4: false"),
    ("record", "caller_correlation_id: corr-26", "caller_correlation_id: corr-26\ncaller_invocation_id: mine"),
    ("record", "step_monotonic: true", "step_monotonic: false"),
    ("record", "entry: node_a", "entry: node_a\nexpected_chain_ambiguity_error: any"),
    ("subgraph", "parent_states_present: true", "parent_states_present: false"),
    ("subgraph", "outermost_first: true", "outermost_first: false"),
    ("subgraph", "nodes_executed_during_resume: [inner_b, outer_b]", "nodes_executed_during_resume: [inner_b]"),
    ("subgraph", "[inner_b, outer_b]", "[inner_a, inner_b, outer_b]"),
    ("subgraph", "nodes_skipped_during_resume: [outer_a, inner_a]", "nodes_skipped_during_resume: [inner_b]"),
    ("subgraph", "uses_parent_states: true", "uses_parent_states: false"),
    ("subgraph", "first_node_not_re_run: true", "first_node_not_re_run: false"),
    ("subgraph", "{flaky: {fail_first_invocation_only: true, on_success: {two: 2}}}", "{update: {two: 2}}"),
    ("no_migration", "registered_migrations_count: 0", "registered_migrations_count: 1"),
    ("no_migration", "_not: [checkpoint_record_invalid,", "_not: [checkpoint_state_migration_missing,"),
    ("no_migration", "category: checkpoint_record_invalid}", "category: checkpoint_state_migration_failed}"),
    ("no_migration", "migrations_run: [v1->v2]", "migrations_run: []"),
    ("ambiguous", "checkpoint_state_migration_chain_ambiguous", "checkpoint_state_migration_missing"),
    ("ambiguous", "      - {from_version: v1, to_version: v2, migrate: irrelevant}\n", ""),
    ("ambiguous", "      - {from_version: v3, to_version: v4, migrate: should_not_run}\n    resume", "    resume"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
