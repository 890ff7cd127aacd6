"""More sessions and suspensions, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

MISSING_SESSION_MIGRATION = """
state: {schema_version: v3, fields: {value: {type: int, default: 0}}}
entry: noop
nodes: {noop: {update_pure: {}}}
edges: [{from: noop, to: END}]
session_store: in_memory
session_id: s8
seeded_session: {schema_version: v1, state: {value: 1}}
session_migrations: [{from_version: v2, to_version: v3, migrate: should_not_run}]
expected_error:
  category: session_state_migration_missing
  carries: {from_version: v1, to_version: v3, registered_migrations_count: 1, registry_description_present: true}
expected:
  migrations_run: []
  no_session_save: true
  store_after: {load_returns_for_session_id: s8, loaded_state: {value: 1}, loaded_schema_version: v1}
invariants: {node_never_invoked: true}
"""

SESSION_FAN_OUT = """
subgraphs:
  leaf:
    state: {fields: {item: {type: str, default: ""}, processed: {type: str, default: ""}}}
    entry: work
    nodes: {work: {update_from_field: {processed: item}}}
    edges: [{from: work, to: END}]
state:
  fields:
    summary: {type: str, default: ""}
    items: {type: list<str>, default: [a, b]}
    outputs: {type: list<str>, reducer: append, default: []}
entry: dispatch
nodes:
  dispatch:
    fan_out:
      subgraph: leaf
      items_field: items
      mapping: {inputs: {item: <fan_out_item>}, outputs: {outputs: processed}}
edges: [{from: dispatch, to: END}]
session_store: in_memory
session_id: s11
seeded_session: {state: {summary: outer-data}}
expected:
  instance_pre_states: [{item: a, processed: ""}, {item: b, processed: ""}]
  final_state: {summary: outer-data, items: [a, b], outputs: [a, b]}
  saved_session_assertions: {state: {summary: outer-data, outputs: [a, b]}}
invariants:
  fan_out_instance_state_fields_match_subgraph_schema: true
  fan_out_instances_do_not_see_session_state_directly: true
  no_per_instance_session_load_or_save: true
"""

BAD_PAYLOAD = """
state: {fields: {approved: {type: bool, default: false}, count: {type: int, default: 0}}}
entry: gate
nodes:
  gate: {suspend_with_descriptor: {signal_id: wait}}
  after: {update: {count: 1}}
edges: [{from: gate, to: after}, {from: after, to: END}]
invocations:
  - {name: initial_invoke, initial_state: {}, expected: {outcome: suspended, descriptor: {signal_id: wait}}}
  - name: bad_resume
    resume_invocation: <from previous suspended outcome>
    signal_payload: {count: not a number}
    expected: {outcome: errored, error: {category: suspension_resume_payload_invalid}}
invariants: {invalid_payload_blocks_resume: true, error_category_is_resume_payload_invalid: true}
"""

BRANCH_SUSPENDS = """
subgraphs:
  waiting:
    state: {fields: {a: {type: int, default: 0}}}
    entry: gate
    nodes: {gate: {suspend_with_descriptor: {signal_id: branch-wait, metadata: {kind: approval}}}}
    edges: [{from: gate, to: END}]
  quick:
    state: {fields: {b: {type: int, default: 0}}}
    entry: go
    nodes: {go: {update: {b: 2}}}
    edges: [{from: go, to: END}]
state: {fields: {a: {type: int, default: 0}, b: {type: int, default: 0}}}
entry: dispatcher
nodes:
  dispatcher:
    parallel_branches:
      branches: {left: {subgraph: waiting, outputs: {a: a}}, right: {subgraph: quick, outputs: {b: b}}}
      error_policy: fail_fast
edges: [{from: dispatcher, to: END}]
invocations:
  - name: initial_invoke
    initial_state: {}
    expected:
      outcome: suspended
      suspending_node: dispatcher
      suspended_state: {a: 0, b: 0}
      descriptor: {signal_id: branch-wait, metadata_includes: {kind: approval, branch_name: left}}
invariants:
  single_branch_suspend_suspends_whole_parallel_branches: true
  siblings_cancelled_under_fail_fast: true
  descriptor_carries_branch_name: true
"""

WRAPPED_SUSPEND = """
state: {fields: {x: {type: int, default: 0}}}
entry: gate
nodes:
  gate:
    wrap_with_middleware: [{name: m, pre_log: before, post_log: after}]
    suspend_with_descriptor: {signal_id: wait}
  next: {update: {x: 1}}
edges: [{from: gate, to: next}, {from: next, to: END}]
invocations:
  - {name: one, initial_state: {}, expected: {outcome: suspended, middleware_log_captured: [before]}}
  - name: two
    resume_invocation: <from one suspended outcome>
    signal_payload: {}
    expected: {outcome: completed, final_state: {x: 1}, middleware_log_captured: []}
invariants:
  middleware_pre_next_block_runs_on_suspending_node: true
  middleware_post_next_block_skipped_on_suspending_node: true
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("missing_session_migration", "registered_migrations_count: 1", "registered_migrations_count: 0"),
    ("missing_session_migration", "loaded_schema_version: v1", "loaded_schema_version: v3"),
    ("missing_session_migration", "node_never_invoked: true", "node_never_invoked: false"),
    ("session_fan_out", '{item: b, processed: ""}', '{item: b, processed: "", summary: outer-data}'),
    ("session_fan_out", "no_per_instance_session_load_or_save: true", "no_per_instance_session_load_or_save: false"),
    ("bad_payload", "count: not a number", "count: 4"),
    ("bad_payload", "invalid_payload_blocks_resume: true", "invalid_payload_blocks_resume: false"),
    ("branch_suspends", "branch_name: left", "branch_name: right"),
    ("branch_suspends", "siblings_cancelled_under_fail_fast: true", "siblings_cancelled_under_fail_fast: false"),
    ("branch_suspends", "suspending_node: dispatcher", "suspending_node: gate"),
    ("wrapped_suspend", "middleware_log_captured: [before]", "middleware_log_captured: [before, after]"),
    ("wrapped_suspend", "skipped_on_suspending_node: true", "skipped_on_suspending_node: false"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
