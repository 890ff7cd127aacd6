"""Runs under faults end with every law kept, and with enough having happened."""

from zlib import crc32

import pytest

from tests.chaos.plan import Plan
from tests.chaos.report import lines
from tests.chaos.run import DOES_NOT_COUNT, run
from tests.sampling import seed

STORES = ("sqlite", "postgres")


_TRIES = 2
"""How often a run may be begun on a machine too busy for it to count."""


async def _run(request: pytest.FixtureRequest, store: str, seconds: float) -> None:
    url = request.getfixturevalue("postgres").url if store == "postgres" else None
    for number in range(_TRIES):
        result = await run(Plan(seconds=seconds, store=store, seed=crc32(seed().encode()) + number), url)
        if result.code != DOES_NOT_COUNT:
            break
    assert result.code == 0, "\n".join(lines(result))


@pytest.mark.long("faults need time to happen: fifteen seconds of them, and the drain")
@pytest.mark.parametrize("store", STORES)
async def test_fifteen_seconds_of_faults_break_no_law(request: pytest.FixtureRequest, store: str) -> None:
    await _run(request, store, 15)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("store", STORES)
async def test_half_an_hour_of_faults_breaks_no_law(request: pytest.FixtureRequest, store: str) -> None:
    await _run(request, store, 1800)


def test_the_faults_of_a_seed_are_always_the_same() -> None:
    plan = Plan(seconds=60, store="postgres", seed=7)
    assert list(plan.faults()) == list(plan.faults())
    assert list(plan.faults()) != list(Plan(seconds=60, store="postgres", seed=8).faults())


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("given", range(20))
def test_every_seed_plans_enough_faults_for_a_run_to_count(store: str, given: int) -> None:
    for seconds in (15, 60):
        plan = Plan(seconds=seconds, store=store, seed=given)
        kinds = [fault.kind for fault in plan.faults()]
        assert kinds.count("kill") >= plan.least("kills")
        assert all(kinds.count(kind) >= plan.least("each kind") for kind in set(kinds))
