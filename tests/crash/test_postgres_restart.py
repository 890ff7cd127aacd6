"""PostgreSQL stopped and started again in the middle of commits."""

import asyncio
from collections.abc import Iterator

import pytest

from tenuto import Store, open_store
from tenuto.errors import StoreContended, StoreUnavailable, TenutoError
from tenuto.model.commit import Commit
from tenuto.model.session import SessionKey
from tests.crash.turns import a_whole_turn, check_whole, numbers_of, this_owner
from tests.servers import Postgres, running_postgres

SESSIONS = 4


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


class Committer:
    """Commits turn after turn, repeating each by its operation id until it has a receipt."""

    def __init__(self, store: Store, name: str, *, laned: bool) -> None:
        self.key = SessionKey(name)
        self.acknowledged: list[str] = []
        self.errors: list[TenutoError] = []
        self.resolved = 0
        self.enough = asyncio.Event()
        self.goal = 0
        self._store = store
        self._laned = laned

    async def run(self) -> None:
        lane = await self._store.lanes.acquire(self.key, this_owner("test"), ttl=600) if self._laned else None
        number = 0
        while True:
            await self._until_landed(a_whole_turn(self.key, f"{self.key.session_id}-{number}", lane=lane))
            number += 1
            if number >= self.goal:
                self.enough.set()

    async def _until_landed(self, commit: Commit) -> None:
        while True:
            try:
                receipt = await self._store.commit(commit)
            except (StoreUnavailable, StoreContended) as error:
                assert error.retryable
                self.errors.append(error)
                await asyncio.sleep(0.01)  # between two tries, as a caller would wait
                continue
            self.resolved += receipt.replayed
            self.acknowledged.append(receipt.operation_id)
            return

    async def go_on(self, turns: int) -> None:
        """Wait until this many more have landed."""
        self.goal = len(self.acknowledged) + turns
        self.enough.clear()
        await self.enough.wait()


async def _all_go_on(committers: list[Committer], tasks: list[asyncio.Task[None]], turns: int) -> None:
    """Wait for more turns of each; an error that escapes a committer ends the wait."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for committer, task in zip(committers, tasks, strict=True):
            group.create_task(_go_on(committer, task, turns))


async def _go_on(committer: Committer, task: asyncio.Task[None], turns: int) -> None:
    moving = asyncio.create_task(committer.go_on(turns))
    await asyncio.wait({moving, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        moving.cancel()
        raise AssertionError(f"{committer.key} stopped: {task.exception()!r}")


@pytest.mark.parametrize("laned", [False, True], ids=["without lane", "under a lane"])
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_commits_go_on_after_the_server_was_away(own_server: Postgres, mode: str, laned: bool) -> None:
    schema = f"restart_{mode}_{'laned' if laned else 'free'}"
    async with open_store(own_server.url, schema=schema, pool_size=4) as store:
        committers = [Committer(store, f"session{index}", laned=laned) for index in range(SESSIONS)]
        tasks = [asyncio.create_task(committer.run()) for committer in committers]
        try:
            for _ in range(3):
                await _all_go_on(committers, tasks, 5)
                await asyncio.to_thread(own_server.stop, mode)
                try:
                    with pytest.raises((StoreUnavailable, StoreContended)):
                        await store.head("session0")
                finally:
                    await asyncio.to_thread(own_server.start)
            await _all_go_on(committers, tasks, 5)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
        assert all(committer.errors for committer in committers), "the restarts went by unnoticed"
    async with open_store(own_server.url, schema=schema, pool_size=1) as store:
        for committer in committers:
            landed = await check_whole(store, committer.key)
            name = committer.key.session_id
            assert landed >= set(committer.acknowledged)
            assert len(committer.acknowledged) == len(set(committer.acknowledged))
            # The commit that was cancelled at the end may have landed.
            assert len(landed - set(committer.acknowledged)) <= 1
            assert numbers_of(name, landed) == list(range(len(landed)))


async def test_a_store_closes_while_the_server_is_away(own_server: Postgres) -> None:
    store = await open_store(own_server.url, schema="away", pool_size=2)
    await store.commit(a_whole_turn(SessionKey("s"), "s-0"))
    await asyncio.to_thread(own_server.stop, "immediate")
    try:
        await store.aclose()
        with pytest.raises(StoreUnavailable):
            await open_store(own_server.url, schema="away")
    finally:
        await asyncio.to_thread(own_server.start)
    async with open_store(own_server.url, schema="away") as store:
        assert await check_whole(store, SessionKey("s")) == {"s-0"}


async def test_a_reader_of_events_goes_on_after_the_server_was_away(own_server: Postgres) -> None:
    key = SessionKey("watched")
    async with open_store(own_server.url, schema="watched", pool_size=4) as store:
        await store.commit(a_whole_turn(key, "watched-0"))
        stream = store.events.subscribe(key)
        assert [event.seq for event in (await anext(stream)).events] == [1, 2]
        await asyncio.to_thread(own_server.stop, "immediate")
        with pytest.raises((StoreUnavailable, StoreContended)):
            await store.commit(a_whole_turn(key, "watched-1"))
        await asyncio.to_thread(own_server.start)
        await store.commit(a_whole_turn(key, "watched-1"))
        async with asyncio.timeout(20):
            try:
                page = await anext(stream)
            except (StoreUnavailable, StoreContended):
                stream = store.events.subscribe(key, after=2)
                page = await anext(stream)
        assert [event.seq for event in page.events] == [3, 4]
        await stream.aclose()  # type: ignore[attr-defined]
