"""Notices between processes: sent only while somebody listens, and then soon."""

import asyncio
from itertools import pairwise
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


class _Failing:
    """A listening connection whose driver has lost count of its own state, once it `fails`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.fails = False

    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def execute(self, statement: str) -> None:
        self._check()
        await self._connection.execute(statement)

    def terminate(self) -> None:
        self._connection.terminate()
        self._check()

    def _check(self) -> None:
        if self.fails:
            raise asyncpg.InternalClientError("got result for unknown protocol state 3")


async def test_a_listener_survives_its_driver_and_listens_again(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(notices, "_POLLS_PER_CHECK", 1)
    store = await harness.open()
    key, _ = await a_session(store)
    told: Any = store.backend._notices  # type: ignore[attr-defined]
    opened, ears = told._ear, []

    async def ear() -> _Failing:
        ears.append(_Failing(await opened()))
        return ears[-1]

    monkeypatch.setattr(told, "_ear", ear)
    async with asyncio.timeout(PATIENCE), told.watch(key):
        for count in (1, 2, 3):
            while len(ears) < count:
                await asyncio.sleep(0.01)
            ears[-1].fails = count < 3
        assert await _listens(store)
        assert not told._listener.done()
    assert [record.levelname for record in caplog.records if record.name == "tenuto.store"] == ["WARNING"]


async def test_a_listener_that_cannot_connect_tries_again_ever_more_seldom(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_POLL_SECONDS", 0.0)
    store = await harness.open()
    key, _ = await a_session(store)
    told: Any = store.backend._notices  # type: ignore[attr-defined]
    polls, tries = [0], list[int]()
    wake_all = told._wakeups.wake_all

    def polled() -> None:
        polls[0] += 1
        wake_all()

    async def ear() -> None:
        tries.append(polls[0])
        raise asyncpg.InternalClientError("got result for unknown protocol state 3")

    monkeypatch.setattr(told._wakeups, "wake_all", polled)
    monkeypatch.setattr(told, "_ear", ear)
    async with asyncio.timeout(PATIENCE), told.watch(key):
        while len(tries) < 7:
            await asyncio.sleep(0.01)
    assert [after - before for before, after in pairwise(tries)][:6] == [1, 2, 4, 8, 15, 15]


async def _listens(store: Store) -> bool:
    backend: Any = store.backend
    rows = await backend._pool.fetch(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
    )
    return bool(rows)
