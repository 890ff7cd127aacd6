"""Processes that send to sessions of one store, and the program that answers them."""

import asyncio
import multiprocessing
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tenuto import open_store
from tenuto.errors import TenutoError
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.words import StopKind
from tests.crash.processes import Database
from tests.polling import until

_PATIENCE = 60.0
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["asyncpg", "tests.crash.runtime_programs", "tests.crash.runtime_senders"])


def clerk(folder: Path) -> Program[Any]:
    """Return a program that notes when it begins and ends, and replies once there is a file named `release`."""

    @program(name="clerk")
    async def body(turn: Turn) -> None:
        note(folder, f"begin {turn.text}")
        try:
            await until((folder / "release").exists, seconds=_PATIENCE)
            turn.append(f"re: {turn.text}")
        finally:
            note(folder, f"end {turn.text}")

    return body


def note(folder: Path, line: str) -> None:
    """Note something where all processes do, in order."""
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(notes, f"{line}\n".encode())
    finally:
        os.close(notes)


def notes(folder: Path) -> list[str]:
    """Return what was noted."""
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


async def noted(folder: Path, beginning: str) -> None:
    """Wait until a line that begins like this was noted."""
    await until(lambda: any(line.startswith(beginning) for line in notes(folder)), seconds=_PATIENCE)


class Sender:
    """A process that sends, and tells what came of each message as soon as it has heard."""

    def __init__(self, database: Database) -> None:
        self._line, theirs = _server.Pipe()
        task = (theirs, database.folder, database.address, database.options)
        self._process = _server.Process(target=work, args=task)
        self._process.start()
        theirs.close()

    def order(self, verb: str, **arguments: Any) -> None:
        """Tell it what to do, and do not wait for it."""
        self._line.send((verb, arguments))

    async def heard(self) -> Any:
        """Wait for what it says next."""
        return await asyncio.to_thread(self._hear)

    async def do(self, verb: str, **arguments: Any) -> Any:
        """Tell it what to do and return what it says next."""
        self.order(verb, **arguments)
        return await self.heard()

    def kill(self) -> None:
        """Kill it with SIGKILL; it must not have ended by itself."""
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == -signal.SIGKILL

    def abandon(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._line.close()

    def _hear(self) -> Any:
        assert self._line.poll(_PATIENCE), "the process says nothing"
        return self._line.recv()


@asynccontextmanager
async def senders(database: Database, count: int = 4) -> AsyncIterator[list[Sender]]:
    """Start so many processes, and reap them at the end, whatever happened."""
    started = [Sender(database) for _ in range(count)]
    try:
        for each in started:
            assert await each.heard() == "ready"
        yield started
    finally:
        for each in started:
            each.abandon()


def work(line: Connection, folder: Path, address: str, options: dict[str, Any]) -> None:
    """Be a process that carries out orders until the line is closed."""
    warnings.simplefilter("error")
    asyncio.run(_serve(line, folder, address, options))


async def _serve(line: Connection, folder: Path, address: str, options: dict[str, Any]) -> None:
    async with open_store(address, **options) as store, SessionRuntime(store, [clerk(folder)]) as runtime:
        line.send("ready")
        under_way: set[asyncio.Task[None]] = set()
        while True:
            try:
                verb, arguments = await asyncio.to_thread(line.recv)
            except EOFError:
                return
            order = asyncio.create_task(VERBS[verb](runtime, line, **arguments))
            under_way.add(order)
            order.add_done_callback(under_way.discard)


async def send(runtime: SessionRuntime, line: Connection, session: str, texts: list[str], **options: Any) -> None:
    """Send messages at once, and tell of each what came of it."""

    async def one(text: str) -> None:
        try:
            outcome = await runtime.send(session, text, **options)
        except TenutoError as error:
            line.send({"text": text, "status": type(error).__name__, "category": error.category})
            return
        told = {"text": text, "status": outcome.status, "reply": outcome.text}
        line.send(told | {"run_id": outcome.run_id, "input_id": outcome.input_id})

    await asyncio.gather(*map(one, texts))


async def enqueue(runtime: SessionRuntime, line: Connection, session: str, count: int) -> None:
    """Queue messages for much later at once, and tell their ids."""
    line.send(
        await asyncio.gather(*(runtime.session(session).enqueue(f"message {n}", delay=3600) for n in range(count)))
    )


async def outcome(runtime: SessionRuntime, line: Connection, input_id: str) -> None:
    """Tell where an input stands."""
    found = await runtime.outcome(input_id)
    line.send([found.status, found.run_id, found.text])


async def stop(runtime: SessionRuntime, line: Connection, session: str, kind: StopKind) -> None:
    """Ask a session's run to stop, and tell the answer."""
    line.send(str((await runtime.session(session).stop(kind=kind, reason="from another process")).answer))


async def drain(runtime: SessionRuntime, line: Connection, concurrency: int) -> None:
    """Do all that is due."""
    await runtime.drain(concurrency)
    line.send("drained")


VERBS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    verb.__name__: verb for verb in (send, enqueue, outcome, stop, drain)
}
