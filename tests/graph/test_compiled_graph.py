"""Running a graph: what a caller relies on beyond the fixtures."""

import asyncio
import gc
import re
import tracemalloc
from pathlib import Path
from typing import Annotated, Any

import pytest

from tenuto import observe
from tenuto.errors import (
    EdgeException,
    GraphCompileError,
    InvalidInput,
    NodeException,
    RoutingError,
    StateValidationError,
    StepLimitReached,
)
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, State, append
from tenuto.graph.engine.scope import RESERVED, current_scope, get_invocation_metadata, set_invocation_metadata
from tenuto.graph.middleware import Retry


class Count(State):
    n: int = 0
    log: Annotated[list[str], append] = []


class Many(State):
    items: list[int] = []
    results: Annotated[list[int | None], append] = []


class One(State):
    item: int = 0
    result: int = 0


async def up(state: Count) -> dict[str, Any]:
    return {"n": state.n + 1}


def single(body: Any, **node: Any) -> CompiledGraph[Count]:
    return GraphBuilder(Count, "shop").add_node("read", body, **node).add_edge("read", END).set_entry("read").compile()


async def test_a_loop_runs_until_its_edge_says_end_and_the_limit_stops_one_that_never_does() -> None:
    loop = (
        GraphBuilder(Count)
        .add_node("up", up)
        .add_conditional_edge("up", lambda s: END if s.n == 7 else "up")
        .set_entry("up")
        .compile()
    )
    assert (await loop.invoke()).n == 7
    with pytest.raises(StepLimitReached) as reached:
        await loop.invoke(step_limit=3)
    assert (reached.value.limit, reached.value.recoverable_state.n) == (3, 3)


@pytest.mark.parametrize("wrong", [None, [], "text", 3])
async def test_a_node_that_returns_no_mapping_is_a_typed_error_naming_graph_and_node(wrong: Any) -> None:
    async def body(_: Count) -> Any:
        return wrong

    with pytest.raises(StateValidationError, match=r"'read' of graph 'shop'") as refused:
        await single(body).invoke()
    assert (refused.value.graph, refused.value.node_name) == ("shop", "read")


@pytest.mark.parametrize(("update", "field"), [({"lost": 1}, "lost"), ({"n": "many"}, "n"), ({"log": [1]}, "log")])
async def test_an_undeclared_or_ill_typed_update_is_refused_and_names_the_field(update: Any, field: str) -> None:
    async def body(_: Count) -> Any:
        return update

    outcome = await single(body).run({"n": 4})
    assert isinstance(outcome.error, StateValidationError)
    assert outcome.error.details()["field"] == field
    assert outcome.error.recoverable_state.n == 4


async def test_a_node_may_be_a_plain_function() -> None:
    assert (await single(lambda _: {"n": 1}).invoke()).n == 1


async def test_a_middleware_that_returns_nothing_is_refused_by_name() -> None:
    async def forgetful(state: Any, following: Any) -> Any:
        await following(state)

    with pytest.raises(NodeException, match="forgetful"):
        await single(up, middleware=[forgetful]).invoke()


async def test_a_conditional_edge_to_nowhere_and_one_that_raises_keep_the_state_after_the_node() -> None:
    def routed(edge: Any) -> CompiledGraph[Count]:
        return GraphBuilder(Count).add_node("up", up).add_conditional_edge("up", edge).set_entry("up").compile()

    lost = await routed(lambda _: "nowhere").run()
    assert isinstance(lost.error, RoutingError)
    assert lost.error.recoverable_state.n == 1
    broken = await routed(lambda s: s.missing).run()
    assert isinstance(broken.error, EdgeException)
    assert isinstance(broken.error.__cause__, AttributeError)


async def test_initial_values_that_do_not_fit_are_refused_before_any_node_runs() -> None:
    ran = []

    async def body(_: Count) -> dict[str, Any]:
        ran.append(1)
        return {}

    for wrong in ({"n": "x"}, {"unknown": 1}):
        outcome = await single(body).run(wrong)
        assert isinstance(outcome.error, StateValidationError)
    assert not ran


async def test_a_stop_before_the_first_node_runs_none_and_one_during_a_node_lets_it_finish() -> None:
    """Instr 30."""
    stopped = False

    async def read(state: Count) -> dict[str, Any]:
        nonlocal stopped
        stopped = True
        return {"n": state.n + 1}

    graph = (
        GraphBuilder(Count)
        .add_node("read", read)
        .add_node("more", up)
        .add_edge("read", "more")
        .add_edge("more", END)
        .set_entry("read")
        .compile()
    )
    first = await graph.run(stop=lambda: True)
    assert (first.status, first.state and first.state.n) == ("interrupted", 0)
    second = await graph.run(stop=lambda: stopped)
    assert (second.status, second.state and second.state.n) == ("interrupted", 1)


async def test_cancelling_from_outside_leaves_no_task_behind() -> None:
    started, ended = asyncio.Event(), []

    async def slow(state: One) -> dict[str, Any]:
        if state.item == 3:
            started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(state.item)
        return {}

    child = GraphBuilder(One).add_node("slow", slow).add_edge("slow", END).set_entry("slow").compile()
    graph = fan(child, concurrency=4)
    before = asyncio.all_tasks()
    running = asyncio.create_task(graph.invoke({"items": list(range(8))}))
    async with asyncio.timeout(10):
        await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before
    assert sorted(ended) == [0, 1, 2, 3]


def fan(child: CompiledGraph[One], **options: Any) -> CompiledGraph[Many]:
    return (
        GraphBuilder(Many)
        .add_fan_out_node(
            "fan",
            child,
            items_field="items",
            item_field="item",
            collect_field="result",
            target_field="results",
            **options,
        )
        .add_edge("fan", END)
        .set_entry("fan")
        .compile()
    )


async def double(state: One) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"result": state.item * 2}


def doubling(body: Any = double) -> CompiledGraph[One]:
    return GraphBuilder(One).add_node("double", body).add_edge("double", END).set_entry("double").compile()


async def test_ten_thousand_instances_stay_small() -> None:
    graph = fan(doubling(), concurrency=50)
    gc.collect()
    tracemalloc.start()
    try:
        final = await graph.invoke({"items": list(range(10_000))}, step_limit=20_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert final.results == [item * 2 for item in range(10_000)]
    assert peak < 200 * 1024 * 1024


async def test_one_failure_under_fail_fast_cancels_and_awaits_the_rest() -> None:
    ended: list[int] = []

    async def body(state: One) -> dict[str, Any]:
        try:
            if state.item == 2:
                raise ValueError("two")
            await asyncio.Event().wait()
        finally:
            ended.append(state.item)
        return {}

    outcome = await fan(doubling(body), concurrency=None).run({"items": [0, 1, 2, 3]})
    assert isinstance(outcome.error, NodeException)
    assert outcome.error.node_name == "fan"
    assert sorted(ended) == [0, 1, 2, 3]


async def test_metadata_of_instances_branches_and_failed_attempts_goes_its_own_way() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    tries = 0

    async def mark(state: One) -> dict[str, Any]:
        set_invocation_metadata(item=state.item)
        await asyncio.sleep(0)
        seen.append(("instance", dict(get_invocation_metadata())))
        return {}

    async def branch(_: Many) -> dict[str, Any]:
        set_invocation_metadata(branch="yes")
        return {}

    async def flaky(_: Many) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        set_invocation_metadata(**{f"attempt{tries}": tries})
        if tries == 1:
            raise ConnectionError
        return {}

    async def last(_: Many) -> dict[str, Any]:
        seen.append(("last", dict(get_invocation_metadata())))
        return {}

    child = GraphBuilder(One).add_node("mark", mark).add_edge("mark", END).set_entry("mark").compile()
    again = Retry(classifier=lambda *_: True, backoff=lambda _: 0)
    graph = (
        GraphBuilder(Many)
        .add_fan_out_node(
            "fan", child, items_field="items", item_field="item", collect_field="result", target_field="results"
        )
        .add_parallel_branches_node("both", {"one": Branch(call=branch)})
        .add_node("flaky", flaky, [again])
        .add_node("last", last)
        .add_edge("fan", "both")
        .add_edge("both", "flaky")
        .add_edge("flaky", "last")
        .add_edge("last", END)
        .set_entry("fan")
        .compile()
    )
    await graph.invoke({"items": [1, 2]}, metadata={"user": "ada"})
    assert seen == [
        ("instance", {"user": "ada", "item": 1}),
        ("instance", {"user": "ada", "item": 2}),
        ("last", {"user": "ada", "attempt2": 2}),
    ]
    assert current_scope() is None
    assert dict(get_invocation_metadata()) == {}


async def test_an_observer_that_raises_disturbs_nobody() -> None:
    heard: list[str] = []

    async def broken(_: Any) -> None:
        raise RuntimeError("deaf")

    async def good(event: Any) -> None:
        heard.append(event.phase)

    graph = single(up)
    graph.attach_observer(broken)
    graph.attach_observer(good, phases=["completed"])
    assert (await graph.invoke()).n == 1
    with pytest.warns(RuntimeWarning, match="deaf"):
        summary = await graph.drain()
    assert heard == ["completed"]
    assert summary.undelivered_count == 0


def test_a_graph_that_cannot_be_compiled_says_which_rule_it_breaks() -> None:
    builder = GraphBuilder(Count).add_node("up", up)
    with pytest.raises(GraphCompileError) as refused:
        builder.compile()
    assert refused.value.category == "no_declared_entry"
    builder.set_entry("up").add_edge("up", "nowhere")
    with pytest.raises(GraphCompileError) as refused:
        builder.compile()
    assert refused.value.category == "dangling_edge"


def test_a_drawing_shows_subgraphs_fan_outs_and_branches() -> None:
    inner = doubling()

    async def right(_: Many) -> dict[str, int]:
        return {}

    graph = (
        GraphBuilder(Many)
        .add_fan_out_node(
            "fan", inner, items_field="items", item_field="item", collect_field="result", target_field="results"
        )
        .add_parallel_branches_node("both", {"left": Branch(subgraph=inner, outputs={}), "right": Branch(call=right)})
        .add_edge("fan", "both")
        .add_conditional_edge("both", lambda _: END)
        .set_entry("fan")
        .compile()
    )
    drawn = graph.to_mermaid()
    assert drawn.startswith("flowchart TD\n")
    assert drawn.count("subgraph ") == drawn.count("    end\n") == 3
    for label in ('"fan (each of items)"', '"both"', '"left"', '"right"', '"double"'):
        assert label in drawn


@pytest.mark.parametrize(
    "name", ["session_id", "invocation_id", "correlation_id", "node.name", "node_name", "fan_out_index", "tenuto.x"]
)
async def test_metadata_cannot_have_a_name_the_engine_writes_itself(name: str) -> None:
    with pytest.raises(InvalidInput, match="another name"):
        await single(up).run(metadata={name: "mine"})

    async def sets(_: Count) -> dict[str, Any]:
        with pytest.raises(InvalidInput, match="another name"):
            set_invocation_metadata(**{name: "mine"})
        set_invocation_metadata(tenant="free", user_id="too")
        return {}

    assert (await single(sets).run(metadata={"tenantId": "t"})).completed


def test_every_attribute_of_a_span_is_a_reserved_name() -> None:
    source = "".join(path.read_text() for path in Path(observe.__file__).parent.glob("*.py"))
    written = set(re.findall(r'"openarmature\.([a-z_.]+)"', source)) - {"user.", "invocation"}
    assert {"session_id", "node.step"} < written
    assert written <= RESERVED
