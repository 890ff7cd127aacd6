"""Turns whose runner is killed, stands still, or cannot renew: who goes on with them, when, and how often."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import StoreUnavailable
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.stream.reader import read_stream
from tenuto.store.keeper import Keeper
from tests.crash.line import Line
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import Moment, World, runtime_of
from tests.crash.session_processes import Mate, Outside, outside

SHORT = {"ttl": 1.5, "every": 0.4}
NEVER_RENEWED = {"ttl": 1.0, "every": 600.0}
POLL = 0.1


async def _said(store: Store, session: str = "chat") -> list[str]:
    record = await store.load(session)
    assert record is not None
    return [message["content"] for message in record.state["messages"]]


async def _until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until the database says so."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


async def _completed(store: Store, session: str = "chat") -> bool:
    run = await store.runs.current(SessionKey(session))
    return run is not None and run.status is RunStatus.COMPLETED


async def test_a_worker_killed_in_a_turn_is_taken_over_at_once_on_the_same_host(database: Database) -> None:
    async with outside() as world, database.open() as store:
        first, second = Colleague(database, port=world.port), Colleague(database, port=world.port)
        async with mates(first, second):
            runtime = await runtime_of(store, World(folder=database.folder))
            await runtime.create("chat", session_id="chat")
            given = await runtime.session("chat").enqueue("hello")
            world.keep(lambda request: request == ["hello", 1])
            first.order("work", poll=POLL)
            await world.asked(1)
            second.order("work", poll=POLL)
            first.kill()
            killed = time.monotonic()
            await _until(lambda: _completed(store))
            assert time.monotonic() - killed < store.keeper.ttl / 3
            outcome = await runtime.outcome(given)
        (run,) = await store.runs.of_session("chat")
        frames = [frame.name async for frame in runtime.session("chat").events(live=False)]
    assert (outcome.status, outcome.text, run.attempt) == ("completed", "re: hello", 2)
    assert world.requests == [["hello", 1], ["hello", 2]]
    assert frames.count("lane_taken_over") == frames.count("rewound") == frames.count("run_ended") == 1


async def test_without_proof_a_killed_worker_is_taken_over_once_its_lane_has_lapsed(database: Database) -> None:
    async with outside() as world, database.open() as store:
        first = Colleague(database, port=world.port, proof=False, keeper=SHORT)
        second = Colleague(database, port=world.port, proof=False, keeper=SHORT)
        async with mates(first, second):
            runtime = await runtime_of(store, World(folder=database.folder))
            await runtime.create("chat", session_id="chat")
            await runtime.session("chat").enqueue("hello")
            world.keep(lambda request: request == ["hello", 1])
            first.order("work", poll=POLL)
            await world.asked(1)
            second.order("work", poll=POLL)
            first.kill()
            killed = time.monotonic()
            lane = await store.lanes.inspect("chat")
            assert lane is not None
            assert lane.expires_at is not None
            await world.asked(2)
            took = time.monotonic() - killed
            now = await store.moment()
            await _until(lambda: _completed(store))
        assert now >= lane.expires_at
        assert took < SHORT["ttl"] + POLL + 2.0
        assert await _said(store) == ["hello", "re: hello"]


async def test_a_worker_killed_with_the_lane_and_no_run_yet_leaves_input_that_is_taken_at_once(
    database: Database,
) -> None:
    async with database.open() as store:
        runtime = await runtime_of(store, World(folder=database.folder))
        await runtime.create("desk", session_id="desk")
        async with mates(Colleague(database)) as (dying,):
            moment = Moment("decide_acquire", 1, "after")
            assert await dying.do("swept", session="desk", way="queued", moment=moment) is None
        lane = await store.lanes.inspect("desk")
        assert lane is not None
        assert (lane.state, await store.runs.current("desk")) == ("held", None)
        assert await store.inbox.due() == ()
        assert list(await store.inbox.stranded()) == [SessionKey("desk")]
        await runtime.drain()
        run = await store.runs.current("desk")
        assert run is not None
        assert (run.status, run.attempt) == (RunStatus.SUSPENDED, 1)


async def test_after_three_lost_runners_a_run_is_abandoned_and_what_was_queued_is_taken(database: Database) -> None:
    async with outside() as world, database.open() as store:
        runtime = await runtime_of(store, World(folder=database.folder, port=world.port))
        await runtime.create("chat", session_id="chat")
        first = await runtime.session("chat").enqueue("deadly")
        steering = await runtime.session("chat").enqueue("meant for it", boundary="before_completion")
        second = await runtime.session("chat").enqueue("harmless")
        world.keep(lambda request: request[0] == "deadly")
        for attempt in (1, 2, 3):
            async with mates(Colleague(database, port=world.port)) as (dying,):
                dying.order("work", poll=POLL)
                await world.asked(attempt)
                dying.kill()
        await runtime.drain()
        outcomes = [await runtime.outcome(each) for each in (first, steering, second)]
        runs = await store.runs.of_session("chat")
        ends = [frame.data async for frame in runtime.session("chat").events(live=False) if frame.is_end]
    assert world.requests[:3] == [["deadly", 1], ["deadly", 2], ["deadly", 3]]
    assert (outcomes[0].status, outcomes[0].error["category"]) == ("failed", "run_abandoned")
    assert [str(outcome.status) for outcome in outcomes[1:]] == ["completed", "completed"]
    assert outcomes[2].text == "re: harmless"
    assert runs[-1].attempt == 4
    assert ends[0]["status"] == "failed"
    assert len(ends) == len(runs)


@pytest.mark.parametrize(
    ("mode", "session"),
    [("exclusive", "graph"), ("last_write_wins", "graph"), ("last_write_wins", None)],
    ids=["under a lane", "without a lane", "without a session"],
)
async def test_a_lost_run_of_a_graph_that_is_no_program_here_is_ended_and_so_is_its_stream(
    database: Database, mode: str, session: str | None
) -> None:
    async with outside() as world, database.open() as store:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": mode, "checkpoints": True, "port": world.port}
        runtime = await runtime_of(store, World(folder=database.folder))

        async def ended() -> Run | None:
            await runtime.drain()
            (run,) = await store.runs.of_invocation("lost")
            return run if run.status is not RunStatus.RUNNING else None

        async with mates(Mate(database, keeper=SHORT, **plan)) as (dying,):
            world.keep(lambda _: len(world.requests) == 1)
            dying.order("run", initial={"messages": ["first"]}, session_id=session, invocation_id="lost")
            await world.asked(1)
            assert await ended() is None
            dying.kill()
        run = await _until(ended)
        assert (run.status, run.error["category"]) == (RunStatus.INTERRUPTED, "run_lost")
        last = [item async for item in read_stream(store, run.key, run=run.run_id)][-1]
        assert last.is_end
        assert last.data["status"] == "interrupted"
        async with mates(Mate(database, **plan)) as (other,):
            resumed = await other.do("run", resume_invocation="lost")
    assert resumed["outcome"] == "completed"
    assert world.requests == ["first", "first"]


@pytest.mark.parametrize("answered", [False, True], ids=["still in its turn", "about to commit"])
async def test_a_runner_that_stood_still_too_long_is_displaced_and_its_late_writes_are_refused(
    database: Database, answered: bool
) -> None:
    async with outside() as world, database.open() as store:
        still, other = Colleague(database, port=world.port, keeper=SHORT), Colleague(database, port=world.port)
        async with mates(still, other):
            runtime = await runtime_of(store, World(folder=database.folder))
            await runtime.create("chat", session_id="chat")
            world.keep(lambda request: request == ["hello", 1])
            still.order("send", session="chat", text="hello", key="k")
            await world.asked(1)
            still.stop()
            other.order("work", poll=POLL)
            await _until(lambda: _completed(store))
            before = await store.dump()
            if answered:
                world.release()
            still.go_on()
            # Without an answer only its keeper can end the turn.
            refused = await still.heard()
            assert await store.dump() == before
            again = await still.do("send", session="chat", text="hello", key="k")
    assert refused == {"refused": "session_execution_lease_lost"}
    assert again == {"status": "completed", "text": "re: hello", "error": None}
    assert world.requests == [["hello", 1], ["hello", 2]]


@pytest.mark.parametrize("kind", ["tool", "model"])
async def test_a_runner_that_stood_still_begins_no_call_once_it_is_displaced(database: Database, kind: str) -> None:
    """Its tool's start is on record, and nothing but its own clock can tell it before the call."""
    async with outside() as world, database.open() as store:
        still, other = Colleague(database, port=world.port, keeper=NEVER_RENEWED), Colleague(database, port=world.port)
        async with mates(still, other):
            acted = World(folder=database.folder)
            runtime = await runtime_of(store, acted)
            await runtime.create("caller", session_id="chat")
            world.keep(lambda request: request == [kind, 1])
            still.order("send", session="chat", text=kind)
            await world.asked(1)
            still.stop()
            other.order("work", poll=POLL)
            await _until(lambda: _completed(store))
            world.release()
            still.go_on()
            refused = await still.heard()
    assert refused == {"refused": "session_execution_lease_lost"}
    assert acted.acts("chat") == [f"{kind} 2"] * 2


async def test_a_lapsed_lane_that_nobody_took_lets_its_runner_go_on(database: Database) -> None:
    async with outside() as world, database.open() as store:
        still = Colleague(database, port=world.port, keeper=NEVER_RENEWED)
        async with mates(still):
            acted = World(folder=database.folder)
            await (await runtime_of(store, acted)).create("caller", session_id="chat")
            world.keep(lambda request: request == ["model", 1])
            still.order("send", session="chat", text="model")
            await world.asked(1)
            await _until(lambda: _lapsed(store))
            world.release()
            ended = await still.heard()
    assert ended["status"] == "completed"
    assert acted.acts("chat") == ["model 1"] * 2


async def _lapsed(store: Store) -> bool:
    lane = await store.lanes.inspect("chat")
    return lane is not None and lane.state != "held"


async def test_a_displaced_runner_whose_keeper_has_not_noticed_can_write_nothing(database: Database) -> None:
    async with outside() as world, database.open() as store:
        lapsed, other = Colleague(database, port=world.port, keeper=NEVER_RENEWED), Colleague(database, port=world.port)
        async with mates(lapsed, other):
            runtime = await runtime_of(store, World(folder=database.folder))
            await runtime.create("chat", session_id="chat")
            world.keep(lambda request: request == ["hello", 1])
            lapsed.order("send", session="chat", text="hello")
            await world.asked(1)
            other.order("work", poll=POLL)
            await _until(lambda: _completed(store))
            before = await store.dump()
            world.release()
            refused = await lapsed.heard()
            assert await store.dump() == before
            next_one = await lapsed.do("send", session="chat", text="and now")
    assert refused == {"refused": "session_execution_lease_lost"}
    assert next_one["text"] == "re: and now"


async def _in_its_turn(line: Line, world: Outside, database: Database, ttl: float) -> "tuple[Store, asyncio.Task[Any]]":
    store = Store(line)
    store.keeper = Keeper(store, ttl=ttl, every=0.2)
    runtime = await runtime_of(store, World(folder=database.folder, port=world.port))
    await runtime.create("chat", session_id="chat")
    world.keep(lambda request: request == ["hello", 1])
    task = asyncio.create_task(runtime.send("chat", "hello"))
    await world.asked(1)
    return store, task


async def test_renewals_that_fail_before_the_lane_lapses_change_nothing(database: Database) -> None:
    async with outside() as world, database.open() as opened, database.open() as looking:
        line = Line(opened.backend)
        store, task = await _in_its_turn(line, world, database, ttl=20.0)
        granted = await looking.lanes.inspect("chat")
        line.cut()
        for _ in range(3):
            await line.tried()
        assert await looking.lanes.inspect("chat") == granted
        assert await looking.inbox.stranded() == []
        await (await runtime_of(looking, World(folder=database.folder))).drain()
        line.heal()
        world.release()
        outcome = await task
        await store.keeper.aclose()
        (run,) = await looking.runs.of_session("chat")
    assert (outcome.status, outcome.text, run.attempt) == ("completed", "re: hello", 1)
    assert world.requests == [["hello", 1]]


async def test_renewals_that_fail_until_the_lane_lapses_stop_the_turn_and_its_input_is_delivered_once(
    database: Database,
) -> None:
    async with outside() as world, database.open() as opened, database.open() as looking:
        line = Line(opened.backend)
        store, task = await _in_its_turn(line, world, database, ttl=1.0)
        line.cut()
        # The program is never answered: nothing but the keeper ends this.
        with pytest.raises(StoreUnavailable, match="could not be renewed"):
            await asyncio.wait_for(task, 30)
        line.heal()
        async with mates(Colleague(database, port=world.port)) as (other,):
            other.order("work", poll=POLL)
            await _until(lambda: _completed(looking))
        await store.keeper.aclose()
        assert await _said(looking) == ["hello", "re: hello"]
    assert world.requests == [["hello", 1], ["hello", 2]]
