"""The adapter's checks of where a run suspends, inside something or where it may not: what is wrong must not pass."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

NESTED = """
subgraph:
  name: leaf
  state: {fields: {x: {type: int, default: 0}}}
  entry: first
  nodes:
    first: {suspend_with_descriptor: {signal_id: sig}}
    last: {update: {x: 1}}
  edges: [{from: first, to: last}, {from: last, to: END}]
state: {fields: {y: {type: int, default: 0}, z: {type: int, default: 0}}}
entry: wrapper
nodes:
  wrapper: {subgraph: leaf, outputs: {y: x}}
  end: {update: {z: 1}}
edges: [{from: wrapper, to: end}, {from: end, to: END}]
invocations:
  - expected: {outcome: suspended, suspending_node: wrapper}
  - resume_invocation: <from previous suspended outcome>
    signal_payload: {}
    expected: {outcome: completed, final_state: {y: 1, z: 1}}
invariants:
  subgraph_suspend_propagates_to_outer: true
  resume_re_enters_at_last: true
  end_runs_post_resume: true
"""

SPREAD = """
subgraph:
  name: cell
  state: {fields: {input: {type: int, default: 0}, out: {type: int, default: 0}}}
  entry: work
  nodes:
    work:
      conditional_suspend: {suspend_on_item_index: 1, descriptor: {signal_id: sig, metadata: {kind: k}}}
      on_other_indices: {update_from_field: {out: input, multiplier: 10}}
  edges: [{from: work, to: END}]
state:
  fields:
    items: {type: list<int>, default: [0, 1, 2]}
    results: {type: list<int>, reducer: append, default: []}
entry: fan
nodes:
  fan:
    fan_out: {subgraph: cell, items_field: items, item_field: input, collect_field: out, target_field: results}
edges: [{from: fan, to: END}]
invocations:
  - expected:
      outcome: suspended
      suspended_state: {items: [0, 1, 2], results: []}
      suspending_node: fan
      descriptor: {signal_id: sig, metadata_includes: {kind: k, fan_out_index: 1}}
invariants:
  single_instance_suspend_suspends_whole_fan_out: true
  siblings_cancelled_under_fail_fast: true
  descriptor_carries_fan_out_index: true
"""

FORKED = """
subgraphs:
  one:
    state: {fields: {a: {type: int, default: 0}}}
    entry: stop
    nodes:
      stop: {suspend_with_descriptor: {signal_id: sig}}
    edges: [{from: stop, to: END}]
  two:
    state: {fields: {b: {type: int, default: 0}}}
    entry: go
    nodes:
      go: {update: {b: 1}}
    edges: [{from: go, to: END}]
state: {fields: {a: {type: int, default: 0}, b: {type: int, default: 0}}}
entry: fork
nodes:
  fork:
    parallel_branches:
      error_policy: fail_fast
      branches:
        left: {subgraph: one, outputs: {a: a}}
        right: {subgraph: two, outputs: {b: b}}
edges: [{from: fork, to: END}]
invocations:
  - expected:
      outcome: suspended
      suspended_state: {a: 0, b: 0}
      suspending_node: fork
      descriptor: {signal_id: sig, metadata: {branch_name: left}}
invariants:
  single_branch_suspend_suspends_whole_parallel_branches: true
  siblings_cancelled_under_fail_fast: true
  descriptor_carries_branch_name: true
"""

WRONG_PLACE = """
cases:
  - name: middleware
    state: {fields: {ran: {type: bool, default: false}}}
    entry: gate
    nodes:
      gate:
        wrap_with_middleware: [{name: m, pre_next_calls_suspend_with_descriptor: {signal_id: sig}}]
        update: {ran: true}
    edges: [{from: gate, to: END}]
    invocations:
      - expected:
          outcome: errored
          error: {category: suspension_in_unsupported_context}
          final_state_at_error: {ran: false}
    invariants:
      middleware_suspend_raises_unsupported_context: true
      wrapped_node_does_not_execute_after_middleware_suspend_attempt: true
  - name: collecting
    state: {fields: {items: {type: list<int>, default: [0]}}}
    entry: fan
    nodes:
      fan: {fan_out: {subgraph: leaf, items_field: items, item_field: i, target_field: items, error_policy: collect}}
    edges: [{from: fan, to: END}]
    invocations: [{expected: {outcome: errored, error: {category: suspension_in_unsupported_context}}}]
    invariants: {collect_mode_suspend_rejected_at_runtime: true}
subgraph:
  name: leaf
  state: {fields: {i: {type: int, default: 0}}}
  entry: stop
  nodes:
    stop: {suspend_with_descriptor: {signal_id: sig}}
  edges: [{from: stop, to: END}]
"""

GOOD = {
    "nested": NESTED,
    "spread": SPREAD,
    "forked": FORKED,
    "wrong_place": WRONG_PLACE,
}


@pytest.mark.parametrize("name", GOOD)
async def test_places_that_hold_pass(name: str, tmp_path: Path) -> None:
    assert (await report_of(GOOD[name], tmp_path)).problems == []


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("nested", "suspending_node: wrapper", "suspending_node: first"),
        ("nested", "to_outer: true", "to_outer: false"),
        ("nested", "resume_re_enters_at_last", "resume_re_enters_at_first"),
        ("nested", "resume_re_enters_at_last", "resume_re_enters_at_hovercraft"),
        ("nested", "end_runs_post_resume: true", "end_runs_post_resume: false"),
        ("nested", "end_runs_post_resume", "first_runs_post_resume"),
        ("nested", "  - resume_invocation: <from previous suspended outcome>\n", "  - initial_state: {}\n"),
        ("spread", "fan_out_index: 1", "fan_out_index: 0"),
        ("spread", "whole_fan_out: true", "whole_fan_out: false"),
        ("spread", "under_fail_fast: true", "under_fail_fast: false"),
        ("spread", "carries_fan_out_index: true", "carries_fan_out_index: false"),
        ("spread", "carries_fan_out_index: true", "carries_branch_name: true"),
        ("spread", "on_other_indices", "on_no_indices"),
        ("spread", "{suspend_on_item_index: 1,", "{suspend_on_item_index: 1, hovercraft: 1,"),
        ("spread", "suspend_on_item_index: 1", "suspend_on_item_index: 2"),
        ("forked", "branch_name: left", "branch_name: right"),
        ("forked", "whole_parallel_branches: true", "whole_parallel_branches: false"),
        ("forked", "under_fail_fast: true", "under_fail_fast: false"),
        ("forked", "carries_branch_name: true", "carries_branch_name: false"),
        ("wrong_place", "category: suspension_in_unsupported_context}\n", "category: node_exception}\n"),
        ("wrong_place", "final_state_at_error: {ran: false}", "final_state_at_error: {ran: true}"),
        ("wrong_place", "unsupported_context: true", "unsupported_context: false"),
        ("wrong_place", "suspend_attempt: true", "suspend_attempt: false"),
        ("wrong_place", "at_runtime: true", "at_runtime: false"),
        ("wrong_place", "error_policy: collect", "error_policy: fail_fast"),
        ("wrong_place", "{name: m, pre_next_calls", "{name: m, hovercraft: 1, pre_next_calls"),
    ],
)
async def test_places_that_do_not_hold_fail(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in GOOD[name]
    assert (await report_of(GOOD[name].replace(true, false, 1), tmp_path)).problems


async def test_a_pause_that_nothing_speaks_of_fails(tmp_path: Path) -> None:
    text = SPREAD[: SPREAD.index("invocations")] + "initial_state: {}\n"
    assert any("is suspended" in problem for problem in (await report_of(text, tmp_path)).problems)


async def test_invariants_of_the_file_are_checked_beside_those_of_its_cases(tmp_path: Path) -> None:
    held = await report_of(
        f"{WRONG_PLACE}invariants: {{middleware_suspend_raises_unsupported_context: true}}\n", tmp_path
    )
    assert held.problems == []
    failed = await report_of(f"{WRONG_PLACE}invariants: {{suspend_returns_suspended_outcome: true}}\n", tmp_path)
    assert len(failed.problems) == 2
