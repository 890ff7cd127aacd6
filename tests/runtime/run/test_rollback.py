"""A turn is taken back whole: also one that waited, was interrupted and gone on with, or changed hands."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tenuto.model.input import InputStatus
from tenuto.model.outgoing_item import OutboxKind, OutgoingStatus
from tenuto.model.run import RunStatus
from tenuto.model.wait import WaitStatus
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.effect_journal import Place
from tenuto.testing.agent import ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, contents, results, waiting


def teller(gate: Gate, *, needs_approval: bool = True, **tools: Tool) -> ScriptedAgent:
    """Return an agent that pays when told to, and otherwise says hello; paying takes until the gate is open."""

    async def pay(_: Any, __: Mapping[str, Any]) -> str:
        await gate()
        return "paid"

    def model(request: Any) -> Mapping[str, Any]:
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"role": "assistant", "content": f"done: {last['content']}"}
        if last["content"] == "pay":
            return calls(("c1", "pay", {}), *((f"c-{name}", name, {"message": "x"}) for name in tools))
        return {"role": "assistant", "content": f"hello, {last['content']}"}

    return ScriptedAgent(model, [Tool(name="pay", run=pay, needs_approval=needs_approval), *tools.values()])


async def _takes_back(runtime: SessionRuntime, elsewhere: SessionRuntime, first: str, gate: Gate) -> None:
    """Send a message that takes the turn under way back, and see that nothing of it is left but its records."""
    sent = await elsewhere.session("s").start("you", key="r", when_busy="rollback")
    gate.open.set()  # a tool at work may finish
    assert (await sent.wait()).completed
    session = await elsewhere.get("s")
    assert [message["content"] for message in session.messages] == ["me", "hello, me", "you", "hello, you"]
    assert (await elsewhere.outcome(first)).status == "rolled_back"
    row = await elsewhere.store.inbox.get(first)
    assert row is not None
    assert (row.status, row.rolled_back) == (InputStatus.CONSUMED, True)
    last, *undone, before = await elsewhere.store.runs.of_session("s")
    assert [last.rolled_back, before.rolled_back] == [False, False]
    assert undone
    assert all(run.rolled_back for run in undone)
    assert await elsewhere.session("s").waits() == []
    assert await elsewhere.store.inbox.list("s") == ()
    assert [each.call_id for each in await elsewhere.store.effects.list("s") if each.call_id] == ["c1"]
    assert (await runtime.send("s", "again")).completed


async def _begun(runtime: SessionRuntime) -> Any:
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "me")).completed
    return await runtime.send("s", "pay", key="first")


async def test_a_turn_that_was_approved_and_went_on_is_taken_back_to_before_its_message(harness: OurHarness) -> None:
    database, gate = Database(harness), Gate()
    runtime, elsewhere = await database.runtime(teller(gate)), await database.runtime(teller(Gate()))
    paused = await _begun(runtime)
    answering = asyncio.ensure_future(runtime.answer(waiting(paused, "approval").wait_id, True))
    await gate.reached.wait()
    await _takes_back(runtime, elsewhere, paused.input_id, gate)
    await answering
    (wait,) = await runtime.store.waits.of_session("s", status=None)
    assert wait.status is WaitStatus.ANSWERED


async def test_a_function_that_had_waited_is_taken_back_with_what_it_had_said(harness: OurHarness) -> None:
    gate = Gate()

    @program
    async def clerk(turn: Turn) -> None:
        if turn.text == "quick":
            turn.append({"role": "assistant", "content": "at once"})
            return
        turn.append({"role": "assistant", "content": "one moment"}, once="moment")
        await turn.wait("size")
        await gate()

    runtime = await Database(harness).runtime(clerk)
    await runtime.create("clerk", session_id="s")
    paused = await runtime.send("s", "a shirt")
    answering = asyncio.ensure_future(runtime.answer(paused.waits[0].wait_id, "L"))
    await gate.reached.wait()
    assert (await runtime.send("s", "quick", when_busy="rollback")).completed
    await answering
    assert [each["content"] for each in (await runtime.get("s")).messages] == ["quick", "at once"]
    assert (await runtime.outcome(str(paused.input_id))).status == "rolled_back"


async def test_a_turn_that_was_interrupted_and_resumed_is_taken_back_whole(harness: OurHarness) -> None:
    database, gate, later = Database(harness), Gate(), Gate()

    @program(name="agent")
    async def slow(turn: Turn) -> None:
        if turn.text == "pay":
            turn.append({"role": "assistant", "content": "one moment"}, once="moment")
            context = context_of(turn)
            place = Place(context.namespace, context.step, "pay")
            await call_effect(context, place, paid, None, kind="tool", idempotent=True, call_id="c1", record=None)
            await (later if gate.entered else gate)()
        turn.append({"role": "assistant", "content": f"hello, {turn.text}"})

    async def paid() -> str:
        return "paid"

    runtime, elsewhere = await database.runtime(slow), await database.runtime(slow)
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "me")
    handle = await runtime.session("s").start("pay", key="first")
    await gate.reached.wait()
    await handle.stop()
    assert (await handle.wait()).status == "interrupted"
    resuming = asyncio.ensure_future(runtime.session("s").resume())
    await later.reached.wait()
    await _takes_back(runtime, elsewhere, str(handle.input_id), later)
    assert (await resuming).status == "interrupted"


async def test_a_turn_whose_runner_was_lost_after_it_went_on_is_taken_back_whole(harness: OurHarness) -> None:
    database, gate = Database(harness), Gate()
    runtime, elsewhere = await database.runtime(teller(gate)), await database.runtime(teller(Gate()))
    paused = await _begun(runtime)
    answering = asyncio.ensure_future(runtime.answer(waiting(paused, "approval").wait_id, True))
    await gate.reached.wait()
    sending = await elsewhere.session("s").start("you", key="r", when_busy="rollback")
    await database.lose(runtime, answering)
    assert (await sending.wait()).completed
    assert (await elsewhere.outcome(paused.input_id)).status == "rolled_back"
    assert [each["content"] for each in (await elsewhere.get("s")).messages] == ["me", "hello, me", "you", "hello, you"]


async def test_children_that_were_asked_are_stopped_and_nobody_waits_for_them(harness: OurHarness) -> None:
    database, gate, childs = Database(harness), Gate(), Gate()

    @program
    async def child(turn: Turn) -> str:
        await childs()
        return "too late"

    made = teller(gate, needs_approval=False, ask=Tool(name="ask", child="child"))
    runtime, worker = await database.runtime(made, child), await database.runtime(made, child)
    await runtime.create("agent", session_id="s")
    handle = await runtime.session("s").start("pay")
    await gate.reached.wait()
    working = asyncio.ensure_future(worker.drain())
    await childs.reached.wait()
    sent = await worker.session("s").start("you", when_busy="rollback")
    gate.open.set()
    assert (await sent.wait()).completed
    await handle.wait()
    await working
    await runtime.drain()
    (wait,) = await runtime.store.waits.of_session("s", status=None)
    assert wait.status is WaitStatus.ABANDONED
    asked = str(wait.metadata["child"])
    assert [run.status for run in await runtime.store.runs.of_session(asked)] == [RunStatus.INTERRUPTED]
    owed = [each for each in await runtime.store.outbox.of_session("s") if each.kind == OutboxKind.STOP]
    assert [each.status for each in owed] == [OutgoingStatus.DONE]
    assert contents((await runtime.get("s")).messages, "user") == ["you"]


async def test_calls_that_the_turn_had_given_up_keep_the_results_they_got(harness: OurHarness) -> None:
    """The session before it had an open call, and what stood for that was given up when it began."""
    database, gate = Database(harness), Gate()

    @program(name="agent")
    async def asks(turn: Turn) -> None:
        if turn.text == "hold":
            await gate()
        if turn.text != "ask":
            turn.append({"role": "assistant", "content": f"hello, {turn.text}"})
            return
        asked: Any = calls(("c9", "ask", {}))
        turn.append(asked)
        await turn.wait("answer", metadata={"call_id": "c9"})

    runtime, elsewhere = await database.runtime(asks), await database.runtime(asks)
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "ask")).suspended
    handle = await runtime.session("s").start("hold")
    await gate.reached.wait()
    assert (await elsewhere.send("s", "you", when_busy="rollback")).completed
    await handle.wait()
    messages = (await runtime.get("s")).messages
    assert contents(messages, "user") == ["ask", "you"]
    assert results(messages) == {"c9": "Not executed: it was abandoned for a new message."}
