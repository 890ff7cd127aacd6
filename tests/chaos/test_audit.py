"""The audit finds each of five bugs, and nothing where there is none."""

from pathlib import Path

import pytest

from tests.chaos.bugs import BUGS
from tests.chaos.plan import Plan
from tests.chaos.run import run
from tests.chaos.scripted import play

FOUND_AS = {
    "dropped guard": {"order"},
    "skipped receipt check": {"once"},
    "lost outbox row": {"left open"},
    "doubled usage row": {"usage"},
    "reordered inbox": {"order"},
}
"""The laws that each bug breaks, one of which the audit has to name."""


async def test_a_history_without_a_bug_breaks_no_law(tmp_path: Path) -> None:
    assert await play(tmp_path, None) == []


@pytest.mark.parametrize("bug", BUGS)
async def test_the_audit_finds_a_bug_in_a_small_history(tmp_path: Path, bug: str) -> None:
    assert FOUND_AS[bug] & {violation.law for violation in await play(tmp_path, bug)}


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS)
async def test_the_audit_finds_a_bug_under_chaos_within_three_minutes(bug: str) -> None:
    result = await run(Plan(seconds=60, store="sqlite", seed=5, bug=bug))
    assert FOUND_AS[bug] & {violation.law for violation in result.violations}
