"""Processes killed with SIGKILL at random moments of their commits."""

import asyncio
import random
import time
from collections import defaultdict
from contextlib import closing

import apsw
import pytest

from tenuto import Store
from tenuto.model.session import SessionKey
from tests.crash.processes import Database, Worker, workers
from tests.crash.turns import a_whole_turn, check_whole, numbers_of, this_owner
from tests.sampling import MATRIX

AT_ONCE = 4


FORTY_KILLS = pytest.param(10, marks=pytest.mark.wide)


@MATRIX
@pytest.mark.parametrize("rounds", [5, FORTY_KILLS, pytest.param(50, marks=pytest.mark.soak)])
async def test_a_killed_commit_is_wholly_there_or_wholly_absent(database: Database, rounds: int) -> None:
    """Four processes on one database, each on its own session, are killed in each round: 20, 40 or 200 kills."""
    dice = random.Random(20_260)
    acknowledged: dict[str, set[str]] = defaultdict(set)
    landed: dict[str, set[str]] = {f"session{index}": set() for index in range(AT_ONCE)}
    for kills in range(1, rounds + 1):
        starts = {name: max(numbers_of(name, done), default=0) + 1 for name, done in landed.items()}
        for name, said in (await asyncio.to_thread(_kill_all, database, starts, dice)).items():
            acknowledged[name] |= said
        check_file(database)
        async with database.open() as store:
            for name in landed:
                landed[name] = await _check(store, name, acknowledged[name], kills)
    assert sum(map(len, acknowledged.values())) >= rounds * AT_ONCE
    assert database.name != "sqlite" or [path.name for path in database.folder.iterdir()] == ["test.db"]


def _kill_all(database: Database, starts: dict[str, int], dice: random.Random) -> dict[str, set[str]]:
    """Start a worker per session and kill each at a moment of its own; return what each had acknowledged."""
    running = {name: Worker(database, "turns", session=name, start=start) for name, start in starts.items()}
    said: dict[str, set[str]] = {}
    with workers(*running.values()):
        for name, worker in running.items():
            heard = [worker.hear() for _ in range(dice.randrange(12))]
            # The moment itself: anywhere in the few milliseconds that a commit takes, or in the opening.
            time.sleep(dice.uniform(0, 0.01 if heard else 0.3))
            said[name] = {*heard, *worker.kill()}
    return said


async def _check(store: Store, name: str, acknowledged: set[str], kills: int) -> set[str]:
    key = SessionKey(name)
    # The holder is dead on this host, so its lane is free at once. Taking it fences what a server still does for the
    # dead: from here on nothing of it can land.
    lane = await store.lanes.acquire(key, this_owner("test"), ttl=60)
    before = await check_whole(store, key)
    assert acknowledged <= before, "an acknowledged commit is lost"
    assert len(before - acknowledged) <= kills, "a kill can leave one commit that landed unheard, no more"
    number = max(numbers_of(name, before), default=0) + 1
    receipt = await store.commit(a_whole_turn(key, f"{name}-{number}", lane=lane))
    assert not receipt.replayed
    acknowledged.add(receipt.operation_id)
    await store.lanes.disarm(lane)
    after = await check_whole(store, key)
    assert after == before | {receipt.operation_id}
    return after


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM wait WHERE signal_id = 'torn-1'",
        "DELETE FROM entry WHERE position = 3",
        "DELETE FROM event WHERE first_seq = 3",
        "DELETE FROM checkpoint WHERE commit_no = 2",
        "DELETE FROM receipt WHERE operation_id = 'torn-1'",
        "DELETE FROM run WHERE run_id = 'run-torn-1'",
        "UPDATE session SET version = version - 1",
        "UPDATE session SET document = replace(document, 'torn-2', 'torn-1')",
    ],
)
async def test_the_check_notices_a_turn_that_lacks_a_part(sqlite_database: Database, damage: str) -> None:
    key = SessionKey("torn")
    async with sqlite_database.open() as store:
        for number in range(3):
            await store.commit(a_whole_turn(key, f"torn-{number}"))
        assert await check_whole(store, key) == {"torn-0", "torn-1", "torn-2"}
        with closing(apsw.Connection(str(sqlite_database.folder / "test.db"))) as connection:
            connection.execute(damage)
            assert connection.changes() == 1
        with pytest.raises(AssertionError):
            await check_whole(store, key)


def check_file(database: Database) -> None:
    """What a killed SQLite process leaves: a sound file, and nothing beside it but its -wal and -shm."""
    if database.name != "sqlite":
        return
    left = {path.name for path in database.folder.iterdir()}
    assert left <= {"test.db", "test.db-wal", "test.db-shm"}, left
    connection = apsw.Connection(str(database.folder / "test.db"))
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
    finally:
        connection.close()
