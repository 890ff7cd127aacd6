"""A proxy between the processes of a run and a PostgreSQL server, whose connections can be cut and frozen."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import parse_qs, urlsplit


class End(asyncio.Protocol):
    """One end of a wire: hands over what it hears at once, unless the wire is frozen."""

    def __init__(self, wire: "Wire") -> None:
        self.transport: asyncio.Transport | None = None
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._wire.pass_on(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._wire.cut()


class Wire:
    """One connection through the proxy."""

    def __init__(self, wires: "set[Wire]") -> None:
        self.near, self.far = End(self), End(self)
        self._wires = wires
        self._held: list[tuple[End, bytes]] = []
        self._flows = False
        wires.add(self)

    def pass_on(self, heard: End, data: bytes) -> None:
        """Pass on what one end heard to the other, or keep it until the wire flows."""
        other = self.far if heard is self.near else self.near
        if not self._flows:
            self._held.append((heard, data))
        elif other.transport is not None and not other.transport.is_closing():
            other.transport.write(data)

    def freeze(self) -> None:
        """Let it fall silent."""
        self._flows = False

    def flow(self) -> None:
        """Let it pass on what it kept, and what comes."""
        self._flows, held, self._held = True, self._held, []
        for heard, data in held:
            self.pass_on(heard, data)

    def cut(self) -> None:
        """End it at once, on both sides, whatever is under way."""
        self._wires.discard(self)
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()


class Proxy:
    """Passes bytes on, as long as nobody cuts or freezes a wire."""

    def __init__(self, upstream: str) -> None:
        self.port = 0
        self._upstream = upstream
        self._wires: set[Wire] = set()
        self._reaching: set[asyncio.Future[None]] = set()

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
            wire.freeze()
        try:
            await asyncio.sleep(seconds)
        finally:
            for wire in wires:
                wire.cut() if for_good else wire.flow()
        return bool(wires)

    def accept(self) -> asyncio.Protocol:
        """Begin a wire with a connection that came in; what it says is kept until the server is reached."""
        wire = Wire(self._wires)
        reaching = asyncio.ensure_future(self._reach(wire))
        self._reaching.add(reaching)
        reaching.add_done_callback(self._reaching.discard)
        return wire.near

    async def _reach(self, wire: Wire) -> None:
        try:
            await _connect(self._upstream, wire.far)
            wire.flow()
        except OSError:
            wire.cut()

    def close(self) -> None:
        """Cut every wire."""
        for wire in list(self._wires):
            wire.cut()


async def _connect(url: str, end: End) -> None:
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    asked = parse_qs(parts.query)
    folder = asked.get("host", [""])[0]
    if folder:
        await loop.create_unix_connection(lambda: end, f"{folder}/.s.PGSQL.{asked.get('port', ['5432'])[0]}")
    else:
        await loop.create_connection(lambda: end, parts.hostname or "127.0.0.1", parts.port or 5432)


def through(url: str, port: int) -> str:
    """Return the address of the same database through the proxy."""
    parts = urlsplit(url)
    who = f"{parts.username or 'postgres'}" + (f":{parts.password}" if parts.password else "")
    return f"postgresql://{who}@127.0.0.1:{port}{parts.path}?sslmode=disable"


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """Open a proxy to a server on a port of its own."""
    proxy = Proxy(url)
    server = await asyncio.get_running_loop().create_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.close()
        await server.wait_closed()
