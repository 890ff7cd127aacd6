"""Who holds a session's lane while its holder blocks, stands still, dies, or cannot reach the store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import LaneLost
from tenuto.model.lane import LaneView
from tenuto.store.keeper import Keeper
from tenuto.testing.faults import FaultyBackend
from tests.crash.line import Line
from tests.crash.processes import Database
from tests.crash.session_graphs import Plan, made
from tests.crash.session_processes import Mate, Outside, mates, outside

SHORT = {"ttl": 1.5, "every": 0.4}
NEVER_RENEWED = {"ttl": 1.0, "every": 600.0}
FIRST: dict[str, Any] = {"initial": {"messages": ["first"]}, "session_id": "chat"}
SECOND: dict[str, Any] = {"initial": {"messages": ["second"]}, "session_id": "chat"}


async def lane(store: Store) -> LaneView:
    found = await store.lanes.inspect("chat")
    assert found is not None
    assert found.expires_at is not None
    return found


async def renewed_until(store: Store, moment: datetime) -> None:
    """Wait until the lane was renewed beyond a moment; its generation stays."""
    generation = (await lane(store)).generation
    async with asyncio.timeout(30):
        while (found := await lane(store)).expires_at <= moment:  # type: ignore[operator]
            assert (found.generation, found.state) == (generation, "held")
            await asyncio.sleep(0.05)


async def messages(database: Database) -> list[str]:
    async with database.open() as store:
        record = await store.load("chat")
    return [] if record is None else record.state["messages"]


async def test_a_node_that_blocks_the_event_loop_keeps_its_lane_and_others_are_told_it_is_busy(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"concurrency": "exclusive", "port": world.port}
        blocked = Mate(database, graph="blocking", keeper=SHORT, **plan)
        other = Mate(database, graph="chat", lane_wait=0.5, **plan)
        async with mates(blocked, other), database.open() as store:
            world.keep(lambda request: request == "first")
            blocked.order("run", **FIRST)
            await world.asked(1)
            granted = await lane(store)
            assert granted.expires_at is not None
            assert (await other.do("run", **SECOND))["error"] == "session_execution_busy"
            await renewed_until(store, granted.expires_at + timedelta(seconds=SHORT["ttl"]))
            assert (await other.do("run", **SECOND))["error"] == "session_execution_busy"
            world.release()
            done = await blocked.heard()
            after = await other.do("run", **SECOND)
    assert (done["outcome"], after["outcome"]) == ("completed", "completed")
    assert world.requests == ["first", "second"]
    assert await messages(database) == ["first", "reply to first", "second", "reply to second"]


@pytest.mark.parametrize(
    ("answered", "checkpoints"), [(False, True), (True, False)], ids=["still in its node", "about to commit"]
)
async def test_a_holder_that_stood_still_too_long_is_displaced_and_stopped_when_it_goes_on(
    database: Database, checkpoints: bool, answered: bool
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": "exclusive", "port": world.port}
        plan["checkpoints"] = checkpoints
        async with mates(Mate(database, keeper=SHORT, **plan), Mate(database, **plan)) as (still, other):
            world.keep(lambda request: request == "first")
            still.order("run", **FIRST)
            await world.asked(1)
            still.stop()
            taken = await other.do("run", **SECOND)
            if answered:
                world.release()
            still.go_on()
            # Without an answer only its keeper can end the turn.
            lost = await still.heard()
    assert taken["outcome"] == "completed"
    assert (lost["outcome"], lost["error"]) == ("failed", "session_execution_lease_lost")
    assert await messages(database) == ["second", "reply to second"]


async def test_the_commit_of_a_holder_that_was_displaced_is_refused_even_if_its_keeper_has_not_noticed(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": "exclusive", "port": world.port}
        async with mates(Mate(database, keeper=NEVER_RENEWED, **plan), Mate(database, **plan)) as (lapsed, other):
            world.keep(lambda request: request == "first")
            lapsed.order("run", **FIRST)
            await world.asked(1)
            taken = await other.do("run", **SECOND)
            world.release()
            lost = await lapsed.heard()
            again = await lapsed.do("run", initial={"messages": ["third"]}, session_id="chat")
    assert (taken["outcome"], again["outcome"]) == ("completed", "completed")
    assert lost["error"] == "session_execution_lease_lost"
    assert await messages(database) == ["second", "reply to second", "third", "reply to third"]


async def test_a_lapsed_lane_that_nobody_took_is_still_its_holders(database: Database) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": "exclusive", "port": world.port}
        async with mates(Mate(database, keeper=NEVER_RENEWED, **plan)) as (lapsed,), database.open() as store:
            world.keep(lambda _: True)
            lapsed.order("run", **FIRST)
            await world.asked(1)
            async with asyncio.timeout(30):
                while (await lane(store)).state != "lapsed":
                    await asyncio.sleep(0.05)
            world.release()
            assert (await lapsed.heard())["outcome"] == "completed"
    assert await messages(database) == ["first", "reply to first"]


async def test_a_killed_holder_on_this_host_is_displaced_at_once(database: Database) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": "exclusive", "port": world.port, "lane_wait": 0.0}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (killed, other):
            world.keep(lambda request: request == "first")
            killed.order("run", **FIRST)
            await world.asked(1)
            assert (await other.do("run", **SECOND))["error"] == "session_execution_busy"
            killed.kill()
            done = await other.do("run", **SECOND)
    assert done["outcome"] == "completed"
    assert await messages(database) == ["second", "reply to second"]


async def test_a_run_without_a_lane_that_stood_still_too_long_can_write_nothing_more(database: Database) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "checkpoints": True, "port": world.port}
        async with mates(Mate(database, keeper=SHORT, **plan), Mate(database, **plan)) as (still, other):
            world.keep(lambda _: len(world.requests) == 1)
            still.order("run", **FIRST, invocation_id="stuck")
            await world.asked(1)
            early = await other.do("run", resume_invocation="stuck")
            still.stop()
            async with asyncio.timeout(30):
                while (taken := await other.do("run", resume_invocation="stuck"))["error"] == "session_execution_busy":
                    await asyncio.sleep(0.1)
            still.go_on()
            lost = await still.heard()
    assert early["error"] == "session_execution_busy"
    assert taken["outcome"] == "completed"
    assert lost["outcome"] == "failed"
    assert lost["error"] in {"session_execution_lease_lost", "checkpoint_save_failed"}
    assert await messages(database) == ["first", "reply to first"]


class Refusing(FaultyBackend):
    """A backend that, once it has refused a holder that was displaced, is slow to hear anything more from it."""

    refused = False

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        if self.refused:
            await asyncio.sleep(60)
        try:
            return await super().transact(*arguments, **options)
        except LaneLost:
            self.refused = True
            raise


async def test_a_holder_told_that_it_is_lost_while_it_writes_its_end_has_an_outcome_and_is_not_cancelled(
    sqlite_database: Database,
) -> None:
    plan = Plan(graph="chat", concurrency="exclusive")
    async with outside() as world, sqlite_database.open() as first, sqlite_database.open() as second:
        store = Store(Refusing(first.backend))
        # Nobody renews before the lane lapses; the keeper asks when another has taken it, and the end is being written.
        store.keeper = Keeper(store, ttl=1.0, every=2.5)
        world.keep(lambda request: request == "first")
        graph = made(replace(plan, port=world.port), store)
        running = asyncio.create_task(graph.run({"messages": ["first"]}, session_id="chat"))
        await world.asked(1)
        taken = await made(plan, second).run({"messages": ["second"]}, session_id="chat")
        world.release()
        try:
            lost = await asyncio.wait_for(running, 30)
        finally:
            await store.keeper.aclose()
    assert taken.completed
    assert lost.error is not None
    assert lost.error.category == "session_execution_lease_lost"
    assert running.cancelling() == 0


@pytest.fixture
async def line(database: Database) -> AsyncIterator[Line]:
    async with database.open() as store:
        yield Line(store.backend)


async def _run_in_node(line: Line, world: Outside, ttl: float) -> "asyncio.Task[Any]":
    store = Store(line)
    store.keeper = Keeper(store, ttl=ttl, every=0.2)
    world.keep(lambda request: request == "first")
    graph = made(Plan(graph="chat", concurrency="exclusive", port=world.port), store)
    task = asyncio.create_task(graph.run({"messages": ["first"]}, session_id="chat"))
    task.add_done_callback(lambda _: asyncio.ensure_future(store.keeper.aclose()))
    await world.asked(1)
    return task


async def test_a_keeper_cut_off_for_a_while_keeps_the_turn(database: Database, line: Line) -> None:
    async with outside() as world, database.open() as looking:
        task = await _run_in_node(line, world, ttl=20.0)
        line.cut()
        for _ in range(3):
            await line.tried()
        before = (await lane(looking)).expires_at
        assert before is not None
        line.heal()
        await renewed_until(looking, before)
        world.release()
        outcome = await task
    assert outcome.completed
    assert await messages(database) == ["first", "reply to first"]


async def test_a_keeper_cut_off_until_the_lane_lapses_stops_the_turn(database: Database, line: Line) -> None:
    async with outside() as world:
        task = await _run_in_node(line, world, ttl=1.0)
        line.cut()
        # The node is never answered: nothing but the keeper ends this.
        outcome = await asyncio.wait_for(task, 30)
        line.heal()
        assert outcome.error is not None
        assert outcome.error.category == "store_unavailable"  # nobody took the lane: the store was away
        async with mates(Mate(database, graph="chat", concurrency="exclusive", port=world.port)) as (other,):
            assert (await other.do("run", **SECOND))["outcome"] == "completed"
    assert await messages(database) == ["second", "reply to second"]
