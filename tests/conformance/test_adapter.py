"""The adapter itself: it must not pass what is wrong, nor skip what it does not know."""

from pathlib import Path

import pytest
import yaml

from tests.conformance.loader import Fixture, conformance_root
from tests.conformance.running import Report, run_fixture

GOOD = """
state:
  fields:
    v: {type: int, default: 0}
    log: {type: list<string>, reducer: append, default: []}
entry: a
nodes:
  a: {update: {v: 1, log: [a]}}
  b: {update_from_field: {v: v, multiplier: 5}}
edges:
  - {from: a, to: b}
  - {from: b, to: END}
observers:
  - {name: obs, attach: graph, target: outer, behavior: record}
expected:
  final_state: {v: 5, log: [a]}
  execution_order: [a, b]
  observer_events:
    obs:
      - {step: 0, phase: started, node_name: a}
      - {step: 0, phase: completed, node_name: a, post_state: {v: 1, log: [a]}}
      - {step: 1, phase: started, node_name: b}
      - {step: 1, phase: completed, node_name: b}
  observer_event_invariants: {a_node_events_count: 2}
"""


async def report_of(text: str, folder: Path) -> Report:
    path = folder / "fixture.yaml"
    path.write_text(text)
    return await run_fixture(Fixture(path=path))


async def test_what_holds_passes(tmp_path: Path) -> None:
    report = await report_of(GOOD, tmp_path)
    assert report.problems == []
    assert report.pending == []


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("final_state: {v: 5, log: [a]}", "final_state: {v: 6, log: [a]}"),
        ("final_state: {v: 5, log: [a]}", "final_state: {v: 5}"),
        ("execution_order: [a, b]", "execution_order: [a]"),
        ("- {step: 1, phase: completed, node_name: b}", "- {step: 2, phase: completed, node_name: b}"),
        ("      - {step: 1, phase: completed, node_name: b}\n", ""),
        ("post_state: {v: 1, log: [a]}", "post_state: {v: 1}"),
        ("node_name: a}\n", "node_name: a, error: node_exception}\n"),
        ("a_node_events_count: 2", "a_node_events_count: 3"),
        ("expected:", "expected_error: {category: node_exception}\nexpected:"),
        ("expected:", "expected_compile_error: dangling_edge\nexpected:"),
        ("expected:", "expected_compile_warning: [projection_reducer_round_trip]\nexpected:"),
        ("a: {update: {v: 1, log: [a]}}", "a: {raises: boom}"),
        ("expected:", "expected:\n  invariants: {drain_waited_for_all_events: true}"),
        ("expected:", "expected:\n  no_propagated_error: false"),
    ],
)
async def test_what_does_not_hold_fails(true: str, false: str, tmp_path: Path) -> None:
    assert true in GOOD
    assert (await report_of(GOOD.replace(true, false, 1), tmp_path)).problems


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("entry: a", "entry: a\nhovercraft: 1"),
        ("{type: int, default: 0}", "{type: int, default: 0, hovercraft: 1}"),
        ("reducer: append", "reducer: hovercraft"),
        ("a: {update: {v: 1, log: [a]}}", "a: {hovercraft: 1}"),
        ("{from: a, to: b}", "{from: a, to: b, hovercraft: 1}"),
        ("behavior: record", "behavior: hovercraft"),
        ("execution_order: [a, b]", "hovercraft: [a, b]"),
        ("- {step: 0, phase: started, node_name: a}", "- {hovercraft: 0}"),
        ("a_node_events_count: 2", "hovercraft: 2"),
        ("a_node_events_count: 2", "hovercraft_node_events_count: 2"),
        ("expected:", "expected_error: {hovercraft: 1}\nexpected:"),
        ("observers:", "middleware: {per_node: {a: [{type: hovercraft}]}}\nobservers:"),
    ],
)
async def test_a_name_that_is_not_known_fails(known: str, unknown: str, tmp_path: Path) -> None:
    assert known in GOOD
    report = await report_of(GOOD.replace(known, unknown, 1), tmp_path)
    assert any("hovercraft" in problem for problem in report.problems)


async def test_what_the_engine_cannot_do_yet_is_told_and_not_passed(tmp_path: Path) -> None:
    report = await report_of(GOOD + "checkpointer: in_memory\n", tmp_path)
    assert report.pending == ["case: needs checkpointer: the engine has no checkpoints, resume or state migrations yet"]


async def test_what_is_not_yaml_fails(tmp_path: Path) -> None:
    assert (await report_of("a: [", tmp_path)).problems


def test_the_place_of_the_fixtures_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path))
    assert conformance_root() == tmp_path
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path / "nowhere"))
    assert conformance_root() is None


def test_the_good_fixture_is_read_in_order() -> None:
    assert list(yaml.safe_load(GOOD)["nodes"]) == ["a", "b"]
