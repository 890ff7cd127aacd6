"""A process killed before and after every call it makes to the store, in a turn with all that a turn can have."""

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tenuto import Store
from tenuto.model.session import SessionKey
from tests.crash.processes import Database
from tests.crash.session_graphs import MANY
from tests.crash.session_processes import Mate, mates, outside
from tests.sampling import ALL, EIGHTH, MATRIX, sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one whole turn of a graph adds to its session, and what it asks of the outside world."""

    graph: str
    messages: list[str]
    asks: list[str]
    total: int = 1111


SAVING = Turn(
    graph="swept", messages=["user", "read", "draft", "signed", "paid", "thank"], asks=["read", "draft", "pay", "thank"]
)
NESTED = Turn(
    graph="nested", messages=["user", "read", "look", "granted", "thank"], asks=["read", "look", "decide", "thank"]
)
BULK = Turn(
    graph="bulk",
    messages=["user", "read", *(f"line {number}" for number in range(MANY)), "thank"],
    asks=["read", "pay", "thank"],
)
TURNS = pytest.mark.parametrize(
    "turn",
    [
        pytest.param(SAVING, id="saves in its nodes"),
        pytest.param(NESTED, id="suspends inside"),
        pytest.param(BULK, id="adds much", marks=pytest.mark.soak),
    ],
)
MODES = ["last_write_wins", "optimistic", "exclusive"]
RUNS = [(mode, EIGHTH) for mode in MODES] + [pytest.param(mode, ALL, marks=pytest.mark.soak) for mode in MODES]


class Sweep:
    """A database, a process that prepares and finishes, and one that is killed for every moment of a turn."""

    def __init__(self, database: Database, store: Store, other: Mate, turn: Turn, plan: dict[str, Any]) -> None:
        self.store = store
        self._database = database
        self._other = other
        self._turn = turn
        self._plan = plan

    async def prepared(self, session: str) -> None:
        """Let the session have a turn behind it."""
        await self.finished(session, f"earlier {session}")

    async def finished(self, session: str, invocation: str) -> int:
        """Let the other process bring a turn to its end, and return how many calls that took."""
        done = await self._other.do("turn", invocation=invocation, session=session)
        assert set(done) == {"calls"}, (session, done)
        return int(done["calls"])

    async def killed(self, session: str, call: int, when: str) -> bool:
        """Let a new process go on with the session's turn and die at that call, if it comes to it."""
        async with mates(Mate(self._database, **self._plan)) as (dying,):
            order: dict[str, Any] = {"invocation": f"turn {session}", "session": session}
            return await dying.do("turn", **order, kill=call, when=when) is None

    async def seen(self, session: str) -> tuple[list[str], int, int]:
        """Return what others see of the session: its messages, its total and its version."""
        record = await self.store.load(session)
        assert record is not None
        return record.state["messages"], record.state["total"], record.version

    async def check(self, session: str) -> None:
        """Nothing is lost, nothing is there twice, and nothing is left open."""
        messages, total, _ = await self.seen(session)
        assert (messages, total) == (2 * self._turn.messages, 2 * self._turn.total), session
        runs = [str(run.status) for run in await self.store.runs.of_session(SessionKey(session))]
        assert set(runs) <= {"completed", "suspended", "interrupted"}, session
        assert runs.count("completed") == 2, session
        assert not await self.store.waits.of_session(session)

    async def check_numbers(self) -> None:
        """No two commits of a session have one number, and its version never goes back.

        Receipts tell; those that were heard of are gone.
        """
        tables = await self.store.dump()
        for row in tables["session"]:
            receipts = [receipt for receipt in tables["receipt"] if receipt["session"] == row["sid"]]
            numbers = sorted((receipt["commit_no"], receipt["version"]) for receipt in receipts)
            assert numbers[-1] == (row["commit_no"], row["version"])
            for before, after in pairwise([(0, 0), *numbers]):
                assert before[0] < after[0], numbers
                assert 0 <= after[1] - before[1] <= after[0] - before[0], numbers


def moments(calls: int) -> list[tuple[int, str]]:
    """Return every moment to die at."""
    return [(call, when) for call in range(1, calls + 1) for when in ("before", "after")]


@MATRIX
@TURNS
@pytest.mark.parametrize(("mode", "every"), RUNS)
async def test_killed_at_any_call_a_turn_with_checkpoints_is_finished_by_another_process(
    database: Database, mode: str, every: int, turn: Turn
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": turn.graph, "concurrency": mode, "checkpoints": True, "port": world.port}
        async with mates(Mate(database, **plan)) as (other,), database.open() as store:
            sweep = Sweep(database, store, other, turn, plan)
            await sweep.prepared("unbroken")
            world.requests.clear()
            calls = await sweep.finished("unbroken", "turn unbroken")
            assert world.requests == turn.asks
            await sweep.check("unbroken")
            for call, when in sample(moments(calls), every, f"{database.name} {mode} {turn.graph}"):
                session = f"{call} {when}"
                await sweep.prepared(session)
                world.requests.clear()
                assert await sweep.killed(session, call, when), f"{session}: nothing was killed"
                messages, total, version = await sweep.seen(session)
                whole = [message for message in messages if message != "a first thought"]
                assert whole == (2 * turn.messages)[: len(whole)], session
                await sweep.finished(session, f"turn {session}")
                await sweep.check(session)
                after = await sweep.seen(session)
                assert after[2] > version or after == (messages, total, version), session
                # Only the node that was under way may have run twice.
                again = len(world.requests) - len(turn.asks)
                assert again in (0, 1), (session, world.requests)
                assert list(dict.fromkeys(world.requests)) == turn.asks
            await sweep.check_numbers()


@MATRIX
@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.soak)])
@TURNS
async def test_killed_again_and_again_a_turn_is_still_finished_once(
    database: Database, turn: Turn, rounds: int
) -> None:
    dice = random.Random(20_261)
    async with outside() as world:
        plan: dict[str, Any] = {"graph": turn.graph, "checkpoints": True, "port": world.port}
        async with mates(Mate(database, **plan)) as (other,), database.open() as store:
            sweep = Sweep(database, store, other, turn, plan)
            for number in range(rounds):
                session = f"session {number}"
                await sweep.prepared(session)
                kills = 0
                for _ in range(5):
                    kills += await sweep.killed(session, dice.randint(4, 22), dice.choice(["before", "after"]))
                assert kills
                await sweep.finished(session, f"turn {session}")
                await sweep.check(session)
            await sweep.check_numbers()


@MATRIX
@pytest.mark.parametrize(("mode", "every"), RUNS)
async def test_killed_at_any_call_a_turn_without_checkpoints_is_resumed_or_begun_again(
    database: Database, mode: str, every: int
) -> None:
    """What was saved in the middle of a node before the pause stays, as a turn that got no further."""
    turn = SAVING
    async with outside() as world:
        plan: dict[str, Any] = {"graph": turn.graph, "concurrency": mode, "port": world.port}
        async with mates(Mate(database, **plan)) as (other,), database.open() as store:
            sweep = Sweep(database, store, other, turn, plan)
            await sweep.prepared("unbroken")
            calls = await sweep.finished("unbroken", "turn unbroken")
            await sweep.check("unbroken")
            for call, when in sample(moments(calls), every, f"{database.name} {mode} {turn.graph}"):
                session = f"{call} {when}"
                await sweep.prepared(session)
                assert await sweep.killed(session, call, when), f"{session}: nothing was killed"
                messages, total, _ = await sweep.seen(session)
                await sweep.finished(session, f"turn {session}")
                if messages[-1] in {"a first thought", "draft"}:
                    after = await sweep.seen(session)
                    assert after[:2] == ([*messages, *turn.messages], total + turn.total), session
                else:
                    await sweep.check(session)
            await sweep.check_numbers()
