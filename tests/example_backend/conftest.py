"""The harness of the example backend, as an author of a backend would write it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenuto import Store
from tenuto.testing.harness import Capability
from tests.example_backend.small_backend import Database, SmallBackend


class SmallHarness:
    """One empty file for one test."""

    name = "small"
    address = None
    options: dict[str, Any] = {}
    capabilities = frozenset(Capability) - {Capability.VACUUM}

    def __init__(self, path: Path) -> None:
        self._database = Database(str(path))
        self._opened: list[Store] = []

    async def open(self, **options: Any) -> Store:
        store = Store(SmallBackend(self._database), **options)
        self._opened.append(store)
        return store

    async def damage(self, sql: str) -> None:
        connection = apsw.Connection(self._database.path)
        connection.execute(sql)
        connection.close()

    async def refuse_inserts(self, table: str) -> None:
        await self.damage(f"CREATE TRIGGER broken AFTER INSERT ON {table} BEGIN SELECT RAISE(FAIL, 'injected'); END")

    async def accept_inserts(self, table: str) -> None:
        await self.damage(f"DROP TRIGGER broken -- on {table}")

    async def close(self) -> None:
        for store in self._opened:
            await store.aclose()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SmallHarness]:
    made = SmallHarness(tmp_path / "small.db")
    yield made
    await made.close()


@pytest.fixture
async def store(harness: SmallHarness) -> Store:
    return await harness.open()
