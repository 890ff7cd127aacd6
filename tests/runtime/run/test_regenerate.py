"""A turn is made again: its message begins another one, from the session before it."""

import asyncio
from typing import Any

import pytest

from tenuto import Session, SessionRuntime, Turn, program
from tenuto.errors import InvalidInput, LaneBusy, OperationConflict, StatusRefused
from tenuto.messages import assistant, text_of
from tenuto.model.outgoing_item import OutboxKind
from tenuto.model.wait import WaitStatus
from tests.conftest import OurHarness
from tests.polling import until
from tests.runtime.runtimes import opened


class Desk:
    """A program that numbers its answers, and a runtime with one session of it."""

    def __init__(self) -> None:
        self.count = 0
        self.called: list[str] = []
        self.go, self.reached = asyncio.Event(), asyncio.Event()
        self.runtime: SessionRuntime
        self.session: Session[Any]

    def program(self) -> Any:
        @program(name="desk")
        async def desk(turn: Turn) -> int:
            self.count += 1
            turn.state["count"] = turn.state.get("count", 0) + 1
            turn.record_usage("gpt", input=10, output=1)
            if turn.text.startswith("call"):
                await turn.effect("pay", self._pay)
            if turn.text.startswith("ask"):
                await turn.wait("question")
            if turn.text.startswith("delegate"):
                await turn.child("desk", "ask me")
            if turn.text.startswith("hold"):
                self.reached.set()
                await self.go.wait()
            turn.append(assistant(f"{turn.text} #{self.count}"))
            return self.count

        return desk

    async def _pay(self) -> str:
        self.called.append("pay")
        return "paid"

    async def said(self) -> list[str]:
        return [text_of(each) for each in await self.session.messages()]


@pytest.fixture
async def ours(harness: OurHarness) -> Desk:
    desk = Desk()
    desk.runtime = await opened(await harness.open(), [desk.program()])
    desk.session = await desk.runtime.create("desk", session_id="s")
    return desk


async def test_the_last_turn_is_replaced_by_another_one_with_its_message(ours: Desk) -> None:
    await ours.session.send("hello")
    first = await ours.session.send("call it", key="mine")
    again = await ours.session.regenerate()
    assert (again.status, again.text, again.output, again.regenerated) == ("completed", "call it #3", 3, False)
    assert await ours.said() == ["hello", "hello #1", "call it", "call it #3"]
    assert ours.called == ["pay", "pay"]
    assert (await ours.session.get()).document["count"] == 2
    new, old, before = await ours.session.runs()
    assert [new.run.rolled_back, old.run.rolled_back, before.run.rolled_back] == [False, True, False]
    assert (old.run_id, new.run_id) == (first.run_id, again.run_id)
    assert (await ours.session.usage()).total.input == 30
    assert (await ours.session.send("next")).text == "next #4"


async def test_the_old_key_answers_with_the_new_outcome(ours: Desk) -> None:
    """Also after it was made again twice; the other message's does not change."""
    await ours.session.send("hello", key="other")
    first = await ours.session.send("go", key="mine")
    for number in (3, 4):
        again = await ours.session.regenerate()
        repeated = await ours.session.send("go", key="mine")
        assert (repeated.text, repeated.run_id, repeated.regenerated) == (f"go #{number}", again.run_id, True)
        assert await ours.runtime.outcome(str(first.input_id)) == repeated
    other = await ours.session.send("hello", key="other")
    assert (other.text, other.regenerated) == ("hello #1", False)
    with pytest.raises(OperationConflict):
        await ours.session.send("gone", key="mine")


async def test_the_same_key_regenerates_once(ours: Desk) -> None:
    await ours.session.send("hello")
    first = await ours.session.regenerate(key="again")
    repeated = await ours.session.regenerate(key="again")
    assert (first.text, repeated) == ("hello #2", first)
    assert ours.count == 2
    named = await ours.session.regenerate(first.run_id, key="and again")
    assert named.text == "hello #3"
    assert await ours.session.regenerate(first.run_id, key="and again") == named
    await ours.session.send("next")
    assert await ours.session.regenerate(first.run_id, key="and again") == named
    with pytest.raises(OperationConflict):
        await ours.session.regenerate(str(first.run_id), key="again")


async def test_only_the_last_turn_is_made_again_in_place(ours: Desk) -> None:
    first = await ours.session.send("one")
    second = await ours.session.send("two")
    before = await ours.said()
    with pytest.raises(InvalidInput, match="fork=True"):
        await ours.session.regenerate(first.run_id)
    with pytest.raises(InvalidInput, match="has no run"):
        await ours.session.regenerate("nothing")
    other = await ours.runtime.create("desk", session_id="other")
    with pytest.raises(InvalidInput, match="has no run"):
        await other.regenerate(second.run_id, fork=True)
    with pytest.raises(StatusRefused, match="nothing to regenerate"):
        await other.regenerate()
    assert await ours.said() == before
    assert (await ours.session.regenerate(second.run_id)).text == "two #3"
    with pytest.raises(InvalidInput, match="fork=True"):
        await ours.session.regenerate(second.run_id)


async def test_an_earlier_turn_is_made_again_on_a_fork(ours: Desk) -> None:
    first = await ours.session.send("one")
    await ours.session.send("two")
    outcome = await ours.session.regenerate(first.run_id, key="k", fork=True)
    assert (outcome.text, outcome.session_id == "s") == ("one #3", False)
    assert await ours.session.regenerate(first.run_id, key="k", fork=True) == outcome
    assert await ours.said() == ["one", "one #1", "two", "two #2"]
    forked = await ours.runtime.session(outcome.session_id).messages()
    assert [text_of(each) for each in forked] == ["one", "one #3"]
    assert (await ours.session.regenerate(fork=True)).text == "two #4"


async def test_what_the_turn_waited_for_is_abandoned_and_its_children_are_stopped(ours: Desk) -> None:
    outcome = await ours.session.send("delegate")
    assert outcome.suspended
    await ours.runtime.drain()
    (wait,) = outcome.waits
    again = await ours.session.regenerate()
    assert again.suspended
    store: Any = ours.runtime.store
    assert (await store.waits.get(wait.wait_id)).status is WaitStatus.ABANDONED
    own = await ours.session.waits(children=False)
    assert [each.wait_id for each in again.waits] == [each.wait_id for each in own]
    sent = [each for each in await store.outbox.of_session("s") if each.kind == OutboxKind.STOP]
    assert [each.target.session_id for each in sent] == [wait.metadata["child"]]
    await ours.session.abandon_waits()


async def test_a_turn_of_several_runs_is_made_again_from_its_message(ours: Desk) -> None:
    await ours.session.send("hello")
    asked = await ours.session.send("ask", key="k")
    answered = await ours.session.answer(asked.waits[0], 1)
    assert answered.outcome is not None
    assert answered.outcome.completed
    again = await ours.session.regenerate(asked.run_id)
    assert again.suspended
    assert (await ours.session.answer(again.waits[0], 2)).outcome.completed  # type: ignore[union-attr]
    assert await ours.said() == ["hello", "hello #1", "ask", f"ask #{ours.count}"]
    repeated = await ours.session.send("ask", key="k")
    assert (repeated.status, repeated.regenerated) == ("completed", True)


async def test_a_busy_session_refuses_queues_or_makes_room(ours: Desk) -> None:
    running = await ours.session.start("hold")
    await ours.reached.wait()
    with pytest.raises(LaneBusy):
        await ours.session.regenerate()
    queued = asyncio.ensure_future(ours.session.regenerate(key="q", when_busy="queue"))
    store: Any = ours.runtime.store

    async def waits_in_line() -> bool:
        return len(await store.inbox.list("s")) == 1

    await until(waits_in_line)
    ours.go.set()
    assert (await running.wait()).completed
    assert (await queued).text == "hold #2"
    ours.go.clear()
    ours.reached.clear()
    held = await ours.session.start("hold on", key="mine")
    await ours.reached.wait()
    ours.go.set()
    again = await ours.session.regenerate(when_busy="interrupt")
    assert again.text == f"hold on #{ours.count}"
    assert (await ours.session.send("hold on", key="mine")).regenerated
    assert await ours.said() == ["hold", "hold #2", "hold on", again.text]
    await held.wait()


async def test_a_turn_that_was_taken_back_or_cut_away_cannot_be_made_again(ours: Desk) -> None:
    await ours.session.send("hello")
    outcome = await ours.session.send("again")
    await ours.session.rewind(str(outcome.run_id))
    with pytest.raises(InvalidInput, match="not part of"):
        await ours.session.regenerate()
    assert await ours.said() == ["hello", "hello #1"]


async def test_what_was_said_while_the_turn_ran_is_not_repeated(harness: OurHarness) -> None:
    go, reached = asyncio.Event(), asyncio.Event()

    @program(name="steps")
    async def steps(turn: Turn) -> None:
        async for step in turn.steps():
            reached.set()
            await go.wait()
            if step == 2:
                turn.append(assistant("done"))
                return

    runtime = await opened(await harness.open(), [steps])
    session = await runtime.create("steps", session_id="s")
    running = await session.start("go")
    await reached.wait()
    steered = await session.enqueue("only cheap ones", boundary="after_step")
    go.set()
    assert (await running.wait()).completed
    assert [text_of(each) for each in await session.messages()] == ["go", "only cheap ones", "done"]
    assert (await session.regenerate()).completed
    assert [text_of(each) for each in await session.messages()] == ["go", "done"]
    assert (await runtime.outcome(steered)).status == "rolled_back"
