"""Several processes on one session, one lane, one file."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenuto.model.session import SessionKey
from tenuto.testing.factories import a_save, a_session, an_owner
from tests.crash.processes import Database, Worker, workers
from tests.crash.turns import check_whole, numbers_of

pytestmark = pytest.mark.long("four processes share two cores")


def _run(*started: Worker) -> list[Any]:
    """Let all begin at the same time and return what each says at its end; those who wait for it end with the first."""
    with workers(*started):
        assert [worker.hear() for worker in started] == ["ready"] * len(started)
        for worker in started:
            worker.tell("go")
        first, *others = started
        reports = [first.hear()]
        for worker in others:
            worker.hang_up()
        reports += [worker.hear() for worker in others]
        for worker in started:
            worker.finish()
    return reports


async def test_four_processes_that_add_at_the_version_read_lose_nothing(database: Database) -> None:
    key = SessionKey("counter")
    async with database.open() as store:
        await store.create(key, state={"total": 0, "messages": []}, logs={"messages"})
    adders = [Worker(database, "add", session=key.session_id, times=250) for _ in range(4)]
    reports = await asyncio.to_thread(_run, *adders)
    async with database.open() as store:
        record = await store.load(key)
    assert record is not None
    assert record.state["total"] == 1000
    assert len(record.state["messages"]) == 1000
    assert record.version == 1 + 1000
    assert sum(report["conflicts"] for report in reports) > 0, "they never met: this showed nothing"


async def test_versions_only_rise_while_the_id_is_deleted_and_made_again(database: Database) -> None:
    key = SessionKey("reborn")
    async with database.open() as store:
        await a_session(store, key=key)
    savers = [Worker(database, "add_through_lives", session=key.session_id) for _ in range(3)]
    deleter = Worker(database, "recreate", session=key.session_id, times=15)
    reports = await asyncio.to_thread(_run, deleter, *savers)
    assert [report["stale copies that won"] for report in reports] == [[]] * 4
    for report in reports:
        assert report["landed"] == sorted(report["landed"]), "one process saw a number fall"
    landed = sorted(tuple(numbers) for report in reports for numbers in report["landed"])
    lives, versions, commits = (list(column) for column in zip(*landed, strict=True))
    assert len(versions) >= 15 * 4
    assert len(set(versions)) == len(versions), "two writes got one version"
    assert versions == sorted(versions)
    assert commits == sorted(set(commits))
    assert set(lives) == set(range(1, 17)) or set(lives) == set(range(2, 17))
    async with database.open() as store:
        head = await store.head(key)
    assert head is not None
    assert (head.life, head.version, head.commit_number) == landed[-1]


@pytest.mark.parametrize("verb", ["race", "create_once"])
async def test_of_two_processes_exactly_one_gets_a_lane_or_makes_a_session_first(database: Database, verb: str) -> None:
    async with database.open():
        pass

    def run() -> list[tuple[Any, Any]]:
        one, two = Worker(database, verb, name="one"), Worker(database, verb, name="two")
        answers = []
        with workers(one, two):
            assert (one.hear(), two.hear()) == ("ready", "ready")
            for number in range(100):
                first, second = (one, two) if number % 2 else (two, one)
                first.tell(f"race-{number}")
                second.tell(f"race-{number}")
                answers.append((one.hear(), two.hear()))
            for worker in (one, two):
                worker.hang_up()
        return answers

    answers = await asyncio.to_thread(run)
    for one, two in answers:
        won, lost = (one, two) if "won" in one else (two, one)
        assert won == {"won": 1}
        assert lost["lost"] == 1
    winners = ["one" if "won" in one else "two" for one, _ in answers]
    assert len(set(winners)) == 2, "one process always came first: this was no race"
    if verb == "race":
        loser_was_told = [(two if "won" in one else one)["to"] for one, two in answers]
        assert loser_was_told == winners


async def test_a_renewal_is_quick_while_four_processes_commit(sqlite_database: Database) -> None:
    def start() -> list[Worker]:
        return [Worker(sqlite_database, "busy", session=f"busy{index}") for index in range(4)]

    async with sqlite_database.open() as store:
        lane = await store.lanes.acquire("renewed", an_owner())
        with workers(*start()) as committing:
            for worker in committing:
                assert await asyncio.to_thread(worker.hear) == "ready"
            slowest, end = 0.0, time.monotonic() + 5
            while time.monotonic() < end:
                begun = time.monotonic()
                renewal = await store.lanes.renew([lane])
                slowest = max(slowest, time.monotonic() - begun)
                assert renewal.lost == frozenset()
                await asyncio.sleep(0.05)
            for worker in committing:
                worker.hang_up()
            reports = [await asyncio.to_thread(worker.hear) for worker in committing]
            for worker in committing:
                await asyncio.to_thread(worker.finish)
        assert [report["errors"] for report in reports] == [[]] * 4
        assert min(report["landed"] for report in reports) > 0
        assert slowest < 1.0
        for index, report in enumerate(reports):
            landed = await check_whole(store, SessionKey(f"busy{index}"))
            assert numbers_of(f"busy{index}", landed) == list(range(report["landed"]))


async def test_processes_that_open_and_close_the_file_disturb_nobody(sqlite_database: Database) -> None:
    """The last to close a WAL database removes the WAL; it must not think so while another still works."""
    async with sqlite_database.open() as store:
        key, _ = await a_session(store)
        for number in range(4):
            passing = [Worker(sqlite_database, "open_and_close") for _ in range(2)]
            with workers(*passing):
                while any(worker.runs() for worker in passing):
                    await store.commit(a_save(key, number))
                    await store.head(key)
                for worker in passing:
                    assert worker.hear() == 1
                    worker.finish()
        head = await store.head(key)
        assert head is not None
    async with sqlite_database.open() as store:
        assert await store.head(key) == head


async def test_an_open_store_keeps_its_lock_on_the_file(sqlite_database: Database) -> None:
    """Closing any descriptor of the file ends all POSIX locks the process has on it, SQLite's too."""
    path = sqlite_database.folder / "test.db"
    async with sqlite_database.open() as store:
        key, _ = await a_session(store)
        assert await asyncio.to_thread(_is_locked, path), "with only the writer open"
        await store.load(key)
        assert await asyncio.to_thread(_is_locked, path), "after a reader was opened"
    assert not await asyncio.to_thread(_is_locked, path)


def _is_locked(path: Path) -> bool:
    """Ask from another process whether anyone holds SQLite's shared lock."""
    code = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, {SHARED_SIZE}, {SHARED_FIRST})
    except OSError:
        print("locked")
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return done.stdout == "locked\n"


SHARED_FIRST, SHARED_SIZE = 0x40000002, 510
