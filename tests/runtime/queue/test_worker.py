"""Workers: they find what is due in any session and do it, side by side and in one another's place."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, StoreClosed
from tenuto.model.commit import BeginRun, Commit
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.change.action import SuspendSession
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.queue.orphans import end_orphan_without_session
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.writing.lane_claim import this_owner
from tests.polling import PATIENCE, until
from tests.runtime.gates import GatedProgram, lane_is_free, talk_of
from tests.runtime.runtimes import opened
from tests.runtime.seams import begin_and_lose, look_at_a_time


async def queued(runtime: SessionRuntime, sessions: int, messages: int = 1, stem: str = "s") -> list[str]:
    """Create so many sessions with so many messages each; return their input ids."""
    ids: list[str] = []
    for number in range(sessions):
        await runtime.create("gate", session_id=f"{stem}{number}")
        ids += [
            await runtime.session(f"{stem}{number}").enqueue(f"{stem}{number} message {message}")
            for message in range(messages)
        ]
    return ids


async def test_a_drain_does_all_that_is_due_in_every_session_and_returns(store: Store, gate: GatedProgram) -> None:
    runtime = await opened(store, [gate])
    ids = await queued(runtime, 7, 3)
    later = await runtime.session("s0").enqueue("later", delay=3600)
    async with asyncio.timeout(PATIENCE):
        await runtime.drain()
        await runtime.drain()
    assert {(await runtime.outcome(each)).status for each in ids} == {"completed"}
    assert (await runtime.outcome(later)).status == "queued"
    for number in range(7):
        texts = [f"s{number} message {message}" for message in range(3)]
        assert await talk_of(runtime, f"s{number}") == [word for text in texts for word in (text, f"re: {text}")]


async def test_no_more_sessions_are_worked_on_at_once_than_allowed(store: Store) -> None:
    at_once: list[int] = []
    now, full, go = 0, asyncio.Event(), asyncio.Event()

    @program(name="gate")
    async def counts(_: Turn) -> None:
        nonlocal now
        now += 1
        at_once.append(now)
        if now == 3:
            full.set()
        await go.wait()
        now -= 1

    runtime = await opened(store, [counts])
    ids = await queued(runtime, 8)
    working = asyncio.ensure_future(runtime.drain(concurrency=3))
    async with asyncio.timeout(PATIENCE):
        await full.wait()
        assert len([each for each in ids if (await runtime.outcome(each)).status == "running"]) == 3
        go.set()
        await working
    assert max(at_once) == 3
    assert len(at_once) == 8


async def test_several_workers_on_one_store_never_do_a_turn_twice(harness: Harness, gate: GatedProgram) -> None:
    runtimes = [await opened(await harness.open(), [gate]) for _ in range(4)]
    ids = await queued(runtimes[0], 6, 4)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(each.drain(concurrency=2) for each in runtimes))
        await runtimes[0].drain()
    assert sorted(gate.said) == sorted(f"s{number} message {message}" for number in range(6) for message in range(4))
    for number in range(6):
        assert [each for each in gate.said if each.startswith(f"s{number} ")] == [
            f"s{number} message {message}" for message in range(4)
        ]
        assert len(await runtimes[0].session(f"s{number}").runs()) == 4
    assert {(await runtimes[1].outcome(each)).status for each in ids} == {"completed"}


class TestNotForThisWorker:
    async def test_a_program_that_is_not_registered_is_left_alone(
        self, harness: Harness, gate: GatedProgram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look_at_a_time(monkeypatch, 2)
        other = GatedProgram("other")
        runtime, elsewhere = await opened(await harness.open(), [gate]), await opened(await harness.open(), [other])
        foreign = []
        for number in range(5):
            await elsewhere.create("other", session_id=f"foreign{number}")
            foreign.append(await elsewhere.session(f"foreign{number}").enqueue("not for you"))
        own = await queued(runtime, 3)
        async with asyncio.timeout(PATIENCE):
            await runtime.drain(concurrency=2)
        assert {(await runtime.outcome(each)).status for each in own} == {"completed"}
        assert {(await runtime.outcome(each)).status for each in foreign} == {"queued"}
        assert all([await lane_is_free(runtime, f"foreign{number}") for number in range(5)])
        await elsewhere.drain()
        assert {(await runtime.outcome(each)).status for each in foreign} == {"completed"}
        assert (len(other.said), len(gate.said)) == (5, 3)

    async def test_it_is_looked_at_again_ever_less_often(self, harness: Harness, gate: GatedProgram) -> None:
        store = await harness.open()
        runtime = await opened(store, [gate])
        await runtime.create("gate", session_id="s")
        await runtime.session("s").enqueue("hello")
        stranger = await opened(store, [GatedProgram("other")])
        clock, tries, enough = asyncio.get_running_loop().time, list[float](), asyncio.Event()
        acquire = store.lanes.acquire

        async def noted(*arguments: Any, **options: Any) -> Any:
            tries.append(clock())
            if len(tries) == 4:
                enough.set()
            return await acquire(*arguments, **options)

        store.lanes.acquire = noted  # type: ignore[method-assign]
        working = asyncio.ensure_future(stranger.worker(poll=0.02).work())
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        working.cancel()
        await asyncio.wait([working])
        pauses = [later - sooner for sooner, later in pairwise(tries[:4])]
        assert [pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=True)] == [True] * 3

    async def test_a_session_that_was_closed_keeps_nobody_busy(self, store: Store, gate: GatedProgram) -> None:
        runtime = await opened(store, [gate])
        ids = await queued(runtime, 2)
        await runtime.execute("s0", SuspendSession())
        async with asyncio.timeout(PATIENCE):
            await runtime.drain()
        assert [(await runtime.outcome(each)).status for each in ids] == ["queued", "completed"]


class TestWorking:
    async def test_it_takes_up_what_comes_in_until_it_is_cancelled(self, harness: Harness, gate: GatedProgram) -> None:
        runtime, sender = await opened(await harness.open(), [gate]), await opened(await harness.open(), [gate])
        working = asyncio.ensure_future(runtime.worker(poll=0.01).work())
        ids = await queued(sender, 2)

        async def all_done() -> bool:
            return all([(await sender.outcome(each)).completed for each in ids])

        await until(all_done)
        await sender.session("s0").enqueue("hold")
        await gate.entered("hold")
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert await lane_is_free(sender, "s0")
        assert (await sender.session("s0").runs())[0].status is RunStatus.INTERRUPTED

    async def test_told_to_finish_it_ends_its_turns_and_leaves_the_rest(self, store: Store, gate: GatedProgram) -> None:
        runtime = await opened(store, [gate])
        await runtime.create("gate", session_id="s")
        ids = [await runtime.session("s").enqueue(text) for text in ("hold", "next")]
        worker = runtime.worker(poll=0.01)
        working = asyncio.ensure_future(worker.work())
        await gate.entered("hold")
        worker.finish()
        gate.let_go("hold")
        async with asyncio.timeout(PATIENCE):
            await working
        assert [(await runtime.outcome(each)).status for each in ids] == ["completed", "queued"]
        assert await lane_is_free(runtime, "s")

    async def test_a_lost_run_is_found_and_goes_on_as_its_next_attempt(
        self, harness: Harness, gate: GatedProgram
    ) -> None:
        runtime, worker = await opened(await harness.open(), [gate]), await opened(await harness.open(), [gate])
        await runtime.create("gate", session_id="s")
        run_id = await begin_and_lose(runtime, SessionKey("s"), "lost", input_key="k")
        async with asyncio.timeout(PATIENCE):
            await worker.drain()
        (info,) = await worker.session("s").runs()
        assert (info.run_id, info.status, info.run.attempt) == (run_id, RunStatus.COMPLETED, 2)
        assert (await runtime.send("s", "lost", key="k")).run_id == run_id
        assert gate.said == ["lost"]

    async def test_a_failing_turn_disturbs_no_other_session(self, store: Store, gate: GatedProgram) -> None:
        runtime = await opened(store, [gate])
        await runtime.create("gate", session_id="bad")
        bad = await runtime.session("bad").enqueue("fail")
        ids = await queued(runtime, 3)
        await runtime.drain(concurrency=1)
        assert (await runtime.outcome(bad)).status == "failed"
        assert {(await runtime.outcome(each)).status for each in ids} == {"completed"}

    async def test_it_wakes_what_waited_for_a_time(self, harness: Harness) -> None:
        clock = FakeClock()

        @program
        async def sleeper(turn: Turn) -> str:
            await turn.sleep(3600)
            turn.append({"role": "assistant", "content": "awake"})
            return "awake"

        runtime = await opened(await harness.open(clock=clock), [sleeper])
        for number in range(3):
            await runtime.create("sleeper", session_id=f"s{number}")
            assert (await runtime.send(f"s{number}", "sleep")).suspended
        working = asyncio.ensure_future(runtime.worker(poll=0.01).work())
        clock.advance(3601)

        async def all_awake() -> bool:
            return all([(await talk_of(runtime, f"s{number}"))[-1] == "awake" for number in range(3)])

        await until(all_awake)
        working.cancel()
        await asyncio.wait([working])

    async def test_a_store_that_is_closed_ends_a_drain_loudly(self, harness: Harness, gate: GatedProgram) -> None:
        store = await harness.open()
        runtime = await opened(store, [gate])
        await store.aclose()
        with pytest.raises(StoreClosed):
            await runtime.drain()

    async def test_it_needs_some_concurrency(self, store: Store) -> None:
        for concurrency in (0, -1, 2.5, True):
            with pytest.raises(InvalidInput):
                await (await opened(store)).drain(concurrency)  # type: ignore[arg-type]


async def test_a_lost_run_whose_session_was_deleted_meanwhile_is_nobodys_and_harms_no_worker(harness: Harness) -> None:
    store = await harness.open(clock=FakeClock())
    await store.create("s")
    lane = await store.lanes.acquire("s", this_owner(), ttl=1)
    begin = BeginRun(run_id="r", invocation_id="i", correlation_id="i", ttl=1)
    await store.commit(Commit(key=lane.key, operation_id="o", life=lane.life, generation=lane.generation, run=begin))
    run = await store.runs.get("r", tenant="")
    assert run is not None
    await store.delete("s")
    assert not await end_orphan_without_session(store, run)
    assert not await store.exists("s")
