"""What is SQLite's own."""

import asyncio
from pathlib import Path

from tenuto import open_store
from tenuto.store.backends.sqlite.backend import _READERS, SqliteBackend
from tenuto.testing.factories import a_session


async def test_a_thousand_reads_at_once_share_a_few_connections(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/many.db", synchronous="OFF") as store:
        key, _ = await a_session(store, None, "hello")
        records = await asyncio.gather(*(store.load(key) for _ in range(1000)))
        assert all(record and record.state == {"messages": ["hello"]} for record in records)
        assert isinstance(store.backend, SqliteBackend)
        assert len(store.backend._readers) <= _READERS
