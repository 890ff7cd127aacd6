"""Suspended sessions: nothing waits in memory for any of them, and a fresh process goes on with all."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tenuto import Store
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.runtime import SessionRuntime
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import World, runtime_of

AT_ONCE = 50


class Held(NamedTuple):
    """What this process holds: tasks, threads, and open files and sockets, its connections among them."""

    tasks: int
    threads: int
    descriptors: int

    @classmethod
    async def now(cls) -> "Held":
        """Look once what is passing, such as a wake-up for others on its way, is over."""
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        descriptors = list(Path("/proc/self/fd").iterdir())
        return cls(len(asyncio.all_tasks()), threading.active_count(), len(descriptors))


async def _suspend(runtime: SessionRuntime, sessions: Sequence[str]) -> None:
    async def one(session: str) -> None:
        await runtime.create("waiter", session_id=session)
        outcome = await runtime.send(session, "wait")
        assert (outcome.status, len(outcome.waits)) == ("suspended", 1)

    for begins in range(0, len(sessions), AT_ONCE):
        await asyncio.gather(*(one(session) for session in sessions[begins : begins + AT_ONCE]))


async def _statuses(store: Store, sessions: Sequence[str]) -> set[RunStatus]:
    runs = [await store.runs.current(SessionKey(session)) for session in sessions]
    return {run.status for run in runs if run is not None}


@pytest.mark.parametrize(
    "count", [200, pytest.param(1000, marks=[pytest.mark.wide, pytest.mark.long("a thousand turns")])]
)
async def test_suspended_sessions_hold_no_task_thread_or_connection_and_a_fresh_process_resumes_them(
    database: Database, count: int
) -> None:
    sessions = [f"session {number}" for number in range(count)]
    async with database.open() as store:
        runtime = await runtime_of(store, World(folder=database.folder))
        await _suspend(runtime, sessions[:AT_ONCE])  # pools are full from here on
        before = await Held.now()
        await _suspend(runtime, sessions[AT_ONCE:])
        after = await Held.now()
        assert after.tasks == before.tasks == 1
        # A pool may still open a reader or two under load; what counts is that nothing grows with the sessions.
        assert after.threads <= before.threads + 4
        assert after.descriptors <= before.descriptors + 8
        assert await _statuses(store, sessions) == {RunStatus.SUSPENDED}
    async with mates(Colleague(database)) as (fresh,):
        assert await fresh.do("answer_all", sessions=sessions) == count
    async with database.open() as store:
        assert await _statuses(store, sessions) == {RunStatus.COMPLETED}
        for session in sessions[:: count // 10]:
            record = await store.load(session)
            assert record is not None
            assert record.state["messages"][-1]["content"] == f"word for {session}"
