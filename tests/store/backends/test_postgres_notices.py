"""Notices between processes: sent only while somebody listens, and then soon."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tenuto.model.event import NewEvent
from tenuto.store.backends.postgres import notify as notices
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_session
from tests.conftest import OurHarness

pytestmark = pytest.mark.parametrize("harness", ["postgres"], indirect=True)

PATIENCE = 10.0


async def _tell(store: Store, key: Any, *types: str) -> None:
    for each in types:
        await store.commit(a_commit(key, events=(NewEvent(type=each),)))


async def test_a_reader_elsewhere_is_woken_by_notices_without_polling(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_POLL_SECONDS", 600.0)
    here, elsewhere = await harness.open(), await harness.open()
    key, _ = await a_session(here)
    seen: list[str] = []

    async def read() -> None:
        async for page in elsewhere.events.subscribe(key):
            seen.extend(event.type for event in page.events)
            if "last" in seen:
                return

    reading = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE):
        while not await _listens(here):
            await asyncio.sleep(0.01)
        await _tell(here, key, "first")
        while "first" not in seen:
            await asyncio.sleep(0.01)
        await _tell(here, key, "second", "last")
        await reading
    assert seen == ["first", "second", "last"]


async def test_nothing_is_sent_while_nobody_listens(harness: OurHarness) -> None:
    store = await harness.open()
    key, _ = await a_session(store)
    backend: Any = store.backend
    heard: list[str] = []
    ear = await asyncpg.connect(backend._url)
    try:
        await ear.add_listener(backend._notices._channel, lambda *told: heard.append(told[-1]))
        await _tell(store, key, "unheard")
        await backend._notices._sender
        await ear.execute(notices._LISTENING, backend._notices._channel)
        await _tell(store, key, "heard")
        await backend._notices._sender
        async with asyncio.timeout(PATIENCE):
            while not heard:
                await ear.execute("SELECT 1")
    finally:
        await ear.close()
    assert len(heard) == 1


async def _listens(store: Store) -> bool:
    backend: Any = store.backend
    rows = await backend._pool.fetch(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
    )
    return bool(rows)
