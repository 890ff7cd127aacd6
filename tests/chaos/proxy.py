"""A proxy between the processes of a run and a PostgreSQL server, whose connections can be cut and frozen."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit


class Wire:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._ends = (near, far)
        self.flowing = asyncio.Event()
        self.flowing.set()

    def cut(self) -> None:
        """End it at once, on both sides, whatever is under way."""
        self.flowing.set()
        for end in self._ends:
            with suppress(Exception):
                end.transport.abort()


class Proxy:
    """Passes bytes on, as long as nobody cuts or freezes a wire."""

    def __init__(self, upstream: str) -> None:
        self.port = 0
        self._upstream = upstream
        self._wires: set[Wire] = set()

    def pick(self, dice: random.Random) -> list[Wire]:
        """Return a few of the wires."""
        wires = list(self._wires)
        return [wire for wire in wires if dice.random() < 0.12] or wires[:1]

    def cut(self, dice: random.Random) -> bool:
        """Cut some wires; tell whether there were any."""
        wires = self.pick(dice)
        for wire in wires:
            wire.cut()
        return bool(wires)

    async def freeze(self, dice: random.Random, seconds: float, *, for_good: bool) -> bool:
        """Let some wires fall silent for a while, new ones are fine; then they flow again, or are cut."""
        wires = self.pick(dice)
        for wire in wires:
            wire.flowing.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            for wire in wires:
                wire.cut() if for_good else wire.flowing.set()
        return bool(wires)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one connection says, both ways, until one side ends it."""
        wire = None
        try:
            far_reader, far_writer = await _connect(self._upstream)
            wire = Wire(writer, far_writer)
            self._wires.add(wire)
            await asyncio.gather(_pump(reader, far_writer, wire), _pump(far_reader, writer, wire))
        except OSError:
            pass
        finally:
            if wire is not None:
                wire.cut()
                self._wires.discard(wire)
            with suppress(Exception):
                writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, wire: Wire) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            await wire.flowing.wait()
            sink.write(data)
            await sink.drain()
    wire.cut()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    folder = asked.get("host", [""])[0]
    if folder:
        return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{asked.get('port', ['5432'])[0]}")
    return await asyncio.open_connection(parts.hostname or "127.0.0.1", parts.port or 5432)


def through(url: str, port: int, name: str) -> str:
    """Return the address of the same database through the proxy, under a name its server shows."""
    parts = urlsplit(url)
    who = f"{parts.username or 'postgres'}" + (f":{parts.password}" if parts.password else "")
    return f"postgresql://{who}@127.0.0.1:{port}{parts.path}?sslmode=disable&application_name={name}"


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """Open a proxy to a server on a port of its own."""
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for wire in list(proxy._wires):
            wire.cut()
        await server.wait_closed()
