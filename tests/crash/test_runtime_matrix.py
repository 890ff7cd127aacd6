"""The reference turn, killed before and inside every call it makes to the store or to the outside."""

import asyncio
import math
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
from tenuto.runtime.conversation.history import History
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.stream.reader import fold
from tenuto.store.keeper import Keeper
from tenuto.testing.faults import FaultyBackend
from tenuto.writing import lost_reply as retry
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import (
    APPROVED,
    SAID,
    TOOLS,
    Moment,
    Probe,
    Probed,
    Unfinished,
    World,
    program_of,
    programs,
    reference,
)
from tests.runtime.runtimes import opened
from tests.runtime.seams import advance
from tests.sampling import ALL, EIGHTH, MATRIX, sample

ONCE = {"pay", "note"}
FLUSH = "decide_events"


@dataclass(slots=True)
class Sweep:
    """A database, the runtime of this process, and processes that are killed over the reference turn."""

    database: Database
    store: Store
    world: World
    way: str
    runtime: SessionRuntime

    @property
    def approved(self) -> tuple[str, ...]:
        """The calls that need approval."""
        return APPROVED[program_of(self.way)]

    @property
    def once(self) -> set[str]:
        """The calls that must not be made twice."""
        return ONCE | {*self.approved}

    async def create(self, session: str) -> None:
        """Create a session for the turn."""
        await self.runtime.create(program_of(self.way), session_id=session)

    async def unbroken(self) -> Probe:
        """Go through the turn once, and return what calls it took."""
        self.world.probe = probe = Probe()
        await self.create("unbroken")
        store = self.runtime.store
        inner = store.backend
        store.backend = Probed(inner, probe)
        await reference(self.runtime, "unbroken", self.way)
        store.backend = inner
        self.world.probe = Probe()
        return probe

    async def killed(self, session: str, moment: Moment) -> bool:
        """Let a new process go through the turn and die at that moment, if it comes to it."""
        await self.create(session)
        async with mates(Colleague(self.database)) as (dying,):
            return await dying.do("swept", session=session, way=self.way, moment=moment) is None

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
        for wait in await self.runtime.session(session).waits():
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

    async def check(self, session: str, asked: set[str], kills: int = 1) -> None:
        """One end, nothing left behind, nothing done twice, a valid history and one count of what it cost."""
        runs = await self.store.runs.of_session(session)
        statuses = [run.status for run in reversed(runs)]
        assert statuses == [RunStatus.SUSPENDED] * (len(runs) - 1) + [RunStatus.COMPLETED], session
        assert not await self.store.waits.of_session(session)
        assert not await self.store.inbox.list(session)
        assert not await self.runtime.session(session).effects_in_doubt()
        effects = await self.store.effects.list(session)
        assert all(effect.status is not EffectStatus.STARTED for effect in effects), session
        acts = self.world.acts(session)
        assert {name: acts.count(name) for name in self.once} == dict.fromkeys(self.once, 1), (session, acts)
        assert 0 <= acts.count("look") - 1 <= kills
        assert 0 <= acts.count("model") - 2 <= kills
        calls = {*TOOLS, *self.approved}
        assert 0 <= len(acts) - 2 - len(calls) <= kills, (session, acts)
        assert asked <= self.once
        messages = (await self.runtime.get(session)).messages
        assert History().judged(messages).open == {}
        assert [message["role"] for message in messages] == [
            "user",
            "assistant",
            *len(calls) * ["tool"],
            "assistant",
        ], session
        assert {message["tool_call_id"] for message in messages[2:-1]} == calls
        assert all(message["content"] == f'{{"did":"{message["tool_call_id"]}"}}' for message in messages[2:-1])
        usage = await self.runtime.session(session).usage()
        assert (usage.total.input, usage.total.output) == (6, 10), session
        await self._check_stream(session)

    async def _check_stream(self, session: str) -> None:
        frames = [frame async for frame in self.runtime.session(session).events(live=False)]
        stored = [frame.seq for frame in frames if frame.type != "caught_up"]
        assert stored == list(range(1, len(stored) + 1)), session
        assert tuple(frame.data for frame in fold(frames) if frame.type == "chunk") == SAID, session
        ends = [frame.run_id for frame in frames if frame.is_end]
        runs = await self.store.runs.of_session(session)
        assert ends == [run.run_id for run in reversed(runs)], session

    async def check_numbers(self) -> None:
        """No two commits of a session have one number, and its version never goes back; all is delivered.

        Receipts tell; those that were heard of are gone.
        """
        async with asyncio.timeout(30):  # a delivery that failed is tried again after a while
            while {row["status"] for row in (await self.store.dump())["outgoing"]} != {"done"}:
                await self.runtime.drain()
                await asyncio.sleep(0.05)
        tables = await self.store.dump()
        assert all(row["status"] != "open" for row in tables["input"])
        for row in tables["session"]:
            receipts = [receipt for receipt in tables["receipt"] if receipt["session"] == row["sid"]]
            numbers = sorted((receipt["commit_no"], receipt["version"]) for receipt in receipts)
            assert numbers[-1] == (row["commit_no"], row["version"])
            for before, after in pairwise([(0, 0), *numbers]):
                assert before[0] < after[0], numbers
                assert 0 <= after[1] - before[1] <= after[0] - before[0], numbers


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", ["sent", "queued", "sent apart", pytest.param("queued apart", marks=pytest.mark.soak)])
async def test_killed_at_any_call_a_turn_comes_to_one_end_and_nothing_is_done_twice(
    database: Database, way: str, every: int
) -> None:
    async with database.open() as store:
        world = World(folder=database.folder)
        runtime = await opened(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        probe = await sweep.unbroken()
        await sweep.check("unbroken", set())
        for moment in sample(probe.moments, every, f"{database.name} {way}"):
            name, nth, when = moment
            session = f"{when} {name} {nth}"
            # Time decides whether chunks are flushed by themselves or go along with a commit.
            assert await sweep.killed(session, moment) or name == FLUSH, f"{session}: nothing was killed"
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
            if name.removeprefix("effect ") in sweep.once:
                assert name.removeprefix("effect ") in asked, session
        await sweep.check_numbers()


FIRST_DEATHS = [
    pytest.param(Moment("decide_commit", 2, "after"), id="with calls on record"),
    pytest.param(Moment("effect pay", 1, "inside"), id="in a tool"),
    pytest.param(Moment("effect model", 2, "inside"), id="in the resumed run"),
]
APART = pytest.param(Moment("effect ship", 1, "inside"), id="in an approved tool, while another one waits")


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
@pytest.mark.parametrize("first", [*FIRST_DEATHS, APART])
async def test_whoever_takes_a_turn_over_may_be_killed_at_any_call_too(
    database: Database, first: Moment, every: int
) -> None:
    async with database.open() as store:
        world = World(folder=database.folder)
        runtime = await opened(store, programs(world))
        sweep = Sweep(database, store, world, "sent apart" if first in APART.values else "sent", runtime)
        assert await sweep.killed("unbroken", first)
        world.probe = probe = Probe()
        inner, store.backend = store.backend, Probed(store.backend, probe)
        assert await advance(runtime, "unbroken")
        store.backend, world.probe = inner, Probe()
        await sweep.check("unbroken", await sweep.finished("unbroken"))
        for moment in sample(probe.moments, every, f"{database.name} {first}"):
            name, nth, when = moment
            session = f"{when} {name} {nth}"
            assert await sweep.killed(session, first), session
            async with mates(Colleague(database)) as (second,):
                died = await second.do("recovered", session=session, moment=moment) is None
            assert died or name == FLUSH, f"{session}: nothing was killed"
            await sweep.check(session, await sweep.finished(session), kills=2)
        await sweep.check_numbers()


TAKEN_UP = ["decide_acquire", "record_by_key", "branch_by_id"]
SENT = [
    "input_of_session",  # is the message known by its key?
    *TAKEN_UP,
    "open_inputs",
    "decide_commit",  # the run begins with the message
    "effect model",
    "decide_commit",  # its reply, the calls as begun, and the wait for approval
    "effect look",
    "decide_commit",
    "effect pay",
    "effect note",
    "decide_commit",  # two results that came while another was written
    "decide_commit",  # the run is suspended
    "waits_of_session",
]
ANSWERED = [
    "wait_with_session",
    "run_by_id",
    "decide_commit",  # the answer
    "waits_of_session",
    *TAKEN_UP,
    "bodies_of",
    "open_inputs",
    "waits_of_session",
    "effects_of_session",
    "waits_of_origin",
    "runs_of_invocation",
    "checkpoints_of_session",
    "decide_commit",  # another run goes on
    "decide_commit",  # the approved call has begun
    "effect ship",
    "decide_commit",
    "decide_commit",  # the step is finished
    "effect model",
    "decide_commit",  # the reply and the end, if nothing came in
    "decide_mark",  # the wake is not needed any more
]


async def test_the_reference_turn_makes_these_calls_and_no_others(database: Database) -> None:
    """Whoever changes the calls of a turn does it on purpose, and here."""
    async with database.open() as store:
        world = World(folder=database.folder, probe=Probe())
        runtime = await opened(store, programs(world))
        await runtime.create("desk", session_id="desk")
        inner, store.backend = store.backend, Probed(store.backend, world.probe)
        outcome = await runtime.send("desk", "go", key="k")
        sent, world.probe.trace = world.probe.trace, []
        answered = await runtime.answer(outcome.waits[0].wait_id, True)
        store.backend = inner
    assert answered.outcome is not None
    assert answered.outcome.text == "all done"
    assert [call for call in sent if call != FLUSH] == SENT
    assert [call for call in world.probe.trace if call != FLUSH] == ANSWERED


@pytest.mark.parametrize("way", ["sent", "queued", "sent apart"])
async def test_a_reply_lost_at_any_write_is_resolved_and_nothing_happens_twice(database: Database, way: str) -> None:
    async with database.open() as bare:
        faults = FaultyBackend(bare.backend)
        store = Store(faults)
        world = World(folder=database.folder)
        runtime = await opened(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        await sweep.create("unbroken")
        before = faults.transactions
        await reference(runtime, "unbroken", way)
        writes = faults.transactions - before
        assert writes >= 10
        for number in range(1, writes + 1):
            session = f"write {number}"
            await sweep.create(session)
            faults.lose_reply(number)
            with suppress(StoreUnavailable):
                await reference(runtime, session, way)
            faults.heal()
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
            assert not asked, session
            acts = world.acts(session)
            assert len(acts) == 2 + len(TOOLS) + len(sweep.approved), (session, acts)
        await sweep.check_numbers()
        await store.keeper.aclose()


class GoingAway(FaultyBackend):
    """A backend whose store is gone from its n-th write on, which lands or does not, for so many calls or for good."""

    last = 0
    lands = True
    calls_away: float = 0
    missed = 0

    def go(self, nth: int, *, lands: bool, calls_away: float) -> None:
        self.last, self.lands, self.calls_away, self.missed = self.transactions + nth, lands, calls_away, 0

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        goes = self.transactions + 1 == self.last
        if goes and not self.lands:
            self._leave()
        result = await super().transact(*arguments, **options)
        if goes:
            self._leave()
            self._check_line()
        return result

    def _leave(self) -> None:
        self.last = 0
        self.cut()

    def _check_line(self) -> None:
        if self._lines["cut"]:
            self.missed += 1
            if self.missed > self.calls_away:
                self.heal()
        super()._check_line()


FOR_GOOD = math.inf
LONGER_THAN_TRIED = 7


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
@pytest.mark.parametrize("calls_away", [FOR_GOOD, LONGER_THAN_TRIED], ids=["for good", "for a while"])
@pytest.mark.parametrize("lands", [True, False], ids=["it lands", "it does not"])
@pytest.mark.parametrize(
    "way", ["sent", *(pytest.param(way, marks=pytest.mark.soak) for way in ("queued", "sent apart"))]
)
async def test_a_store_that_goes_away_at_any_write_leaves_a_turn_that_comes_to_its_end_later(
    database: Database, way: str, lands: bool, calls_away: float, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.001)
    async with database.open() as bare:
        going = GoingAway(bare.backend)
        store = Store(going)
        store.keeper = Keeper(store, ttl=0.3, every=0.1)
        world = World(folder=database.folder)
        runtime = await opened(store, programs(world))
        sweep = Sweep(database, store, world, way, runtime)
        await sweep.create("unbroken")
        before = going.transactions
        await reference(runtime, "unbroken", way)
        writes = going.transactions - before
        matrix = f"{database.name} {way} {lands} {calls_away}"
        for number in sample(range(1 + lands, writes + 1), every, matrix):
            session = f"write {number}"
            await sweep.create(session)
            going.go(number, lands=lands, calls_away=calls_away)
            with suppress(StoreUnavailable, Unfinished):
                await reference(runtime, session, way)
            assert going.missed, session
            going.heal()
            asked = await sweep.finished(session)
            await sweep.check(session, asked)
        await sweep.check_numbers()
        await store.keeper.aclose()
