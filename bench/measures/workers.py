"""Worker processes that share a PostgreSQL server: what more of them are good for."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.servers import running_postgres

from bench.harness import Measure, Scene, Stopwatch, wall
from bench.worker import sleeps
from bench.workload import a_key, message
from tenuto import open_store
from tenuto.session.runtime import SessionRuntime

_WORKERS = 4
_SESSIONS = 256
_TURNS_EACH = 16
_EDGE = _SESSIONS * _TURNS_EACH // 8
"""The turns at the beginning and at the end that are not timed: there, not every worker has its hands full."""

_ROUNDS = 7


async def four(scene: Scene) -> float:
    """Return the time of a turn with four workers as a part of that with one, each with eight sessions at once."""
    with running_postgres() as server:
        async with open_store(server.url) as store, _workers(server.url) as workers:
            runtime = SessionRuntime(store, [sleeps])

            async def one() -> float:
                return await _drained(runtime, workers[:1])

            async def all_of_them() -> float:
                return await _drained(runtime, workers)

            return await scene.ratio(all_of_them, one, rounds=_ROUNDS)


async def _drained(runtime: SessionRuntime, workers: "Sequence[_Worker]") -> float:
    """Let workers do what is queued in fresh sessions, and return the seconds of a turn while all are at work."""
    await asyncio.gather(*(_queued(runtime) for _ in range(_SESSIONS)))
    left = asyncio.Semaphore(0)
    heard = [asyncio.create_task(worker.count(left)) for worker in workers]
    for worker in workers:
        worker.tell("go")
    await _done(left, _EDGE)
    timed = _SESSIONS * _TURNS_EACH - 2 * _EDGE
    with Stopwatch(wall) as watch:
        await _done(left, timed)
    await _done(left, _EDGE)
    for worker, task in zip(workers, heard, strict=True):
        task.cancel()
        worker.tell("halt")
    return watch.seconds / timed


async def _done(left: asyncio.Semaphore, turns: int) -> None:
    """Wait until so many more turns are done."""
    for _ in range(turns):
        await left.acquire()


async def _queued(runtime: SessionRuntime) -> None:
    session_id = a_key().session_id
    await runtime.create(sleeps.name, session_id=session_id)
    for _ in range(_TURNS_EACH):
        await runtime.enqueue(session_id, message("user"))


class _Worker:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def tell(self, word: str) -> None:
        self._in.write(f"{word}\n".encode())

    async def count(self, turns: asyncio.Semaphore) -> None:
        """Count its turns as they are done."""
        while dots := await self._out.read(4096):
            for _ in dots:
                turns.release()


@asynccontextmanager
async def _workers(url: str) -> AsyncIterator[list[_Worker]]:
    """Start workers, and see to their end."""
    command = (sys.executable, "-m", "bench.worker", url)
    started = [await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE) for _ in range(_WORKERS)]
    try:
        yield [_Worker(process) for process in started]
    finally:
        for process in started:
            process.kill()
            await process.wait()


MEASURES = (Measure(name="four workers against one, PostgreSQL: time per turn", unit="x", bar=0.333, run=four),)
