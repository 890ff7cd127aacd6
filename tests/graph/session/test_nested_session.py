"""A run on a session within a run of the same session would wait for itself, so it is refused at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tenuto import SessionRuntime, Store, Turn, program
from tenuto.graph import END, Branch, GraphBuilder, GraphOutcome
from tests.graph.session.test_foreign_session import Locks, Shelf
from tests.graph.talking import Body, Memory, Talk, ended, gate, line, nothing, says

Call = Callable[[], Awaitable[GraphOutcome[Any]]]
NESTED = "failed: nested_session"


def within(call: Call, told: list[str]) -> Body:
    """Return a node that runs something and notes how it went."""

    async def body(_: Any) -> Mapping[str, Any]:
        told.append(ended(await call()))
        return {}

    return body


def in_a_node(call: Call, told: list[str]) -> Any:
    return lambda builder: builder.add_node("n", within(call, told))


def in_a_task(call: Call, told: list[str]) -> Any:
    async def body(_: Any) -> Mapping[str, Any]:
        told.append(ended(await asyncio.create_task(_awaited(call))))
        return {}

    return lambda builder: builder.add_node("n", body)


def in_an_instance(call: Call, told: list[str]) -> Any:
    async def each(_: Any, __: int) -> str:
        told.append(ended(await call()))
        return "done"

    return lambda builder: builder.add_fan_out_node("n", each, count=1, target_field="notes")


def in_a_branch(call: Call, told: list[str]) -> Any:
    return lambda builder: builder.add_parallel_branches_node("n", {"one": Branch(call=within(call, told))})


def in_a_subgraph(call: Call, told: list[str]) -> Any:
    return lambda builder: builder.add_subgraph_node("n", line(within(call, told)), outputs={})


async def _awaited(call: Call) -> GraphOutcome[Any]:
    return await call()


def built(add: Any, store: Any, **options: Any) -> Any:
    builder = add(GraphBuilder(Talk)).add_edge("n", END).set_entry("n")
    return builder.with_session_store(store, Memory, **options).compile()


PLACES = pytest.mark.parametrize("place", [in_a_node, in_a_task, in_an_instance, in_a_branch, in_a_subgraph])


@PLACES
async def test_a_run_within_a_run_of_the_same_session_is_refused_at_once(store: Store, place: Any) -> None:
    told: list[str] = []
    inner = line(says("inner"), store=store)
    graph = built(place(lambda: inner.run(session_id="s"), told), store)
    async with asyncio.timeout(5):
        assert ended(await graph.run(session_id="s")) == "completed"
    assert told == [NESTED]
    out = await inner.run(session_id="s")
    assert ended(out) == "completed"


@PLACES
async def test_another_session_another_tenant_and_another_concurrency_are_not_refused(store: Store, place: Any) -> None:
    told: list[str] = []
    inner = line(says("inner"), store=store)
    last = line(nothing, store=store, concurrency="optimistic", auto_save=False)
    calls = [
        lambda: inner.run(session_id="t"),
        lambda: inner.bind(store, tenant="other").run(session_id="s"),
        lambda: inner.run(),
        lambda: last.run(session_id="s"),
    ]
    for call in calls:
        assert ended(await built(place(call, told), store).run(session_id="s")) == "completed"
    assert told == ["completed"] * 4


async def test_the_error_says_what_to_do(store: Store) -> None:
    inner = line(says("inner"), store=store)
    found: list[Any] = []

    async def body(_: Any) -> Mapping[str, Any]:
        found.append((await inner.run(session_id="s")).error)
        return {}

    await line(body, store=store).run(session_id="s")
    assert (found[0].category, found[0].retryable, found[0].key.session_id) == ("nested_session", False, "s")
    assert "subgraph" in found[0].message
    assert "concurrency" in found[0].message


async def test_a_session_held_two_runs_further_out_is_refused_too(store: Store) -> None:
    told: list[str] = []
    inner = line(says("inner"), store=store)
    middle = line(within(lambda: inner.run(session_id="s"), told), store=store)
    outer = line(within(lambda: middle.run(session_id="other"), told), store=store)
    assert ended(await outer.run(session_id="s")) == "completed"
    assert told == [NESTED, "completed"]


async def test_a_resume_within_a_run_of_the_same_session_is_refused(store: Store) -> None:
    told: list[str] = []
    waiting = line(gate(), nothing, store=store)
    paused = await waiting.run(session_id="s")
    again = lambda: waiting.run(resume_invocation=paused.invocation_id, signal_payload={})  # noqa: E731
    assert ended(await line(within(again, told), store=store).run(session_id="s")) == "completed"
    assert told == [NESTED]
    assert ended(await waiting.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="rebase")) == (
        "completed"
    )


async def test_a_task_that_outlives_its_run_may_run_on_the_session(store: Store) -> None:
    later: list[asyncio.Task[Any]] = []
    go = asyncio.Event()
    inner = line(says("later"), store=store)

    async def when_over() -> GraphOutcome[Any]:
        await go.wait()
        return await inner.run(session_id="s")

    async def body(_: Any) -> Mapping[str, Any]:
        later.append(asyncio.create_task(when_over()))
        return {"messages": ["first"]}

    await line(body, store=store).invoke(session_id="s")
    go.set()
    assert (await later[0]).result().messages == ["first", "later"]


async def test_a_fresh_run_beside_a_paused_invocation_is_allowed(store: Store) -> None:
    graph = line(says("asked"), gate(), says("end"), store=store)
    paused = await graph.run(session_id="s")
    assert ended(await line(says("beside"), store=store).run(session_id="s")) == "completed"
    assert paused.wait is not None
    moved = await graph.resume(paused.wait)
    assert ended(moved) == "failed: session_write_conflict"


@pytest.mark.parametrize("kept", ["locks", "nothing"])
async def test_a_store_of_the_users_own_is_no_exception(kept: str) -> None:
    told: list[str] = []
    shelf = Locks() if kept == "locks" else Shelf()
    inner = line(says("inner"), store=shelf)
    async with asyncio.timeout(5):
        out = await line(within(lambda: inner.run(session_id="s"), told), store=shelf).run(session_id="s")
    assert (ended(out), told) == ("completed", [NESTED])


@pytest.mark.parametrize("how", ["program", "effect", "task"])
async def test_a_run_within_a_turn_of_the_runtime_on_the_same_session_is_refused(store: Store, how: str) -> None:
    told: list[str] = []
    inner = line(says("inner"), store=store)

    async def tool() -> str:
        told.append(ended(await inner.run(session_id="s")))
        return "done"

    @program(name="desk")
    async def desk(turn: Turn) -> str:
        match how:
            case "program":
                return await tool()
            case "effect":
                return str(await turn.effect("tool", tool))
            case _:
                return await asyncio.create_task(tool())

    async with SessionRuntime(store, [desk]) as runtime:
        await runtime.create("desk", session_id="s")
        for _ in range(2):
            async with asyncio.timeout(5):
                assert (await runtime.send("s", "go")).completed
    assert told == [NESTED] * 2


@PLACES
async def test_a_run_within_a_graph_that_is_a_program_is_refused(store: Store, place: Any) -> None:
    told: list[str] = []
    inner = line(says("inner"), store=store)
    graph = built(place(lambda: inner.run(session_id="s"), told), store)
    desk = graph.as_program(name="desk", entry=lambda message: message["content"])
    async with SessionRuntime(store, [desk]) as runtime:
        await runtime.create("desk", session_id="s")
        async with asyncio.timeout(5):
            assert (await runtime.send("s", "go")).completed
    assert told == [NESTED]
