"""Known deviations and restated assertions: each holds where it is said to, and nowhere else."""

from pathlib import Path

import pytest

from tests.conformance.adapter.decisions import Decision
from tests.conformance.selftest.trial import report_of

LINE = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {update: {v: 1}}, b: {update: {v: 2}}}
edges: [{from: a, to: b}, {from: b, to: END}]
initial_state: {}
"""
SPANS_WITHOUT_B = f"""{LINE}
expected:
  span_tree: [{{name: openarmature.invocation, children: [{{name: a}}]}}]
"""
RECOVERED = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {raises: boom}}
edges: [{from: a, to: END}]
initial_state: {}
middleware: {per_node: {a: [{type: error_recovery, partial_update: {v: 9}}]}}
expected:
  final_state: {v: 9}
  expected_observer_event: {node_name: a, post_state: {v: 9}, error_absent: true}
"""
LEFT_OUT = ("case", "span_tree/openarmature.invocation: ['b']", Decision.CHILDREN_MAY_BE_LEFT_OUT)
KEPT = ("case", "expected_observer_event", Decision.RECOVERED_ATTEMPT_KEEPS_ITS_ERROR)


@pytest.mark.parametrize(("text", "pinned"), [(SPANS_WITHOUT_B, LEFT_OUT), (RECOVERED, KEPT)])
async def test_a_deviation_passes_only_where_it_is_known(
    text: str, pinned: tuple[str, str, Decision], tmp_path: Path
) -> None:
    known = await report_of(text, tmp_path, [pinned])
    assert (known.problems, known.deviations) == ([], [pinned])
    elsewhere = await report_of(text, tmp_path)
    assert elsewhere.problems
    assert not elsewhere.deviations


async def test_a_known_deviation_that_does_not_occur_fails(tmp_path: Path) -> None:
    whole = SPANS_WITHOUT_B.replace("{name: a}", "{name: a}, {name: b}")
    assert (await report_of(whole, tmp_path)).problems == []
    (problem,) = (await report_of(whole, tmp_path, [LEFT_OUT])).problems
    assert "deviations" in problem


async def test_a_deviation_at_another_place_fails(tmp_path: Path) -> None:
    moved = (LEFT_OUT[0], LEFT_OUT[1].replace("b", "c"), LEFT_OUT[2])
    assert (await report_of(SPANS_WITHOUT_B, tmp_path, [moved])).problems


RESTATED = f"""{LINE}
expected: {{final_state: {{v: 2}}}}
invariants: {{engine_does_not_see_exception: true}}
"""
ELSEWHERE = """
state: {fields: {v: {type: int, default: 0}}}
entry: a
nodes: {a: {update: {v: 1}}}
edges: [{from: a, to: END}]
invocations:
  - {name: one, initial_state: {}, expected: {final_state: {v: 1}}}
  - {name: two, initial_state: {}, invariants: {engine_does_not_see_exception: true}}
"""


async def test_an_invariant_that_restates_needs_its_assertion(tmp_path: Path) -> None:
    assert (await report_of(RESTATED, tmp_path)).problems == []
    without = RESTATED.replace("final_state: {v: 2}", "execution_order: [a, b]")
    (problem,) = (await report_of(without, tmp_path)).problems
    assert "engine_does_not_see_exception" in problem


async def test_an_assertion_of_another_run_restates_nothing(tmp_path: Path) -> None:
    (problem,) = (await report_of(ELSEWHERE, tmp_path)).problems
    assert "engine_does_not_see_exception" in problem
    both = ELSEWHERE.replace("two, initial_state: {},", "two, initial_state: {}, expected: {final_state: {v: 1}},")
    assert (await report_of(both, tmp_path)).problems == []


async def test_an_invariant_of_spans_is_recorded_without_being_asked_for(tmp_path: Path) -> None:
    text = f"{LINE}\ncaller_correlation_id: c-1\ninvariants: {{correlation_id_consistency: c-1}}\n"
    assert (await report_of(text, tmp_path)).problems == []
    assert (await report_of(text.replace("consistency: c-1", "consistency: c-2"), tmp_path)).problems
