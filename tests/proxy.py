"""A TCP proxy before a PostgreSQL server, whose lines can fall silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Passes bytes on until it is told to freeze: lines there are then stay open and say nothing; new ones are fine."""

    def __init__(self, folder: str) -> None:
        self._socket = f"{folder}/.s.PGSQL.5432"
        self._frozen: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._deaf = False
        self._lines = 0
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres:@127.0.0.1:{port}/postgres"

    @property
    def lines(self) -> int:
        """How many connections were ever made."""
        return self._lines

    def freeze(self, *, deaf: bool = False) -> None:
        """Let nothing more through on the lines there are; `deaf` takes new ones, but never answers them either."""
        self._frozen = set(range(self._lines))
        self._deaf = deaf

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._lines = self._lines, self._lines + 1
        self._writers.append(writer)
        if self._deaf:
            self._frozen.add(number)
        there, back = await asyncio.open_unix_connection(self._socket)
        self._writers.append(back)
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(number, source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if number in self._frozen:
                    continue
                target.write(data)
                await target.drain()
        if number not in self._frozen:
            target.close()


@asynccontextmanager
async def proxy_before(server_url: str) -> AsyncIterator[Proxy]:
    """Run a proxy before a server that listens on a socket in a folder."""
    (folder,) = parse_qs(urlsplit(server_url).query)["host"]
    proxy = Proxy(folder)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
