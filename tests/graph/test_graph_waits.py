"""What waits is listed, resumed and cancelled by its wait."""

from typing import Any

import pytest

from tenuto import SessionRuntime, Store, Turn, program
from tenuto.errors import (
    AlreadyAnswered,
    AnswerMismatch,
    InvalidInput,
    LateAnswer,
    SuspensionRecordInvalid,
    WaitUnknown,
)
from tenuto.graph import END, CompiledGraph, GraphBuilder
from tenuto.model.wait import Wait
from tests.graph.talking import Memory, Ran, Talk, ended, fails, gate, line, nothing, says


def named(name: str, store: Store) -> CompiledGraph[Any]:
    builder = GraphBuilder(Talk, name).add_node("n0", gate()).add_node("n1", says("end")).add_edge("n0", "n1")
    return builder.add_edge("n1", END).set_entry("n0").with_session_store(store, Memory).compile()


async def paused(graph: CompiledGraph[Any], **options: Any) -> Wait:
    out = await graph.run(**options)
    assert out.wait is not None
    return out.wait


@pytest.mark.parametrize("by", ["id", "wait"])
@pytest.mark.parametrize("session_id", ["s", None])
async def test_a_wait_is_resumed_with_its_payload(store: Store, by: str, session_id: str | None) -> None:
    graph = line(says("asked"), gate(), says("end"), store=store)
    wait = await paused(graph, session_id=session_id)
    out = await graph.resume(wait.wait_id if by == "id" else wait, {"mood": "glad"})
    assert (out.result().messages, out.result().mood) == (["asked", "end"], "glad")
    assert await graph.waiting() == ()


async def test_a_payload_may_be_left_out(store: Store) -> None:
    graph = line(gate(), says("end"), store=store)
    assert ended(await graph.resume(await paused(graph))) == "completed"


async def test_what_went_wrong_in_the_run_is_in_its_outcome_and_the_wait_stands(store: Store) -> None:
    graph = line(gate(), says("end"), store=store)
    wait = await paused(graph, session_id="s")
    for payload in ({"count": "many"}, {"cuont": 1}):
        assert ended(await graph.resume(wait, payload)) == "failed: suspension_resume_payload_invalid"
    assert await graph.waiting() == (wait,)
    await line(says("moved"), store=store).invoke(session_id="s")
    assert ended(await graph.resume(wait)) == "failed: session_write_conflict"
    assert (await graph.resume(wait, on_moved="rebase")).result().messages == ["moved", "end"]


async def test_an_unknown_wait_and_another_tenants_are_refused_in_the_same_words(store: Store) -> None:
    graph = line(gate(), says("end"), store=store)
    theirs = await paused(graph.bind(store, tenant="theirs"))
    words = set()
    for wait_id in ("never", theirs.wait_id):
        with pytest.raises(WaitUnknown) as refused:
            await graph.bind(store, tenant="mine").resume(wait_id)
        words.add(str(refused.value).replace(wait_id, "..."))
    assert len(words) == 1


async def test_another_graphs_wait_is_refused(store: Store) -> None:
    wait = await paused(named("theirs", store), session_id="s")
    with pytest.raises(AnswerMismatch, match="'theirs'"):
        await named("ours", store).resume(wait)
    assert ended(await named("theirs", store).resume(wait)) == "completed"


@pytest.mark.parametrize("answered", [{"mood": "glad"}, {"mood": "sad"}])
async def test_a_settled_wait_is_refused_and_nothing_runs_again(store: Store, answered: dict[str, Any]) -> None:
    ran = Ran()
    graph = line(gate(), ran.node("end"), store=store)
    wait = await paused(graph, session_id="s")
    assert ended(await graph.resume(wait, {"mood": "glad"})) == "completed"
    with pytest.raises(AlreadyAnswered, match="completed"):
        await graph.resume(wait, answered)
    assert ran.nodes == ["end"]


async def test_a_cancelled_wait_is_late(store: Store) -> None:
    graph = line(gate(), says("end"), store=store)
    for named_by in ("wait", "id", "invocation"):
        out = await graph.run(session_id="s")
        assert out.wait is not None
        ids = {"id": out.wait.wait_id, "invocation": out.invocation_id}
        await graph.cancel(ids.get(named_by, out.wait))
        with pytest.raises(LateAnswer) as late:
            await graph.resume(out.wait)
        assert late.value.found == "cancelled"
    assert await graph.waiting() == ()
    with pytest.raises(SuspensionRecordInvalid):
        await graph.cancel("never")


async def test_a_wait_whose_run_failed_after_its_answer_names_how_it_ended(store: Store) -> None:
    graph = line(gate(), fails, store=store)
    wait = await paused(graph, session_id="s")
    assert ended(await graph.resume(wait)) == "failed: node_exception"
    with pytest.raises(AlreadyAnswered, match="failed"):
        await graph.resume(wait)


async def test_a_wait_of_the_runtime_is_refused_and_stands(store: Store) -> None:
    @program(name="asks")
    async def asks(turn: Turn) -> str:
        return str(await turn.wait("ok?"))

    graph = line(gate(), says("end"), store=store)
    kept = graph.as_program(name="graph", entry=lambda message: message["content"])
    async with SessionRuntime(store, [asks, kept]) as runtime:
        for name in ("asks", "graph"):
            await runtime.create(name, session_id=name)
            (wait,) = (await runtime.send(name, "go")).waits
            with pytest.raises(AnswerMismatch, match=r"runtime\.answer"):
                await graph.resume(wait)
            assert await runtime.session(name).waits() == [wait]


async def test_a_graph_without_a_store_has_nothing_to_resume() -> None:
    for call in (line(nothing).resume("w"), line(nothing).cancel("w"), line(nothing).waiting()):
        with pytest.raises(InvalidInput, match="bind it"):
            await call


async def test_what_waits_comes_page_by_page(store: Store) -> None:
    graph = line(gate(), nothing, store=store)
    waits = [await paused(graph, session_id=f"s{number}") for number in range(3)]
    first = await graph.waiting(limit=2)
    assert [*first, *(await graph.waiting(after=first.next))] == waits
