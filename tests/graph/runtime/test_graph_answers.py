"""Answers to a paused graph that would be lost, or used by half: refused before anything is written."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytest
from typer.testing import CliRunner

from tenuto import Store, open_store
from tenuto.cli.app import app
from tenuto.errors import AnswerInvalid, AnswerMismatch, SuspensionResumePayloadInvalid
from tenuto.graph import END, CompiledGraph, GraphBuilder, SignalDescriptor, State, append, suspend
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


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("session_id", ["s", None])
async def test_a_runtime_refuses_to_answer_a_pause_that_only_the_graph_can_go_on_with(
    store: Store, registered: bool, session_id: str | None
) -> None:
    graph = built(store)
    paused = await graph.run({}, session_id=session_id)
    runtime = await opened(store, [built(None).as_program()] if registered else [])
    assert paused.wait is not None
    before = await store.dump()
    with pytest.raises(AnswerMismatch, match=r"graph\.resume") as refused:
        await runtime.answer(paused.wait.wait_id, {"approved": True})
    assert repr(paused.wait.wait_id) in refused.value.message
    assert await store.dump() == before
    await runtime.drain()
    out = await graph.resume(paused.wait.wait_id, {"approved": True})
    assert out.state is not None
    assert (ended(out), out.state.messages[-1]["content"]) == ("completed", "paid")


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
