"""The adapter must not pass what is wrong: every trial holds, and fails after each of its changes."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trial import Trial, all_trials, report_of

TRIALS = all_trials()


@pytest.mark.parametrize("trial", [pytest.param(each, id=each.name) for each in TRIALS])
async def test_what_holds_passes(trial: Trial, tmp_path: Path) -> None:
    report = await report_of(trial.text, tmp_path)
    assert report.problems == []
    assert report.pending == []


@pytest.mark.parametrize(
    ("trial", "true", "false"),
    [pytest.param(each, *change, id=f"{each.name}-{at}") for each in TRIALS for at, change in enumerate(each.fails)],
)
async def test_what_does_not_hold_fails(trial: Trial, true: str, false: str, tmp_path: Path) -> None:
    assert (await report_of(trial.changed(true, false), tmp_path)).problems


@pytest.mark.parametrize(
    ("trial", "known", "unknown"), [(each, *change) for each in TRIALS for change in each.names_the_unknown]
)
async def test_a_name_that_is_not_known_fails(trial: Trial, known: str, unknown: str, tmp_path: Path) -> None:
    report = await report_of(trial.changed(known, unknown), tmp_path)
    assert any("hovercraft" in problem for problem in report.problems)
