"""`memory://`: the SQLite backend on a file that goes with its last store."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto import SessionRuntime, Store, open_store
from tenuto.errors import StoreClosed, StoreMisused
from tenuto.ids import new_id
from tenuto.store.backends.sqlite import memory_file
from tenuto.store.open import memory_store
from tenuto.testing.factories import a_save, a_session
from tests.runtime.talking import echo


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the files of a test are made; none may be left there."""
    monkeypatch.setattr(memory_file, "_SHARED_MEMORY", tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def name() -> str:
    return f"memory://{new_id()}"


async def test_it_opens_reads_back_and_leaves_nothing_when_it_is_closed(folder: Path) -> None:
    async with open_store("memory://") as store:
        key, _ = await a_session(store, None, "a", "b")
        await store.commit(a_save(key, "c"))
        record = await store.load(key)
        assert record is not None
        assert record.state["messages"] == ["a", "b", "c"]
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []
    with pytest.raises(StoreClosed):
        await store.load(key)


async def test_without_a_name_every_store_is_its_own() -> None:
    async with open_store("memory://") as first, open_store("memory://") as second:
        await a_session(first, "s")
        assert not await second.exists("s")


async def test_a_name_is_shared_until_the_last_of_its_stores_is_closed(name: str, folder: Path) -> None:
    first, second = await open_store(name), await open_store(name)
    await a_session(first, "s")
    assert await second.exists("s")
    await first.aclose()
    await first.aclose()
    assert await second.exists("s"), "one is still open"
    await second.aclose()
    assert list(folder.iterdir()) == []
    async with open_store(name) as anew:
        assert not await anew.exists("s")


async def test_a_sibling_keeps_the_file_for_itself_too(folder: Path) -> None:
    store = await open_store("memory://")
    await a_session(store, "s")
    async with await store.sibling() as other:
        await store.aclose()
        assert await other.exists("s")
    assert list(folder.iterdir()) == []


async def test_two_event_loops_in_two_threads_share_a_name(name: str) -> None:
    seen: list[bool] = []

    async def elsewhere() -> None:
        async with open_store(name) as theirs:
            seen.append(await theirs.exists("ours"))
            await a_session(theirs, "theirs")

    async with open_store(name) as ours:
        await a_session(ours, "ours")
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert seen == [True]
        assert await ours.exists("theirs")


async def test_a_view_sees_one_instant_while_others_commit(name: str) -> None:
    async with open_store(name) as store, open_store(name) as other:
        key, _ = await a_session(store, None, "a")
        columns = (key.tenant, str(key.kind), key.session_id)
        async with store.backend.view() as view:
            before = await view.read("session_by_key", *columns)
            await other.commit(a_save(key, "b"))
            await store.commit(a_save(key, "c"))
            assert await view.read("session_by_key", *columns) == before
        assert await store.logs.count(key, "messages") == 3


def test_a_store_made_outside_a_loop_belongs_to_the_first_that_uses_it() -> None:
    store = memory_store()

    async def use() -> bool:
        await a_session(store, "s")
        return await store.exists("s")

    async def use_again() -> None:
        with pytest.raises(StoreMisused, match="another event loop"):
            await store.exists("s")
        await store.aclose()  # which its own loop, closed by now, cannot do

    assert asyncio.run(use())
    asyncio.run(use_again())


def test_a_store_that_is_never_used_nor_closed_goes_with_its_last_reference(folder: Path) -> None:
    store: Store | None = memory_store()
    assert len(list(folder.iterdir())) == 1
    del store
    gc.collect()
    assert list(folder.iterdir()) == []


async def test_a_runtime_without_a_store_keeps_its_sessions_in_one() -> None:
    async with SessionRuntime(programs=[echo]) as runtime:
        await runtime.create(echo, session_id="s")
        assert [each.session_id for each in await runtime.store.list()] == ["s"]


def _script(text: str, folder: Path) -> str:
    path = os.pathsep.join(sys.path)
    begin = f"""
import asyncio, os, pathlib
from tenuto import open_store
from tenuto.errors import StoreMisused
from tenuto.store.backends.sqlite import memory_file
memory_file._SHARED_MEMORY = pathlib.Path({str(folder)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", begin + text],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FORK = """
async def in_child(store):
    words = []
    try:
        await store.exists("s")
    except StoreMisused:
        words.append("inherited")
    try:
        await open_store("memory://shared")
    except StoreMisused:
        words.append("named")
    async with open_store("memory://other") as own:
        await own.create("own")
        words.append("own")
    await store.aclose()
    print(*words, flush=True)

async def main():
    store = await open_store("memory://shared")
    await store.create("s")
    child = os.fork()
    if not child:
        asyncio.run(in_child(store))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert await store.exists("s"), "the parent's file is still there"
    await store.aclose()
    print("unharmed")

asyncio.run(main())
"""


async def test_it_is_refused_in_a_forked_child_and_the_parent_is_unharmed(folder: Path) -> None:
    told = await asyncio.to_thread(_script, FORK, folder)
    assert told.split() == ["inherited", "named", "own", "unharmed"]


UNCLOSED = """
from tenuto.store.open import memory_store

store = memory_store()
asyncio.run(store.create("s"))
assert len(os.listdir(memory_file._SHARED_MEMORY)) == 1
"""


async def test_a_store_that_was_never_closed_leaves_nothing_at_the_interpreters_end(folder: Path) -> None:
    await asyncio.to_thread(_script, UNCLOSED, folder)
    assert list(folder.iterdir()) == []


async def test_what_a_killed_process_left_goes_once_it_is_old_enough(folder: Path) -> None:
    killed = UNCLOSED + "os._exit(0)"
    await asyncio.to_thread(_script, killed, folder)
    (left,) = folder.iterdir()
    async with open_store("memory://"):
        assert left.exists(), "its maker may be about to lock it"
    os.utime(left, (0, 0))
    async with open_store("memory://"):
        assert not left.exists()
