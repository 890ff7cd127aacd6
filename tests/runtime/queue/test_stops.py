"""Stops: durable, of one run, heard in any process, and the first of stop and last commit wins."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenuto import Store, words
from tenuto.errors import LaneLost, RunNotLive, SessionDeleted, SessionNotFound
from tenuto.model.effect import EffectStatus
from tenuto.model.run import RunStatus, StopAnswer, StopKind
from tenuto.runtime.calls.steps import begin_step, finish_step
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.stream.notices import Notice, RunStarted
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tenuto.testing.harness import Harness
from tests.polling import PATIENCE
from tests.runtime.gates import GatedProgram, events_of, lane_is_free, said, talk_of
from tests.runtime.runtimes import opened
from tests.runtime.seams import begin_and_lose, hear_stop, live_turn


async def stopped(
    store: Store, body: Callable[[Turn], Any], kind: words.StopKind = "interrupt", **seed: Any
) -> tuple[SessionRuntime, Outcome]:
    """Stop a turn of this program once it has set `entered` on itself; return how it ended."""
    entered = asyncio.Event()

    @program(name="body")
    async def holding(turn: Turn) -> None:
        await body(turn)
        entered.set()
        await asyncio.Event().wait()

    runtime = await opened(store, [holding, GatedProgram("another")])
    await runtime.create("body", seed, session_id="s")
    handle = await runtime.session("s").start("go")
    async with asyncio.timeout(PATIENCE):
        await entered.wait()
        reply = await runtime.session("s").stop(kind=kind, reason="enough")
        assert reply.answer is StopAnswer.RECORDED
        return runtime, await handle.wait()


class TestWhatIsKept:
    async def test_streamed_text_is_kept_and_flagged(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            turn.emit("half a ")
            turn.emit({"text": "sentence"})

        runtime, outcome = await stopped(store, body)
        assert outcome.status == "interrupted"
        assert outcome.error == {"category": "run_interrupted", "message": "enough"}
        assert list((await runtime.get("s")).messages)[1:] == [
            {"role": "assistant", "content": "half a sentence", "metadata": {"interrupted": {"stop": "interrupt"}}}
        ]

    async def test_a_message_with_calls_is_kept_and_each_call_answered_as_not_executed(self, store: Store) -> None:
        asked: Any = calls(("c1", "pay", {}), ("c2", "look", {}), content="wait")

        async def body(turn: Turn) -> None:
            turn.append(asked)

        runtime, _ = await stopped(store, body)
        reply, *results = list((await runtime.get("s")).messages)[1:]
        assert (reply["content"], reply["metadata"]) == ("wait", {"interrupted": {"stop": "interrupt"}})
        assert [(each["role"], each["tool_call_id"]) for each in results] == [("tool", "c1"), ("tool", "c2")]
        assert [each["metadata"] for each in results] == [{"not_executed": "the run was stopped"}] * 2
        assert (await runtime.session("s").effects_in_doubt()) == ()

    async def test_an_empty_reply_leaves_no_entry(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            turn.emit("")
            turn.append({"role": "assistant", "content": ""})

        runtime, outcome = await stopped(store, body)
        assert outcome.status == "interrupted"
        assert await talk_of(runtime, "s") == ["go"]

    async def test_no_state_change_is_left_that_nothing_backs(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            turn.state.update(colour="blue")
            await turn.save()
            turn.state.update(colour="red", shape="round")
            turn.add("notes", "unwritten")

        runtime, _ = await stopped(store, body, colour="green")
        session = await runtime.get("s")
        assert dict(session.document) == {"colour": "blue"}
        assert [said(each) for each in session.messages] == ["go"]
        assert list(session.logs.get("notes", ())) == []

    async def test_nothing_is_sent_that_was_not_committed(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            turn.hand_off("another", message={"role": "user", "content": "your turn"})

        runtime, _ = await stopped(store, body)
        await runtime.drain()
        assert (await store.dump())["outgoing"] == []
        session = await runtime.get("s")
        assert session.definition is not None
        assert session.definition.name == "body"
        assert [said(each) for each in session.messages] == ["go"]

    async def test_a_child_that_was_asked_for_in_the_stopped_step_never_runs(
        self, store: Store, gate: GatedProgram
    ) -> None:
        agent = ScriptedAgent(Script(calls(("c1", "ask", {"message": "hi"}))), [Tool(name="ask", child="gate")])
        runtime = await opened(store, [agent, gate])
        await runtime.create("agent", session_id="s")
        commit = store.commit

        async def stop_at_the_call(given: Any) -> Any:
            if given.outgoing and given.open_waits:
                await runtime.session("s").stop()
            return await commit(given)

        store.commit = stop_at_the_call  # type: ignore[assignment,method-assign]
        assert (await runtime.send("s", "go")).status == "interrupted"
        store.commit = commit  # type: ignore[method-assign]
        await runtime.drain()
        assert gate.said == []
        assert await runtime.session("s").waits() == []
        assert [each["role"] for each in (await runtime.get("s")).messages] == ["user", "assistant", "tool"]

    async def test_a_step_that_was_written_stays(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            await begin_step(context_of(turn))
            turn.append({"role": "assistant", "content": "step one"})
            turn.state.update(step=1)
            await finish_step(context_of(turn))
            await begin_step(context_of(turn))
            turn.emit("step t")

        runtime, _ = await stopped(store, body)
        session = await runtime.get("s")
        assert [(said(each), "metadata" in each) for each in session.messages] == [
            ("go", False),
            ("step one", False),
            ("step t", True),
        ]
        assert dict(session.document) == {"step": 1}
        assert (await runtime.session("s").runs())[0].run.steps == 1


class TestKinds:
    async def test_an_abort_is_a_failure_of_its_own_kind(self, store: Store) -> None:
        async def body(turn: Turn) -> None:
            turn.emit("half")

        runtime, outcome = await stopped(store, body, "abort")
        assert outcome.status == "failed"
        assert outcome.error == {"category": "run_aborted", "message": "enough"}
        (info,) = await runtime.session("s").runs()
        assert (info.status, info.run.error) == (RunStatus.FAILED, outcome.error)
        assert info.run.stop is not None
        assert (info.run.stop.kind, info.run.stop.reason, info.run.stop.seen_at is not None) == (
            StopKind.ABORT,
            "enough",
            True,
        )
        assert (await runtime.get("s")).messages[-1]["metadata"] == {"interrupted": {"stop": "abort"}}

    async def test_a_running_tool_is_let_finish_by_an_interrupt(self, store: Store) -> None:
        entered, go = [asyncio.Event(), asyncio.Event()], asyncio.Event()

        async def slow(_: Turn, arguments: Any) -> str:
            entered[arguments["n"]].set()
            await go.wait()
            return f"done {arguments['n']}"

        script = Script(calls(("a", "slow", {"n": 0}), ("b", "slow", {"n": 1})), "never")
        agent = ScriptedAgent(script, [Tool(name="slow", run=slow)])
        runtime = await opened(store, [agent])
        await runtime.create("agent", session_id="s")
        handle = await runtime.session("s").start("go")
        await asyncio.gather(*(each.wait() for each in entered))
        await handle.stop()
        await asyncio.sleep(0)
        assert not (await runtime.store.runs.get(str(handle.run_id))).ended_at  # type: ignore[union-attr]
        go.set()
        assert (await handle.wait()).status == "interrupted"
        results = {each["tool_call_id"]: each["content"] for each in (await runtime.get("s")).messages[2:]}
        assert results == {"a": "done 0", "b": "done 1"}
        assert {each.status for each in await store.effects.list("s")} <= {EffectStatus.DONE}
        assert len(script.requests) == 1

    async def test_a_program_that_does_no_steps_stops_after_its_tool(self, store: Store) -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        @program
        async def plain(turn: Turn) -> None:
            async def call() -> str:
                entered.set()
                await go.wait()
                return "done"

            await turn.effect("tool", call)
            await asyncio.Event().wait()

        runtime = await opened(store, [plain])
        await runtime.create("plain", session_id="s")
        handle = await runtime.session("s").start("go")
        await entered.wait()
        await handle.stop()
        go.set()
        async with asyncio.timeout(PATIENCE):
            assert (await handle.wait()).status == "interrupted"
        (effect,) = await store.effects.list("s")
        assert effect.status is EffectStatus.DONE

    async def test_an_abort_does_not_wait_for_a_tool_and_leaves_it_in_doubt(self, harness: Harness) -> None:
        entered = asyncio.Event()

        async def slow(_: Turn, __: Any) -> str:
            entered.set()
            await asyncio.Event().wait()
            return "never"

        agent = ScriptedAgent(Script(calls(("a", "slow", {})), "fine"), [Tool(name="slow", run=slow)])
        runtime = await opened(await harness.open(), [agent])
        elsewhere = await opened(await harness.open(), [agent])
        await runtime.create("agent", session_id="s")
        handle = await runtime.session("s").start("go")
        await entered.wait()
        assert (await elsewhere.session("s").stop()).answer is StopAnswer.RECORDED
        assert (await elsewhere.session("s").stop()).answer is StopAnswer.ALREADY
        assert (await elsewhere.session("s").stop(kind="abort", reason="now")).answer is StopAnswer.RECORDED
        assert (await elsewhere.session("s").stop()).answer is StopAnswer.ALREADY
        async with asyncio.timeout(PATIENCE):
            outcome = await handle.wait()
        assert outcome.error == {"category": "run_aborted", "message": "now"}
        assert [each.call_id for each in await elsewhere.session("s").effects_in_doubt()] == ["a"]
        assert (await runtime.get("s")).messages[-1]["metadata"] == {"outcome_unknown": True}
        assert (await elsewhere.send("s", "next")).text == "fine"


class TestWhose:
    async def test_a_stop_from_another_process_is_heard_while_the_program_waits(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        assert (await elsewhere.session("s").stop(reason="from afar")).answer is StopAnswer.RECORDED
        async with asyncio.timeout(PATIENCE):
            outcome = await handle.wait()
        assert outcome.error == {"category": "run_interrupted", "message": "from afar"}
        assert await lane_is_free(elsewhere, "s")

    async def test_the_turn_of_a_queued_message_and_of_a_worker_hear_it_as_well(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await elsewhere.session("s").start("hold")
        await gate.entered("hold")
        queued = await runtime.session("s").start("hold queued", when_busy="queue")
        gate.let_go("hold")
        await first.wait()
        await gate.entered("hold queued")
        await elsewhere.session("s").stop()
        async with asyncio.timeout(PATIENCE):
            assert (await queued.wait()).status == "interrupted"
        other = await elsewhere.session("s").enqueue("hold worker")
        working = asyncio.ensure_future(runtime.drain())
        await gate.entered("hold worker")
        await elsewhere.session("s").stop()
        async with asyncio.timeout(PATIENCE):
            await working
        assert (await elsewhere.outcome(other)).status == "interrupted"

    async def test_a_stop_never_hits_a_later_run(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        first = await runtime.send("s", "one")
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        for each in (runtime, elsewhere):
            reply = await each.session("s").stop(run_id=first.run_id)
            assert (reply.answer, reply.status) == (StopAnswer.ENDED, RunStatus.COMPLETED)
        gate.let_go("hold")
        assert (await handle.wait()).completed
        reply = await handle.stop()
        assert (reply.answer, reply.status, reply.stop) == (StopAnswer.ENDED, RunStatus.COMPLETED, None)
        assert (await runtime.send("s", "three")).completed
        assert await events_of(runtime, "s", "stop_requested") == []

    async def test_a_session_that_never_ran_has_nothing_to_stop(self, runtime: SessionRuntime) -> None:
        with pytest.raises(RunNotLive):
            await runtime.session("s").stop()
        with pytest.raises(SessionNotFound):
            await runtime.session("none").stop()
        with pytest.raises(RunNotLive):
            await runtime.session("s").stop(run_id="no such run")

    async def test_a_delete_ends_the_turn_and_takes_the_stop_along(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        await elsewhere.store.runs.request_stop(str(handle.run_id))
        await elsewhere.session("s").delete()
        gate.let_go("hold")
        with pytest.raises((SessionDeleted, LaneLost, RunNotLive)):
            async with asyncio.timeout(PATIENCE):
                await handle.wait()
        with pytest.raises(RunNotLive):
            await elsewhere.session("s").stop(run_id=handle.run_id)
        await elsewhere.create("gate", session_id="s")
        assert (await runtime.send("s", "anew")).completed
        assert await talk_of(runtime, "s") == ["anew", "re: anew"]


class TestWhen:
    @pytest.mark.parametrize("text", ["quick", "hold"])
    async def test_a_stop_before_the_first_step_is_one_outcome(
        self, store: Store, gate: GatedProgram, text: str
    ) -> None:
        async def stop_it(notice: Notice) -> None:
            if isinstance(notice, RunStarted):
                for _ in range(2):
                    await store.runs.request_stop(notice.run_id)

        runtime = await opened(store, [gate], listeners=[stop_it])
        await runtime.create("gate", session_id="s")
        async with asyncio.timeout(PATIENCE):
            outcome = await runtime.send("s", text)
        assert outcome.status == "interrupted"
        assert [each["status"] for each in await events_of(runtime, "s", "run_ended")] == ["interrupted"]

    async def test_a_stop_outlives_the_runner_and_whoever_takes_over_runs_nothing(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        await begin_and_lose(runtime, (await runtime.session("s").info()).key, "lost", input_key="k")
        assert (await elsewhere.session("s").stop()).answer is StopAnswer.RECORDED
        await elsewhere.drain()
        assert gate.said == []
        (info,) = await elsewhere.session("s").runs()
        assert (info.status, info.run.attempt) == (RunStatus.INTERRUPTED, 2)
        assert (await runtime.send("s", "lost", key="k")).status == "interrupted"

    async def test_a_program_that_swallows_the_cancellation_is_stopped_all_the_same(self, store: Store) -> None:
        entered = asyncio.Event()

        @program
        async def stubborn(turn: Turn) -> str:
            try:
                entered.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                turn.append({"role": "assistant", "content": "I was told to go"})
            return "finished"

        runtime = await opened(store, [stubborn])
        await runtime.create("stubborn", session_id="s")

        async def sender() -> tuple[Outcome, int]:
            outcome = await runtime.send("s", "go")
            task = asyncio.current_task()
            assert task is not None
            return outcome, task.cancelling()

        sending = asyncio.ensure_future(sender())
        await entered.wait()
        await runtime.session("s").stop()
        outcome, cancels = await sending
        assert (outcome.status, cancels) == ("interrupted", 0)
        assert (await runtime.get("s")).messages[-1]["metadata"] == {"interrupted": {"stop": "interrupt"}}

    async def test_a_sender_that_goes_away_beside_a_stop_still_goes(
        self, runtime: SessionRuntime, gate: GatedProgram
    ) -> None:
        sending = asyncio.ensure_future(runtime.send("s", "hold"))
        await gate.entered("hold")
        await runtime.session("s").stop()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        (info,) = await runtime.session("s").runs()
        assert info.status is RunStatus.INTERRUPTED
        assert await lane_is_free(runtime, "s")


class TestWithdrawing:
    async def test_a_stop_is_withdrawn_until_it_is_seen(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        run_id = str(handle.run_id)
        assert (await elsewhere.session("s").withdraw_stop(run_id)).answer is StopAnswer.NONE
        await handle.stop()
        assert (await handle.wait()).status == "interrupted"
        reply = await elsewhere.session("s").withdraw_stop(run_id)
        assert (reply.answer, reply.status) == (StopAnswer.ENDED, RunStatus.INTERRUPTED)

    async def test_a_turn_that_had_not_heard_of_it_goes_on(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        handle = await runtime.session("s").start("hold")
        await gate.entered("hold")
        await elsewhere.store.runs.request_stop(str(handle.run_id))
        assert (await elsewhere.session("s").withdraw_stop(str(handle.run_id))).answer is StopAnswer.WITHDRAWN
        gate.let_go("hold")
        assert (await handle.wait()).completed

    async def test_a_turn_that_waits_for_its_tool_goes_on_where_it_was(self, store: Store) -> None:
        entered, go, said_so = asyncio.Event(), asyncio.Event(), list[str]()

        async def slow(_: Turn, __: Any) -> str:
            said_so.append("tool")
            entered.set()
            await go.wait()
            return "done"

        script = Script(calls(("a", "slow", {})), "all done")
        runtime = await opened(store, [ScriptedAgent(script, [Tool(name="slow", run=slow)])])
        await runtime.create("agent", session_id="s")
        handle = await runtime.session("s").start("go")
        await entered.wait()
        await handle.stop()
        assert (await runtime.session("s").withdraw_stop(str(handle.run_id))).answer is StopAnswer.WITHDRAWN
        go.set()
        outcome = await handle.wait()
        assert (outcome.status, outcome.text) == ("completed", "all done")
        assert (said_so, len(script.requests)) == (["tool"], 2)
        assert [each["role"] for each in (await runtime.get("s")).messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]

    async def test_a_program_that_was_cut_off_already_runs_again(self, store: Store) -> None:
        entered, runs = asyncio.Event(), list[str | None]()

        @program
        async def talks(turn: Turn) -> str:
            runs.append(str(turn.state.get("mark")))
            turn.state.update(mark=len(runs))
            turn.emit(f"word {len(runs)}")
            if len(runs) == 1:
                entered.set()
                await asyncio.Event().wait()
            turn.append({"role": "assistant", "content": f"word {len(runs)}"})
            return "said"

        runtime = await opened(store, [talks])
        await runtime.create("talks", session_id="s")
        handle = await runtime.session("s").start("go")
        await entered.wait()
        turn = live_turn(runtime, str(handle.run_id))
        stop = (await store.runs.request_stop(str(handle.run_id))).stop
        assert stop is not None
        await runtime.session("s").withdraw_stop(str(handle.run_id))
        hear_stop(turn, stop)
        outcome = await handle.wait()
        assert (outcome.status, outcome.output) == ("completed", "said")
        assert runs == ["None", "None"]
        assert await talk_of(runtime, "s") == ["go", "word 2"]
        assert [each["status"] for each in await events_of(runtime, "s", "run_ended")] == ["completed"]


async def race(runtime: SessionRuntime, stopper: SessionRuntime, moments: int) -> words.OutcomeStatus:
    """Let a stop and the last commit of a turn race; return who won, the same wherever one looks."""
    entered, go = asyncio.Event(), asyncio.Event()
    program_of(runtime).arm(entered, go)
    session = await runtime.create("racer")
    handle = await session.start("go")
    await entered.wait()

    async def finishing() -> None:
        for _ in range(max(0, -moments)):
            await asyncio.sleep(0)
        go.set()

    async def stopping() -> Any:
        for _ in range(max(0, moments)):
            await asyncio.sleep(0)
        return await stopper.session(session.session_id).stop(run_id=handle.run_id)

    _, reply = await asyncio.gather(finishing(), stopping())
    async with asyncio.timeout(PATIENCE):
        outcome = await handle.wait()
    run = await stopper.store.runs.get(str(handle.run_id))
    assert run is not None
    ends = [
        frame.data["status"]
        async for frame in stopper.session(session.session_id).events(live=False)
        if frame.name == "run_ended"
    ]
    messages = (await stopper.get(session.session_id)).messages
    assert ends == [str(run.status)] == [outcome.status]
    if outcome.completed:
        assert reply.answer is StopAnswer.ENDED
        assert run.stop is None
        assert [each.get("metadata") for each in messages] == [None, None]
    else:
        assert (outcome.status, reply.answer) == ("interrupted", StopAnswer.RECORDED)
        assert run.stop is not None
        assert run.stop.seen_at is not None
        assert all("interrupted" in each["metadata"] for each in messages[1:])
    assert await lane_is_free(stopper, session.session_id)
    return outcome.status


class Racer:
    """Completes when it is told to."""

    name = "racer"
    version = "1"

    def arm(self, entered: asyncio.Event, go: asyncio.Event) -> None:
        self._entered, self._go = entered, go

    async def run(self, turn: Turn) -> None:
        self._entered.set()
        await self._go.wait()
        turn.append({"role": "assistant", "content": "done"})
        return


def program_of(runtime: SessionRuntime) -> Racer:
    found: Program[Any] = runtime.programs["racer@1"]
    assert isinstance(found, Racer)
    return found


async def race_many(harness: Harness, times: int) -> None:
    racer = Racer()
    runtime = await opened(await harness.open(), [racer])
    elsewhere = await opened(await harness.open(), [racer])
    found: set[words.OutcomeStatus] = set()
    for number in range(10 * times):
        stopper = (runtime, elsewhere)[number % 2]
        found.add(await race(runtime, stopper, moments=(number * 7) % 61 - 30))
        if number >= times and len(found) == 2:
            break  # on a busy machine one of them may win for a long time
    assert found == {"completed", "interrupted"}, "one of the two never won"


async def test_of_a_stop_and_the_last_commit_one_wins_the_same_everywhere(harness: Harness) -> None:
    await race_many(harness, 20 if harness.address and harness.address.startswith("postgres") else 100)


@pytest.mark.wide
@pytest.mark.long("five hundred races")
async def test_of_a_stop_and_the_last_commit_one_wins_five_hundred_times(harness: Harness) -> None:
    await race_many(harness, 500)
