"""More spans, metadata and observers, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

SUBGRAPH_SPAN = """
subgraph:
  name: inner
  state: {fields: {v: {type: int, default: 0}}}
  entry: x
  nodes: {x: {update: {v: 10}}, y: {update: {v: 20}}}
  edges: [{from: x, to: y}, {from: y, to: END}]
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {v: 1}}
  sub: {subgraph: inner}
  b: {update: {v: 2}}
edges: [{from: a, to: sub}, {from: sub, to: b}, {from: b, to: END}]
initial_state: {}
expected:
  span_tree:
    - name: openarmature.invocation
      status: OK
      children:
        - {name: a, status: OK, children: []}
        - name: sub
          status: OK
          attributes: {openarmature.node.name: sub}
          children:
            - {name: x, status: OK, attributes: {openarmature.node.namespace: [sub, x], openarmature.node.step: 1}}
            - {name: y, status: OK, attributes: {openarmature.node.namespace: [sub, y], openarmature.node.step: 2}}
        - {name: b, status: OK, attributes: {openarmature.node.step: 3}, children: []}
  no_edge_spans: true
  invariants: {correlation_id_consistency: true}
"""

ROUTING_SPAN = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {update: {v: 1}}, b: {update: {v: 2}}}
edges:
  - {from: a, condition: {if_field: v, equals: 1, then: ghost, else: b}}
  - {from: b, to: END}
initial_state: {}
expected:
  span_tree:
    - name: openarmature.invocation
      status: ERROR
      children:
        - name: a
          status: ERROR
          status_description: routing_error
          exception_recorded: true
          attributes: {openarmature.error.category: routing_error}
          children: []
  no_edge_spans: true
"""

GUARDED_EDGE = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {update: {v: 3}}, b: {update: {v: 5}}, c: {update: {v: 7}}}
edges:
  - {from: a, to: b, when: {field: v, gt: 2}}
  - {from: a, to: c}
  - {from: b, to: END}
  - {from: c, to: END}
initial_state: {}
invocations: 2
expected:
  span_tree:
    - name: openarmature.invocation
      children: [{name: a}, {name: b}]
  determinism_check:
    compare_runs: [0, 1]
    compare: [span_tree_structure, span_names, span_status, span_attributes_excluding_ignored]
    ignore_attributes: [openarmature.invocation_id, openarmature.correlation_id, "openarmature.timing.*"]
    require_equal: true
  invocation_count: 2
  invariants:
    same_execution_path: true
    span_count_equal_across_runs: true
    correlation_ids_differ_across_invocations: true
    each_invocation_correlation_id_uniform: true
    all_correlation_ids_uuidv4: true
"""

ATTEMPTS = """
cases:
  - name: third_time
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes: {a: {flaky: {fail_count: 2, category: provider_unavailable, on_success: {v: 1}}}}
    edges: [{from: a, to: END}]
    initial_state: {}
    middleware: {per_node: {a: [{retry: {max_attempts: 3}}]}}
    expected:
      span_tree:
        - name: openarmature.invocation
          status: OK
          children:
            - name: a
              status: ERROR
              status_description: provider_unavailable
              attributes: {openarmature.node.attempt_index: 0, openarmature.error.category: provider_unavailable}
            - {name: a, status: ERROR, attributes: {openarmature.node.attempt_index: 1, openarmature.node.step: 0}}
            - {name: a, status: OK, attributes: {openarmature.node.attempt_index: 2, openarmature.node.step: 0}}
      invariants:
        sibling_attempt_count_under_invocation: 3
        attempt_indices: [0, 1, 2]
        all_attempt_spans_error: false
  - name: never
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes:
      a: {flaky: {fail_count: 999, category: provider_unavailable}, middleware: [{type: retry, max_attempts: 2}]}
    edges: [{from: a, to: END}]
    initial_state: {}
    expected:
      span_tree:
        - name: openarmature.invocation
          status: ERROR
          children: [{name: a, status: ERROR, exception_recorded: true}, {name: a, status: ERROR}]
      invariants: {sibling_attempt_count_under_invocation: 2, attempt_indices: [0, 1], all_attempt_spans_error: true}
"""

CORRELATED = """
cases:
  - name: caller
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes: {a: {update: {v: 1}}}
    edges: [{from: a, to: END}]
    initial_state: {}
    caller_correlation_id: mine
    expected:
      span_tree: [{name: openarmature.invocation, attributes: {openarmature.correlation_id: mine}}]
      invariants: {correlation_id_uniform_across_tree: mine}
  - name: generated
    state: {fields: {v: {type: int, default: 0}}}
    entry: a
    nodes: {a: {update: {v: 1}}}
    edges: [{from: a, to: END}]
    initial_state: {}
    expected:
      span_tree: [{name: openarmature.invocation, attributes: {openarmature.correlation_id: <uuid>}}]
      invariants: {correlation_id_uniform_across_tree: <uuid>, correlation_id_is_uuidv4: true}
"""

SPREAD_METADATA = """
inner_subgraphs:
  per_item:
    entry: read
    nodes: {read: {capture_invocation_metadata_into: reads}}
    edges: [{from: read, to: END}]
state:
  fields:
    items: {type: list<dict>, default: [{product: p1}, {product: p2}]}
    reads: {type: list<dict>, reducer: append, default: []}
    after: {type: dict, default: {}}
entry: spread
nodes:
  spread:
    fan_out:
      {inner_subgraph: per_item, items_field: items, augment_metadata_from_field: {product_id: product}}
  join: {capture_invocation_metadata_into: after}
edges: [{from: spread, to: join}, {from: join, to: END}]
initial_state: {}
caller_metadata: {tenant: T1}
expected:
  final_state:
    items: [{product: p1}, {product: p2}]
    reads: [{tenant: T1, product_id: p1}, {tenant: T1, product_id: p2}]
    after: {tenant: T1}
  invariants:
    per_instance_reads_isolated_from_siblings: true
    outermost_read_sees_pre_fan_out_baseline_only: true
    no_global_aggregator_layered_across_join: true
"""

OUTSIDE = """
cases:
  - name: outside
    direct_call: {operation: get_invocation_metadata}
    expected:
      direct_call_result: {type: immutable_mapping, value: {}, exception: null}
      invariants:
        outside_invocation_returns_empty_mapping: true
        outside_invocation_does_not_raise: true
        outside_invocation_return_is_immutable: true
"""

BUCKETS = """
queryable_observers: [{name: acc, kind: per_invocation_accumulator, persists_across_invocations: true}]
sequential_invocations:
  observer_persists_across: true
  invocations:
    - {name: invocation_1, caller_invocation_id: run-1}
    - {name: invocation_2, caller_invocation_id: run-2}
cases:
  - name: buckets
    state: {fields: {bucket: {type: list, default: []}, gone: {type: bool, default: false}}}
    entry: a
    nodes:
      a: {noop: true}
      read:
        capture_queryable_observer_read_into:
          {observer_name: acc, method: get_bucket_for_current_invocation, state_field: bucket}
        then_drop_for_current_invocation: {observer_name: acc}
        then_assert_bucket_absent_into: gone
    edges: [{from: a, to: read}, {from: read, to: END}]
    initial_state: {}
    expected:
      per_invocation:
        invocation_1: {captured_bucket_is_non_empty: true, bucket_after_drop_is_absent: true}
        invocation_2:
          captured_bucket_is_non_empty: true
          captured_bucket_disjoint_from_invocation_1: true
          bucket_after_drop_is_absent: true
      invariants:
        accumulator_exposes_drop_method: true
        no_auto_drop_on_completion_signal: true
        explicit_drop_removes_bucket: true
        per_invocation_id_bucket_isolation: true
"""

BRANCH_SPANS = """
state:
  fields: {asked: {type: bool, default: false}, a: {type: int, default: 0}, b: {type: int, default: 0}}
entry: retrieve
nodes:
  retrieve:
    parallel_branches:
      branches:
        vector: {call: {update: {a: 1}}}
        keyword: {call: {update: {b: 1}}, when: {field: asked}}
      error_policy: fail_fast
edges: [{from: retrieve, to: END}]
initial_state: {}
expected:
  final_state: {asked: false, a: 1, b: 0}
  span_tree:
    - name: openarmature.invocation
      status: OK
      children:
        - name: retrieve
          attributes:
            {openarmature.parallel_branches.branch_count: 1, openarmature.parallel_branches.error_policy: fail_fast}
          children:
            - name: vector
              attributes:
                openarmature.node.branch_name: vector
                openarmature.parallel_branches.parent_node_name: retrieve
              children: []
  invariants:
    callable_branch_renders_one_span_keyed_by_branch_name: true
    callable_branch_span_has_no_inner_node_spans: true
    when_skipped_branch_emits_no_span: true
    branch_count_is_dispatched_count_not_declared: true
"""

ORDER = """
cases:
  - name: before
    state: {fields: {read: {type: dict, default: {}}}}
    entry: a
    nodes: {a: {capture_invocation_metadata_into: read, augment_metadata: {k: v}}}
    edges: [{from: a, to: END}]
    initial_state: {}
    caller_metadata: {tenant: T1}
    expected: {final_state: {read: {tenant: T1}}, invariants: {capture_before_augment_misses_write: true}}
  - name: after
    state: {fields: {read: {type: dict, default: {}}}}
    entry: a
    nodes: {a: {augment_metadata: {k: v}, capture_invocation_metadata_into: read}}
    edges: [{from: a, to: END}]
    initial_state: {}
    caller_metadata: {tenant: T1}
    expected: {final_state: {read: {tenant: T1, k: v}}, invariants: {capture_after_augment_sees_write: true}}
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("subgraph_span", "namespace: [sub, x]", "namespace: [x]"),
    ("subgraph_span", "- name: sub", "- name: inner"),
    ("subgraph_span", "openarmature.node.step: 3", "openarmature.node.step: 4"),
    ("routing_span", "status_description: routing_error", "status_description: node_exception"),
    ("routing_span", "          status: ERROR\n", "          status: OK\n"),
    ("guarded_edge", "gt: 2", "gt: 3"),
    ("guarded_edge", "invocation_count: 2", "invocation_count: 1"),
    ("guarded_edge", "differ_across_invocations: true", "differ_across_invocations: false"),
    ("guarded_edge", "ignore_attributes: [openarmature.invocation_id, ", "ignore_attributes: ["),
    ("attempts", "under_invocation: 3", "under_invocation: 2"),
    ("attempts", "attempt_indices: [0, 1, 2]", "attempt_indices: [0, 1]"),
    ("attempts", "all_attempt_spans_error: true", "all_attempt_spans_error: false"),
    ("attempts", "fail_count: 2,", "fail_count: 1,"),
    ("correlated", "across_tree: mine", "across_tree: yours"),
    ("correlated", "    caller_correlation_id: mine\n", ""),
    ("spread_metadata", "product_id: p2}]", "product_id: p1}]"),
    ("spread_metadata", "after: {tenant: T1}", "after: {tenant: T1, product_id: p2}"),
    ("outside", "value: {}", "value: {tenant: T1}"),
    ("outside", "type: immutable_mapping", "type: hovercraft"),
    ("outside", "operation: get_invocation_metadata", "operation: hovercraft"),
    ("buckets", "        then_drop_for_current_invocation: {observer_name: acc}\n", ""),
    ("buckets", "disjoint_from_invocation_1: true", "disjoint_from_invocation_1: false"),
    ("buckets", "        invocation_2:\n", "        invocation_3:\n"),
    ("branch_spans", "branch_count: 1", "branch_count: 2"),
    ("branch_spans", "asked: {type: bool, default: false}", "asked: {type: bool, default: true}"),
    ("branch_spans", "branch_name: vector", "branch_name: keyword"),
    ("order", "{read: {tenant: T1}}, inv", "{read: {tenant: T1, k: v}}, inv"),
    ("order", "{read: {tenant: T1, k: v}}", "{read: {tenant: T1}}"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
