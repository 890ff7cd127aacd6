"""Graphs as programs of the runtime, in processes that are killed: another one goes on."""

from typing import Any

import pytest

from tenuto.model.run import RunStatus
from tests.crash.processes import Database
from tests.crash.session_processes import Mate, mates, outside
from tests.crash.test_session_sweep import NESTED, SAVING, Turn
from tests.sampling import ALL, EIGHTH, MATRIX, sample

YES = {"approved": True}
PAID = ["user", "read: yes", "pay: yes", "thank: yes"]


async def seen(database: Database, session: str = "s") -> tuple[list[str], Any, list[RunStatus]]:
    """Return what a session has: its messages, its total and how its runs went."""
    async with database.open() as store:
        record = await store.load(session)
        assert record is not None
        runs = [run.status for run in reversed(await store.runs.of_session(session))]
        return record.state["messages"], record.state.get("total"), runs


@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "no checkpoints"])
async def test_a_process_killed_in_a_node_is_taken_over_there(database: Database, checkpoints: bool) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": checkpoints}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            (wait,) = (await first.do("send", session="s"))["waits"]
            world.keep(lambda request: request["node"] == "thank")
            first.order("answer", wait=wait, value=YES)
            await world.asked(3)
            first.kill()
            world.release()
            assert await second.do("drain") == "drained"
    again = ["thank"] if checkpoints else ["pay", "thank"]
    assert [request["node"] for request in world.requests] == ["read", "pay", "thank", *again]
    assert await seen(database) == (PAID, 111, [RunStatus.SUSPENDED, RunStatus.COMPLETED])
    async with database.open() as store:
        (last, first_run) = await store.runs.of_session("s")
        assert (first_run.attempt, last.attempt) == (1, 2)


async def test_a_suspended_graph_is_answered_after_a_restart_and_once(database: Database) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port}
        async with mates(*(Mate(database, **plan) for _ in range(3))) as (first, second, third):
            sent = await first.do("send", session="s")
            assert sent["status"] == "suspended"
            first.kill()
            assert await second.do("answer", wait=sent["waits"][0], value=YES) == "completed"
            again = await third.do("send", session="s")
            assert (again["status"], len(again["waits"])) == ("completed", 0)
    assert [request["node"] for request in world.requests] == ["read", "pay", "thank"]
    assert await seen(database) == (PAID, 111, [RunStatus.SUSPENDED, RunStatus.COMPLETED])


@MATRIX
@pytest.mark.parametrize("step", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)], ids=["sample", "all"])
@pytest.mark.parametrize("turn", [SAVING, NESTED], ids=["saves in its nodes", "suspends inside"])
async def test_killed_at_any_call_to_the_store_another_process_brings_the_turn_to_its_end(
    database: Database, turn: Turn, step: int
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": True, "graph": turn.graph}
        async with mates(Mate(database, **plan)) as (other,):
            calls = (await other.do("converse", session="whole"))["calls"]
            whole = await seen(database, "whole")
            assert whole[0] == turn.messages
            for call in sample(range(1, calls + 1), step, f"{database.name} {turn.graph}"):
                for when in ("before", "after"):
                    session = f"{when} {call}"
                    async with mates(Mate(database, **plan)) as (dying,):
                        died = await dying.do("converse", session=session, kill=call, when=when) is None
                    assert died or call > calls - 5, session
                    await other.do("converse", session=session)
                    assert await seen(database, session) == whole, session
                    async with database.open() as store:
                        for run in await store.runs.of_session(session):
                            assert run.attempt <= 2, session
                        assert (await store.inbox.next(session)).inputs == (), session
                        assert await store.waits.of_session(session) == [], session
