"""A caller that makes a turn again is killed at any write: the same key finishes it, and the turn is replaced once."""

import pytest

from tenuto.model.run import RunStatus
from tenuto.runtime.runtime import SessionRuntime
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import Moment, Probe, Probed, World, runtime_of
from tests.sampling import ALL, EIGHTH, MATRIX, sample


async def _talked(runtime: SessionRuntime, session: str) -> None:
    await runtime.create("chat", session_id=session)
    await runtime.send(session, "hello")
    await runtime.send(session, "tell me", key="mine")


async def _moments(runtime: SessionRuntime) -> list[Moment]:
    """Make a turn again unbroken, and return the moments of the transactions that takes."""
    await _talked(runtime, "unbroken")
    inner, probe = runtime.store.backend, Probe()
    runtime.store.backend = Probed(inner, probe)
    await runtime.session("unbroken").regenerate(key="again")
    runtime.store.backend = inner
    await _check(runtime, "unbroken")
    return [moment for moment in probe.moments if moment.name.startswith("decide_")]


async def _check(runtime: SessionRuntime, session: str) -> None:
    outcome = await runtime.session(session).regenerate(key="again")
    assert (outcome.status, outcome.text) == ("completed", "re: tell me"), session
    talk = [message["content"] for message in (await runtime.get(session)).messages]
    assert talk == ["hello", "re: hello", "tell me", "re: tell me"], session
    again, replaced, first = await runtime.store.runs.of_session(session)
    assert [each.rolled_back for each in (again, replaced, first)] == [False, True, False], session
    assert (again.run_id, again.status) == (outcome.run_id, RunStatus.COMPLETED)
    mine = await runtime.send(session, "tell me", key="mine")
    assert (mine.run_id, mine.regenerated) == (outcome.run_id, True), session


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_turn_whose_caller_is_killed_as_it_is_made_again_is_replaced_once(
    database: Database, every: int
) -> None:
    async with database.open() as store:
        runtime = await runtime_of(store, World(folder=database.folder))
        for number, moment in enumerate(sample(await _moments(runtime), every, database.name)):
            session = f"s{number}"
            await _talked(runtime, session)
            async with mates(Colleague(database)) as (dying,):
                assert await dying.do("regenerated", session=session, key="again", moment=moment) is None, moment
            await _check(runtime, session)
