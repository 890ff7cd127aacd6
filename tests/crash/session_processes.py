"""Other processes that share nothing but the store with each other, and the outside world they all talk to."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.crash.processes import ROOT, Database, Worker


class Mate(Worker):
    """A process of `tests.crash.session_workers`, in a folder of its own, that carries out orders."""

    def __init__(
        self, database: Database, *, nursery: bool = False, keeper: dict[str, float] | None = None, **plan: Any
    ) -> None:
        task = {
            "address": database.address,
            "options": database.options,
            "plan": plan,
            "keeper": keeper or {},
            "nursery": nursery,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.crash.session_workers", json.dumps(task)],
            cwd=tempfile.mkdtemp(prefix="home-", dir=database.folder),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._in, self._out, self._err = self._process.stdin, self._process.stdout, self._process.stderr

    def order(self, verb: str, plan: dict[str, Any] | None = None, **arguments: Any) -> None:
        """Tell it what to do, and do not wait for it."""
        self.tell(json.dumps({"verb": verb, "plan": plan or {}, "arguments": arguments}))

    async def heard(self) -> Any:
        """Wait for what it says next, while this process's own loop goes on."""
        return await asyncio.to_thread(self.hear)

    async def do(self, verb: str, plan: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """Tell it what to do and return its result."""
        self.order(verb, plan, **arguments)
        return await self.heard()

    def stop(self) -> None:
        """Let it stand still, threads and all."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        os.kill(self._process.pid, signal.SIGCONT)


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
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()

    def keep(self, which: Callable[[Any], bool]) -> None:
        """Let requests like these wait, from now until they are released."""
        self._kept = which
        self._released.clear()

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
            writer.write(json.dumps("yes").encode() + b"\n")
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
