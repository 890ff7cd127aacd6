"""Plain functions as nodes, instances and branches: they run in a thread."""

import asyncio
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from tenuto import SessionRuntime, Store
from tenuto.errors import SuspensionInUnsupportedContext
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, State, append, current_turn, save_session, suspend
from tenuto.graph.engine.scope import current_invocation_id, get_invocation_metadata, set_invocation_metadata
from tenuto.graph.middleware import Retry
from tests.graph.talking import ended

LIMIT = 10.0

caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Work(State):
    items: list[int] = []
    done: Annotated[list[str], append] = []


def one_node(body: Any, *middleware: Any) -> CompiledGraph[Work]:
    return GraphBuilder(Work, "work").add_node("n", body, middleware).add_edge("n", END).set_entry("n").compile()


async def test_a_plain_node_may_block_while_others_run() -> None:
    both = threading.Barrier(2)

    def blocks(_: Work) -> Mapping[str, Any]:
        both.wait(LIMIT)  # each waits for the other: inline, the first would wait for ever
        return {"done": [threading.current_thread().name]}

    graph = one_node(blocks)
    first, second = await asyncio.gather(graph.invoke(), graph.invoke())
    assert threading.main_thread().name not in first.done + second.done


async def test_a_plain_node_has_the_callers_context() -> None:
    caller.set("ada")
    seen: list[Any] = []

    def looks(_: Work) -> Mapping[str, Any]:
        set_invocation_metadata(color="red")
        seen.extend([caller.get(), current_invocation_id(), dict(get_invocation_metadata())])
        return {}

    events: list[Any] = []

    async def observe(event: Any) -> None:
        events.append(type(event).__name__)

    graph = one_node(looks)
    await graph.run(invocation_id="i", observers=[observe])
    await graph.drain(LIMIT)
    assert seen == ["ada", "i", {"color": "red"}]
    assert "MetadataEvent" in events


async def test_an_instance_and_a_branch_may_be_plain_functions() -> None:
    together = threading.Barrier(3)

    def instance(_: Work, item: int) -> str:
        together.wait(LIMIT)
        return f"item {item}"

    def branch(state: Work) -> Mapping[str, Any]:
        return {"done": [f"after {len(state.done)}"]}

    graph = (
        GraphBuilder(Work)
        .add_fan_out_node("each", instance, items_field="items", target_field="done")
        .add_parallel_branches_node("both", {"a": Branch(call=branch), "b": Branch(call=branch)})
        .add_edge("each", "both")
        .add_edge("both", END)
        .set_entry("each")
        .compile()
    )
    assert (await graph.invoke({"items": [1, 2, 3]})).done == ["item 1", "item 2", "item 3", "after 3", "after 3"]


async def test_a_callable_that_returns_an_awaitable_is_awaited() -> None:
    async def say(text: str) -> Mapping[str, Any]:
        return {"done": [text]}

    class Speaker:
        async def __call__(self, _: Work) -> Mapping[str, Any]:
            return await say("object")

    assert (await one_node(lambda _: say("lambda")).invoke()).done == ["lambda"]
    assert (await one_node(Speaker()).invoke()).done == ["object"]


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no")], ids=["error", "StopIteration"])
async def test_what_a_plain_node_raises_is_the_cause(error: Exception) -> None:
    def fails(_: Work) -> Mapping[str, Any]:
        raise error

    out = await one_node(fails).run()
    assert ended(out) == "failed: node_exception"
    assert out.error is not None
    cause = out.error.__cause__
    assert error in (cause, getattr(cause, "__cause__", None))


async def test_a_plain_node_is_retried() -> None:
    tries: list[int] = []

    def flaky(_: Work) -> Mapping[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")
        return {"done": ["at last"]}

    retry = Retry(classifier=lambda *_: True, backoff=lambda _: 0.0)
    assert (await one_node(flaky, retry).invoke()).done == ["at last"]


async def test_the_result_of_a_thread_that_outlives_its_run_is_dropped(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: Work) -> Mapping[str, Any]:
        entered.set()
        leave.wait(LIMIT)
        return {"done": ["late"]}

    graph = (
        GraphBuilder(Work)
        .add_node("n", slow)
        .add_edge("n", END)
        .set_entry("n")
        .with_session_store(store)
        .with_checkpointer(store)
        .compile()
    )
    running = asyncio.ensure_future(graph.run(session_id="s", invocation_id="i"))
    assert await asyncio.to_thread(entered.wait, LIMIT)
    running.cancel()
    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - begun < LIMIT / 2  # it does not wait for the thread
    leave.set()
    assert [run.status.value for run in await store.runs.of_invocation("i")] == ["interrupted"]
    assert (await graph.run(resume_invocation="i")).result().done == ["late"]  # from the checkpoint, once


@pytest.mark.parametrize("verb", [suspend, save_session], ids=["suspend", "save_session"])
async def test_what_has_to_be_awaited_is_refused_in_a_plain_node(store: Store, verb: Any) -> None:
    given = ("go",) if verb is suspend else ()

    def forgets(_: Work) -> Mapping[str, Any]:
        verb(*given)
        return {"done": ["went on"]}

    def runs_a_loop_of_its_own(_: Work) -> Mapping[str, Any]:
        async def inner() -> None:
            await verb(*given)

        asyncio.run(inner())
        return {}

    for body in (forgets, runs_a_loop_of_its_own):
        graph = GraphBuilder(Work).add_node("n", body).add_edge("n", END).set_entry("n").with_session_store(store)
        out = await graph.compile().run(session_id="s")
        assert isinstance(out.error, SuspensionInUnsupportedContext)
        assert "`async def`" in out.error.message
        assert out.error.node_name == "n"


async def test_a_plain_node_speaks_and_counts_through_its_turn(store: Store) -> None:
    def speaks(_: Work) -> Mapping[str, Any]:
        turn = current_turn()
        assert turn is not None
        for part in ("one ", "two"):
            turn.emit(part)
        turn.record_usage("small", input=3, output=2, once="it")
        return {"done": ["said"]}

    graph = one_node(speaks).as_program(input="done", entry=lambda message: message["content"])
    async with SessionRuntime(store, graph) as runtime:
        session = await runtime.create(graph)
        run = await session.start("go")
        assert [text async for text in run.text()] == ["one ", "two"]
        assert (await run.wait()).completed
        total = (await session.usage()).total
        assert (total.calls, total.input, total.output) == (1, 3, 2)
