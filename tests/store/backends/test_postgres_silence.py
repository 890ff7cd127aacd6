"""A server that says nothing any more: everybody hears of it in time, and the next call is fine."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tenuto import SessionRuntime, Store, open_store, program
from tenuto.errors import StoreContended, StoreUnavailable
from tenuto.ids import new_id
from tenuto.model.event import NewEvent
from tenuto.runtime.program.turn import Turn
from tenuto.store.backends.postgres import notify as notices
from tenuto.testing.factories import a_commit, a_session
from tests.proxy import Proxy, proxy_before
from tests.servers import Postgres

SILENCE = 0.4
PATIENCE = 8.0


@pytest.fixture
async def proxy(postgres: Postgres) -> AsyncIterator[Proxy]:
    async with proxy_before(postgres.url) as made:
        yield made


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[Store]:
    schema = f"t_{new_id().replace('-', '_')}"
    async with open_store(proxy.url, schema=schema, pool_size=3, command_timeout=SILENCE, timeout=1.0) as opened:
        yield opened


async def _fails(work: Any) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as failed:
        async with asyncio.timeout(PATIENCE):
            await work
    assert failed.value.retryable
    assert "did not answer within 0.4 s" in str(failed.value)
    assert time.monotonic() - began >= SILENCE
    return failed.value


async def test_a_silent_connection_is_given_up_and_the_next_call_has_a_new_one(store: Store, proxy: Proxy) -> None:
    key, _ = await a_session(store, None, "a")
    await asyncio.gather(*(store.load(key) for _ in range(6)))
    proxy.freeze()
    commit = a_commit(key, events=(NewEvent(type="e"),))
    await _fails(store.commit(commit))
    async with asyncio.timeout(PATIENCE):
        # Once one was found silent, no other call has to find out that the rest are.
        assert await store.exists(key)
        await store.commit(commit)


async def test_no_verb_waits_without_end(store: Store, proxy: Proxy) -> None:
    key, _ = await a_session(store, None, "a")
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: store.list(),
        lambda: store.head(key),
        lambda: store.stamp(key),
        lambda: store.delete(key),
        lambda: store.upkeep.gc(),
    ]
    for verb in verbs:
        proxy.freeze()
        with pytest.raises(Exception, match=r"did not answer within 0\.4 s") as failed:
            async with asyncio.timeout(PATIENCE):
                await verb()
        assert failed.value.retryable  # type: ignore[attr-defined]
        assert await store.moment()


async def test_a_transaction_that_is_cut_off_in_its_middle_does_not_wait_for_its_rollback(
    store: Store, proxy: Proxy
) -> None:
    key, _ = await a_session(store, None, "a")

    async def look_twice() -> None:
        async with store.backend.view() as view:
            await view.read("moment", None)
            proxy.freeze()
            await view.read("moment", None)

    await _fails(look_twice())
    assert await store.exists(key)


async def test_a_server_that_takes_connections_and_says_nothing_is_unavailable_in_time(
    store: Store, proxy: Proxy
) -> None:
    proxy.freeze(deaf=True)
    await _fails(store.moment())
    with pytest.raises(StoreUnavailable, match="did not let us connect within 1 s"):
        async with asyncio.timeout(PATIENCE):
            await store.moment()
    async with asyncio.timeout(PATIENCE):
        await store.aclose()


async def test_closing_a_store_whose_connections_are_silent_ends(store: Store, proxy: Proxy) -> None:
    key, _ = await a_session(store)
    watching = store.backend.watch(key)
    await watching.__aenter__()
    store.backend.announce(key)
    proxy.freeze()
    began = time.monotonic()
    await store.aclose()
    assert time.monotonic() - began < PATIENCE
    await watching.__aexit__(None, None, None)


async def test_when_all_connections_are_in_use_one_hears_so_in_time(store: Store) -> None:
    views = [store.backend.view() for _ in range(3)]
    for view in views:
        await view.__aenter__()
    with pytest.raises(StoreContended, match="pool_size"):
        async with asyncio.timeout(PATIENCE):
            await store.moment()
    for view in views:
        await view.__aexit__(None, None, None)


async def test_a_held_up_event_loop_is_not_taken_for_a_silent_server(store: Store) -> None:
    asking = asyncio.create_task(store.moment())
    await asyncio.sleep(0.02)
    time.sleep(2 * SILENCE)  # noqa: ASYNC251 - as a node does that blocks
    assert await asking
    assert await store.moment()


async def test_a_worker_goes_on_after_its_connections_fell_silent(store: Store, proxy: Proxy) -> None:
    @program
    async def echo(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "ok"})

    async with SessionRuntime(store, [echo]) as runtime:
        await runtime.create("echo", session_id="s")
        worker = runtime.worker(poll=0.05)
        working = asyncio.create_task(worker.work())
        proxy.freeze()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    input_id = await runtime.session("s").enqueue("hello")
                    break
                except StoreUnavailable:
                    continue
            while (await runtime.outcome(input_id)).status != "completed":
                await asyncio.sleep(0.02)
        worker.finish()
        await working


async def test_a_cancelled_call_costs_no_connection(store: Store, proxy: Proxy) -> None:
    await store.moment()
    backend: Any = store.backend
    async with asyncio.timeout(PATIENCE):
        for _ in range(20):
            call = asyncio.create_task(backend._pool.fetch("SELECT pg_sleep(5)"))
            await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while backend._pool._healing:
                await asyncio.sleep(0.005)
        assert await store.moment()
    # Each cancellation asks the server over a line of its own, which ends at once; the connections stay.
    assert len(backend._pool._all) == 1


async def test_the_listening_connection_has_the_options_of_the_others(
    postgres: Postgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_POLL_SECONDS", 600.0)
    given: list[dict[str, Any]] = []
    real = asyncpg.connect

    async def connect(url: str, **options: Any) -> Any:
        given.append(options)
        return await real(url, **options)

    monkeypatch.setattr(asyncpg, "connect", connect)
    bare = proxy.url.replace("postgres:@", "")
    schema = f"t_{new_id().replace('-', '_')}"
    async with open_store(bare, schema=schema, user="postgres", password="hidden") as store:
        key, _ = await a_session(store)
        async with store.backend.watch(key) as changes, asyncio.timeout(PATIENCE):
            while not await store.backend._pool.fetch(  # type: ignore[attr-defined]
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
            ):
                await asyncio.sleep(0.01)
            assert changes
    assert len(given) >= 2
    assert {options["user"] for options in given} == {"postgres"}
    assert {options["server_settings"]["search_path"] for options in given} == {schema}


async def test_a_listener_whose_line_fell_silent_is_replaced(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(notices, "_POLLS_PER_CHECK", 1)
    monkeypatch.setattr(notices, "_ANSWER_SECONDS", 0.2)
    key, _ = await a_session(store)
    async with store.backend.watch(key), asyncio.timeout(PATIENCE):
        before = proxy.lines
        while proxy.lines == before:
            await asyncio.sleep(0.01)
        proxy.freeze()
        lines = proxy.lines
        while proxy.lines == lines:
            await asyncio.sleep(0.01)
