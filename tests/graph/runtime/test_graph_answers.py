"""Answers to a paused graph that would be lost, or used by half: refused before anything is written."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytest
from typer.testing import CliRunner

from tenuto import Store, open_store
from tenuto.cli.app import app
from tenuto.errors import AlreadyAnswered, AnswerInvalid, AnswerMismatch, LateAnswer, SuspensionResumePayloadInvalid
from tenuto.graph import END, CompiledGraph, GraphBuilder, SignalDescriptor, State, append, suspend
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness
from tests.graph.talking import ended
from tests.runtime.runtimes import opened


class Refund(State):
    messages: Annotated[list[dict[str, Any]], append] = []
    approved: bool | None = None


class Inner(State):
    reason: str = ""


async def gate(_: Any) -> NoReturn:
    await suspend(SignalDescriptor("refund"))


async def pay(state: Refund) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "paid" if state.approved else "no"}], "approved": None}


def built(store: Store | None, *, nested: bool = False) -> CompiledGraph[Refund]:
    builder = GraphBuilder(Refund, "refund")
    if nested:
        inner = GraphBuilder(Inner, "inner").add_node("ask", gate).add_edge("ask", END).set_entry("ask").compile()
        builder.add_subgraph_node("gate", inner, outputs={})
    else:
        builder.add_node("gate", gate)
    builder.add_node("pay", pay).add_edge("gate", "pay").add_edge("pay", END).set_entry("gate")
    return (builder.with_session_store(store) if store is not None else builder).compile()


SESSIONS = pytest.mark.parametrize("session_id", ["s", None])


@SESSIONS
async def test_a_pause_of_a_graph_that_is_not_registered_is_refused_and_stands(
    store: Store, session_id: str | None
) -> None:
    graph = built(store)
    paused = await graph.run({}, session_id=session_id)
    runtime = await opened(store)
    assert paused.wait is not None
    before = await store.dump()
    for run in (True, False):
        with pytest.raises(AnswerMismatch, match=r"graph\.resume") as refused:
            await runtime.answer(paused.wait.wait_id, {"approved": True}, run=run)
        assert repr(paused.wait.wait_id) in refused.value.message
    registered = await opened(store, [built(None).as_program()])
    with pytest.raises(AnswerMismatch, match="no worker resumes it"):
        await registered.answer(paused.wait, {"approved": True}, run=False)
    assert await store.dump() == before
    await runtime.drain()
    out = await graph.resume(paused.wait.wait_id, {"approved": True})
    assert out.state is not None
    assert (ended(out), out.state.messages[-1]["content"]) == ("completed", "paid")


@SESSIONS
@pytest.mark.parametrize("by", ["wait", "id"])
async def test_a_pause_of_a_graph_that_is_registered_is_resumed_by_its_answer(
    store: Store, session_id: str | None, by: str
) -> None:
    """The same answer again is the same success, another one is refused, and neither runs anything."""
    graph = built(store)
    paused = await graph.run({}, session_id=session_id)
    program = built(None).as_program(output=lambda state: state.messages[-1]["content"])
    runtime = await opened(store, [program])
    (wait,) = await runtime.waits()
    assert (wait, wait.graph, wait.invocation_id) == (paused.wait, "refund", paused.invocation_id)
    before = await store.dump()
    for wrong, path in (({"aproved": True}, "answer"), ({"approved": "perhaps"}, "answer.approved"), (True, "answer")):
        with pytest.raises(AnswerInvalid) as refused:
            await runtime.answer(wait, wrong)
        assert [each["path"] for each in refused.value.problems] == [path]
        assert refused.value.wait_id == wait.wait_id
    assert await store.dump() == before
    answered = await runtime.answer(wait if by == "wait" else wait.wait_id, {"approved": True})
    assert (answered.continues, answered.replayed, answered.open_waits) == ("here", False, ())
    assert answered.outcome is not None
    assert answered.outcome.result() == "paid"
    runs = await store.runs.of_invocation(paused.invocation_id)
    assert [run.status for run in runs] == ["suspended", "completed"]
    assert answered.outcome.run_id == runs[-1].run_id
    again = await runtime.answer(wait, {"approved": True})
    assert (again.replayed, again.continues) == (True, "here")
    assert again.outcome is not None
    assert again.outcome.completed
    with pytest.raises(AlreadyAnswered):
        await runtime.answer(wait, {"approved": False})
    assert len(await store.runs.of_invocation(paused.invocation_id)) == 2
    if session_id is not None:
        record = await store.load("s")
        assert record is not None
        assert record.state["messages"][-1]["content"] == "paid"


async def test_two_answers_at_once_resume_a_graph_once(store: Store) -> None:
    paused = await built(store).run({}, session_id="s")
    runtime = await opened(store, [built(None).as_program()])
    assert paused.wait is not None
    ends = await asyncio.gather(
        *(runtime.answer(paused.wait, {"approved": value}) for value in (True, True, False)), return_exceptions=True
    )
    refused = [end for end in ends if isinstance(end, BaseException)]
    assert all(isinstance(end, AlreadyAnswered) for end in refused), refused
    assert 1 <= len(refused) <= 2
    assert len(await store.runs.of_invocation(paused.invocation_id)) == 2


async def test_a_graph_that_pauses_again_says_what_it_waits_for_now(store: Store) -> None:
    async def ask(state: Refund) -> NoReturn:
        await suspend("second")

    def twice(store: Store | None) -> CompiledGraph[Refund]:
        builder = GraphBuilder(Refund, "twice").add_node("gate", gate).add_node("ask", ask).add_edge("gate", "ask")
        builder.add_edge("ask", END).set_entry("gate")
        return (builder.with_session_store(store) if store is not None else builder).compile()

    paused = await twice(store).run({}, session_id="s")
    runtime = await opened(store, [twice(None).as_program()])
    assert paused.wait is not None
    answered = await runtime.answer(paused.wait, {})
    assert answered.outcome is not None
    assert [wait.signal_id for wait in answered.open_waits] == ["second"]
    assert (await runtime.answer(answered.outcome.waits[0], {})).outcome is not None
    assert await runtime.waits() == ()


async def test_an_answer_to_a_pause_that_is_over_is_late_and_the_pause_ends(harness: OurHarness) -> None:
    async def briefly(_: Any) -> NoReturn:
        await suspend("refund", timeout=60)

    clock = FakeClock()
    store = await harness.open(clock=clock)
    graph = GraphBuilder(Refund, "brief").add_node("gate", briefly).add_edge("gate", END).set_entry("gate").compile()
    paused = await graph.bind(store).run({}, session_id="s")
    runtime = await opened(store, [graph.as_program()])
    assert paused.wait is not None
    clock.advance(60)
    assert await runtime.waits() == ()
    for _ in range(2):
        with pytest.raises(LateAnswer) as late:
            await runtime.answer(paused.wait, {"approved": True})
        assert late.value.found == "expired"
    assert await store.inbox.list("s") == ()


async def test_a_graph_lists_its_own_pauses_alone(store: Store) -> None:
    mine = built(store)
    other = GraphBuilder(Refund, "other").add_node("gate", gate).add_edge("gate", END).set_entry("gate").compile()
    runtime = await opened(store, [built(None).as_program()])
    await runtime.create("refund", session_id="turn")
    await runtime.send("turn", "hi")
    one = await mine.run({}, session_id="s")
    two = await other.bind(store).run({})
    await mine.bind(store, tenant="t").run({}, session_id="s")
    assert await mine.waiting() == (one.wait,)
    assert await other.bind(store).waiting() == (two.wait,)


def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"

    async def pausing() -> Any:
        async with open_store(url) as store:
            return await built(store).run({}, session_id="s")

    async def resuming() -> Any:
        async with open_store(url) as store:
            return await built(store).run(resume_invocation=paused.invocation_id, signal_payload={"approved": True})

    paused = asyncio.run(pausing())
    told = CliRunner().invoke(app, ["session", "answer", paused.wait.wait_id, '{"approved": true}', "--store", url])
    assert told.exit_code != 0
    assert paused.wait.wait_id in told.output
    assert asyncio.run(resuming()).completed


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("payload", [{"aproved": False}, {"approved": True, "note": 1}, {"": 1}])
async def test_a_name_nobody_declared_is_refused_and_the_run_stays_paused(
    store: Store, nested: bool, payload: dict[str, Any]
) -> None:
    graph = built(store, nested=nested)
    paused = await graph.run({}, session_id="s")
    before = await store.dump()
    out = await graph.run(resume_invocation=paused.invocation_id, signal_payload=payload)
    assert ended(out) == "failed: suspension_resume_payload_invalid"
    assert isinstance(out.error, SuspensionResumePayloadInvalid)
    assert isinstance(out.error, AnswerInvalid)
    known = ["messages", "approved", *(["reason"] if nested else [])]
    assert out.error.details()["unknown"] == [name for name in payload if name != "approved"]
    assert out.error.details()["declared"] == known
    assert await store.dump() == before
    right = {"approved": True, "reason": "fine"} if nested else {"approved": True}
    out = await graph.run(resume_invocation=paused.invocation_id, signal_payload=right)
    assert out.state is not None
    assert out.state.messages[-1]["content"] == "paid"


async def test_the_runtime_refuses_such_a_name_for_a_graph_that_is_its_program(store: Store) -> None:
    runtime = await opened(store, [built(None).as_program()])
    await runtime.create("refund", session_id="s")
    sent = await runtime.send("s", "refund order 7")
    (wait,) = sent.waits
    before = await store.dump()
    with pytest.raises(AnswerInvalid, match="'aproved' is not declared; expected 'messages', 'approved'") as refused:
        await runtime.answer(wait.wait_id, {"aproved": False})
    assert refused.value.wait_id == wait.wait_id
    assert await store.dump() == before
    answered = await runtime.answer(wait.wait_id, {"approved": True})
    assert answered.outcome is not None
    assert answered.outcome.text == "paid"
