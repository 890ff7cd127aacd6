"""More middleware, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

ORDERED = """
state: {fields: {trace: {type: list<string>, reducer: append, default: []}}}
entry: a
nodes: {a: {update: {trace: [a]}}}
edges: [{from: a, to: END}]
initial_state: {}
middleware:
  per_node:
    a:
      - {type: trace_recorder, name: m1, pre_marker: m1.pre, post_marker: m1.post}
      - {type: trace_recorder, name: m2, pre_marker: m2.pre, post_marker: m2.post}
run_count: 2
expected:
  final_state: {trace: [m1.pre, m2.pre, a, m2.post, m1.post]}
  execution_order: [a]
  trace_records: {m1: [{pre_seen: true, post_seen: true}], m2: [{state_in: {trace: []}}]}
"""

PROPAGATES = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {raises: boom}}
edges: [{from: a, to: END}]
initial_state: {}
middleware:
  per_node: {a: [{type: trace_recorder, name: outer_mw}, {type: trace_recorder, name: inner_mw}]}
expected_error: {category: node_exception, raised_from: a, message: boom, recoverable_state: {v: 0}}
expected:
  trace_records:
    outer_mw: [{pre_seen: true, post_seen: false}]
    inner_mw: [{pre_seen: true, post_seen: false}]
"""

EXHAUSTED = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes:
  a:
    flaky:
      failure_sequence:
        - {transient: true, category: provider_unavailable, message: one}
        - {transient: true, category: provider_unavailable, message: two}
        - {transient: true, category: provider_unavailable, message: three}
      success_update: {v: 1}
edges: [{from: a, to: END}]
initial_state: {}
middleware:
  per_node: {a: [{type: retry, max_attempts: 3, backoff: {type: deterministic, seconds: 0}}]}
run_count: 2
expected_error:
  {category: node_exception, raised_from: a, message: three, flaky_call_count: 3, transient: true}
"""

TIMED_RETRY = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes:
  a:
    flaky:
      failure_sequence: [{transient: true, category: provider_rate_limit, message: slow}]
      success_update: {v: 1}
edges: [{from: a, to: END}]
initial_state: {}
clock_stub: {type: deterministic_monotonic, advance_ms_per_call: 5}
middleware:
  per_node:
    a:
      - {type: retry, max_attempts: 2, backoff: {type: deterministic, seconds: 0}}
      - {type: timing, node_name: a, on_complete: {capture_to: timing_records}}
expected:
  final_state: {v: 1}
  timing_records:
    - {node_name: a, duration_ms: 5, outcome: exception, exception_category: provider_rate_limit}
    - {node_name: a, duration_ms: 5, outcome: success, exception_category: null}
"""

DERIVED = """
state: {fields: {topic: {type: string, default: cats}, result: {type: string, default: ""}}}
entry: target
nodes: {target: {flaky: {failure_sequence: [{transient: false, category: provider_unavailable, message: down}]}}}
edges: [{from: target, to: END}]
initial_state: {}
middleware:
  per_node:
    target:
      - type: failure_isolation
        event_name: isolated
        degraded_update: {callable: state_derived, template: "no {{ state.topic }}", target_field: result}
        on_caught: {kind: record_to_state_side_channel, increment_field: caught, capture_message_field: told}
expected:
  final_state: {topic: cats, result: no cats, caught: 1, told: down}
  expected_failure_isolation_event:
    event_name: isolated
    pre_state: {topic: cats, result: ""}
    post_state: {result: no cats}
    wrapped_node_lineage: {namespace: [target], attempt_index: 0, fan_out_index: null, branch_name: null}
    caught_exception: {category: provider_unavailable, message: down}
  no_propagated_error: true
  invariants:
    callable_receives_pre_merge_state: true
    callable_return_merges_via_reducer: true
    engine_sees_degraded_return: true
    event_is_distinct_from_node_event: true
    event_name_is_caller_supplied: true
    on_caught_fires_exactly_once: true
    on_caught_receives_original_exception: true
    framework_event_still_emits_with_on_caught: true
    degraded_return_reaches_engine_with_on_caught: true
"""

CHAINED = """
subgraph:
  name: deep
  state: {fields: {out: {type: string, default: ""}}}
  entry: fails
  nodes:
    fails:
      flaky:
        failure_sequence:
          - {transient: false, category: null, message: top, cause: {category: root_cause, message: root}}
  edges: [{from: fails, to: END}]
state: {fields: {out: {type: string, default: ""}}}
entry: sub
nodes: {sub: {subgraph: deep}}
edges: [{from: sub, to: END}]
initial_state: {}
middleware: {per_node: {sub: [{type: failure_isolation, event_name: e, degraded_update: {out: saved}}]}}
expected:
  final_state: {out: saved}
  expected_failure_isolation_event:
    event_name: e
    caught_exception:
      category: root_cause
      message: root
      chain:
        - {carrier: true, category: node_exception}
        - {carrier: false, category: null, message: top}
        - {carrier: false, category: root_cause, message: root}
  invariants:
    chain_has_two_non_carrier_links: true
    derived_category_is_outermost_non_carrier_with_category: true
    category_not_masked_as_node_exception: true
"""

DEGRADED = """
subgraphs:
  unit:
    state:
      fields: {input: {type: int, default: 0}, out: {type: string, default: ""}, note: {type: string, default: ""}}
    entry: work
    nodes: {work: {flaky_by_index: {fail_when_idx: 2, category: bad, success_compute: {out: fine, note: well}}}}
    edges: [{from: work, to: END}]
cases:
  - name: contribution_is_the_degraded_update
    state:
      fields:
        items: {type: list<int>, default: [1, 2]}
        results: {type: list<string>, reducer: append, default: []}
        notes: {type: list<any>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          subgraph: unit
          items_field: items
          item_field: input
          collect_field: out
          target_field: results
          extra_outputs: {notes: note}
          instance_middleware: [{type: failure_isolation, event_name: e, degraded_update: {out: "(lost)", note: n}}]
    edges: [{from: process, to: END}]
    initial_state: {}
    expected:
      final_state: {items: [1, 2], results: [fine, "(lost)"], notes: [well, n]}
      expected_failure_isolation_event:
        event_name: e
        wrapped_node_lineage: {fan_out_index: 1}
        caught_exception:
          category: bad
          chain: [{carrier: true, category: node_exception}, {carrier: false, category: bad}]
      invariants:
        contribution_is_the_degraded_update: true
        extra_outputs_read_by_subgraph_field_name: true
        chain_includes_carrier_and_originating: true
        degrade_path_does_not_raise: true
  - name: static_update_without_the_collected_field
    state:
      fields:
        items: {type: list<int>, default: [1, 2]}
        results: {type: list<string>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          subgraph: unit
          items_field: items
          item_field: input
          collect_field: out
          target_field: results
          instance_middleware: [{type: failure_isolation, event_name: e, degraded_update: {note: n}}]
    edges: [{from: process, to: END}]
    initial_state: {}
    expected_compile_error: fan_out_degraded_update_missing_collect_field
  - name: strict_reducer_rejects_the_empty_slot
    state:
      fields:
        items: {type: list<int>, default: [2]}
        results: {type: list, reducer: concat_flatten, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          subgraph: unit
          items_field: items
          item_field: input
          collect_field: out
          target_field: results
          instance_middleware:
            - type: failure_isolation
              event_name: e
              degraded_update: {callable: state_derived, template: t, target_field: note}
    edges: [{from: process, to: END}]
    initial_state: {}
    expected_error: {category: reducer_error, raised_from: process}
    expected: {invariants: {strict_reducer_null_slot_raises: true, degrade_does_not_suppress_reducer_error: true}}
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}
BENT = [
    ("ordered", "[m1.pre, m2.pre, a,", "[m2.pre, m1.pre, a,"),
    ("ordered", "m1: [{pre_seen: true, post_seen: true}]", "m1: [{pre_seen: true}, {pre_seen: true}]"),
    ("propagates", "outer_mw: [{pre_seen: true, post_seen: false}]", "outer_mw: [{pre_seen: true, post_seen: true}]"),
    ("propagates", "message: boom", "message: bang"),
    ("exhausted", "flaky_call_count: 3", "flaky_call_count: 6"),
    ("exhausted", "message: three,", "message: two,"),
    ("exhausted", "3, transient: true", "3, transient: false"),
    ("timed_retry", "outcome: exception", "outcome: success"),
    ("timed_retry", "exception_category: null", "exception_category: provider_rate_limit"),
    ("timed_retry", "duration_ms: 5, outcome: success", "duration_ms: 10, outcome: success"),
    ("timed_retry", "    - {node_name: a, duration_ms: 5, outcome: success, exception_category: null}\n", ""),
    ("derived", "result: no cats, caught", "result: no dogs, caught"),
    ("derived", "caught: 1", "caught: 2"),
    ("derived", "told: down}", "told: up}"),
    ("derived", "post_state: {result: no cats}", "post_state: {result: no cats, topic: cats}"),
    ("derived", "namespace: [target]", "namespace: [other]"),
    ("chained", "category: root_cause\n", "category: node_exception\n"),
    ("chained", "category: null, message: top", "category: null, message: root"),
    ("chained", "        - {carrier: true, category: node_exception}\n", ""),
    ("degraded", '[fine, "(lost)"]', "[fine]"),
    ("degraded", "notes: [well, n]", "notes: [well, null]"),
    ("degraded", "fan_out_index: 1", "fan_out_index: 0"),
    ("degraded", "expected_compile_error: fan_out_degraded_update_missing_collect_field", "expected: {}"),
    ("degraded", "category: reducer_error", "category: node_exception"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
