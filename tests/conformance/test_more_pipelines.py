"""More middleware, fan-outs and branches, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.trials import report_of

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

INNER_RETRY = """
subgraph:
  name: leaf
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: work
  nodes:
    work:
      flaky_by_index: {fail_count_per_idx: 1, category: provider_rate_limit, success_compute: {out: input}}
  edges: [{from: work, to: END}]
  middleware:
    per_node: {work: [{type: retry, max_attempts: 3, backoff: {type: deterministic, seconds: 0}}]}
state:
  fields:
    items: {type: list<int>, default: [5, 6]}
    results: {type: list<int>, reducer: append, default: []}
entry: process
nodes:
  process:
    fan_out: {subgraph: leaf, items_field: items, item_field: input, collect_field: out, target_field: results}
edges: [{from: process, to: END}]
initial_state: {}
observers: [{name: obs, attach: graph, target: outer, behavior: record}]
expected:
  final_state: {items: [5, 6], results: [5, 6]}
  observer_event_invariants:
    inner_events_have_fan_out_index: true
    inner_events_attempt_indices_seen: [0, 1]
    fan_out_indices_seen: [0, 1]
    inner_event_pair_count_per_instance: 4
"""

EMPTY = """
subgraph:
  name: leaf
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: work
  nodes: {work: {update_from_field: {out: input}}}
  edges: [{from: work, to: END}]
cases:
  - name: raises_by_default
    state:
      fields:
        items: {type: list<int>, default: []}
        results: {type: list<int>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out: {subgraph: leaf, items_field: items, item_field: input, collect_field: out, target_field: results}
    edges: [{from: process, to: END}]
    initial_state: {}
    expected_error:
      category: node_exception
      fan_out_category: fan_out_empty
      raised_from: process
      recoverable_state: {items: [], results: []}
  - name: noop
    state:
      fields:
        items: {type: list<int>, default: []}
        n: {type: int, default: 7}
        results: {type: list<int>, reducer: append, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          {subgraph: leaf, items_field: items, item_field: input, collect_field: out, target_field: results,
           on_empty: noop, count_field: n}
    edges: [{from: process, to: END}]
    initial_state: {}
    expected: {final_state: {items: [], n: 0, results: []}, execution_order: [process]}
"""

SCHEMAS = """
subgraphs:
  words:
    state: {fields: {text: {type: string, default: ""}, up: {type: string, default: ""}}}
    entry: w
    nodes: {w: {update_from_field: {up: text, multiplier: 2}}}
    edges: [{from: w, to: END}]
  numbers:
    state: {fields: {n: {type: int, default: 4}, twice: {type: int, default: 0}}}
    entry: t
    nodes: {t: {update_from_field: {twice: n, multiplier: 2}}}
    edges: [{from: t, to: END}]
state:
  fields:
    text: {type: string, default: ab}
    words_out: {type: string, default: ""}
    numbers_out: {type: int, default: 0}
entry: dispatcher
nodes:
  dispatcher:
    parallel_branches:
      branches:
        alpha: {subgraph: words, inputs: {text: text}, outputs: {words_out: up}}
        beta: {subgraph: numbers, outputs: {numbers_out: twice}}
edges: [{from: dispatcher, to: END}]
initial_state: {}
expected:
  final_state: {text: ab, words_out: abab, numbers_out: 8}
  observer_event_invariants: {inner_events_carry_correct_branch_name: {w: alpha, t: beta}}
"""

SPREADING_BRANCH = """
subgraphs:
  leaf:
    state: {fields: {x: {type: int, default: 0}, y: {type: int, default: 0}}}
    entry: work
    nodes: {work: {update_from_field: {y: x, multiplier: 10}}}
    edges: [{from: work, to: END}]
  spreading:
    state:
      fields:
        items: {type: list<int>, default: [1, 2]}
        ys: {type: list<int>, reducer: append, default: []}
    entry: spread
    nodes:
      spread: {fan_out: {subgraph: leaf, items_field: items, item_field: x, collect_field: y, target_field: ys}}
    edges: [{from: spread, to: END}]
  simple:
    state: {fields: {z: {type: int, default: 0}}}
    entry: one
    nodes: {one: {update: {z: 3}}}
    edges: [{from: one, to: END}]
state: {fields: {ys: {type: list<int>, default: []}, z: {type: int, default: 0}}}
entry: dispatcher
nodes:
  dispatcher:
    parallel_branches:
      branches: {fanned: {subgraph: spreading, outputs: {ys: ys}}, plain: {subgraph: simple, outputs: {z: z}}}
edges: [{from: dispatcher, to: END}]
initial_state: {}
observers: [{name: obs, attach: graph, target: outer, behavior: record}]
expected:
  final_state: {ys: [10, 20], z: 3}
  observer_event_invariants:
    fan_out_inner_events_carry_both_branch_name_and_fan_out_index: true
    fan_out_inner_branch_name_seen: fanned
    fan_out_inner_fan_out_indices_seen: [0, 1]
    plain_inner_events_carry_branch_name_but_no_fan_out_index: true
    plain_inner_branch_name_seen: plain
    branch_started_event_order: [fanned, plain]
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

GUARDED = """
state:
  fields:
    wanted: {type: bool, default: true}
    unwanted: {type: bool, default: false}
    a: {type: int, default: 0}
    b: {type: int, default: 0}
entry: dispatcher
nodes:
  dispatcher:
    parallel_branches:
      branches:
        yes_branch: {call: {update: {a: 1}}, when: {field: wanted}}
        no_branch: {call: {update: {b: 1}}, when: {field: unwanted}}
edges: [{from: dispatcher, to: END}]
initial_state: {}
expected:
  final_state: {wanted: true, unwanted: false, a: 1, b: 0}
  invariants:
    when_false_branch_skipped: true
    skipped_branch_emits_no_event: true
    skipped_branch_no_contribution: true
    when_true_branch_dispatches: true
    callable_branches_run_without_subgraph: true
"""

ROUND_TRIP = """
subgraph:
  name: leaf
  state: {fields: {input: {type: int, default: 0}, out: {type: list, default: []}}}
  entry: work
  nodes: {work: {update: {}}}
  edges: [{from: work, to: END}]
cases:
  - name: inputs_and_extra_outputs
    state:
      fields:
        items: {type: list<int>, default: []}
        results: {type: list, reducer: append, default: []}
        log: {type: list, reducer: concat_flatten, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          {subgraph: leaf, items_field: items, item_field: input, collect_field: input, target_field: results,
           inputs: {out: log}, extra_outputs: {log: out}}
    edges: [{from: process, to: END}]
    expected_compile_warning: [projection_reducer_round_trip]
  - name: into_another_field
    state:
      fields:
        items: {type: list<int>, default: []}
        results: {type: list, reducer: append, default: []}
        log: {type: list, reducer: concat_flatten, default: []}
        other: {type: list, reducer: concat_flatten, default: []}
    entry: process
    nodes:
      process:
        fan_out:
          {subgraph: leaf, items_field: items, item_field: input, collect_field: input, target_field: results,
           inputs: {out: log}, extra_outputs: {other: out}}
    edges: [{from: process, to: END}]
    expected_compile_warning: []
"""

TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper() and isinstance(text, str)}


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []
