"""A queue whose worker is killed before, inside and after each call to its store: every message is answered once."""

import pytest

from tenuto import Store
from tenuto.model.run import RunStatus
from tenuto.runtime.runtime import SessionRuntime
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import Moment, Probe, Probed, World, runtime_of
from tests.runtime.seams import advance
from tests.sampling import ALL, EIGHTH, MATRIX, sample

SAID = ("one", "two", "three")
COMMIT = "decide_commit"


async def _queued(runtime: SessionRuntime, session: str) -> list[str]:
    await runtime.create("chat", session_id=session)
    return [await runtime.session(session).enqueue(text) for text in SAID]


async def _moments(runtime: SessionRuntime) -> list[Moment]:
    """Drain a queue unbroken, and return the moments of the calls that takes."""
    await _queued(runtime, "unbroken")
    inner, probe = runtime.store.backend, Probe()
    runtime.store.backend = Probed(inner, probe)
    await advance(runtime, "unbroken")
    runtime.store.backend = inner
    assert probe.trace.count(COMMIT) == 1 + len(SAID)  # each turn begins in the commit that ends the one before it
    return probe.moments


async def _check(runtime: SessionRuntime, store: Store, session: str, ids: list[str]) -> None:
    """Every message was answered once, in order, and nothing is left behind."""
    talk = [message["content"] for message in (await runtime.get(session)).messages]
    assert talk == [text for said in SAID for text in (said, f"re: {said}")], session
    runs = await store.runs.of_session(session)
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * len(SAID), session
    assert sum(run.attempt - 1 for run in runs) <= 1, session
    outcomes = [await runtime.outcome(each) for each in ids]
    assert [(each.status, each.text) for each in outcomes] == [("completed", f"re: {said}") for said in SAID]
    assert not await store.inbox.list(session)
    frames = [frame async for frame in runtime.session(session).events(live=False)]
    assert [frame.run_id for frame in frames if frame.is_end] == [run.run_id for run in reversed(runs)], session


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_queue_whose_worker_is_killed_at_any_call_is_drained_by_the_next_one(
    database: Database, every: int
) -> None:
    async with database.open() as store:
        runtime = await runtime_of(store, World(folder=database.folder))
        for number, moment in enumerate(sample(await _moments(runtime), every, database.name)):
            session = f"s{number}"
            ids = await _queued(runtime, session)
            async with mates(Colleague(database)) as (dying,):
                assert await dying.do("recovered", session=session, moment=moment) is None, moment
            await runtime.drain()
            await _check(runtime, store, session, ids)
