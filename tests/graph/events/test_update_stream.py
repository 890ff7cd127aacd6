"""What each node gives, as it ends: from a graph that runs by itself, and in the durable stream of a session."""

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tenuto import Store, StreamItem, fold
from tenuto.errors import InvalidInput, NodeException
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, SessionState, State, append
from tenuto.graph.middleware import Retry
from tests.conftest import OurHarness
from tests.graph.desk import Desk, adds, answers, fails, line, says, waits
from tests.runtime.runtimes import Database, Gate, in_memory, opened


class Note(BaseModel):
    text: str


class Work(State):
    total: int = 0
    notes: Annotated[list[Note], append] = []
    names: Annotated[list[str], append] = []


async def count(state: Work) -> dict[str, Any]:
    return {"total": state.total + 3}


def note(state: Work) -> dict[str, Any]:
    return {"notes": [Note(text=f"at {state.total}")]}


def two(*middleware: Any) -> CompiledGraph[Work]:
    builder = GraphBuilder(Work, "work").add_node("count", count).add_node("note", note, middleware)
    return builder.add_edge("count", "note").add_edge("note", END).set_entry("count").compile()


async def streamed(graph: CompiledGraph[Any], initial: Any = None) -> list[tuple[str, Any]]:
    """Return the nodes and updates of a run."""
    return [(event.node_name, event.update) async for event in graph.stream(initial)]


async def test_each_node_is_streamed_with_its_update_and_the_state_after_it() -> None:
    events = [event async for event in two().stream({"total": 1})]
    assert [(each.node_name, each.update) for each in events] == [
        ("count", {"total": 4}),
        ("note", {"notes": [Note(text="at 4")]}),
    ]
    assert [each.post_state.total for each in events] == [4, 4]


async def test_an_update_is_there_before_the_next_node_runs() -> None:
    gate = Gate()

    async def slow(_: Desk) -> dict[str, Any]:
        await gate()
        return {}

    graph = line(adds(1), slow)
    async with aclosing(graph.stream()) as events:
        first = await anext(events)
        assert (first.node_name, first.update) == ("n0", {"total": 1, "scratch": ["+1"]})
        await gate.reached.wait()
        gate.open.set()
        assert [each.node_name async for each in events] == ["n1"]


async def test_closing_the_stream_cancels_the_run() -> None:
    gate, ended = Gate(), list[str]()

    async def slow(_: Desk) -> dict[str, Any]:
        try:
            await gate()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return {}

    before = asyncio.all_tasks()
    async with aclosing(line(adds(1), slow).stream()) as events:
        await anext(events)
        await gate.reached.wait()
    assert ended == ["cancelled"]
    assert asyncio.all_tasks() == before


async def test_what_the_run_raises_comes_after_the_last_update() -> None:
    events = line(adds(1), fails, adds(2)).stream()
    assert (await anext(events)).node_name == "n0"
    with pytest.raises(NodeException, match="the till is stuck"):
        await anext(events)
    with pytest.raises(InvalidInput):
        [event async for event in line(adds(1)).stream(step_limit=0)]


class Flaky(Exception):
    transient = True


async def test_attempts_that_failed_have_no_update_and_middleware_has_its_say() -> None:
    tried: list[int] = []

    async def flaky(_: Work) -> dict[str, Any]:
        tried.append(1)
        if len(tried) < 3:
            raise Flaky("once more")
        return {"total": 7}

    async def doubles(state: Any, next_: Any) -> Any:
        found = await next_(state)
        return {"total": 2 * found["total"]}

    retry = Retry(max_attempts=3, backoff=lambda _: 0.0)
    builder = GraphBuilder(Work, "work").add_node("flaky", flaky, [doubles, retry])
    graph = builder.add_edge("flaky", END).set_entry("flaky").compile()
    assert await streamed(graph) == [("flaky", {"total": 14})]


async def test_nodes_inside_others_are_streamed_with_their_places() -> None:
    inner = two()

    async def each(state: Work, name: str) -> str:
        return name.upper()

    builder = (
        GraphBuilder(Work, "outer")
        .add_subgraph_node("sub", inner, outputs={"total": "total"})
        .add_fan_out_node("all", each, items=lambda _: ["a", "b"], target_field="names")
        .add_parallel_branches_node("both", {"left": Branch(call=count)})
    )
    graph = builder.add_edge("sub", "all").add_edge("all", "both").add_edge("both", END).set_entry("sub").compile()
    found = [(each.namespace, each.fan_out_index, each.branch_name, each.update) async for each in graph.stream()]
    assert (("sub", "count"), None, None, {"total": 3}) in found
    assert (("all", "all"), 0, None, {"names": ["A"]}) in found
    assert (("all",), None, None, {"names": ["A", "B"]}) in found
    assert any(branch == "left" for _, _, branch, _ in found)


async def test_a_suspended_node_gave_nothing() -> None:
    seen: list[tuple[str, Any]] = []

    async def observe(event: Any) -> None:
        if getattr(event, "phase", None) is not None:
            seen.append((event.phase, event.update))

    graph = line(adds(1), waits)
    await graph.run(observers=[observe])
    await graph.drain()
    assert [update for _, update in seen if update] == [{"total": 1, "scratch": ["+1"]}]


def parts(items: list[StreamItem]) -> list[Any]:
    """Return what chunks have as their data."""
    return [item.data["data"] for item in items if item.type == "chunk"]


async def test_a_session_streams_what_its_nodes_gave_live_and_for_ever(store: Store) -> None:
    made = line(adds(3), says("done")).as_program(updates=True)
    runtime = await opened(store, [made])
    session = await runtime.create(made, session_id="s")
    run = await session.start("hello")
    live = [item async for item in run.events()]
    expected = [
        {"node": "n0", "path": ["n0"], "update": {"total": 3, "scratch": ["+3"]}},
        {"node": "n1", "path": ["n1"], "update": {"messages": [{"role": "assistant", "content": "done"}]}},
    ]
    assert parts(live) == expected
    assert "".join([part async for part in run.text()]) == "done"
    other = await opened(store, [])
    assert parts([item async for item in other.session("s").events(live=False)]) == expected


@in_memory
async def test_a_program_shows_no_updates_unless_it_says_so(store: Store) -> None:
    made = line(adds(3), answers).as_program()
    runtime = await opened(store, [made])
    session = await runtime.create(made, session_id="s")
    await session.send("hello")
    assert parts([item async for item in session.events(live=False)]) == []
    with pytest.raises(InvalidInput, match="updates"):
        line(adds(3)).as_program(updates="yes")  # type: ignore[call-overload]


@in_memory
async def test_updates_of_a_lost_attempt_are_rewound(harness: OurHarness) -> None:
    gate = Gate()

    async def slow(_: Desk) -> dict[str, Any]:
        if not gate.open.is_set():
            await gate()
        return {"total": 9}

    made = line(adds(1), slow).as_program(updates=True, checkpoints=True)
    again = line(adds(2), slow, adds(4)).as_program(updates=True)
    for program, expected in ((made, ["n0", "n1"]), (again, ["n0", "n1", "n2"])):
        gate.reached.clear()
        gate.open.clear()
        database = Database(harness)
        first = await database.runtime(program)
        session = await first.create(program)
        task = asyncio.create_task(session.send("hello"))
        await gate.reached.wait()
        await database.lose(first, task)
        gate.open.set()
        second = await database.runtime(program)
        await second.drain()
        items = fold([item async for item in second.session(session.session_id).events(live=False)])
        assert [each["node"] for each in parts(list(items))] == expected


@in_memory
async def test_what_a_stream_cannot_carry_is_left_out_by_name(store: Store) -> None:
    class Odd(State):
        messages: Annotated[list[Any], append] = []
        big: str = ""
        thing: Any = None
        fine: int = 0

    class Kept(SessionState):
        messages: list[Any]

    async def odd(_: Odd) -> dict[str, Any]:
        return {"big": "x" * (2 * 1024 * 1024), "thing": object(), "fine": 4}

    builder = GraphBuilder(Odd, "odd").add_node("n0", odd).add_edge("n0", END).set_entry("n0")
    made = builder.with_session_state(Kept).compile().as_program(updates=True)
    runtime = await opened(store, [made])
    session = await runtime.create(made, session_id="s")
    assert (await session.send("hello")).completed
    (part,) = parts([item async for item in session.events(live=False)])
    assert part == {"node": "n0", "path": ["n0"], "update": {"fine": 4}, "left_out": ["big", "thing"]}
