"""The adapter's checks of spans and logs: they must not pass what is wrong."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

LINE = """
state:
  fields:
    v: {type: int, default: 0}
entry: a
nodes:
  a: {update: {v: 1}, emits_log: {message: from a, level: INFO}}
  b: {update: {v: 2}, emits_log: {message: from b, level: DEBUG}}
edges:
  - {from: a, to: b}
  - {from: b, to: END}
initial_state: {}
caller_correlation_id: c-1
caller_metadata: {tenant: t-1}
invocations: 2
expected:
  final_state: {v: 2}
  span_tree:
    - name: openarmature.invocation
      status: OK
      attributes:
        openarmature.invocation_id: <uuid>
        openarmature.implementation.name: {harness_parameterized: implementation_name, non_empty_string: true}
      link_count: 0
      children:
        - {name: a, status: OK, children: [], exception_recorded: false}
        - name: b
          attributes: {openarmature.node.step: 1, openarmature.node.namespace: [b], openarmature.user.tenant: t-1}
          attributes_absent: [openarmature.session_id]
  invocation_count: 2
  no_edge_spans: true
  log_records:
    - {body: from a, attributes: {openarmature.correlation_id: c-1, trace_id: <trace_id_x>, span_id: <span_id_a>}}
    - {body: from b, attributes: {trace_id: <trace_id_x>, span_id: <span_id_b>}, attributes_absent: [session]}
  determinism_check:
    compare_runs: [0, 1]
    compare: [span_tree_structure, span_names, span_status, span_attributes_excluding_ignored]
    ignore_attributes: [openarmature.invocation*]
    require_equal: true
  invariants:
    correlation_id_uniform_across_tree: c-1
    all_logs_carry_correlation_id: c-1
    all_logs_same_trace_id: true
    log_span_ids_match_active_span_at_emission: true
    same_execution_path: true
    span_count_equal_across_runs: true
    attributes_on_invocation_span_only: true
"""

APART = """
subgraph:
  name: cell
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: work
  nodes:
    work: {flaky_per_index: {always_fail_indices: [1], success_compute: {out: input}}}
  edges: [{from: work, to: END}]
state:
  fields:
    items: {type: list<int>, default: [10, 20]}
    results: {type: list<int>, reducer: append, default: []}
entry: fan
nodes:
  fan:
    fan_out:
      {subgraph: cell, items_field: items, item_field: input, collect_field: out, target_field: results,
       concurrent_mode: serial}
edges: [{from: fan, to: END}]
detached_fan_outs: [fan]
expected:
  traces:
    - trace_id: <trace_id_parent>
      span_tree:
        - name: openarmature.invocation
          status: ERROR
          children:
            - name: fan
              status: ERROR
              status_description: node_exception
              exception_recorded: true
              links: [{target_trace_id: <trace_id_first>}, {target_trace_id: <trace_id_second>}]
              children: []
    - trace_id: <trace_id_second>
      span_tree:
        - name: openarmature.invocation
          status: ERROR
          children:
            - {name: fan, attributes: {openarmature.node.fan_out_index: 1}, children: [{name: work, status: ERROR}]}
    - trace_id: <trace_id_first>
      span_tree:
        - {name: openarmature.invocation, status: OK}
  parent_trace:
    span_tree: [{name: openarmature.invocation}]
  detached_trace_count: 2
  invariants:
    distinct_trace_ids: true
    fan_out_node_span_link_count: 2
    detached_invocation_id_equals_parent: true
    no_instance_spans_in_parent_trace: true
    error_status_on_parent_fan_out_node_span: true
    error_status_on_detached_instance_invocation_span: false
    correlation_id_is_uuidv4: true
"""

FORKED = """
state: {fields: {x: {type: int, default: 0}, y: {type: int, default: 0}}}
entry: fork
nodes:
  fork:
    parallel_branches:
      branches:
        left: {call: {flaky: {failure_sequence: [{transient: true, category: busy, message: m}]}}}
        right: {call: {update: {y: 1}}}
    middleware:
      - {type: retry, max_attempts: 2, backoff: {type: deterministic, seconds: 0}}
edges: [{from: fork, to: END}]
observers: [{name: spans, attach: graph, target: outer, behavior: otel}]
expected:
  otel_spans:
    spans:
      name: openarmature.invocation
      children:
        - {name: fork, status: ERROR, children: [{name: left, status: ERROR}]}
        - name: fork
          attributes: {openarmature.node.attempt_index: 1}
          children:
            - {name: right, attributes: {openarmature.node.branch_name: right}}
            - {name: left, attributes: {openarmature.node.branch_name: left}}
  invariants:
    sibling_attempt_count_under_invocation: 2
    attempt_indices: [0, 1]
    callable_branch_events_report_current_attempt_index: true
    callable_branch_started_and_completed_carry_attempt_index_one_on_retry: true
    callable_branch_attempt_index_sourced_from_node_event_not_zero: true
    left_callable_branch_attempt_indices_seen: [0, 1]
    fork_node_attempt_indices_seen: [0, 1]
"""


@pytest.mark.parametrize("text", [LINE, APART, FORKED], ids=["line", "apart", "forked"])
async def test_spans_that_hold_pass(text: str, tmp_path: Path) -> None:
    assert (await report_of(text, tmp_path)).problems == []


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("status: OK\n", "status: ERROR\n"),
        ("invocation_id: <uuid>", "invocation_id: other"),
        ("invocation_id: <uuid>", "graph.entry_node: <uuid>"),
        ("implementation.name: {", "graph.entry_node: {"),
        ("link_count: 0", "link_count: 1"),
        ("link_count: 0", "links: [{target_trace_id: <trace_id_other>}]"),
        ("name: a, status: OK", "name: c, status: OK"),
        ("name: a, status: OK, children: []", "name: a, status: OK, children: [{name: b}]"),
        ("        - {name: a, status: OK, children: [], exception_recorded: false}\n", ""),
        ("exception_recorded: false", "exception_recorded: true"),
        ("exception_recorded: false", "status_description: node_exception"),
        ("node.step: 1", "node.step: 2"),
        ("node.step: 1", "node.fan_out_index: 1"),
        ("namespace: [b]", "namespace: [a]"),
        ("tenant: t-1}\n          attr", "tenant: t-2}\n          attr"),
        ("[openarmature.session_id]", "[openarmature.node.name]"),
        ("invocation_count: 2", "invocation_count: 1"),
        ("body: from a", "body: from c"),
        ("correlation_id: c-1, trace", "correlation_id: c-2, trace"),
        ("correlation_id: c-1, trace", "session_id: c-2, trace"),
        ("<span_id_b>", "<span_id_a>"),
        ("attributes_absent: [session]", "attributes_absent: [trace_id]"),
        ("    - {body: from b", "    - {body: from b}\n    - {body: from b"),
        ("ignore_attributes: [openarmature.invocation*]", "ignore_attributes: []"),
        ("require_equal: true", "require_equal: false"),
        ("across_tree: c-1", "across_tree: c-2"),
        ("across_tree: c-1", "across_tree: <uuid>"),
        ("all_logs_carry_correlation_id: c-1", "all_logs_carry_correlation_id: c-2"),
        ("all_logs_same_trace_id: true", "all_logs_same_trace_id: false"),
        ("at_emission: true", "at_emission: false"),
        ("span_count_equal_across_runs: true", "correlation_ids_differ_across_invocations: true"),
        ("span_only: true", "span_only: true\n    session_id_uniform_across_span_tree: s"),
        ("span_only: true", "span_only: true\n    distinct_trace_ids: true"),
        ("span_only: true", "span_only: true\n    hovercraft: true"),
        ("link_count: 0", "hovercraft: 0"),
        ("b: {update: {v: 2}", "b: {raises: boom, update: {v: 2}"),
    ],
)
async def test_spans_that_do_not_hold_fail(true: str, false: str, tmp_path: Path) -> None:
    assert true in LINE
    assert (await report_of(LINE.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("links: [{target_trace_id: <trace_id_first>}, ", "links: ["),
        ("target_trace_id: <trace_id_second>", "target_trace_id: <trace_id_parent>"),
        ("fan_out_index: 1", "fan_out_index: 0"),
        ("- trace_id: <trace_id_first>", "- trace_id: <trace_id_second>"),
        ("children: []", "children: [{name: fan}]"),
        ("span_tree: [{name: openarmature.invocation}]", "span_tree: [{name: fan}]"),
        ("detached_trace_count: 2", "detached_trace_count: 3"),
        ("detached_fan_outs: [fan]", "detached_fan_outs: []"),
        ("link_count: 2", "link_count: 1"),
        ("instance_invocation_span: false", "instance_invocation_span: true"),
        ("no_instance_spans_in_parent_trace: true", "no_instance_spans_in_parent_trace: false"),
        ("always_fail_indices: [1]", "always_fail_indices: []"),
    ],
)
async def test_traces_that_do_not_hold_fail(true: str, false: str, tmp_path: Path) -> None:
    assert true in APART
    assert (await report_of(APART.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("name: fork, status: ERROR", "name: fork, status: OK"),
        ("[{name: left, status: ERROR}]", "[{name: middle}]"),
        ("            - {name: right, attributes: {openarmature.node.branch_name: right}}\n", ""),
        ("branch_name: right}", "branch_name: left}"),
        ("attempt_index: 1}", "attempt_index: 0}"),
        ("under_invocation: 2", "under_invocation: 1"),
        ("attempt_indices: [0, 1]\n    call", "attempt_indices: [0]\n    call"),
        ("current_attempt_index: true", "current_attempt_index: false"),
        ("left_callable_branch_attempt_indices_seen: [0, 1]", "left_callable_branch_attempt_indices_seen: [0]"),
        ("fork_node_attempt_indices_seen: [0, 1]", "fork_node_attempt_indices_seen: [1]"),
        ("    spans:\n", "    others:\n"),
    ],
)
async def test_branches_that_do_not_hold_fail(true: str, false: str, tmp_path: Path) -> None:
    assert true in FORKED
    assert (await report_of(FORKED.replace(true, false, 1), tmp_path)).problems
