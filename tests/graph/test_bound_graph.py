"""A graph is a constant: it is bound to the store, and the tenant, that it runs on."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tenuto import Store, open_store
from tenuto.errors import InvalidInput
from tenuto.graph import END, CompiledGraph, GraphBuilder, SessionState, suspend
from tenuto.graph.warnings import SessionStateUndeclared
from tests.conftest import OurHarness
from tests.graph.talking import Memory, Talk, ended, fails, gate, held, line, nothing, says


def declared(builder: GraphBuilder[Any]) -> None:
    builder.with_session_state(Memory)


def with_checkpoints(builder: GraphBuilder[Any]) -> None:
    builder.with_session_state(Memory).with_checkpoints()


CHAT = line(says("hi"), build=declared)


async def test_one_graph_runs_on_two_stores_and_each_keeps_its_own_sessions(store: Store) -> None:
    async with open_store("memory://") as other:
        for _ in range(2):
            await CHAT.bind(store).invoke(session_id="s")
        await CHAT.bind(other).invoke(session_id="s")
        assert [(await held(each))["messages"] for each in (store, other)] == [["hi", "hi"], ["hi"]]
    assert (CHAT.store, CHAT.session.store, CHAT.tenant) == (None, None, "")


async def test_a_bound_graph_has_the_observers_of_the_graph(store: Store) -> None:
    seen: list[Any] = []

    async def observe(event: Any) -> None:
        seen.append(event)

    graph = line(says("hi"), build=declared)
    bound = graph.bind(store)
    graph.attach_observer(observe)
    await bound.invoke(session_id="s")
    assert (await graph.drain()).undelivered_count == 0
    assert seen


async def test_a_graph_bound_for_every_call_still_finds_the_state_of_the_call_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = line(says("hi"), build=declared)
    await graph.bind(store).invoke(session_id="s")

    async def loaded(_: Any) -> Any:
        raise AssertionError("a warm session is not loaded")

    monkeypatch.setattr(store, "load", loaded)
    assert (await graph.bind(store).invoke(session_id="s")).messages == ["hi", "hi"]


@pytest.mark.parametrize(
    ("build", "options", "said"),
    [(declared, {"session_id": "s"}, "keeps sessions"), (with_checkpoints, {}, "writes checkpoints")],
)
async def test_a_graph_that_is_not_bound_refuses_a_run_of_which_something_is_to_be_kept(
    build: Callable[[GraphBuilder[Any]], None], options: Mapping[str, Any], said: str
) -> None:
    out = await line(nothing, build=build).run(**options)
    assert ended(out) == "failed: invalid_input"
    assert said in str(out.error)
    assert "bind(store)" in str(out.error)


async def test_a_graph_that_is_not_bound_runs_without_a_session() -> None:
    assert (await CHAT.invoke()).messages == ["hi"]


@pytest.mark.parametrize("session_id", ["s", None])
async def test_a_pause_is_kept_in_the_store_the_graph_is_bound_to(store: Store, session_id: str | None) -> None:
    graph = line(gate(), says("end"))
    paused = await graph.bind(store).run(session_id=session_id)
    assert paused.suspended
    assert await graph.bind(store).waiting() == (paused.wait,)
    with pytest.raises(InvalidInput, match="bind it"):
        await graph.waiting()
    again = await graph.bind(store).run(resume_invocation=paused.invocation_id, signal_payload={})
    assert again.result().messages == ["end"]


async def test_with_checkpoints_writes_them_to_the_store_the_graph_is_bound_to(harness: OurHarness) -> None:
    bodies = [fails]
    graph = line(says("one"), lambda state: bodies[0](state), build=with_checkpoints)
    first = await graph.bind(await harness.open()).run(session_id="s", invocation_id="i")
    assert ended(first) == "failed: node_exception"
    bodies[0] = nothing
    again = await graph.bind(await harness.open()).run(resume_invocation="i")
    assert again.result().messages == ["one"]


async def test_without_checkpoints_a_bound_graph_does_not_resume_a_failed_run(store: Store) -> None:
    graph = line(fails, build=declared).bind(store)
    await graph.run(session_id="s", invocation_id="i")
    assert ended(await graph.run(resume_invocation="i")) == "failed: checkpoint_not_found"


async def test_each_tenant_has_its_own_sessions_and_waits(store: Store) -> None:
    async def ask(_: Talk) -> None:
        await suspend("approve?")

    graph = line(ask, nothing, build=declared)  # type: ignore[arg-type]
    mine, theirs = graph.bind(store, tenant="mine"), graph.bind(store, tenant="theirs")
    paused = await mine.run(session_id="s")
    assert (await theirs.run(session_id="s", stop=lambda: True)).session_existed is False
    assert [wait.signal_id for wait in await mine.waiting()] == ["approve?"]
    assert await theirs.waiting() == ()
    assert ended(await theirs.run(resume_invocation=paused.invocation_id, signal_payload={})) == (
        "failed: suspension_record_invalid"
    )
    with pytest.raises(InvalidInput):
        graph.bind(store, tenant=None)  # type: ignore[arg-type]


def told_of(caught: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [each for each in caught if each.category is SessionStateUndeclared]


@pytest.mark.parametrize("build", [None, lambda builder: builder.with_session_state()])
async def test_a_graph_that_keeps_its_whole_state_without_saying_so_warns_once(
    store: Store, build: Callable[[GraphBuilder[Any]], Any] | None
) -> None:
    graph = line(says("hi"), build=build)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert (await graph.bind(store).run()).completed
        assert not told_of(caught)
        for session_id in ("s", "s", "t"):
            assert (await graph.bind(store).run(session_id=session_id)).completed
        graph.as_program()
    (once,) = told_of(caught)
    assert "with_session_state" in str(once.message)
    assert Path(once.filename) == Path(__file__)
    assert (await held(store))["scratch"] == ""


def test_a_graph_as_a_program_that_keeps_its_whole_state_warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for graph in (line(says("hi")), CHAT):
            for _ in range(2):
                graph.as_program()
    (once,) = told_of(caught)
    assert "was made a program" in str(once.message)
    assert Path(once.filename) == Path(__file__)


async def test_a_session_state_keeps_its_fields_alone_and_none_is_warned_of(store: Store) -> None:
    class Short(SessionState):
        mood: str

    def short() -> CompiledGraph[Talk]:
        builder = GraphBuilder(Talk).add_node("n", says("hi", mood="glad", scratch="gone")).add_edge("n", END)
        return builder.set_entry("n").with_session_state(Short).compile()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await short().bind(store).invoke(session_id="s")
    assert await held(store) == {"mood": "glad"}
