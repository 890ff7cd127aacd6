"""Turns that follow on one another: each begins in the commit that ends the one before it, and is like any other."""

import asyncio
from typing import Any, cast

import pytest

from tenuto.errors import MessageRefused, StoreUnavailable
from tenuto.model.run import RunStatus
from tenuto.runtime.change.hooks import Hook, on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.stream.notices import Notice, RunStarted
from tenuto.store.store import Store
from tenuto.testing.faults import FaultyBackend
from tenuto.words import Stage
from tests.conftest import OurHarness
from tests.polling import PATIENCE
from tests.runtime.gates import GatedProgram, lane_is_free, talk_of
from tests.runtime.runtimes import Database, opened
from tests.runtime.seams import advance, take_replica
from tests.runtime.talking import STAGES

SAID = ("one", "two", "three")


def answered(*said: str) -> list[str]:
    return [text for each in said for text in (each, f"re: {each}")]


@program
async def replies(turn: Turn) -> None:
    turn.append(f"re: {turn.text}")


async def queued(runtime: SessionRuntime, *said: str, name: str = "replies") -> list[str]:
    await runtime.create(name, session_id="s")
    return [await runtime.session("s").enqueue(each) for each in said or SAID]


async def faulty(harness: OurHarness) -> tuple[SessionRuntime, list[str], FaultyBackend]:
    """Return a runtime with a queue, and the backend that fails it on request."""
    store = await harness.open()
    runtime = await opened(store, [replies])
    ids = await queued(runtime)
    store.backend = faults = FaultyBackend(store.backend)
    return runtime, ids, faults


async def commits(store: Store) -> int:
    head = await store.head("s")
    assert head is not None
    return head.commit_number


async def items(runtime: SessionRuntime) -> list[tuple[str, str | None]]:
    return [(item.name, item.run_id) async for item in runtime.session("s").events(live=False) if item.name]


async def test_the_stream_the_listeners_and_the_runs_are_those_of_turns_one_by_one(store: Store) -> None:
    heard: list[Notice] = []
    runtime = await opened(store, [replies], listeners=[heard.append])
    ids = await queued(runtime)
    before = await commits(store)
    await advance(runtime, "s")
    assert await commits(store) == before + 1 + len(SAID)
    runs = list(reversed(await store.runs.of_session("s")))
    turn = ["session_loaded", "run_started", "session_action_executed", "session_saved", "run_ended"]
    told = [each for each in await items(runtime) if each[0] in turn and each[1] is not None]
    assert told == [(name, run.run_id) for run in runs for name in turn]
    assert [notice.type for notice in heard if notice.type in turn][1:] == turn * len(SAID)
    started = [notice for notice in heard if isinstance(notice, RunStarted)]
    assert [(each.run_id, each.input_id) for each in started] == [
        (run.run_id, input_id) for run, input_id in zip(runs, ids, strict=True)
    ]
    assert [(await runtime.outcome(each)).text for each in ids] == [f"re: {said}" for said in SAID]
    assert [(run.number, run.status, run.attempt) for run in runs] == [
        (number, RunStatus.COMPLETED, 1) for number in (1, 2, 3)
    ]


async def test_each_of_them_can_be_gone_back_to(store: Store) -> None:
    runtime = await opened(store, [replies])
    await queued(runtime)
    await advance(runtime, "s")
    third, second, _ = await runtime.session("s").runs()
    fork = await runtime.session("s").fork(at=second.run_id)
    assert await talk_of(runtime, fork.session_id) == answered("one", "two")
    await runtime.session("s").rewind(third.run_id)
    assert await talk_of(runtime, "s") == answered("one", "two")
    await runtime.session("s").rewind(second.run_id)
    assert await talk_of(runtime, "s") == answered("one")


async def test_a_document_that_a_turn_changed_is_what_the_next_one_finds_and_goes_back_to(store: Store) -> None:
    @program
    async def counts(turn: Turn) -> None:
        turn.update(lambda state: {"count": state.get("count", 0) + 1})
        turn.append({"role": "assistant", "content": str(turn.state.get("count"))})

    runtime = await opened(store, [counts])
    await queued(runtime, name="counts")
    await advance(runtime, "s")
    assert (await runtime.get("s")).document == {"count": 3}
    third, *_ = await runtime.session("s").runs()
    assert (await runtime.session("s").rewind(third.run_id)).document == {"count": 2}


async def test_hooks_are_asked_between_turns(store: Store) -> None:
    asked: list[Stage] = []

    def noting(stage: Stage) -> Hook:
        async def note(session: SessionView) -> SessionView:
            asked.append(stage)
            return session

        return on(stage, note)

    runtime = await opened(store, [replies], hooks=[noting(stage) for stage in STAGES])
    await queued(runtime)
    asked.clear()
    await advance(runtime, "s")
    stages = ["after_load", "after_action", "before_save", "after_save"]
    assert asked == stages * len(SAID)
    assert await talk_of(runtime, "s") == answered(*SAID)


async def test_a_worker_that_is_to_finish_begins_no_further_turn(store: Store) -> None:
    runtime = await opened(store, [replies])
    _, second, _ = await queued(runtime)
    turns = iter([True, False])
    assert await advance(runtime, "s", should_continue=lambda: next(turns, False))
    assert await talk_of(runtime, "s") == answered("one")
    assert (await runtime.outcome(second)).status == "queued"
    assert await lane_is_free(runtime, "s")
    await advance(runtime, "s")
    assert await talk_of(runtime, "s") == answered(*SAID)


async def test_a_message_that_the_program_refuses_is_refused_between_turns(store: Store) -> None:
    def entry(message: Any) -> Any:
        if message["content"] == "two":
            raise MessageRefused("Not this one.")
        return message

    class Picky:
        name, version, declares = "replies", "1", ProgramTraits(entry=entry)

        async def run(self, turn: Turn) -> None:
            turn.append(f"re: {turn.text}")

    accepting = await opened(store, [replies])
    await accepting.create("replies", session_id="s")
    ids = [await accepting.session("s").enqueue(each) for each in SAID]
    runtime = await opened(store, [Picky()])
    await advance(runtime, "s")
    assert await talk_of(runtime, "s") == answered("one", "three")
    assert [(await runtime.outcome(each)).status for each in ids] == ["completed", "failed", "completed"]


async def test_a_turn_that_fails_or_writes_nothing_is_followed_by_the_next_one(store: Store) -> None:
    @program
    async def silent(turn: Turn) -> None:
        if turn.text == "fail":
            raise ValueError("no")
        if turn.text != "nothing":
            turn.append(f"re: {turn.text}")

    runtime = await opened(store, [silent])
    ids = await queued(runtime, "one", "nothing", "fail", "two", name="silent")
    await advance(runtime, "s")
    assert await talk_of(runtime, "s") == ["one", "re: one", "nothing", "fail", "two", "re: two"]
    assert [(await runtime.outcome(each)).status for each in ids] == ["completed", "completed", "failed", "completed"]


async def test_a_turn_that_follows_can_be_stopped(store: Store) -> None:
    gate = GatedProgram()
    runtime = await opened(store, [gate])
    _, second, _ = await queued(runtime, "one", "hold two", "three", name="gate")
    working = asyncio.create_task(advance(runtime, "s"))
    await gate.entered("hold two")
    await runtime.session("s").stop()
    async with asyncio.timeout(PATIENCE):
        await working
    assert (await runtime.outcome(second)).status == "interrupted"
    assert await talk_of(runtime, "s") == ["one", "re: one", "hold two", "three", "re: three"]


@pytest.mark.parametrize("nth", range(1, 7))
async def test_whichever_reply_is_lost_each_message_is_answered_once(harness: OurHarness, nth: int) -> None:
    runtime, ids, faults = await faulty(harness)
    faults.lose_reply(nth)
    try:
        await advance(runtime, "s")
    except StoreUnavailable:
        await advance(runtime, "s")
    assert await talk_of(runtime, "s") == answered(*SAID)
    assert [(run.status, run.attempt) for run in await runtime.store.runs.of_session("s")] == [
        (RunStatus.COMPLETED, 1)
    ] * 3
    assert [(await runtime.outcome(each)).text for each in ids] == [f"re: {said}" for said in SAID]


@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_caller_that_goes_away_as_a_turn_begins_leaves_nothing_running(harness: OurHarness, nth: int) -> None:
    runtime, ids, faults = await faulty(harness)
    faults.lose_reply(nth, cast("Exception", asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        await advance(runtime, "s")
    run = await runtime.store.runs.current("s")
    assert run is None or run.status in (RunStatus.COMPLETED, RunStatus.INTERRUPTED)
    assert await lane_is_free(runtime, "s")
    await advance(runtime, "s")
    outcomes = [await runtime.outcome(each) for each in ids]
    assert {each.status for each in outcomes} <= {"completed", "interrupted"}
    assert sum(each.status == "interrupted" for each in outcomes) <= 1
    assert [each["content"] for each in (await runtime.get("s")).messages if each["role"] == "user"] == list(SAID)


async def test_a_runner_lost_in_a_turn_that_followed_is_taken_over_in_that_turn(harness: OurHarness) -> None:
    database, gate = Database(harness), GatedProgram()
    first = await database.runtime(gate)
    ids = await queued(first, "one", "hold two", "three", name="gate")
    working = asyncio.create_task(advance(first, "s"))
    await gate.entered("hold two")
    await database.lose(first, working)
    second = await database.runtime(gate)
    gate.let_go("hold two")
    async with asyncio.timeout(PATIENCE):
        await advance(second, "s")
    assert await talk_of(second, "s") == answered("one", "hold two", "three")
    assert [run.attempt for run in reversed(await second.store.runs.of_session("s"))] == [1, 2, 1]
    assert [(await second.outcome(each)).status for each in ids] == ["completed"] * 3


async def test_what_a_session_keeps_in_memory_is_not_counted_twice(store: Store) -> None:
    runtime = await opened(store, [replies])
    await queued(runtime, *(["x" * 1000] * 10))
    await advance(runtime, "s")
    copy = take_replica(runtime, (await runtime.get("s")).key)
    assert copy is not None
    assert 20_000 < copy.size < 30_000
