"""The adapter's checks of suspension: they must not pass what is wrong."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

GATE = """
state:
  fields:
    approved: {type: bool, default: false}
    log: {type: list, reducer: append, default: []}
    done: {type: bool, default: false}
entry: before
nodes:
  before: {update: {log: [a]}}
  gate:
    wrap_with_middleware: [{name: outside, pre_log: in, post_log: out}]
    suspend_with_descriptor: {signal_id: sig, metadata: {kind: approval, level: 2}}
  after:
    wrap_with_middleware: [{name: outside, pre_log: later}]
    update: {done: true}
edges: [{from: before, to: gate}, {from: gate, to: after}, {from: after, to: END}]
observers: [{name: obs, attach: graph, target: outer, behavior: record}]
invocations:
  - name: first
    initial_state: {}
    expected:
      outcome: suspended
      suspended_state: {approved: false, log: [a], done: false}
      descriptor: {signal_id: sig, metadata: {kind: approval, level: 2}}
      suspending_node: gate
      execution_order: [before, gate]
      middleware_log_captured: [in]
      observer_events:
        obs:
          - {phase: started, node_name: before}
          - {phase: completed, node_name: before, descriptor: null}
          - {phase: started, node_name: gate}
          - {phase: suspended, node_name: gate, descriptor: {signal_id: sig, metadata_includes: {level: 2}}}
      observer_event_invariants:
        no_completed_event_for_suspending_node: true
        suspended_event_carries_descriptor: true
        started_followed_by_suspended_in_order: true
  - name: second
    resume_invocation: <from previous suspended outcome>
    signal_payload: {approved: true, log: [b]}
    expected:
      outcome: completed
      final_state: {approved: true, log: [b], done: true}
      execution_order: [after]
      middleware_log_captured: [later]
      observer_events:
        obs:
          - {phase: started, node_name: after, step: 2}
          - {phase: completed, node_name: after}
  - name: third
    resume_invocation: <from first suspended outcome>
    signal_payload: {}
    expected:
      outcome: errored
      error: {category: suspension_record_invalid}
invariants:
  suspend_returns_suspended_outcome: true
  resume_against_non_suspended_raises_record_invalid: true
  middleware_pre_next_block_runs_on_suspending_node: true
  middleware_post_next_block_skipped_on_suspending_node: true
"""

MERGED = """
state:
  fields:
    log: {type: list, reducer: append, default: [a]}
    n: {type: int, default: 1}
entry: gate
nodes:
  gate: {suspend_with_descriptor: {signal_id: sig}}
  after: {update_from_field: {n: n, multiplier: 2}}
edges: [{from: gate, to: after}, {from: after, to: END}]
session_store: in_memory
invocations:
  - session_id: s
    initial_state: {}
    expected:
      outcome: suspended
      descriptor: {signal_id: sig, metadata: {}}
      saved_session_assertions: {state: {log: [a], n: 1}}
  - session_id: s
    resume_invocation: <from previous suspended outcome>
    signal_payload: {log: [b]}
    expected:
      outcome: completed
      final_state: {log: [b], n: 2}
      saved_session_assertions: {state: {log: [b], n: 2}}
invariants:
  resume_merges_signal_payload: true
  resume_continues_after_suspending_node: true
  signal_payload_overwrites_field_directly: true
  reducer_not_consulted_on_signal_merge: true
  session_saves_at_suspend_time: true
  resume_sees_session_state_consistent_with_paused_record: true
"""

KEPT = """
state:
  schema_version: v1
  fields:
    v: {type: int, default: 0}
    log: {type: list, reducer: append, default: []}
    scratch: {type: int, default: 3}
session_state: {fields: [v, log]}
entry: a
nodes:
  a: {update: {v: 1, log: [a]}}
  gate: {suspend_with_descriptor: {signal_id: sig}}
  b: {update: {v: 2, log: [b]}}
edges: [{from: a, to: gate}, {from: gate, to: b}, {from: b, to: END}]
checkpointer: in_memory
session_store: in_memory
invocations:
  - session_id: s
    expected:
      outcome: suspended
      checkpoint_saves:
        - {after_node: a, state: {v: 1, log: [a], scratch: 3}}
        - {after_node: gate, state: {v: 1, log: [a], scratch: 3}}
      checkpointer_assertions: {paused_invocation_record_exists: true, record_type: suspended}
      saved_session_assertions: {state: {v: 1, log: [a]}, excludes_fields: [scratch], schema_version: v1}
  - session_id: s
    resume_invocation: <from previous suspended outcome>
    signal_payload: {scratch: 9}
    expected:
      outcome: completed
      final_state: {v: 2, log: [a, b], scratch: 9}
      saved_session_assertions: {state: {v: 2, log: [a, b]}}
"""

REFUSED = """
state: {fields: {n: {type: int, default: 1}}}
entry: gate
nodes:
  gate: {suspend_with_descriptor: {signal_id: sig}}
edges: [{from: gate, to: END}]
checkpointer: in_memory
invocations:
  - initial_state: {}
    expected:
      outcome: suspended
      checkpointer_assertions: {paused_invocation_record_exists: true, record_type: suspended}
  - resume_invocation: <from previous suspended outcome>
    signal_payload: {n: no number}
    expected: {outcome: errored, error: {category: suspension_resume_payload_invalid}}
    invariants: {invalid_payload_blocks_resume: true}
  - resume_invocation: <from previous suspended outcome>
    signal_payload: {n: 7}
    expected: {outcome: completed, final_state: {n: 7}, execution_order: []}
invariants:
  paused_record_persists_via_checkpointer_backend: true
  record_type_distinguishes_suspended_from_checkpointed: true
"""

COMPLETED = """
state: {fields: {n: {type: int, default: 1}}}
entry: a
nodes:
  a: {update: {n: 2}}
edges: [{from: a, to: END}]
invocations:
  - initial_state: {}
    expected: {outcome: completed, final_state: {n: 2}}
  - resume_invocation: <invocation_id from initial completed invoke>
    signal_payload: {n: 3}
    expected: {outcome: errored, error: {category: suspension_record_invalid}}
  - resume_invocation: 00000000-0000-4000-8000-000000000000
    signal_payload: {}
    expected: {outcome: errored, error: {category: suspension_record_invalid}}
invariants: {resume_covers_completed_and_never_existed_cases: true}
"""

GOOD = {
    "gate": GATE,
    "merged": MERGED,
    "kept": KEPT,
    "refused": REFUSED,
    "completed": COMPLETED,
}


@pytest.mark.parametrize("name", GOOD)
async def test_suspensions_that_hold_pass(name: str, tmp_path: Path) -> None:
    assert (await report_of(GOOD[name], tmp_path)).problems == []


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("gate", "outcome: suspended", "outcome: completed"),
        ("gate", "outcome: suspended", "outcome: errored"),
        ("gate", "outcome: suspended", "outcome: hovercraft"),
        ("gate", "suspended_state: {approved: false", "suspended_state: {approved: true"),
        ("gate", "descriptor: {signal_id: sig, metadata: {k", "descriptor: {signal_id: other, metadata: {k"),
        ("gate", "level: 2}}\n      suspending", "level: 3}}\n      suspending"),
        ("gate", "kind: approval, level: 2}}\n      suspending", "kind: approval}}\n      suspending"),
        ("gate", "suspending_node: gate", "suspending_node: before"),
        ("gate", "execution_order: [before, gate]", "execution_order: [before]"),
        ("gate", "execution_order: [after]", "execution_order: [before, gate, after]"),
        ("gate", "middleware_log_captured: [in]", "middleware_log_captured: [in, out]"),
        ("gate", "middleware_log_captured: [later]", "middleware_log_captured: [in]"),
        ("gate", "phase: suspended", "phase: completed"),
        ("gate", "metadata_includes: {level: 2}", "metadata_includes: {level: 3}"),
        ("gate", "metadata_includes: {level: 2}", "metadata: {level: 2}"),
        ("gate", "descriptor: null", "descriptor: {signal_id: sig}"),
        ("gate", "for_suspending_node: true", "for_suspending_node: false"),
        ("gate", "carries_descriptor: true", "carries_descriptor: false"),
        ("gate", "in_order: true", "in_order: false"),
        ("gate", "final_state: {approved: true, log: [b]", "final_state: {approved: true, log: [a, b]"),
        ("gate", "step: 2", "step: 0"),
        ("gate", "error: {category: suspension_record_invalid}", "error: {category: node_exception}"),
        ("gate", "<from first suspended outcome>", "<from nobody suspended outcome>"),
        ("gate", "<from first suspended outcome>", "<from second suspended outcome>"),
        ("gate", "<from first suspended outcome>", "<hovercraft>"),
        ("gate", "suspended_outcome: true", "suspended_outcome: false"),
        ("gate", "raises_record_invalid: true", "raises_record_invalid: false"),
        ("gate", "block_runs_on_suspending_node: true", "block_runs_on_suspending_node: false"),
        ("gate", "block_skipped_on_suspending_node: true", "block_skipped_on_suspending_node: false"),
        ("gate", "metadata: {kind: approval, level: 2}}\n  after", "hovercraft: 1}\n  after"),
        ("gate", "    suspend_with_descriptor: {signal_id: sig, metadata: {kind: approval, level: 2}}\n", ""),
        ("gate", "      outcome: completed\n", "      hovercraft: completed\n"),
        ("merged", "metadata: {}", "metadata: {a: b}"),
        ("merged", "saved_session_assertions: {state: {log: [a], n: 1}}", "saved_session_assertions: {state: {n: 2}}"),
        ("merged", "saved_session_assertions: {state: {log: [b], n: 2}}", "saved_session_assertions: {state: {n: 1}}"),
        ("merged", "signal_payload: {log: [b]}", "signal_payload: {}"),
        ("merged", "merges_signal_payload: true", "merges_signal_payload: false"),
        ("merged", "after_suspending_node: true", "after_suspending_node: false"),
        ("merged", "field_directly: true", "field_directly: false"),
        ("merged", "signal_merge: true", "signal_merge: false"),
        ("merged", "reducer: append, ", ""),
        ("merged", "suspend_time: true", "suspend_time: false"),
        ("merged", "paused_record: true", "paused_record: false"),
        ("merged", "session_store: in_memory", "session_store: in_memory\nauto_save: false"),
        ("kept", "- {after_node: gate", "- {after_node: b"),
        ("kept", "scratch: 3}}\n      check", "scratch: 9}}\n      check"),
        ("kept", "excludes_fields: [scratch]", "excludes_fields: [log]"),
        ("kept", "scratch: 9}\n      saved", "scratch: 3}\n      saved"),
        ("refused", "record_exists: true", "record_exists: false"),
        ("refused", "record_type: suspended", "record_type: checkpointed"),
        ("refused", "checkpointer: in_memory", ""),
        ("refused", "checkpointer: in_memory", "checkpointer: in_memory\nresume: {from_first_run: true}"),
        ("refused", "category: suspension_resume_payload_invalid", "category: suspension_record_invalid"),
        ("refused", "blocks_resume: true", "blocks_resume: false"),
        ("refused", "signal_payload: {n: no number}", "signal_payload: {n: 5}"),
        ("refused", "backend: true", "backend: false"),
        ("refused", "from_checkpointed: true", "from_checkpointed: false"),
        ("refused", "{paused_invocation", "{hovercraft: 1, paused_invocation"),
        ("completed", "category: suspension_record_invalid", "category: checkpoint_not_found"),
        ("completed", "existed_cases: true", "existed_cases: false"),
        ("completed", "    signal_payload: {n: 3}\n", ""),
        ("completed", "    signal_payload: {}\n", "    initial_state: {}\n"),
    ],
)
async def test_suspensions_that_do_not_hold_fail(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in GOOD[name]
    assert (await report_of(GOOD[name].replace(true, false, 1), tmp_path)).problems
