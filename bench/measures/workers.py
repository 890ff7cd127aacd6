"""Worker processes that share a PostgreSQL server: what a turn costs with more of them, and how often they meet."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.servers import running_postgres

from bench.harness import Measure, Scene
from bench.worker import sleeps
from bench.workload import a_key, message
from tenuto.runtime.runtime import SessionRuntime

_WORKERS = 4
_SESSIONS = 256
_TURNS_EACH = 16
_TURNS = _SESSIONS * _TURNS_EACH
_EDGE = _TURNS // 8
"""The turns at the beginning and at the end that are not timed: there, not every worker has its hands full."""

_ROUNDS = 5
_TELL_OF_WAITS = ("log_lock_waits = on", "deadlock_timeout = 10ms")
_WAITED = "still waiting for"


async def processor(scene: Scene) -> float:
    """Return the CPU time of a turn, workers and server, with four workers against with one."""
    with running_postgres() as server:
        async with SessionRuntime(server.url, [sleeps]) as runtime, _workers(server.url) as workers:
            spent = _cpu_of(server.pid, *(worker.pid for worker in workers))

            async def one() -> float:
                return await _drained(runtime, workers[:1], spent)

            async def all_of_them() -> float:
                return await _drained(runtime, workers, spent)

            return await scene.ratio(all_of_them, one, rounds=_ROUNDS)


async def meetings(scene: Scene) -> float:
    """Return how often, in 1,000 turns of four workers, one waits 10 ms for a lock or gets a contention error."""
    with running_postgres(settings=_TELL_OF_WAITS) as server:
        async with SessionRuntime(server.url, [sleeps]) as runtime, _workers(server.url) as workers:
            await _drained(runtime, workers, lambda: 0.0)
            waited = _waits(server.log)
            await _drained(runtime, workers, lambda: 0.0)
            contended = sum(worker.contended for worker in workers)
            scene.note(f"{_waits(server.log) - waited} lock waits, {contended} refusals in {_TURNS:,} turns")
            return (_waits(server.log) - waited + contended) * 1000 / _TURNS


def _waits(log: Path) -> int:
    return log.read_text(errors="replace").count(_WAITED)


def _cpu_of(server: int, *workers: int) -> Callable[[], float]:
    """Return a clock of the CPU seconds of workers and of the server, its children that ended included."""
    postmaster, processes = psutil.Process(server), [psutil.Process(pid) for pid in workers]

    def spent() -> float:
        own = postmaster.cpu_times()
        ended = own.user + own.system + own.children_user + own.children_system
        alive = [child.cpu_times() for child in (*postmaster.children(), *processes)]
        return ended + sum(times.user + times.system for times in alive)

    return spent


async def _drained(runtime: SessionRuntime, workers: "Sequence[_Worker]", clock: Callable[[], float]) -> float:
    """Let workers do what is queued in fresh sessions, and return the seconds of a turn while all are at work."""
    await asyncio.gather(*(_queued(runtime) for _ in range(_SESSIONS)))
    left = asyncio.Semaphore(0)
    heard = [asyncio.create_task(worker.count(left)) for worker in workers]
    for worker in workers:
        worker.tell("go")
    await _done(left, _EDGE)
    timed, began = _TURNS - 2 * _EDGE, clock()
    await _done(left, timed)
    spent = clock() - began
    await _done(left, _EDGE)
    for worker, task in zip(workers, heard, strict=True):
        task.cancel()
        worker.tell("halt")
    return spent / timed


async def _done(left: asyncio.Semaphore, turns: int) -> None:
    """Wait until so many more turns are done."""
    for _ in range(turns):
        await left.acquire()


async def _queued(runtime: SessionRuntime) -> None:
    session_id = a_key().session_id
    await runtime.create(sleeps.name, session_id=session_id)
    for _ in range(_TURNS_EACH):
        said: Any = message("user")
        await runtime.session(session_id).enqueue(said)


class _Worker:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.contended = 0
        self._in, self._out = process.stdin, process.stdout

    def tell(self, word: str) -> None:
        self._in.write(f"{word}\n".encode())

    async def count(self, turns: asyncio.Semaphore) -> None:
        """Count its turns as they are done, and its contention errors."""
        while signs := await self._out.read(4096):
            self.contended += signs.count(b"!")
            for _ in range(signs.count(b".")):
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


MEASURES = (
    Measure(name="four workers against one, PostgreSQL: CPU of a turn", unit="x", run=processor),
    Measure(name="four workers, PostgreSQL: lock waits and contention", unit="per 1,000 turns", run=meetings),
)
