"""The reference turn, killed before and inside every call it makes to the store or to the outside."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import StoreUnavailable
from tenuto.model.effect import EffectStatus
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.session import chunks, live
from tenuto.session.history import History
from tenuto.session.runtime import SessionRuntime
from tenuto.session.streams import FrameType, fold
from tenuto.store.keeper import Keeper
from tenuto.testing.faults import FaultyBackend
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import SAID, SHIP, TOOLS, Probe, Probed, World, programs, reference

ONCE = {"pay", "note", SHIP}
SAMPLE, ALL = 13, 1


@dataclass(slots=True)
class Sweep:
    """A database, the runtime of this process, and processes that are killed over the reference turn."""

    database: Database
    store: Store
    world: World
    way: str
    runtime: SessionRuntime

    async def unbroken(self) -> Probe:
        """Go through the turn once, and return what calls it took."""
        self.world.probe = probe = Probe()
        await self.runtime.create("desk", session_id="unbroken")
        store = self.runtime.store
        inner = store.backend
        store.backend = Probed(inner, probe)
        await reference(self.runtime, "unbroken", self.way)
        store.backend = inner
        self.world.probe = Probe()
        return probe

    async def killed(self, session: str, call: int, when: str) -> bool:
        """Let a new process go through the turn and die at that call, if it comes to it."""
        await self.runtime.create("desk", session_id=session)
        async with mates(Colleague(self.database)) as (dying,):
            return await dying.do("swept", session=session, way=self.way, kill=call, when=when) is None

    async def finished(self, session: str) -> set[str]:
        """Bring the turn to its end from here, and return what calls somebody was asked about."""
        await self.runtime.drain()
        # Whoever sent the message heard nothing, and says it again under its key.
        await self.runtime.send(session, "go", key=f"go {session}", when_busy="queue")
        asked: set[str] = set()
        async with asyncio.timeout(30):
            while not await self._is_over(session):
                asked |= await self._answered(session)
                await self.runtime.drain()
        return asked

    async def _is_over(self, session: str) -> bool:
        run = await self.store.runs.current(SessionKey(session))
        if run is None or run.status is RunStatus.RUNNING:
            await asyncio.sleep(0.02)  # a lane nobody could give back has to lapse
        return run is not None and run.status not in (RunStatus.RUNNING, RunStatus.SUSPENDED)

    async def _answered(self, session: str) -> set[str]:
        """Answer what the session waits for, truthfully, and return the calls in doubt."""
        asked = set()
        for wait in await self.runtime.waits(session):
            call = str(wait.metadata["call_id"])
            if wait.kind == "approval":
                await self.runtime.answer(wait.wait_id, True, run=False)
                continue
            assert wait.kind == "in_doubt", session
            asked.add(call)
            done = call in self.world.acts(session)
            truth: Any = {"outcome": "done", "result": {"did": call}} if done else {"outcome": "retry"}
            await self.runtime.answer(wait.wait_id, truth, run=False)
        return asked

    async def check(self, session: str, asked: set[str]) -> None:
        """One end, nothing left behind, nothing done twice, a valid history and one count of what it cost."""
        runs = await self.store.runs.of_session(session)
        statuses = [run.status for run in reversed(runs)]
        assert statuses == [RunStatus.SUSPENDED] * (len(runs) - 1) + [RunStatus.COMPLETED], session
        assert not await self.store.waits.of_session(session)
        assert not await self.store.inbox.list(session)
        assert not await self.store.outbox.pending()
        assert not await self.runtime.effects_in_doubt(session)
        effects = await self.store.effects.list(session)
        assert all(effect.status is not EffectStatus.STARTED for effect in effects), session
        acts = self.world.acts(session)
        assert {name: acts.count(name) for name in ONCE} == dict.fromkeys(ONCE, 1), (session, acts)
        assert acts.count("look") in (1, 2)
        assert acts.count("model") in (2, 3)
        assert len(acts) in (6, 7), (session, acts)
        assert asked <= ONCE
        messages = (await self.runtime.get(session)).messages
        assert History().judged(messages).open == {}
        assert [message["role"] for message in messages] == ["user", "assistant", *4 * ["tool"], "assistant"], session
        assert {message["tool_call_id"] for message in messages[2:6]} == {*TOOLS, SHIP}
        assert all(message["content"] == f'{{"did":"{message["tool_call_id"]}"}}' for message in messages[2:6])
        usage = await self.runtime.usage_report(session)
        assert (usage.total.input, usage.total.output) == (6, 10), session
        await self._check_stream(session)

    async def _check_stream(self, session: str) -> None:
        frames = [frame async for frame in self.runtime.events(session, live=False)]
        stored = [frame.seq for frame in frames if frame.type is not FrameType.CAUGHT_UP]
        assert stored == list(range(1, len(stored) + 1)), session
        assert tuple(frame.data for frame in fold(frames) if frame.type is FrameType.CHUNK) == SAID, session
        ends = [frame.run_id for frame in frames if frame.is_end]
        runs = await self.store.runs.of_session(session)
        assert ends == [run.run_id for run in reversed(runs)], session

    async def check_numbers(self) -> None:
        """Each commit of a session has the next number, and the version before it or the next."""
        tables = await self.store.dump()
        for row in tables["session"]:
            receipts = [receipt for receipt in tables["receipt"] if receipt["session"] == row["sid"]]
            numbers = sorted((receipt["commit_no"], receipt["version"]) for receipt in receipts)
            assert [number for number, _ in numbers] == list(range(1, row["commit_no"] + 1))
            assert all(0 <= after[1] - before[1] <= 1 for before, after in pairwise(numbers))


@pytest.mark.parametrize("every", [SAMPLE, pytest.param(ALL, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", ["sent", "queued"])
async def test_killed_at_any_call_a_turn_comes_to_one_end_and_nothing_is_done_twice(
    database: Database, way: str, every: int
) -> None:
    async with database.open() as store:
        world = World(folder=database.folder)
        runtime = SessionRuntime(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        probe = await sweep.unbroken()
        await sweep.check("unbroken", set())
        for call, when, name in probe.moments()[::every]:
            session = f"{call} {when} {name}"
            assert await sweep.killed(session, call, when), f"{session}: nothing was killed"
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
            if name.removeprefix("effect ") in ONCE:
                assert name.removeprefix("effect ") in asked, session
        await sweep.check_numbers()


@pytest.mark.parametrize("way", ["sent", "queued"])
async def test_a_reply_lost_at_any_write_is_resolved_and_nothing_happens_twice(database: Database, way: str) -> None:
    async with database.open() as opened:
        faults = FaultyBackend(opened.backend)
        store = Store(faults)
        world = World(folder=database.folder)
        runtime = SessionRuntime(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        await runtime.create("desk", session_id="unbroken")
        before = faults.transactions
        await reference(runtime, "unbroken", way)
        writes = faults.transactions - before
        assert writes >= 10
        for number in range(1, writes + 1):
            session = f"write {number}"
            await runtime.create("desk", session_id=session)
            faults.lose_reply(number)
            with suppress(StoreUnavailable):
                await reference(runtime, session, way)
            faults.heal()
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
            assert not asked, session
            assert len(world.acts(session)) == 6, (session, world.acts(session))
        await sweep.check_numbers()
        await store.keeper.aclose()


class GoingAway(FaultyBackend):
    """A backend whose store is gone from its n-th write on, which lands or does not."""

    last = 0
    lands = True

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        if self.transactions + 1 == self.last and not self.lands:
            self.cut()
        try:
            return await super().transact(*arguments, **options)
        finally:
            if self.transactions == self.last:
                self.cut()
                self._check_line()


@pytest.mark.parametrize("lands", [True, False], ids=["which lands", "which does not"])
@pytest.mark.parametrize("way", ["sent", "queued"])
async def test_a_store_gone_for_long_at_any_write_leaves_a_turn_that_is_finished_later(
    database: Database, way: str, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(chunks, "_FIRST_PAUSE", 0.001)
    async with database.open() as opened:
        going = GoingAway(opened.backend)
        store = Store(going)
        store.keeper = Keeper(store, ttl=0.3, every=0.1)
        world = World(folder=database.folder)
        runtime = SessionRuntime(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        await runtime.create("desk", session_id="unbroken")
        before = going.transactions
        await reference(runtime, "unbroken", way)
        writes = going.transactions - before
        for number in range(1, writes + 1):
            session = f"write {number}"
            await runtime.create("desk", session_id=session)
            going.last, going.lands = going.transactions + number, lands
            with pytest.raises(StoreUnavailable):
                await reference(runtime, session, way)
            going.last = 0
            going.heal()
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
        await sweep.check_numbers()
        await store.keeper.aclose()
