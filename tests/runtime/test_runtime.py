"""Sending and starting, the outcome of an input, keys, runs and their budget, resuming, warm copies, and timers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import (
    InvalidInput,
    LaneBusy,
    OperationConflict,
    ProgramNotRegistered,
    RunFailed,
    RunNotLive,
    SessionNotFound,
    StatusRefused,
)
from tenuto.model.input import Cancelled, InputStatus
from tenuto.model.run import RunStatus
from tenuto.runtime.change.action import ResumeSession, SuspendSession, WriteMetadata
from tenuto.runtime.change.hooks import on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.words import WhenBusy
from tenuto.writing.error_record import without_frames
from tests.polling import until
from tests.runtime.gates import GatedProgram, lane_is_free, said, talk_of
from tests.runtime.runtimes import opened


async def test_a_turn_is_one_run_and_its_reply_the_outcome(runtime: SessionRuntime) -> None:
    outcome = await runtime.send("s", "one")
    assert outcome.completed
    assert (outcome.text, outcome.output, outcome.result()) == ("re: one", None, None)
    assert outcome.reply == {"role": "assistant", "content": "re: one"}
    session = await runtime.get("s")
    assert [said(each) for each in session.messages] == ["one", "re: one"]
    assert outcome.version == session.version
    (info,) = await runtime.session("s").runs()
    assert (info.run_id, info.status, info.run.number) == (outcome.run_id, RunStatus.COMPLETED, 1)
    assert (info.run.attempt, info.budget, info.run.worker is not None) == (1, 50, True)
    assert info.trace_id == session.profile.trace["trace_id"]


async def test_runs_grow_by_one_for_each_turn_that_started_on_every_path(
    runtime: SessionRuntime, gate: GatedProgram
) -> None:
    await runtime.send("s", "one")
    await runtime.send("s", "fail")
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    queued = await runtime.session("s").enqueue("queued")
    with pytest.raises(LaneBusy):
        await runtime.send("s", "rejected")
    await held.stop()
    assert (await held.wait()).status == "interrupted"
    await runtime.drain()
    assert (await runtime.outcome(queued)).completed
    gate.let_go("hold")
    gate.let_go("hold again")
    interrupted = await runtime.session("s").start("hold again")
    await interrupted.wait()
    found = [(each.run.number, each.status) for each in reversed(await runtime.session("s").runs())]
    assert found == [
        (1, RunStatus.COMPLETED),
        (2, RunStatus.FAILED),
        (3, RunStatus.INTERRUPTED),
        (4, RunStatus.COMPLETED),
        (5, RunStatus.COMPLETED),
    ]
    starts = [each.run.start_sequence for each in reversed(await runtime.session("s").runs())]
    assert starts == sorted(set(starts))


async def test_every_run_ends_once_and_the_session_stays_active(runtime: SessionRuntime, gate: GatedProgram) -> None:
    await runtime.send("s", "one")
    await runtime.send("s", "fail")
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    await held.stop()
    await held.wait()
    await runtime.send("s", "two")
    ends = [frame async for frame in runtime.session("s").events(live=False) if frame.is_end]
    runs = list(reversed(await runtime.session("s").runs()))
    assert [(each.run_id, each.data["status"]) for each in ends] == [(run.run_id, str(run.status)) for run in runs]
    assert all(run.run.ended_at is not None for run in runs)
    assert str((await runtime.session("s").info()).status) == "active"


async def test_a_failed_turn_keeps_its_message_and_nothing_it_had_not_written(
    runtime: SessionRuntime, elsewhere: SessionRuntime
) -> None:
    outcome = await runtime.send("s", "fail now")
    assert outcome.status == "failed"
    assert without_frames(outcome.error) == {"category": "ValueError", "message": "fail now"}
    with pytest.raises(RunFailed) as refused:
        outcome.result()
    assert refused.value.error == outcome.error
    assert (await runtime.send("s", "two")).completed
    here, there = await runtime.get("s"), await elsewhere.get("s")
    assert [said(each) for each in here.messages] == ["fail now", "two", "re: two"]
    assert dict(here.document) == dict(there.document) == {}


async def test_what_a_failed_turn_had_set_is_not_seen_by_the_next_one(store: Store) -> None:
    seen: list[Any] = []

    @program
    async def once(turn: Turn) -> None:
        seen.append((turn.state.get("colour"), turn.state.get("shape"), turn.definition.name, len(turn.messages)))
        turn.state.update(shape="round")
        await turn.save()
        turn.state.update(colour="red")
        turn.append({"role": "assistant", "content": "never"})
        raise ValueError("no")

    runtime = await opened(store, [once])
    await runtime.create("once", session_id="s")
    await runtime.send("s", "one")
    await runtime.send("s", "two")
    assert seen == [(None, None, "once", 1), (None, "round", "once", 2)]


class TestKeys:
    async def test_the_same_key_again_gives_the_same_outcome_and_one_message(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await runtime.send("s", "one", key="k")
        for each in (runtime, elsewhere, elsewhere):
            again = await each.send("s", "one", key="k")
            assert (again.status, again.run_id, again.input_id) == (first.status, first.run_id, first.input_id)
            assert (again.output, again.reply, again.error) == (first.output, first.reply, first.error)
        assert gate.said == ["one"]
        assert await talk_of(runtime, "s") == ["one", "re: one"]
        assert len(await runtime.session("s").runs()) == 1

    @pytest.mark.parametrize("text", ["fail", "hold"])
    async def test_the_outcome_of_a_turn_that_did_not_complete_is_repeated_as_well(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram, text: str
    ) -> None:
        handle = await runtime.session("s").start(text, key="k")
        await gate.entered(text)
        await runtime.session("s").stop()
        first = await handle.wait()
        again = await elsewhere.send("s", text, key="k")
        assert (again.status, again.run_id, again.error) == (first.status, first.run_id, first.error)
        assert gate.said == [text]

    async def test_other_content_under_a_known_key_is_a_conflict_and_changes_nothing(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, store: Store
    ) -> None:
        await runtime.send("s", "one", key="k")
        queued = await runtime.session("s").enqueue("later", key="q", delay=3600)
        before = await store.dump()
        for each in (runtime, elsewhere):
            session = each.session("s")
            verbs: list[Any] = [session.send, session.start, session.enqueue]
            for send in verbs:
                with pytest.raises(OperationConflict):
                    await send("another", key="k")
                with pytest.raises(OperationConflict):
                    await send("another", key="q")
        rows, before_rows = await store.dump(), before
        for row in (*rows["session"], *before_rows["session"]):
            assert row is not None
        assert (await runtime.outcome(queued)).status == "queued"
        assert rows["input"] == before_rows["input"]
        assert rows["run"] == before_rows["run"]
        assert rows["entry"] == before_rows["entry"]

    @pytest.mark.parametrize("policy", ["reject", "queue", "interrupt", "rollback"])
    async def test_a_repeat_while_the_turn_is_under_way_waits_for_that_turn(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram, policy: WhenBusy
    ) -> None:
        first = await runtime.session("s").start("hold", key="k")
        await gate.entered("hold")
        again = [asyncio.ensure_future(each.send("s", "hold", "k", policy)) for each in (runtime, elsewhere)]
        handle = await elsewhere.session("s").start("hold", key="k", when_busy=policy)
        assert handle.run_id == first.run_id
        gate.let_go("hold")
        outcomes = [await first.wait(), await handle.wait(), *(await asyncio.gather(*again))]
        assert {(each.status, each.run_id, each.text) for each in outcomes} == {("completed", first.run_id, "re: hold")}
        assert gate.said == ["hold"]

    async def test_a_repeat_while_it_is_queued_finds_the_queued_one(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await runtime.session("s").start("hold")
        await gate.entered("hold")
        queued = await runtime.session("s").start("next", key="k", when_busy="queue")
        again = await elsewhere.session("s").start("next", key="k", when_busy="queue")
        same = await elsewhere.session("s").start("next", key="k", when_busy="rollback")
        assert queued.input_id == again.input_id == same.input_id
        assert await elsewhere.session("s").enqueue("next", key="k") == queued.input_id
        gate.let_go("hold")
        outcomes = [await each.wait() for each in (queued, again, same)]
        assert len({each.run_id for each in outcomes}) == 1
        assert (await first.wait()).completed
        assert gate.said == ["hold", "next"]

    async def test_a_repeat_of_a_message_that_rolled_a_turn_back_finds_it(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await runtime.session("s").start("hold")
        await gate.entered("hold")
        outcome = await elsewhere.send("s", "next", key="k", when_busy="rollback")
        assert outcome.completed
        for policy in ("rollback", "queue"):
            again = await runtime.send("s", "next", key="k", when_busy=policy)
            assert again.run_id == outcome.run_id
        assert (await first.wait()).status == "interrupted"
        assert gate.said == ["hold", "next"]

    async def test_a_cancelled_input_is_the_outcome_of_its_key(
        self, runtime: SessionRuntime, gate: GatedProgram
    ) -> None:
        queued = await runtime.session("s").enqueue("one", key="k", delay=3600)
        assert await runtime.session("s").cancel(queued) == {queued: Cancelled.CANCELLED}
        assert (await runtime.send("s", "one", key="k")).status == "cancelled"
        assert gate.said == []

    @pytest.mark.parametrize("policy", ["queue", "interrupt"])
    async def test_the_same_key_at_once_in_two_runtimes_is_one_turn(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram, policy: WhenBusy
    ) -> None:
        for number in range(8):
            text = f"message {number}"
            both = await asyncio.gather(*(each.send("s", text, text, policy) for each in (runtime, elsewhere) * 2))
            assert len({each.run_id for each in both}) == 1
            assert {each.text for each in both} == {f"re: {text}"}
        assert gate.said == [f"message {number}" for number in range(8)]


class TestInputs:
    async def test_a_consumed_row_names_run_and_entry_also_after_gc_and_reopening(
        self, runtime: SessionRuntime, harness: Harness
    ) -> None:
        outcomes = [await runtime.send("s", text, key=text) for text in ("one", "two")]
        ids = [await runtime.session("s").enqueue(text) for text in ("three", "four")]
        await runtime.drain()
        await runtime.store.upkeep.gc(grace=0)
        store = await harness.open()
        messages = (await runtime.get("s")).messages
        consumed = [*(each.input_id for each in outcomes), *ids]
        for input_id, text in zip(consumed, ["one", "two", "three", "four"], strict=True):
            assert input_id is not None
            row = await store.inbox.get(input_id)
            assert row is not None
            assert (row.status, row.log, row.has_body) == (InputStatus.CONSUMED, "messages", False)
            assert row.position is not None
            assert said(messages[row.position]) == text
            assert row.run_id == (await runtime.outcome(input_id)).run_id
        assert await talk_of(runtime, "s") == [
            word for text in ("one", "two", "three", "four") for word in (text, f"re: {text}")
        ]

    async def test_a_message_that_begins_its_turn_at_once_without_a_key_is_known_by_its_run(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime
    ) -> None:
        outcome = await runtime.send("s", "hello")
        assert outcome.input_id == outcome.run_id
        assert await runtime.store.inbox.get(str(outcome.input_id)) is None
        again = await elsewhere.outcome(str(outcome.input_id))
        assert (again.status, again.run_id, again.reply) == (outcome.status, outcome.run_id, outcome.reply)

    async def test_anybody_can_ask_where_an_input_stands(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        assert held.input_id is not None
        queued = await runtime.session("s").enqueue("next")
        assert (await elsewhere.outcome(held.input_id)).status == "running"
        assert (await elsewhere.outcome(queued)).status == "queued"
        gate.let_go("hold")
        await held.wait()
        found = await elsewhere.outcome(held.input_id)
        assert (found.status, found.run_id, found.text) == ("completed", held.run_id, "re: hold")
        await elsewhere.drain()
        assert (await runtime.outcome(queued)).text == "re: next"
        with pytest.raises(InvalidInput):
            await elsewhere.outcome("nobody-sent-this")

    async def test_only_open_rows_of_this_session_are_listed_in_order_of_arrival(self, runtime: SessionRuntime) -> None:
        await runtime.create("gate", session_id="other")
        await runtime.send("s", "done")
        ids = [await runtime.session("s").enqueue(text, delay=delay) for text, delay in (("late", 3600), ("now", None))]
        gone = await runtime.session("s").enqueue("gone")
        await runtime.session("other").enqueue("elsewhere")
        await runtime.session("s").cancel(gone)
        listed = await runtime.store.inbox.list("s")
        assert [each.input_id for each in listed] == ids
        assert await runtime.session("s").cancel(gone, ids[0], "unknown") == {
            gone: Cancelled.ALREADY,
            ids[0]: Cancelled.CANCELLED,
            "unknown": Cancelled.UNKNOWN,
        }
        await runtime.drain()
        assert await runtime.session("s").cancel(ids[1]) == {ids[1]: Cancelled.CONSUMED}


class TestRefusals:
    async def test_a_session_that_is_not_there_is_refused_and_nothing_is_made(
        self, runtime: SessionRuntime, store: Store
    ) -> None:
        before = await store.dump()
        for verb in (
            runtime.send("none", "hello"),
            runtime.session("none").start("hello"),
            runtime.session("none").enqueue("hello"),
            runtime.session("none").stop(),
            runtime.session("none").resume(),
            runtime.get("none"),
            runtime.session("none").info(),
            runtime.session("none").runs(),
            runtime.session("none").delete(),
            runtime.execute("none", WriteMetadata({"a": 1})),
        ):
            with pytest.raises(SessionNotFound):
                await verb
        assert await store.dump() == before

    async def test_a_refused_turn_leaves_the_lane_free(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, harness: Harness
    ) -> None:
        await runtime.execute("s", SuspendSession())
        for each in (runtime, elsewhere):
            with pytest.raises(StatusRefused):
                await each.send("s", "hello")
            assert await lane_is_free(each, "s")
        await elsewhere.execute("s", ResumeSession())
        stranger = await opened(await harness.open(), [GatedProgram("another")])
        with pytest.raises(ProgramNotRegistered):
            await stranger.send("s", "hello")
        with pytest.raises(ProgramNotRegistered):
            await stranger.session("s").start("hello", when_busy="queue")
        assert await lane_is_free(stranger, "s")
        assert (await runtime.send("s", "hello")).completed

    async def test_a_hook_that_refuses_leaves_the_lane_free(self, store: Store, gate: GatedProgram) -> None:
        async def refuse(session: SessionView) -> SessionView:
            raise ValueError("not today")

        runtime = await opened(store, [gate], hooks=[on("after_load", refuse)])
        await runtime.create("gate", session_id="s")
        for _ in range(2):
            with pytest.raises(ValueError, match="not today"):
                await runtime.send("s", "hello")
        assert await lane_is_free(runtime, "s")
        assert await runtime.session("s").runs() == []


class TestStarting:
    async def test_a_started_turn_goes_on_by_itself_and_tells_how_it_went(
        self, runtime: SessionRuntime, gate: GatedProgram
    ) -> None:
        await runtime.send("s", "before")
        handle = await runtime.session("s").start("hold")
        assert handle.run_id == (await runtime.session("s").runs())[0].run_id
        await gate.entered("hold")
        gate.let_go("hold")
        assert (await handle.wait()).text == "re: hold"
        assert [text async for text in handle.text()] == ["re: hold"]
        frames = [frame async for frame in handle.events()]
        assert {frame.run_id for frame in frames if frame.type != "caught_up"} == {handle.run_id}
        assert [frame.name for frame in frames if frame.name][:2] == ["session_loaded", "run_started"]
        assert (frames[-1].type, frames[-1].name) == ("end", "run_ended")

    async def test_the_result_of_one_that_failed_is_raised(self, runtime: SessionRuntime) -> None:
        handle = await runtime.session("s").start("fail")
        assert (await handle.wait()).status == "failed"
        with pytest.raises(RunFailed):
            await handle.result()
        assert [frame.type async for frame in handle.events()][-1] == "fail"

    async def test_a_queued_one_follows_its_own_run_and_never_stops_another(
        self, runtime: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await runtime.session("s").start("hold")
        await gate.entered("hold")
        queued = await runtime.session("s").start("hold too", when_busy="queue")
        assert queued.run_id is None
        with pytest.raises(RunNotLive):
            await queued.stop()

        async def followed() -> list[str]:
            return [str(frame.run_id) async for frame in queued.events() if frame.type != "caught_up"]

        following = asyncio.ensure_future(followed())
        gate.let_go("hold")
        assert (await first.wait()).completed
        await gate.entered("hold too")
        await queued.stop()
        assert (await queued.wait()).status == "interrupted"
        assert set(await following) == {queued.run_id}
        assert queued.run_id != first.run_id

    async def test_closing_waits_for_what_was_started(self, store: Store, gate: GatedProgram) -> None:
        async with SessionRuntime(store, [gate]) as runtime:
            await runtime.create("gate", session_id="s")
            handle = await runtime.session("s").start("hold")
            await gate.entered("hold")
            asyncio.get_running_loop().call_soon(gate.let_go, "hold")
        assert (await handle.wait()).completed
        await runtime.aclose()

    async def test_a_waiter_that_is_cancelled_leaves_the_turn_alone(
        self, runtime: SessionRuntime, gate: GatedProgram
    ) -> None:
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        waiting = asyncio.ensure_future(handle.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.let_go("hold")
        assert (await handle.wait()).completed


class TestCancelling:
    async def test_cancelling_the_sender_interrupts_the_turn_and_the_session_is_free_at_once(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        sending = asyncio.ensure_future(runtime.send("s", "hold", key="k"))
        await gate.entered("hold")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await lane_is_free(elsewhere, "s")
        (info,) = await elsewhere.session("s").runs()
        assert (info.status, info.run.error["category"]) == (RunStatus.INTERRUPTED, "cancelled")
        assert (await elsewhere.send("s", "hold", key="k")).status == "interrupted"
        assert (await elsewhere.send("s", "next")).completed

    @pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
    async def test_cancelling_it_at_any_moment_leaves_a_session_that_can_be_used_at_once(
        self, harness: Harness, gate: GatedProgram, warm: bool
    ) -> None:
        store = await harness.open()
        runtime, patient = await opened(store, [gate]), await opened(await harness.open(), [gate])
        for number, moments in enumerate(_moments()):
            name = f"s{number}"
            await runtime.create("gate", session_id=name)
            if warm:
                await runtime.send(name, "warm up")
            sending = asyncio.ensure_future(runtime.send(name, "hello", key="k"))
            for _ in range(moments):
                await asyncio.sleep(0)
            sending.cancel()
            finished = (await asyncio.gather(sending, return_exceptions=True))[0]
            assert await lane_is_free(patient, name), f"the lane is held after {moments} moments"
            assert [each.status for each in await patient.session(name).runs()].count(RunStatus.RUNNING) == 0
            outcome = await patient.send(name, "next")
            assert outcome.completed
            known = await store.inbox.find(name, "k")
            talk = await talk_of(patient, name)
            assert talk.count("hello") == (1 if known else 0)
            assert talk.count("re: hello") <= 1
            if not isinstance(finished, BaseException):
                return
        pytest.fail("the turn was never let come to its end")


def _moments() -> Iterator[int]:
    """Yield at how many passes of the event loop to cut a turn off: all of the first, then ever fewer."""
    moment = 0
    while moment < 100_000:
        yield moment
        moment += 1 if moment < 12 else moment // 6


class TestBudget:
    @pytest.fixture
    def endless(self) -> ScriptedAgent:
        async def look(_: Turn, __: Any) -> str:
            return "nothing"

        return ScriptedAgent(Script(calls(("c", "look", {}))), [Tool(name="look", run=look)])

    async def test_a_turn_is_bounded_and_the_next_one_has_a_new_budget(
        self, store: Store, endless: ScriptedAgent
    ) -> None:
        runtime = await opened(store, [endless], steps=3)
        await runtime.create("agent", session_id="s")
        for turn in (1, 2):
            outcome = await runtime.send("s", "go")
            assert outcome.status == "failed"
            assert outcome.error["category"] == "step_budget_exceeded"
            assert outcome.error["details"]["limit"] == 3
            assert (await runtime.session("s").runs())[0].run.steps == 3
            assert endless.model_calls == 3 * turn
        assert [info.budget for info in await runtime.session("s").runs()] == [3, 3]

    async def test_with_no_limit_given_a_turn_has_fifty_steps(self, store: Store) -> None:
        steps = 0

        @program
        async def endless(turn: Turn) -> None:
            nonlocal steps
            async for _ in turn.steps():
                steps += 1

        runtime = await opened(store, [endless])
        await runtime.create("endless", session_id="s")
        outcome = await runtime.send("s", "go")
        assert (outcome.status, outcome.error["category"]) == ("failed", "step_budget_exceeded")
        assert steps == 50 == (await runtime.session("s").runs())[0].run.steps

    async def test_a_budget_below_one_step_is_refused(self, store: Store) -> None:
        for steps in (0, -1, True, 1.5):
            with pytest.raises(InvalidInput):
                await opened(store, steps=steps)


class TestResuming:
    async def test_an_interrupted_run_goes_on_as_another_run_of_its_invocation(self, store: Store) -> None:
        asked: list[int] = []
        entered, go = asyncio.Event(), asyncio.Event()

        async def model(request: Any) -> Any:
            asked.append(len(request.messages))
            if len(asked) == 2:
                entered.set()
                await go.wait()
            return calls(("c", "look", {})) if len(request.messages) == 1 else {"role": "assistant", "content": "done"}

        looked: list[Any] = []

        async def look(_: Turn, arguments: Any) -> str:
            looked.append(arguments)
            return "seen"

        runtime = await opened(store, [ScriptedAgent(model, [Tool(name="look", run=look)])])
        await runtime.create("agent", session_id="s")
        handle = await runtime.session("s").start("go")
        await entered.wait()
        await handle.stop()
        assert (await handle.wait()).status == "interrupted"
        go.set()
        outcome = await runtime.session("s").resume()
        assert (outcome.completed, outcome.text) == (True, "done")
        second, first = await runtime.session("s").runs()
        assert first.run.invocation_id == second.run.invocation_id
        assert (first.status, second.status) == (RunStatus.INTERRUPTED, RunStatus.COMPLETED)
        assert (await runtime.session("s").info()).resume_count == 1
        assert looked == [{}]
        assert asked == [1, 3, 3]
        assert [each["role"] for each in (await runtime.get("s")).messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]

    async def test_a_failed_run_goes_on_without_a_new_message(self, store: Store) -> None:
        tries: list[int] = []

        @program
        async def flaky(turn: Turn) -> str:
            tries.append(len(turn.messages))
            if len(tries) == 1:
                raise ConnectionError("try later")
            turn.append({"role": "assistant", "content": "here I am"})
            return said(turn.input)

        runtime = await opened(store, [flaky])
        await runtime.create("flaky", session_id="s")
        assert (await runtime.send("s", "go")).status == "failed"
        assert (await runtime.session("s").resume()).output == "go"
        assert tries == [1, 1]
        assert await talk_of(runtime, "s") == ["go", "here I am"]

    async def test_there_is_nothing_to_go_on_with_after_a_completed_run_or_none(self, runtime: SessionRuntime) -> None:
        with pytest.raises(StatusRefused):
            await runtime.session("s").resume()
        await runtime.send("s", "one")
        with pytest.raises(StatusRefused):
            await runtime.session("s").resume()
        assert await lane_is_free(runtime, "s")
        assert (await runtime.session("s").info()).resume_count == 0


class Loads:
    """Counts how often sessions are loaded whole."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._load = store.load_with_run
        store.load_with_run = self  # type: ignore[method-assign]

    async def __call__(self, key: Any) -> Any:
        self.count += 1
        return await self._load(key)


class TestWarm:
    async def test_a_session_used_last_here_is_not_loaded_again(self, runtime: SessionRuntime) -> None:
        loads = Loads(runtime.store)
        for number in range(4):
            await runtime.send("s", f"message {number}")
        assert loads.count == 1
        await runtime.send("s", "fail")
        await runtime.send("s", "after")
        assert (await talk_of(runtime, "s"))[-3:] == ["fail", "after", "re: after"]

    async def test_what_others_did_between_two_turns_is_noticed_and_not_shown(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        await runtime.send("s", "one")
        await elsewhere.send("s", "two")
        assert (await runtime.send("s", "three")).completed
        await elsewhere.execute("s", WriteMetadata({"colour": "green"}))
        assert (await runtime.send("s", "four")).completed
        assert (await runtime.get("s")).metadata == {"colour": "green"}
        queued = await elsewhere.session("s").enqueue("five")
        assert (await runtime.send("s", "six")).completed
        assert (await runtime.outcome(queued)).completed
        order = ["one", "two", "three", "four", "five", "six"]
        assert gate.said == order
        assert await talk_of(runtime, "s") == [word for text in order for word in (text, f"re: {text}")]

    async def test_a_status_or_an_end_that_others_gave_it_is_noticed(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime
    ) -> None:
        await runtime.send("s", "one")
        await elsewhere.execute("s", SuspendSession())
        with pytest.raises(StatusRefused):
            await runtime.send("s", "two")
        await elsewhere.execute("s", ResumeSession())
        await runtime.send("s", "three")
        await elsewhere.session("s").delete()
        with pytest.raises(SessionNotFound):
            await runtime.send("s", "four")
        await elsewhere.create("gate", session_id="s")
        assert (await runtime.send("s", "five")).completed
        assert await talk_of(runtime, "s") == ["five", "re: five"]

    async def test_the_copies_used_longest_ago_are_let_go(self, store: Store, gate: GatedProgram) -> None:
        runtime = await opened(store, [gate], cache_bytes=2000)
        for name in ("a", "b", "c"):
            await runtime.create("gate", session_id=name)
            await runtime.send(name, "x" * 300)
        loads = Loads(store)
        await runtime.send("c", "again")
        assert loads.count == 0
        await runtime.send("a", "again")
        assert loads.count == 1

    async def test_a_copy_is_never_used_by_two_turns(self, runtime: SessionRuntime, gate: GatedProgram) -> None:
        await runtime.send("s", "warm up")
        texts = [f"message {number}" for number in range(12)]
        outcomes = await asyncio.gather(*(runtime.send("s", text, when_busy="queue") for text in texts))
        assert [each.text for each in outcomes] == [f"re: {text}" for text in texts]
        assert gate.most_at_once == 1
        talk = await talk_of(runtime, "s")
        assert talk[1::2] == [f"re: {text}" for text in talk[::2]]
        assert sorted(talk[2::2]) == sorted(texts)


class TestTimers:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    async def test_delayed_input_is_taken_when_it_is_due(
        self, harness: Harness, clock: FakeClock, gate: GatedProgram
    ) -> None:
        runtime = await opened(await harness.open(clock=clock), [gate])
        await runtime.create("gate", session_id="s")
        late = await runtime.session("s").enqueue("late", delay=60)
        later = await runtime.session("s").enqueue("later", delay=120)
        await runtime.drain()
        assert gate.said == []
        assert (await runtime.send("s", "now")).completed
        clock.advance(59.9)
        await runtime.drain()
        assert gate.said == ["now"]
        clock.advance(0.2)
        await runtime.drain()
        assert (await runtime.outcome(late)).completed
        assert (await runtime.outcome(later)).status == "queued"
        clock.advance(60)
        await runtime.drain()
        assert gate.said == ["now", "late", "later"]

    async def test_a_sleeping_turn_is_woken_by_the_worker_and_not_before(
        self, harness: Harness, clock: FakeClock
    ) -> None:
        woken: list[bool] = []

        @program
        async def sleeper(turn: Turn) -> str:
            woken.append(turn.resumed)
            await turn.sleep(600)
            await turn.sleep(60, "nap")
            return "rested"

        runtime = await opened(await harness.open(clock=clock), [sleeper])
        await runtime.create("sleeper", session_id="s")
        outcome = await runtime.send("s", "good night")
        assert (outcome.status, [wait.kind for wait in outcome.waits]) == ("suspended", ["time"])
        for seconds, runs in ((599, 1), (2, 2), (58, 2), (3, 3)):
            clock.advance(seconds)
            await runtime.drain()
            assert len(woken) == runs
        assert (await runtime.session("s").runs())[0].status is RunStatus.COMPLETED
        await runtime.drain()
        assert len(woken) == 3

    async def test_a_wake_that_comes_again_starts_no_second_turn(
        self, harness: Harness, clock: FakeClock, gate: GatedProgram
    ) -> None:
        runtime = await opened(await harness.open(clock=clock), [gate])
        await runtime.create("gate", session_id="s")
        first = await runtime.session("s").enqueue("tick", key="timer-1", delay=5)
        clock.advance(6)
        await runtime.drain()
        assert await runtime.session("s").enqueue("tick", key="timer-1", delay=5) == first
        clock.advance(6)
        await runtime.drain()
        assert gate.said == ["tick"]


async def test_asking_for_due_work_reads_only_and_tells_empty_from_later(harness: Harness, gate: GatedProgram) -> None:
    clock = FakeClock()
    store = await harness.open(clock=clock)
    runtime = await opened(store, [gate])
    await runtime.create("gate", session_id="s")

    async def due() -> bool:
        before = await store.dump()
        found = [key.session_id for key in await store.inbox.due()]
        assert await store.dump() == before
        return found == ["s"]

    assert not await due()
    assert (await store.inbox.next("s")).reason == "empty"
    assert (await store.inbox.next("unknown")).reason == "empty"
    await runtime.session("s").enqueue("later", delay=10)
    assert not await due()
    look = await store.inbox.next("s")
    assert (look.reason, look.due_at) == ("not_due", await store.inbox.next_due())
    await runtime.session("s").enqueue(WriteMetadata({"a": 1}))
    assert await due()
    await runtime.drain()
    assert not await due()
    clock.advance(10)
    assert await due()
    await runtime.drain()
    assert not await due()


async def test_a_stale_plan_is_given_up_and_nothing_of_it_is_written(
    runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
) -> None:
    await runtime.send("s", "one")
    commit, waiting, go = runtime.store.commit, asyncio.Event(), asyncio.Event()

    async def late_commit(planned: Any) -> Any:
        if not go.is_set():
            waiting.set()
            await go.wait()
        return await commit(planned)

    runtime.store.commit = late_commit  # type: ignore[method-assign, assignment]
    sending = asyncio.ensure_future(runtime.send("s", "three"))
    await waiting.wait()
    await elsewhere.send("s", "two")
    go.set()
    assert (await sending).completed
    assert await talk_of(runtime, "s") == [word for text in ("one", "two", "three") for word in (text, f"re: {text}")]
    assert [each.run.number for each in await runtime.session("s").runs()] == [3, 2, 1]
    await until(lambda: lane_is_free(runtime, "s"))


async def test_an_outcome_that_is_asked_for_as_its_session_is_deleted_is_of_no_input(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await opened(store, [ScriptedAgent(model=Script(calls(("c", "ask", {}))), tools=[Tool(name="ask")])])
    await runtime.create("agent", session_id="s")
    sent = await runtime.send("s", "go", key="k")
    assert sent.suspended
    look = store.runs.of_invocation

    async def deleted_before(*named: Any, **options: Any) -> Any:
        await store.delete("s")
        return await look(*named, **options)

    monkeypatch.setattr(store.runs, "of_invocation", deleted_before)
    with pytest.raises(InvalidInput, match="There is no input"):
        await runtime.outcome(str(sent.input_id))
