"""One database for one test, on each backend."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from hypothesis import settings

from tenuto import Store, open_store
from tenuto.ids import new_id
from tests.servers import Postgres, running_postgres

pytest.register_assert_rewrite("tenuto.testing.contract")

# The same examples on every run, so that a change is judged by itself; `make soak` looks for new ones.
settings.register_profile("steady", derandomize=True, database=None)
settings.load_profile("steady")


class OurHarness:
    """A harness for one of our own backends."""

    def __init__(self, name: str, address: str, **options: Any) -> None:
        self.name = name
        self.address: str | None = None if name == "memory" else address
        self.options = options
        self._address = address
        self._opened: list[Store] = []

    async def open(self, **options: Any) -> Store:
        store = await open_store(self._address, **self.options, **options)
        self._opened.append(store)
        return store

    async def damage(self, sql: str) -> None:
        if self.name == "sqlite":
            path = self._address.removeprefix("sqlite:///")
            # Through the store's own SQLite: two libraries in one process undo each other's locks.
            file = apsw.Connection(path)
            file.set_busy_timeout(5000)
            try:
                file.execute(sql)
            finally:
                file.close()
        elif self.name == "postgres":
            settings = {"search_path": self.options["schema"]}
            server = await asyncpg.connect(self._address, server_settings=settings)
            try:
                await server.execute(sql)
            finally:
                await server.close()
        else:
            pytest.skip("memory tables cannot be damaged from outside")

    async def close(self) -> None:
        for store in self._opened:
            await store.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OurHarness]:
    name = request.param
    if name == "memory":
        found = OurHarness(name, f"memory://{new_id()}")
    elif name == "sqlite":
        found = OurHarness(name, f"sqlite:///{tmp_path}/test.db")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        found = OurHarness(name, server.url, schema=f"t_{new_id().replace('-', '_')}", pool_size=4)
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
async def store(harness: OurHarness) -> Store:
    return await harness.open()
