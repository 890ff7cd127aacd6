"""More graphs, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

ROUTING = """
state: {fields: {v: {type: string, default: ""}}}
entry: a
nodes:
  a: {update: {v: a}}
  b: {update: {v: b}}
edges:
  - {from: a, condition: {if_field: v, equals: a, then: nowhere, else: b}}
  - {from: b, to: END}
initial_state: {}
expected_error:
  {category: routing_error, raised_from: a, recoverable_state: {v: a}, execution_order: [a]}
"""

INNER_OBSERVER = """
subgraph:
  name: inner
  state: {fields: {v: {type: int, default: 0}, trace: {type: list<string>, reducer: append, default: []}}}
  entry: x
  nodes:
    x: {update: {v: 10, trace: [x]}}
    y: {update: {v: 20, trace: [y]}}
  edges: [{from: x, to: y}, {from: y, to: END}]
state: {fields: {v: {type: int, default: 0}, trace: {type: list<string>, reducer: append, default: []}}}
entry: a
nodes:
  a: {update: {v: 1, trace: [a]}}
  sub: {subgraph: inner}
  b: {update: {v: 2, trace: [b]}}
edges: [{from: a, to: sub}, {from: sub, to: b}, {from: b, to: END}]
initial_state: {}
observers:
  - {name: outer_obs, attach: graph, target: outer, behavior: record}
  - {name: inner_obs, attach: graph, target: inner, behavior: record}
  - {name: ends, attach: invocation, target: outer, behavior: record, phases: [completed]}
expected:
  final_state: {v: 2, trace: [a, x, y, b]}
  execution_order: [a, sub, b]
  observer_events:
    inner_obs:
      - {step: 1, phase: started, node_name: x, namespace: [sub, x], pre_state: {v: 0, trace: []},
         parent_states: [{v: 1, trace: [a]}]}
      - {step: 1, phase: completed, node_name: x, namespace: [sub, x]}
      - {step: 2, phase: started, node_name: y, namespace: [sub, y]}
      - {step: 2, phase: completed, node_name: y, namespace: [sub, y], post_state: {v: 20, trace: [x, y]},
         parent_states: [{v: 1, trace: [a]}]}
    ends:
      - {step: 0, node_name: a, phase: completed}
      - {step: 1, node_name: x, phase: completed}
      - {step: 2, node_name: y, phase: completed}
      - {step: 3, node_name: b, phase: completed}
  delivery_order:
    - {observer: outer_obs, step: 0, phase: started}
    - {observer: outer_obs, step: 0, phase: completed}
    - {observer: outer_obs, step: 1, phase: started}
    - {observer: inner_obs, step: 1, phase: started}
    - {observer: outer_obs, step: 1, phase: completed}
    - {observer: inner_obs, step: 1, phase: completed}
    - {observer: outer_obs, step: 2, phase: started}
    - {observer: inner_obs, step: 2, phase: started}
    - {observer: outer_obs, step: 2, phase: completed}
    - {observer: inner_obs, step: 2, phase: completed}
    - {observer: outer_obs, step: 3, phase: started}
    - {observer: outer_obs, step: 3, phase: completed}
  observer_event_invariants: {no_events_for_node: sub}
"""

EDGE_ERRORS = """
cases:
  - name: edge_function_raises
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes: {a: {update: {v: 1}}, b: {update: {v: 2}}}
    edges:
      - {from: a, to: b, condition: {callable: edge_raises, message: boom in the edge}}
      - {from: b, to: END}
    initial_state: {}
    observers: [{name: obs, attach: graph, target: outer, behavior: record}]
    expected:
      expected_error: {category: edge_exception, raised_from: a, message: boom in the edge}
      recoverable_state: {v: 1}
      observer_events:
        obs:
          - {step: 0, phase: started, node_name: a}
          - {step: 0, phase: completed, node_name: a, pre_state: {v: 0}, error: {category: edge_exception}}
      observer_event_invariants: {no_events_for_node: b}
      invariants: {edge_resolution_failure_in_completed_event: true}
  - name: edge_names_no_node
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes: {a: {update: {v: 1}}, b: {update: {v: 2}}}
    edges:
      - {from: a, to: b, condition: {callable: state_field_read, field: destination}}
      - {from: b, to: END}
    initial_state: {destination: ghost}
    observers: [{name: obs, attach: graph, target: outer, behavior: record}]
    expected:
      expected_error: {category: routing_error, raised_from: a}
      observer_events:
        obs:
          - {step: 0, phase: started, node_name: a}
          - {step: 0, phase: completed, node_name: a, error: routing_error}
      invariants: {edge_resolution_failure_in_completed_event: true}
"""

DRAIN_SNAPSHOT = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {v: 1}}
  persist: {invoke_drain_events_for: {timeout_seconds: 5.0, snapshot_observer: acc}, update: {v: 2}}
  c: {update: {v: 3}}
edges: [{from: a, to: persist}, {from: persist, to: c}, {from: c, to: END}]
initial_state: {}
observers: [{name: acc, attach: graph, target: outer, behavior: accumulate, sleep_ms_per_event: 20}]
expected:
  final_state: {v: 3}
  node_drain_summaries: {persist: {timeout_reached: false, undelivered_count: 0}}
  node_accumulator_snapshot_invariants:
    persist: {acc: {persist_started_present: true, persist_completed_present: false, no_events_for_node: c}}
  final_accumulator_state:
    acc:
      - {step: 0, phase: started, node_name: a}
      - {step: 0, phase: completed, node_name: a}
      - {step: 1, phase: started, node_name: persist}
      - {step: 1, phase: completed, node_name: persist}
      - {step: 2, phase: started, node_name: c}
      - {step: 2, phase: completed, node_name: c}
  invariants: {drain_returned_without_blocking_on_post_call_events: true}
"""

KEYED = """
cases:
  - name: replaces_in_place_and_appends_what_is_new
    state:
      fields:
        rows:
          {type: list, reducer: {merge_by_key: {key: id}}, default: [{id: 1, v: a}, {id: 2, v: b}, {id: 1, v: c}]}
        seen: {type: list<int>, reducer: {dedupe_append: {}}, default: [1, 1]}
    entry: a
    nodes:
      a: {update: {rows: [{id: 1, v: d}, {id: 3, v: e}, {id: 3, v: f}], seen: [2, 1, 2]}}
    edges: [{from: a, to: END}]
    initial_state: {}
    expected:
      final_state:
        rows: [{id: 1, v: a}, {id: 2, v: b}, {id: 1, v: d}, {id: 3, v: f}]
        seen: [1, 1, 2]
  - name: needs_a_key
    graph:
      state: {fields: {rows: {type: list, reducer: {merge_by_key: {key: null}}, default: []}}}
      entry: a
      nodes: {a: {update: {}}}
      edges: [{from: a, to: END}]
    expected_compile_error: reducer_configuration_invalid
"""

NESTED = """
subgraphs:
  cell:
    state: {fields: {n: {type: int, default: 0}, out: {type: int, default: 0}}}
    entry: work
    nodes: {work: {update_from_field: {out: n, multiplier: 2}}}
    edges: [{from: work, to: END}]
  row:
    state:
      fields:
        numbers: {type: list<int>, default: []}
        outs: {type: list<int>, reducer: append, default: []}
    entry: spread
    nodes:
      spread:
        fan_out: {subgraph: cell, items_field: numbers, item_field: n, collect_field: out, target_field: outs}
    edges: [{from: spread, to: END}]
state:
  fields:
    rows: {type: list<list<int>>, default: [[1, 2], [3, 4]]}
    results: {type: list<int>, reducer: concat_flatten, default: []}
entry: outer_fan_out
nodes:
  outer_fan_out:
    fan_out: {subgraph: row, items_field: rows, item_field: numbers, collect_field: outs, target_field: results}
edges: [{from: outer_fan_out, to: END}]
initial_state: {}
observers: [{name: obs, attach: graph, target: outer, behavior: record}]
expected:
  final_state: {rows: [[1, 2], [3, 4]], results: [2, 4, 6, 8]}
  observer_event_invariants:
    outer_fan_out_node_events_count: 2
    outer_fan_out_node_fan_out_index_absent: true
    outer_fan_out_node_fan_out_index_chain_empty: true
    inner_fan_out_node_events_count: 4
    inner_fan_out_node_fan_out_index_chains_seen: [[0], [1]]
    inner_fan_out_node_branch_name_chains_seen: [[null]]
    inner_fan_out_node_scalar_fan_out_index_equals_innermost_chain_element: true
    inner_fan_out_node_scalar_branch_name_absent: true
    leaf_node_events_count: 8
    leaf_fan_out_index_chains_seen: [[0, 0], [0, 1], [1, 0], [1, 1]]
    leaf_branch_name_chains_seen: [[null, null]]
    leaf_scalar_fan_out_index_equals_innermost_chain_element: true
    leaf_scalar_branch_name_absent: true
    leaf_event_identities_unique_by_chain: true
    leaf_scalar_fan_out_index_not_unique_across_outer_instances: true
"""

BOUNDARY_ERRORS = """
subgraph:
  name: inner
  state: {fields: {x: {type: int, default: 0}, y: {type: int, default: 0}}}
  entry: n
  nodes: {n: {update: {y: 1}}}
  edges: [{from: n, to: END}]
cases:
  - name: both_forms
    graph:
      state: {fields: {x: {type: int, default: 0}, y: {type: int, default: 0}}}
      entry: sub
      nodes: {sub: {subgraph: inner, projects_in: [x], outputs: {y: y}}}
      edges: [{from: sub, to: END}]
    expected_compile_error: conflicting_projection_forms
  - name: undeclared_in_the_subgraph
    graph:
      state: {fields: {x: {type: int, default: 0}, z: {type: int, default: 0}}}
      entry: sub
      nodes: {sub: {subgraph: inner, projects_in: [z], projects_out: []}}
      edges: [{from: sub, to: END}]
    expected_compile_error: mapping_references_undeclared_field
  - name: undeclared_in_the_parent
    graph:
      state: {fields: {x: {type: int, default: 0}}}
      entry: sub
      nodes: {sub: {subgraph: inner, projects_in: [x], projects_out: [y]}}
      edges: [{from: sub, to: END}]
    expected_compile_error: mapping_references_undeclared_field
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("routing", "recoverable_state: {v: a}", 'recoverable_state: {v: ""}'),
    ("routing", "raised_from: a", "raised_from: b"),
    ("inner_observer", "namespace: [sub, x], pre", "namespace: [x], pre"),
    ("inner_observer", "parent_states: [{v: 1, trace: [a]}]}\n", "parent_states: []}\n"),
    ("inner_observer", "      - {step: 3, node_name: b, phase: completed}\n", ""),
    ("inner_observer", "phases: [completed]", "phases: [started]"),
    ("inner_observer", "target: inner", "target: outer"),
    ("inner_observer", "no_events_for_node: sub", "no_events_for_node: x"),
    ("edge_errors", "message: boom in the edge}\n      rec", "message: other}\n      rec"),
    ("edge_errors", "recoverable_state: {v: 1}", "recoverable_state: {v: 0}"),
    ("edge_errors", "error: {category: edge_exception}", "error: {category: node_exception}"),
    ("edge_errors", "error: {category: edge_exception}", "error: {hovercraft: edge_exception}"),
    ("edge_errors", "node_name: a, error: routing_error", "node_name: a, post_state: {v: 1}"),
    ("drain_snapshot", "persist_completed_present: false", "persist_completed_present: true"),
    ("drain_snapshot", "      - {step: 2, phase: completed, node_name: c}\n", ""),
    ("keyed", "{id: 1, v: d}, {id: 3, v: f}]", "{id: 1, v: d}, {id: 3, v: e}]"),
    ("keyed", "seen: [1, 1, 2]", "seen: [1, 2]"),
    ("keyed", "{key: null}", "{key: id}"),
    ("nested", "inner_fan_out_node_events_count: 4", "inner_fan_out_node_events_count: 2"),
    ("nested", "leaf_node_events_count: 8", "leaf_node_events_count: 4"),
    ("nested", "chains_seen: [[0], [1]]", "chains_seen: [[0]]"),
    ("nested", "[1, 0], [1, 1]]", "[1, 0]]"),
    ("nested", "chains_seen: [[null, null]]", "chains_seen: [[null]]"),
    ("nested", "index_not_unique_across_outer_instances: true", "index_not_unique_across_outer_instances: false"),
    ("nested", "leaf_scalar_branch_name_absent: true", "leaf_scalar_branch_name_absent: false"),
    ("boundary_errors", "projects_in: [x], outputs: {y: y}", "projects_in: [x], projects_out: [y]"),
    ("boundary_errors", "projects_in: [z]", "projects_in: [x]"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
