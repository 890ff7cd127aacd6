"""The adapter's checks of suspensions: pauses that are not expected, and invariants of a file with cases."""

from pathlib import Path

from tests.conformance.selftest.trial import report_of, trial


async def test_a_pause_that_nothing_speaks_of_fails(tmp_path: Path) -> None:
    text = trial("suspension_places/spread").text
    text = text[: text.index("invocations")] + "initial_state: {}\n"
    assert any("is suspended" in problem for problem in (await report_of(text, tmp_path)).problems)


async def test_invariants_of_the_file_are_checked_beside_those_of_its_cases(tmp_path: Path) -> None:
    text = trial("suspension_places/wrong_place").text
    held = await report_of(f"{text}invariants: {{middleware_suspend_raises_unsupported_context: true}}\n", tmp_path)
    assert held.problems == []
    failed = await report_of(f"{text}invariants: {{suspend_returns_suspended_outcome: true}}\n", tmp_path)
    assert len(failed.problems) == 2
