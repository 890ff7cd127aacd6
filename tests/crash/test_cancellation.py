"""Callers that go away, and stores that are closed: at both edges and in the middle."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import asyncpg
import pytest

from tenuto import Store, open_store
from tenuto.errors import StoreClosed
from tenuto.ids import new_id
from tenuto.model.commit import Receipt
from tenuto.model.event import NewEvent
from tenuto.model.session import SessionKey
from tenuto.testing.factories import a_save, a_session, an_owner
from tenuto.testing.harness import Harness
from tenuto.testing.sqlite_vfs import SimulatedDisk
from tests.crash.processes import Database
from tests.crash.turns import a_whole_turn, check_whole
from tests.servers import Postgres

SECONDS = 20


class Held:
    """Holds up whoever comes by in a thread, until it is let go."""

    def __init__(self) -> None:
        self._here, self._go = Event(), Event()

    def __call__(self, _: str) -> None:
        self._here.set()
        assert self._go.wait(SECONDS)

    async def wait(self) -> None:
        """Wait until somebody is held up."""
        assert await asyncio.to_thread(self._here.wait, SECONDS)

    def let_go(self) -> None:
        self._go.set()


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that another process or thread does and does not tell."""
    try:
        async with asyncio.timeout(SECONDS):
            while not await condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"never came true: {what}")


async def test_a_cancelled_open_of_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    """Neither a descriptor nor a lock: the file is closed, and another store opens it and writes."""
    with SimulatedDisk() as disk:
        held = Held()
        disk.on_io = held
        opening = asyncio.ensure_future(_open(f"sqlite:///{tmp_path}/test.db", vfs=disk.name))
        await held.wait()
        await _cancel(opening)
        disk.on_io = None
        held.let_go()

        async def closed() -> bool:
            gc.collect()
            links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
            return not any(link.is_relative_to(tmp_path) for link in links)

        await _until(closed, "the file is closed")
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        await a_session(store)


async def test_a_cancelled_open_of_a_server_leaves_no_connection(postgres: Postgres) -> None:
    name = f"cancelled {new_id()}"
    options = {"schema": f"t_{new_id().replace('-', '_')}", "server_settings": {"application_name": name}}
    cancelled = 0
    for step in range(40):
        opening = asyncio.ensure_future(_open(postgres.url, **options))
        await asyncio.wait({opening}, timeout=step * 0.001)
        if opening.done():
            await opening.result().aclose()
        else:
            await _cancel(opening)
            cancelled += 1
    assert cancelled > 5, "none was cancelled on its way: this showed nothing"
    watcher = await asyncpg.connect(postgres.url)
    try:

        async def gone() -> bool:
            left = await watcher.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name)
            return bool(left == 0)

        await _until(gone, "no connection is left")
    finally:
        await watcher.close()


async def test_a_commit_cancelled_anywhere_is_settled_by_its_repeat(harness: Harness, store: Store) -> None:
    key, _ = await a_session(store, operation_id="create")
    lane = await store.lanes.acquire(key, an_owner(), ttl=600)
    names = []
    for step in range(60):
        commit = a_whole_turn(key, f"turn-{step}", lane=lane)
        task = asyncio.create_task(store.commit(commit))
        if step < 20:
            for _ in range(step):
                await asyncio.sleep(0)
        else:
            await asyncio.wait({task}, timeout=step * 0.00005)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        receipt = await store.commit(commit)
        assert receipt.commit_number == step + 2
        names.append(receipt.operation_id)
    assert await check_whole(store, key) == set(names)


async def test_a_commit_cancelled_in_the_queue_leaves_the_others_alone(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        keys = [SessionKey(f"s{number}") for number in range(5)]
        held = _hold(store)
        first = asyncio.create_task(store.commit(a_whole_turn(keys[0], "s0")))
        await held.wait()
        _release(store)
        queued = [asyncio.create_task(store.commit(a_whole_turn(key, key.session_id))) for key in keys[1:]]
        await asyncio.sleep(0)  # each runs up to its place in the queue
        await _cancel(queued[1])
        held.let_go()
        others = [first, queued[0], queued[2], queued[3]]
        for receipt in await asyncio.gather(*others):
            assert not receipt.replayed
        assert await check_whole(store, keys[2]) <= {"s2"}
        await store.commit(a_whole_turn(keys[2], "s2"))
        for key in keys:
            assert await check_whole(store, key) == {key.session_id}


async def test_a_commit_cancelled_while_it_is_written_is_settled_by_its_repeat(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        key = SessionKey("s")
        commit = a_whole_turn(key, "s-0")
        held = _hold(store)
        task = asyncio.create_task(store.commit(commit))
        await held.wait()
        _release(store)
        await _cancel(task)
        held.let_go()
        assert (await store.commit(commit)).replayed, "what had begun to be written was given up half-way"
        assert await check_whole(store, key) == {"s-0"}


async def test_a_cancelled_read_does_not_make_later_ones_stale(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        key, _ = await a_session(store)
        held = _hold(store)
        reading = asyncio.create_task(store.load(key))
        await held.wait()
        _release(store)
        reading.cancel()
        held.let_go()
        with suppress(asyncio.CancelledError):
            await reading
        for number in range(3):
            await store.commit(a_save(key, number))
            assert await store.logs.count(key, "messages") == number + 1


async def test_reads_cancelled_anywhere_leave_no_trace(harness: Harness, store: Store) -> None:
    key, _ = await a_session(store)
    for number in range(150):
        receipt = await store.commit(a_save(key, "x" * 500, number))
        task = asyncio.create_task(store.load(key))
        await asyncio.wait({task}, timeout=(number % 30) * 0.0001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        head = await store.head(key)
        assert head is not None
        assert head.version == receipt.version, "a read after a cancelled one saw the past"


async def test_closing_twice_and_at_once_is_fine(harness: Harness) -> None:
    store = await harness.open()
    await a_session(store)
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()
    with pytest.raises(StoreClosed):
        await store.list()


async def test_a_closed_store_says_so_whatever_is_asked_of_it(harness: Harness) -> None:
    store = await harness.open()
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await store.aclose()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.create("new"),
        lambda: store.commit(a_save(key, 1)),
        lambda: store.load(key),
        lambda: store.head(key),
        lambda: store.exists(key),
        lambda: store.list(),
        lambda: store.dump(),
        lambda: store.delete(key),
        lambda: store.fork(key, "fork"),
        lambda: store.receipt(key, "x"),
        lambda: store.logs.read(key, "messages"),
        lambda: store.lanes.acquire(key, an_owner()),
        lambda: store.lanes.renew([lane]),
        lambda: store.lanes.disarm(lane),
        lambda: store.lanes.orphans(),
        lambda: store.events.append(lane, [NewEvent(type="x")]),
        lambda: store.events.read(key),
        lambda: anext(store.events.subscribe(key)),
        lambda: store.runs.get("x"),
        lambda: store.waits.get("x"),
        lambda: store.checkpoints.latest(key),
    ]
    for number, call in enumerate(calls):
        try:
            async with asyncio.timeout(SECONDS):
                await call()
        except StoreClosed as error:
            assert not error.retryable
        else:
            pytest.fail(f"call {number} went through on a closed store")


async def test_closing_finishes_what_is_under_way(database: Database) -> None:
    async with database.open() as store:
        names = [f"s{number}" for number in range(40)]
        tasks = [asyncio.create_task(store.commit(a_whole_turn(SessionKey(name), name))) for name in names]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await store.aclose()
        async with asyncio.timeout(SECONDS):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers} <= {Receipt, StoreClosed}, answers
    landed = {answer.operation_id for answer in answers if isinstance(answer, Receipt)}
    async with database.open() as store:
        found = set()
        for name in names:
            found |= await check_whole(store, SessionKey(name))
    assert found == landed


async def test_closing_during_a_read_gives_the_read_or_says_closed(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/test.db")
    key, _ = await a_session(store, None, "one")
    held = _hold(store)
    reading = asyncio.create_task(store.load(key))
    await held.wait()
    _release(store)
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0)
    held.let_go()
    async with asyncio.timeout(SECONDS):
        (answer,) = await asyncio.gather(reading, return_exceptions=True)
        await closing
    assert isinstance(answer, StoreClosed) or getattr(answer, "state", None) == {"messages": ["one"]}, repr(answer)
    assert [path.name for path in tmp_path.iterdir()] == ["test.db"], "a connection was left open"


async def test_closing_ends_those_who_wait_for_events(harness: Harness) -> None:
    store = await harness.open()
    key, _ = await a_session(store)
    waiting = asyncio.ensure_future(anext(store.events.subscribe(key)))
    await asyncio.wait({waiting}, timeout=0.2)  # nothing tells that a reader has come to wait
    await store.aclose()
    ended, _ = await asyncio.wait({waiting}, timeout=3)
    waiting.cancel()
    (answer,) = await asyncio.gather(waiting, return_exceptions=True)
    assert ended, "it waits for ever"
    assert isinstance(answer, StoreClosed | StopAsyncIteration), repr(answer)


def _hold(store: Store) -> Held:
    held = Held()
    store.backend.probe = held  # type: ignore[attr-defined]
    return held


def _release(store: Store) -> None:
    store.backend.probe = None  # type: ignore[attr-defined]


async def _open(address: str, **options: Any) -> Store:
    return await open_store(address, **options)
