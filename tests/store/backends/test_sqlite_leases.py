"""Leases in one file: judged by the time since the machine started, whatever is done to its clock."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tenuto import open_store
from tenuto.clock import SECOND
from tenuto.errors import LaneBusy
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun
from tenuto.model.input import InputKind, NewInput
from tenuto.store.backends.sqlite import lease_clock
from tenuto.store.host import this_process
from tenuto.testing.factories import a_commit, a_session, an_owner

HOUR = 3600


class SetClock(apsw.VFS):
    """The machine's disk, with a clock that somebody has set an hour ahead."""

    def __init__(self) -> None:
        self.name = f"tenuto-clock-{new_id()}"
        super().__init__(self.name, "")

    def xCurrentTime(self) -> float:  # noqa: N802
        return super().xCurrentTime() + HOUR / 86400

    def xCurrentTimeInt64(self) -> int:  # noqa: N802
        return super().xCurrentTimeInt64() + HOUR * 1000


@pytest.fixture
def set_clock() -> Iterator[str]:
    vfs = SetClock()
    try:
        yield vfs.name
    finally:
        vfs.unregister()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/test.db"


async def test_a_process_whose_clock_was_set_ahead_takes_no_live_lane(address: str, set_clock: str) -> None:
    async with open_store(address) as here, open_store(address, vfs=set_clock) as ahead:
        assert (await ahead.moment() - await here.moment()).total_seconds() > HOUR / 2
        key, _ = await a_session(here)
        lane = await here.lanes.acquire(key, an_owner("holder"), ttl=15)
        run = BeginRun(run_id=new_id(), invocation_id=new_id())
        await here.commit(a_commit(key, generation=lane.generation, run=run))
        free, _ = await a_session(here)
        unlaned = BeginRun(run_id=new_id(), invocation_id=new_id())
        await here.commit(a_commit(free, run=unlaned))
        await here.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body="hello"))
        with pytest.raises(LaneBusy):
            await ahead.lanes.acquire(key, an_owner("thief"))
        assert await ahead.lanes.orphans() == []
        view = await ahead.lanes.inspect(key)
        assert view is not None
        assert view.state == "held"
        assert key not in await ahead.inbox.due()
        # What the one who is ahead renews is not held an hour longer either.
        renewal = await ahead.lanes.renew([lane], ttl=15)
        assert renewal.renewed == {key}
        assert (renewal.expires_at - await here.moment()).total_seconds() < 20


async def test_a_live_process_that_fell_silent_is_taken_over_after_its_term(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(address) as store:
        key, _ = await a_session(store)
        await store.lanes.acquire(key, an_owner("silent", host=this_process()), ttl=15)
        with pytest.raises(LaneBusy):
            await store.lanes.acquire(key, an_owner("next"))
        real = lease_clock.boot_micros
        monkeypatch.setattr(lease_clock, "boot_micros", lambda: real() + 16 * SECOND)
        taken = await store.lanes.acquire(key, an_owner("next"))
        assert taken.displaced is not None
        assert taken.displaced.owner.owner_id == "silent"


HOLDER = """
import asyncio, sys
from tenuto import open_store
from tenuto.store.host import this_process
from tenuto.store.keeper import Keeper
from tenuto.testing.factories import an_owner

async def main():
    async with open_store(sys.argv[1]) as store:
        store.keeper = Keeper(store, ttl=1.0, every=0.1)
        lane = await store.lanes.acquire("s", an_owner("stopped", host=this_process()), ttl=1.0)
        store.keeper.hold(lane, lambda: None)
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_stopped_process_is_taken_over_after_its_term_and_not_before(address: str) -> None:
    async with open_store(address) as store:
        await a_session(store, "s")
        holder = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            HOLDER,
            address,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert holder.stdout is not None
            async with asyncio.timeout(8):
                assert await holder.stdout.readline() == b"held\n"
                holder.send_signal(signal.SIGSTOP)
                tries = 0
                while True:
                    try:
                        taken = await store.lanes.acquire("s", an_owner("next"))
                        break
                    except LaneBusy:
                        tries += 1
                        await asyncio.sleep(0.02)
        finally:
            holder.kill()
            await holder.wait()
    assert tries > 3
    assert taken.displaced is not None
    assert taken.displaced.owner.owner_id == "stopped"


async def test_another_boot_goes_by_the_wall_clock(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(address) as store:
        key, _ = await a_session(store)
        await store.lanes.acquire(key, an_owner("before"), ttl=15)
    monkeypatch.setattr(lease_clock, "this_boot", lambda: "another boot")
    monkeypatch.setattr(lease_clock, "boot_micros", lambda: 5 * SECOND)
    wall = lease_clock.wall_micros
    async with open_store(address) as store:
        with pytest.raises(LaneBusy):
            await store.lanes.acquire(key, an_owner("after"))
    monkeypatch.setattr(lease_clock, "this_boot", lambda: "a third boot")
    monkeypatch.setattr(lease_clock, "wall_micros", lambda: wall() + 16 * SECOND)
    async with open_store(address) as store:
        assert await store.lanes.acquire(key, an_owner("after"))


async def test_without_a_boot_clock_the_wall_clock_decides(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_clock, "this_boot", lambda: None)
    wall = lease_clock.wall_micros
    async with open_store(address) as store:
        key, _ = await a_session(store)
        await store.lanes.acquire(key, an_owner("holder"), ttl=15)
        monkeypatch.setattr(lease_clock, "wall_micros", lambda: wall() + 16 * SECOND)
        assert await store.lanes.acquire(key, an_owner("next"))


@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_a_clock_that_was_set_is_reported_once_and_changes_no_lease(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    async with open_store(address) as store:
        key, _ = await a_session(store)
        await store.lanes.acquire(key, an_owner("holder"), ttl=15)
        wall = lease_clock.wall_micros
        with caplog.at_level(logging.WARNING, "tenuto.store"):
            with pytest.raises(LaneBusy):
                await store.lanes.acquire(key, an_owner("next"))
            assert not caplog.records
            monkeypatch.setattr(lease_clock, "wall_micros", lambda: wall() + step * SECOND)
            for _ in range(3):
                with pytest.raises(LaneBusy):
                    await store.lanes.acquire(key, an_owner("next"))
    (record,) = caplog.records
    assert f"set by {step} s" in record.message
