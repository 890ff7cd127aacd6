"""More fan-outs and branches, after what the specification says of them: each must hold, and fail if bent."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

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
BENT = [
    ("inner_retry", "attempt_indices_seen: [0, 1]", "attempt_indices_seen: [0]"),
    ("inner_retry", "per_instance: 4", "per_instance: 2"),
    ("inner_retry", "fan_out_indices_seen: [0, 1]", "fan_out_indices_seen: [0, 1, 2]"),
    ("inner_retry", "have_fan_out_index: true", "have_fan_out_index: false"),
    ("empty", "fan_out_category: fan_out_empty", "fan_out_category: node_exception"),
    ("empty", "n: 0, results", "n: 7, results"),
    ("schemas", "words_out: abab", "words_out: ab"),
    ("schemas", "{w: alpha, t: beta}", "{w: beta, t: alpha}"),
    ("spreading_branch", "branch_name_seen: fanned", "branch_name_seen: plain"),
    ("spreading_branch", "fan_out_inner_fan_out_indices_seen: [0, 1]", "fan_out_inner_fan_out_indices_seen: [0]"),
    ("spreading_branch", "[fanned, plain]", "[plain, fanned]"),
    ("guarded", "when: {field: unwanted}", "when: {field: wanted}"),
    ("guarded", "skipped_branch_emits_no_event: true", "skipped_branch_emits_no_event: false"),
    ("guarded", "when_false_branch_skipped: true", "when_false_branch_skipped: false"),
    ("round_trip", "expected_compile_warning: []", "expected_compile_warning: [projection_reducer_round_trip]"),
    ("round_trip", "expected_compile_warning: [projection_reducer_round_trip]", "expected_compile_warning: []"),
]


@pytest.mark.parametrize("name", TEXTS)
async def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    assert (await report_of(TEXTS[name], tmp_path)).problems == []


@pytest.mark.parametrize(("name", "true", "false"), BENT)
async def test_what_does_not_hold_fails(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in TEXTS[name]
    assert (await report_of(TEXTS[name].replace(true, false, 1), tmp_path)).problems
