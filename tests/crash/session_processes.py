"""Other processes that share nothing but the store with each other, and the outside world they all talk to."""

import asyncio
import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.crash.processes import Database
from tests.crash.session_graphs import Plan
from tests.crash.session_workers import work

_PATIENCE = 60.0

# Forked from a server that has imported everything and opened nothing, a process is there in no time.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["asyncpg", "tests.crash.session_workers"])


class Mate:
    """A process in a folder of its own that carries out the verbs of `session_workers`."""

    def __init__(self, database: Database, *, keeper: dict[str, float] | None = None, **plan: Any) -> None:
        self._line, theirs = FORKS.Pipe()
        home = tempfile.mkdtemp(prefix="home-", dir=database.folder)
        task = (theirs, home, database.address, database.options, Plan(**plan), keeper)
        self._process = FORKS.Process(target=work, args=task)
        self._process.start()
        theirs.close()

    def order(self, verb: str, plan: dict[str, Any] | None = None, **arguments: Any) -> None:
        """Tell it what to do, and do not wait for it."""
        self._line.send((verb, plan or {}, arguments))

    async def heard(self) -> Any:
        """Wait for what it says next; None if it was killed instead."""
        return await asyncio.to_thread(self._hear)

    async def do(self, verb: str, plan: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """Tell it what to do and return its result; None if it was killed over it."""
        self.order(verb, plan, **arguments)
        return await self.heard()

    def kill(self) -> None:
        """Kill it with SIGKILL; it must not have ended by itself."""
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL

    def stop(self) -> None:
        """Let it stand still, threads and all."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def abandon(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._line.close()

    def _hear(self) -> Any:
        assert self._line.poll(_PATIENCE), "the process says nothing"
        try:
            return self._line.recv()
        except EOFError:
            self._process.join()
            assert self._process.exitcode == -signal.SIGKILL, f"the process ended with {self._process.exitcode}"
            return None


@asynccontextmanager
async def mates(*started: Mate) -> AsyncIterator[tuple[Mate, ...]]:
    """Wait until they are ready, and reap them at the end, whatever happened."""
    try:
        for mate in started:
            assert await mate.heard() == "ready"
        yield started
    finally:
        for mate in started:
            mate.abandon()


class Outside:
    """The outside world: answers requests, remembers them in order, and may keep those it is told to keep waiting."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.port = 0
        self._kept: Callable[[Any], bool] = lambda _: False
        self._refused: Callable[[Any], bool] = lambda _: False
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()

    def keep(self, which: Callable[[Any], bool]) -> None:
        """Let requests like these wait, from now until they are released."""
        self._kept = which
        self._released.clear()

    def refuse(self, which: Callable[[Any], bool]) -> None:
        """Say no to requests like these, and yes to all others."""
        self._refused = which

    def release(self) -> None:
        """Answer those that wait, and let none wait any more."""
        self._kept = lambda _: False
        self._released.set()

    async def asked(self, count: int) -> None:
        """Wait until there were so many requests."""
        async with self._changed, asyncio.timeout(60):
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readline())
        self.requests.append(request)
        waits = self._kept(request)
        async with self._changed:
            self._changed.notify_all()
        if waits:
            await self._released.wait()
        try:
            writer.write(json.dumps("no" if self._refused(request) else "yes").encode() + b"\n")
            await writer.drain()
        except ConnectionError:
            pass  # whoever asked was killed meanwhile
        finally:
            writer.close()


@asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    """Open the outside world on a port of its own."""
    world = Outside()
    server = await asyncio.start_server(world.answer, "127.0.0.1", 0)
    world.port = server.sockets[0].getsockname()[1]
    try:
        yield world
    finally:
        world.release()
        server.close()
        await server.wait_closed()
