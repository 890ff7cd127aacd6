"""A disk that fills up in the middle of a group of commits."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from tenuto import Store, open_store
from tenuto.errors import StoreFull
from tenuto.model.commit import Commit, Receipt
from tenuto.model.session import SessionKey
from tenuto.store.backends.sqlite.backend import SqliteBackend
from tenuto.testing.factories import a_save
from tenuto.testing.sqlite_vfs import FileKind, SimulatedDisk
from tests.crash.turns import a_whole_turn, check_whole

BIG = "x" * 950_000
ROOM = 800_000


async def _as_one_group(store: Store, *commits: Commit) -> list[Receipt | BaseException]:
    """Commit all of them while the writer is held up by another one, so that they wait in its queue together."""
    backend = store.backend
    assert isinstance(backend, SqliteBackend)
    held, gate = Event(), Event()

    def hold(_: str) -> None:
        held.set()
        assert gate.wait(30)

    backend.probe = hold
    first = asyncio.create_task(store.commit(a_save("holds-the-writer", 1)))
    await asyncio.to_thread(held.wait, 30)
    backend.probe = None
    tasks = [asyncio.create_task(store.commit(commit)) for commit in commits]
    await asyncio.sleep(0)  # each task runs up to its place in the queue
    gate.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


def _small(*numbers: int) -> list[Commit]:
    return [a_whole_turn(SessionKey(f"small-{number}"), f"small-{number}") for number in numbers]


async def test_in_a_group_only_the_commit_that_has_no_room_is_refused(tmp_path: Path) -> None:
    with SimulatedDisk() as disk:
        async with open_store(f"sqlite:///{tmp_path}/test.db", vfs=disk.name) as store:
            syncs = disk.syncs[FileKind.WAL]
            await _as_one_group(store, *_small(0, 1, 2))
            assert disk.syncs[FileKind.WAL] == syncs + 2, "the three were not one group"

            big = a_save("big", BIG)
            disk.limit = disk.used() + ROOM
            three, four, refused, five, six = await _as_one_group(store, *_small(3, 4), big, *_small(5, 6))
            assert isinstance(refused, StoreFull)
            assert refused.retryable
            for receipt in (three, four, five, six):
                assert isinstance(receipt, Receipt)
                assert not receipt.replayed
            assert await store.head("big") is None

            for number in range(7):
                assert await check_whole(store, SessionKey(f"small-{number}")) == {f"small-{number}"}
            with pytest.raises(StoreFull):
                await store.commit(big)
            await store.commit(a_whole_turn(SessionKey("small-7"), "small-7"))

            disk.limit = None
            assert not (await store.commit(big)).replayed
            assert (await store.commit(big)).replayed
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        assert await store.logs.count("big", "messages") == 1
        assert await check_whole(store, SessionKey("small-7")) == {"small-7"}


async def test_a_new_store_on_a_full_disk_is_refused_as_full(tmp_path: Path) -> None:
    with SimulatedDisk() as disk:
        disk.limit = 20_000
        with pytest.raises(StoreFull):
            await open_store(f"sqlite:///{tmp_path}/test.db", vfs=disk.name)
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        assert await store.list() == ()


async def test_a_store_closes_on_a_full_disk_and_loses_nothing(tmp_path: Path) -> None:
    key = SessionKey("small-0")
    with SimulatedDisk() as disk:
        store = await open_store(f"sqlite:///{tmp_path}/test.db", vfs=disk.name)
        await store.commit(a_whole_turn(key, "small-0"))
        disk.limit = 0
        await store.aclose()
    async with open_store(f"sqlite:///{tmp_path}/test.db") as store:
        assert await check_whole(store, key) == {"small-0"}
