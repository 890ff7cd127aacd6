"""What becomes of a message to a session whose turn is under way: rejected, queued, or the turn makes room."""

import asyncio
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, LaneBusy
from tenuto.model.effect import EffectStatus
from tenuto.model.input import InputKind, InputStatus, NewInput
from tenuto.model.run import RunStatus
from tenuto.runtime.change.action import WriteMetadata
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.first_message import rolling_back
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.harness import Harness
from tenuto.words import WhenBusy
from tests.runtime.gates import GatedProgram, events_of, lane_is_free, talk_of
from tests.runtime.runtimes import opened


def talk(*texts: str) -> list[str]:
    """Return a conversation in which each of these was answered."""
    return [word for text in texts for word in (text, f"re: {text}")]


async def test_an_unknown_word_is_refused_and_nothing_is_written(runtime: SessionRuntime, store: Store) -> None:
    before = await store.dump()
    words: list[Any] = ["wait", "", "REJECT"]
    for word in words:
        with pytest.raises(InvalidInput):
            await runtime.send("s", "hello", when_busy=word)
        with pytest.raises(InvalidInput):
            await opened(store, when_busy=word)
    assert await store.dump() == before


class TestReject:
    async def test_a_busy_session_refuses_and_nothing_changes(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        before = await runtime.store.dump()
        for each in (runtime, elsewhere):
            with pytest.raises(LaneBusy) as refused:
                await each.send("s", "no")
            assert (refused.value.category, refused.value.retryable) == ("session_execution_busy", True)
            with pytest.raises(LaneBusy):
                await each.session("s").start("no", key="k", when_busy="reject")
        assert await runtime.store.dump() == before
        gate.let_go("hold")
        assert (await held.wait()).completed
        assert (await elsewhere.send("s", "now")).completed
        assert await talk_of(runtime, "s") == talk("hold", "now")

    async def test_of_several_at_once_one_wins_and_the_others_are_refused(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        sending = [
            asyncio.ensure_future(each.send("s", f"hold {number}"))
            for number, each in enumerate((runtime, elsewhere, runtime, elsewhere, runtime))
        ]
        done, waiting = set[Any](), set(sending)
        while len(waiting) > 1:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert [type(each.exception()) for each in done] == [LaneBusy] * 4
        (winner,) = waiting
        gate.let_go(f"hold {sending.index(winner)}")
        assert (await winner).completed
        assert gate.said == [f"hold {sending.index(winner)}"]

    async def test_input_that_waits_already_goes_first_if_the_session_is_idle(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        queued = await runtime.session("s").enqueue("first")
        assert (await elsewhere.send("s", "second")).completed
        assert (await runtime.outcome(queued)).completed
        assert gate.said == ["first", "second"]


class TestQueue:
    async def test_all_get_their_turn_in_order_of_arrival(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        texts = [f"message {number}" for number in range(5)]
        handles = [
            await each.session("s").start(text, when_busy="queue")
            for text, each in zip(texts, (elsewhere, runtime, elsewhere, elsewhere, runtime), strict=True)
        ]
        gate.let_go("hold")
        assert [(await each.wait()).text for each in handles] == [f"re: {text}" for text in texts]
        assert (await held.wait()).completed
        assert await talk_of(runtime, "s") == talk("hold", *texts)
        assert gate.most_at_once == 1
        assert await runtime.store.inbox.list("s") == ()

    async def test_a_message_is_durable_before_its_sender_waits(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        queued = await elsewhere.session("s").start("next", when_busy="queue")
        (row,) = await runtime.store.inbox.list("s")
        assert (row.input_id, row.status, row.body) == (
            queued.input_id,
            InputStatus.OPEN,
            {"message": {"role": "user", "content": "next"}},
        )
        gate.let_go("hold")
        await held.wait()
        assert (await queued.wait()).completed

    async def test_a_sender_that_goes_away_leaves_its_message_and_the_turns_of_others(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await elsewhere.session("s").start("hold")
        await gate.entered("hold")
        other = await elsewhere.session("s").enqueue("hold the other")
        sending = asyncio.ensure_future(runtime.send("s", "mine", key="k", when_busy="queue"))
        gate.let_go("hold")
        assert (await held.wait()).completed
        await gate.entered("hold the other")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        gate.let_go("hold the other")
        await runtime.aclose()
        assert (await elsewhere.outcome(other)).completed
        mine = await elsewhere.store.inbox.find("s", "k")
        assert mine is not None
        assert (await elsewhere.outcome(mine.input_id)).status == "queued"
        await elsewhere.drain()
        assert await talk_of(elsewhere, "s") == talk("hold", "hold the other", "mine")

    async def test_a_queued_sender_that_goes_away_in_its_own_turn_interrupts_it(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await elsewhere.session("s").start("hold")
        await gate.entered("hold")
        sending = asyncio.ensure_future(runtime.send("s", "hold mine", key="k", when_busy="queue"))
        gate.let_go("hold")
        await held.wait()
        await gate.entered("hold mine")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await lane_is_free(runtime, "s")
        assert (await elsewhere.send("s", "hold mine", key="k")).status == "interrupted"

    async def test_a_session_held_by_an_action_is_queued_for_as_well(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        acting, go = asyncio.Event(), asyncio.Event()

        class Slow(WriteMetadata):
            async def apply(self, session: Any) -> Any:
                acting.set()
                await go.wait()
                return session

        action = asyncio.ensure_future(runtime.execute("s", Slow({})))
        await acting.wait()
        with pytest.raises(LaneBusy):
            await elsewhere.send("s", "no")
        policies: tuple[WhenBusy, ...] = ("queue", "interrupt", "rollback")
        handles = [await elsewhere.session("s").start(policy, when_busy=policy) for policy in policies]
        go.set()
        await action
        assert [(await each.wait()).status for each in handles] == ["completed"] * 3
        assert gate.said == ["queue", "interrupt", "rollback"]


class TestInterrupt:
    async def test_the_turn_under_way_is_stopped_and_the_message_comes_next(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        outcome = await elsewhere.send("s", "next", when_busy="interrupt")
        assert outcome.completed
        assert (await held.wait()).status == "interrupted"
        assert await talk_of(runtime, "s") == ["hold", "next", "re: next"]
        stops = await events_of(runtime, "s", "stop_requested")
        assert [(each["run_id"], each["kind"]) for each in stops] == [(held.run_id, "interrupt")]

    @pytest.mark.parametrize(
        ("first", "policy"), [("interrupt", "interrupt"), ("rollback", "rollback"), ("rollback", "interrupt")]
    )
    async def test_a_repeat_that_still_waits_makes_sure_that_the_run_is_asked_to_stop(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram, first: WhenBusy, policy: WhenBusy
    ) -> None:
        """Its sender was cut off, or somebody withdrew the stop, and it is sent again with the same key."""
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        body: dict[str, Any] = {"message": {"role": "user", "content": "next"}}
        queued = await elsewhere.store.inbox.enqueue(
            "s", NewInput(kind=InputKind.MESSAGE, body=rolling_back(body) if first == "rollback" else body, key="k")
        )
        assert queued.stop is None
        outcome = await elsewhere.send("s", "next", key="k", when_busy=policy)
        assert (outcome.completed, outcome.input_id) == (True, queued.input.input_id)
        assert (await held.wait()).status == "interrupted"
        assert await talk_of(runtime, "s") == [*([] if first == "rollback" else ["hold"]), *talk("next")]
        again = await elsewhere.send("s", "next", key="k", when_busy=policy)
        assert again == outcome
        assert len(await events_of(runtime, "s", "stop_requested")) == 1

    async def test_a_repeat_whose_turn_is_under_way_stops_nothing(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold", key="k")
        await gate.entered("hold")
        again = await elsewhere.session("s").start("hold", key="k", when_busy="interrupt")
        gate.let_go("hold")
        assert (await held.wait()).completed
        assert (await again.wait()).completed
        assert await events_of(runtime, "s", "stop_requested") == []

    async def test_a_message_that_waits_is_not_stopped_for_a_later_one(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        first = await elsewhere.session("s").start("hold too", when_busy="queue")
        second = await elsewhere.session("s").start("last", when_busy="interrupt")
        assert (await held.wait()).status == "interrupted"
        await gate.entered("hold too")
        gate.let_go("hold too")
        assert (await first.wait()).completed
        assert (await second.wait()).completed
        assert gate.said == ["hold", "hold too", "last"]

    async def test_an_idle_session_is_just_talked_to(self, runtime: SessionRuntime) -> None:
        policies: tuple[WhenBusy, ...] = ("interrupt", "rollback")
        for policy in policies:
            assert (await runtime.send("s", policy, when_busy=policy)).completed
        assert await talk_of(runtime, "s") == talk("interrupt", "rollback")
        assert await events_of(runtime, "s", "stop_requested") == []


class TestRollback:
    @pytest.fixture
    async def worked(self) -> tuple[Any, asyncio.Event]:
        """A program that has called the outside, written and said something when it is asked to stop."""
        entered = asyncio.Event()

        @program
        async def worker(turn: Turn) -> str:
            text = turn.text
            if text != "work":
                turn.append({"role": "assistant", "content": f"re: {text}"})
                return text

            async def call() -> str:
                return "paid"

            async for step in turn.steps():
                if step == 2:
                    entered.set()
                    await asyncio.Event().wait()
                turn.state.update(paid=await turn.effect("pay", call, {"amount": 7}))
                turn.append({"role": "assistant", "content": "on it"})
            raise AssertionError("unreachable")

        return worker, entered

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_the_turn_is_taken_back_and_its_effects_stay_listed(
        self, harness: Harness, store: Store, worked: tuple[Any, asyncio.Event], key: str | None
    ) -> None:
        worker, entered = worked
        runtime, elsewhere = await opened(store, [worker]), await opened(await harness.open(), [worker])
        await runtime.create("worker", {"colour": "red"}, session_id="s")
        await runtime.send("s", "before")
        held = await runtime.session("s").start("work", key=key)
        await entered.wait()
        assert await talk_of(elsewhere, "s") == ["before", "re: before", "work", "on it"]
        outcome = await elsewhere.send("s", "after", when_busy="rollback")
        assert outcome.completed
        session = await runtime.get("s")
        assert await talk_of(runtime, "s") == talk("before", "after")
        assert dict(session.document) == {"colour": "red"}
        assert (await held.wait()).status == "interrupted"
        assert held.input_id is not None
        row = await store.inbox.get(held.input_id)
        if key is None:  # known by its run
            assert (row, held.input_id) == (None, held.run_id)
        else:
            assert row is not None
            assert (row.status, row.rolled_back, row.run_id) == (InputStatus.CONSUMED, True, held.run_id)
        assert (await elsewhere.outcome(held.input_id)).status == "rolled_back"
        assert [(each.effect_key, each.status) for each in await store.effects.list("s")] == [
            ("pay", EffectStatus.DONE)
        ]
        assert [each.status for each in await runtime.session("s").runs()] == [
            RunStatus.COMPLETED,
            RunStatus.INTERRUPTED,
            RunStatus.COMPLETED,
        ]
        assert (await runtime.send("s", "more")).completed
        assert await talk_of(elsewhere, "s") == talk("before", "after", "more")

    async def test_a_turn_that_completed_first_is_never_rolled_back(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        enqueue = elsewhere.store.inbox.enqueue

        async def too_late(*arguments: Any, **options: Any) -> Any:
            gate.let_go("hold")
            await held.wait()
            return await enqueue(*arguments, **options)

        elsewhere.store.inbox.enqueue = too_late  # type: ignore[method-assign]
        assert (await elsewhere.send("s", "next", when_busy="rollback")).completed
        assert (await held.wait()).completed
        assert await talk_of(runtime, "s") == talk("hold", "next")

    async def test_a_turn_behind_another_is_not_rolled_back(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        between = await runtime.session("s").start("between", when_busy="queue")
        last = await elsewhere.session("s").start("last", when_busy="rollback")
        assert (await held.wait()).status == "interrupted"
        assert (await between.wait()).completed
        assert (await last.wait()).completed
        assert await talk_of(runtime, "s") == ["hold", *talk("between", "last")]

    async def test_a_turn_that_ended_before_the_message_came_is_not_rolled_back(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        await held.stop()
        assert (await held.wait()).status == "interrupted"
        await runtime.session("s").enqueue("first", delay=0)
        assert (await elsewhere.send("s", "second", when_busy="rollback")).completed
        assert await talk_of(runtime, "s") == ["hold", *talk("first", "second")]

    async def test_several_rollbacks_at_once_each_get_their_turn(
        self, runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
    ) -> None:
        held = await runtime.session("s").start("hold")
        await gate.entered("hold")
        texts = [f"message {number}" for number in range(4)]
        both = zip(texts, (runtime, elsewhere) * 2, strict=True)
        outcomes = await asyncio.gather(*(each.send("s", text, when_busy="rollback") for text, each in both))
        assert (await held.wait()).status == "interrupted"
        found = await talk_of(runtime, "s")
        assert "hold" not in found
        # One that was stopped for a message which then was not the next one stays: nothing goes back behind a turn.
        ends = [await runtime.outcome(str(outcome.input_id)) for outcome in outcomes]
        kept = [text for text, end in zip(texts, ends, strict=True) if end.status != "rolled_back"]
        assert sorted(text for text in found if not text.startswith("re: ")) == sorted(kept)
        for text, end in zip(texts, ends, strict=True):
            assert end.status in ("completed", "interrupted", "rolled_back")
            assert (f"re: {text}" in found) or not end.completed
        assert sorted(gate.said[1:]) == sorted(texts)
        assert gate.most_at_once == 1
