"""Schedules after an outage: by two workers, or by one that is killed at any write, each occurrence is sent once."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto import Store
from tenuto.model.run import RunStatus
from tenuto.model.schedule import Missed, NewSchedule
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.fake_clock import FakeClock
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import Moment, Probe, Probed, World, runtime_of
from tests.sampling import ALL, EIGHTH, MATRIX, sample

DAY = 86_400.0
SENT = {Missed.ALL: 3, Missed.LATEST: 1, Missed.NONE: 0}


async def _scheduled(runtime: SessionRuntime, past: Store, session: str, missed: Missed = Missed.ALL) -> None:
    """Create a session whose schedule, as of three and a half days ago, has missed three occurrences."""
    await runtime.create("chat", session_id=session)
    message = {"role": "user", "content": "report"}
    await past.schedules.declare(
        session, NewSchedule(name="daily", body={"message": message}, every=DAY, missed=missed)
    )


async def _moments(runtime: SessionRuntime, past: Store) -> list[Moment]:
    """Fire a schedule and answer its messages unbroken, and return the moments of the transactions that takes."""
    await _scheduled(runtime, past, "unbroken")
    inner, probe = runtime.store.backend, Probe()
    runtime.store.backend = Probed(inner, probe)
    await runtime.drain()
    runtime.store.backend = inner
    await _check(runtime, "unbroken", 3)
    return [moment for moment in probe.moments if moment.name in ("decide_fire", "decide_commit")]


async def _check(runtime: SessionRuntime, session: str, sent: int) -> None:
    """Each message was sent and answered once, and the schedule has moved on."""
    store: Any = runtime.store
    talk = [message["content"] for message in (await runtime.get(session)).messages]
    assert talk == ["report", "re: report"] * sent, session
    runs = await store.runs.of_session(session)
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * sent, session
    (schedule,) = await store.schedules.of_session(session)
    assert schedule.next_at > await store.moment()
    assert (schedule.fired_at is None) == (sent == 0)
    messages = (await runtime.get(session)).messages
    about: Any = [each["metadata"]["schedule"] for each in messages if each["role"] == "user"]
    assert [each["at"] for each in about] == sorted({each["at"] for each in about}), session


def _past() -> FakeClock:
    return FakeClock(datetime.now(UTC) - timedelta(days=3.5))


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_schedule_whose_worker_is_killed_at_any_write_is_sent_once(database: Database, every: int) -> None:
    async with database.open() as store, database.open(clock=_past()) as past:
        runtime = await runtime_of(store, World(folder=database.folder))
        for number, moment in enumerate(sample(await _moments(runtime, past), every, database.name)):
            session = f"s{number}"
            await _scheduled(runtime, past, session)
            async with mates(Colleague(database)) as (dying,):
                assert await dying.do("drained", moment=moment) is None, moment
            await runtime.drain()
            await _check(runtime, session, 3)


@MATRIX
async def test_what_two_workers_fire_at_once_is_sent_once(database: Database) -> None:
    async with database.open() as store, database.open(clock=_past()) as past:
        runtime = await runtime_of(store, World(folder=database.folder))
        sessions = {f"{missed}{n}": missed for n in range(3) for missed in Missed}
        for session, missed in sessions.items():
            await _scheduled(runtime, past, session, missed)
        async with mates(Colleague(database), Colleague(database)) as workers:
            await asyncio.gather(*(worker.do("drain") for worker in workers))
        await runtime.drain()
        for session, missed in sessions.items():
            await _check(runtime, session, SENT[missed])
