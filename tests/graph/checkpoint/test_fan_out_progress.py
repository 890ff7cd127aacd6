"""What a fan-out inside an instance of another has done is not done again, and never taken for something else."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import CheckpointRecordInvalid
from tenuto.graph import END, Branch, CompiledGraph, End, GraphBuilder, State, append
from tenuto.graph.middleware import FailureIsolation, Retry
from tests.conftest import OurHarness


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


class Calls:
    """Counts the calls of node bodies, and crashes once, at the n-th."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.number = 0
        self.done: Counter[str] = Counter()

    def body(self, name: str, change: Callable[[Any], dict[str, Any]], value: str = "value") -> Any:
        async def run(state: Any) -> dict[str, Any]:
            self.number += 1
            if self.number == self.crash_at:
                raise Crash
            await asyncio.sleep(0)
            self.done[f"{name} {getattr(state, value)}"] += 1
            return change(state)

        return run

    def again(self, name: str) -> list[str]:
        return [label for label, count in self.done.items() if count > 1 and label.startswith(name)]


class Leaf(State):
    value: int = 0
    result: int = 0


class Row(State):
    value: list[int] = []
    round: int = 0
    results: Annotated[list[int], append] = []
    total: int = 0


class Table(State):
    value: list[list[int]] = []
    totals: Annotated[list[int], append] = []
    errors: Annotated[list[dict[str, str]], append] = []


def chain(kind: type[State], *steps: Callable[[GraphBuilder[Any]], str]) -> GraphBuilder[Any]:
    """Build a graph of these steps, one after the other."""
    builder: GraphBuilder[Any] = GraphBuilder(kind)
    names = [step(builder) for step in steps]
    targets: list[str | End] = [*names[1:], END]
    for name, following in zip(names, targets, strict=True):
        if name != "loop":
            builder.add_edge(name, following)
    return builder.set_entry(names[0])


def node(name: str, body: Any) -> Callable[[GraphBuilder[Any]], str]:
    def add(builder: GraphBuilder[Any]) -> str:
        builder.add_node(name, body)
        return name

    return add


def each(name: str, graph: CompiledGraph[Any], collect: str, target: str, **more: Any) -> Any:
    def add(builder: GraphBuilder[Any]) -> str:
        options = {"items_field": "value", "item_field": "value"} | more
        builder.add_fan_out_node(name, graph, collect_field=collect, target_field=target, **options)
        return name

    return add


def inside(name: str, graph: CompiledGraph[Any], **more: Any) -> Any:
    def add(builder: GraphBuilder[Any]) -> str:
        builder.add_subgraph_node(name, graph, **more)
        return name

    return add


def leaf_of(calls: Calls) -> CompiledGraph[Any]:
    return chain(Leaf, node("leaf", calls.body("leaf", lambda s: {"result": s.value * 10}))).compile()


def row_of(calls: Calls, width: int) -> CompiledGraph[Any]:
    return chain(
        Row,
        node("before", calls.body("before", lambda _: {})),
        each("cells", leaf_of(calls), "result", "results", concurrency=width),
        node("after", calls.body("after", lambda s: {"total": sum(s.results)})),
    ).compile()


def table_of(row: CompiledGraph[Any], calls: Calls, width: int) -> GraphBuilder[Any]:
    rows = each("rows", row, "total", "totals", concurrency=width)
    return chain(Table, node("first", calls.body("first", lambda _: {})), rows)


def plain(calls: Calls, width: int) -> GraphBuilder[Any]:
    return table_of(row_of(calls, width), calls, width)


def through_subgraphs(calls: Calls, width: int) -> GraphBuilder[Any]:
    """The rows in a subgraph of the outermost graph, the cells in a subgraph of the row's graph."""
    wrapped = chain(Row, inside("row", row_of(calls, width), inputs={"value": "value"}, outputs={"total": "total"}))
    table = chain(Table, each("rows", wrapped.compile(), "total", "totals", concurrency=width)).compile()
    return chain(
        Table,
        node("first", calls.body("first", lambda _: {})),
        inside("table", table, inputs={"value": "value"}, outputs={"totals": "totals"}),
        node("last", calls.body("last", lambda _: {})),
    )


def three_levels(calls: Calls, width: int) -> GraphBuilder[Any]:
    class Half(State):
        value: int = 0
        halves: list[int] = []
        parts: Annotated[list[int], append] = []
        result: int = 0

    half = chain(
        Half,
        node("split", calls.body("split", lambda s: {"halves": [s.value * 100, s.value * 100 + 1]})),
        each("halves", leaf_of(calls), "result", "parts", items_field="halves", concurrency=width),
        node("join", calls.body("join", lambda s: {"result": sum(s.parts) // 10})),
    ).compile()
    row = chain(
        Row,
        each("cells", half, "result", "results", concurrency=width),
        node("after", calls.body("after", lambda s: {"total": sum(s.results)})),
    ).compile()
    return table_of(row, calls, width)


def loops(calls: Calls, width: int) -> GraphBuilder[Any]:
    """Three rounds of cells in every row, each with as many items as the others, and other ones."""

    def more(builder: GraphBuilder[Any]) -> str:
        builder.add_node("loop", calls.body("loop", lambda s: {"total": sum(s.results)}))
        builder.add_conditional_edge("loop", lambda s: END if s.round == 3 else "next")
        return "loop"

    row = chain(
        Row,
        node(
            "next", calls.body("next", lambda s: {"round": s.round + 1, "value": [100 * s.round + v for v in s.value]})
        ),
        each("cells", leaf_of(calls), "result", "results", concurrency=width),
        more,
    ).compile()
    return table_of(row, calls, width)


SHAPES = [plain, through_subgraphs, three_levels, loops]
START = {"value": [[1, 2, 3], [4, 5, 6, 7]]}


def places(harness: OurHarness, calls: int) -> Iterable[int]:
    return range(2, calls + 1, 9 if harness.name == "postgres" else 1)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_crash_anywhere_repeats_no_inner_instance_that_was_done(shape: Any, harness: OurHarness) -> None:
    store = await harness.open()
    unbroken = Calls()
    expected = await shape(unbroken, 1).compile().invoke(START)
    assert unbroken.again("leaf") == []
    for at in places(harness, unbroken.number):
        calls = Calls(at)
        graph = shape(calls, 1).with_checkpointer(store).compile()
        with pytest.raises(Crash):
            await graph.run(START, invocation_id=f"crashed-{at}")
        final = await graph.invoke(resume_invocation=f"crashed-{at}")
        assert final == expected, at
        assert calls.again("leaf") == [], at


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_crash_among_instances_at_the_same_time_resumes_to_the_same_end(
    shape: Any, harness: OurHarness
) -> None:
    store = await harness.open()
    unbroken = Calls()
    expected = await shape(unbroken, 2).compile().invoke(START)
    for at in places(harness, unbroken.number):
        calls = Calls(at)
        graph = shape(calls, 2).with_checkpointer(store).compile()
        with pytest.raises(Crash):
            await graph.run(START, invocation_id=f"crashed-{at}")
        assert await graph.invoke(resume_invocation=f"crashed-{at}") == expected, at
        # What was under way elsewhere at that moment may run again.
        assert len(calls.again("leaf")) <= (7 if shape is three_levels else 3), (at, calls.again("leaf"))


async def test_a_second_crash_goes_on_from_both_runs_before(harness: OurHarness) -> None:
    store = await harness.open()
    expected = await plain(Calls(), 1).compile().invoke(START)
    calls = Calls(5)
    graph = plain(calls, 1).with_checkpointer(store).compile()
    with pytest.raises(Crash):
        await graph.run(START, invocation_id="first")
    calls.number, calls.crash_at = 0, 3
    with pytest.raises(Crash):
        await graph.run(resume_invocation="first")
    (run, again) = [run for run in (await store.dump())["run"] if run["status"] == "interrupted"]
    second = next(each["invocation_id"] for each in (run, again) if each["invocation_id"] != "first")
    assert await graph.invoke(resume_invocation=second) == expected
    assert calls.again("leaf") == []


async def test_all_progress_of_an_outermost_fan_out_is_one_log(store: Store) -> None:
    await loops(Calls(), 2).with_checkpointer(store).compile().invoke(START, invocation_id="whole")
    (run,) = await store.runs.of_invocation("whole")
    point = await store.checkpoints.latest(run.key, run_id=run.run_id)
    assert point is not None
    assert [name for name in point.ends if name.endswith("*")] == ["rows/*"]


async def test_an_instance_that_is_tried_again_leaves_nothing_to_its_next_attempt(harness: OurHarness) -> None:
    calls = Calls()
    tries = 0

    async def after(state: Row) -> dict[str, Any]:
        nonlocal tries
        if state.round == 0:
            return {"round": 1, "value": [value + 100 for value in state.value]}
        tries += 1
        if tries == 1:
            calls.crash_at = calls.number + 3
            raise ValueError("try again")
        return {"round": 2, "total": sum(state.results)}

    def loop(builder: GraphBuilder[Any]) -> str:
        builder.add_node("loop", after)
        builder.add_conditional_edge("loop", lambda s: END if s.round == 2 else "cells")
        return "loop"

    row = chain(Row, each("cells", leaf_of(calls), "result", "results", concurrency=1), loop).compile()
    retry = Retry(max_attempts=2, classifier=lambda *_: True, backoff=lambda _: 0.0)
    graph = (
        chain(Table, each("rows", row, "total", "totals", instance_middleware=[retry]))
        .with_checkpointer(await harness.open())
        .compile()
    )
    with pytest.raises(Crash):
        await graph.run({"value": [[1, 2, 3]]}, invocation_id="tried")
    # The second attempt came to the third cell of its first round.
    assert calls.done == {"leaf 1": 2, "leaf 2": 2, "leaf 3": 1, "leaf 101": 1, "leaf 102": 1, "leaf 103": 1}
    final = await graph.invoke(resume_invocation="tried")
    assert final.totals == [3120]
    assert set(calls.done.values()) == {2}


async def test_an_inner_fan_out_that_is_tried_again_is_still_in_its_round(harness: OurHarness) -> None:
    """Two attempts at the first round are not the first and the second round."""
    calls = Calls()
    broken = True

    async def leaf(state: Leaf) -> dict[str, int]:
        nonlocal broken
        if broken and state.value == 2:
            broken = False
            raise ValueError("try again")
        return dict(await calls.body("leaf", lambda s: {"result": s.value * 10})(state))

    leaves = chain(Leaf, node("leaf", leaf)).compile()
    retry = Retry(max_attempts=2, classifier=lambda *_: True, backoff=lambda _: 0.0)

    def more(builder: GraphBuilder[Any]) -> str:
        builder.add_node("loop", calls.body("loop", lambda s: {"round": s.round + 1, "value": [7, 8], "total": 1}))
        builder.add_conditional_edge("loop", lambda s: END if s.round == 2 else "cells")
        return "loop"

    row = chain(Row, each("cells", leaves, "result", "results", concurrency=1, middleware=[retry]), more).compile()
    graph = chain(Table, each("rows", row, "results", "value")).with_checkpointer(await harness.open()).compile()
    # leaf 1, (2 fails), again 1, 2, then the loop and the second round's 7.
    calls.crash_at = 6
    with pytest.raises(Crash):
        await graph.run({"value": [[1, 2]]}, invocation_id="tried")
    final = await graph.invoke(resume_invocation="tried")
    assert final.value == [[10, 20, 70, 80]]
    assert calls.done["leaf 7"] == 1
    assert calls.done["leaf 2"] == 1


@pytest.mark.parametrize("policy", ["fail_fast", "collect"])
@pytest.mark.parametrize("now", [2, 4])
async def test_another_number_of_items_is_refused_and_nobody_takes_the_refusal_in(
    policy: str, now: int, harness: OurHarness
) -> None:
    calls, count = Calls(3), 3
    counting = {"count": lambda _: count, "items_field": None, "item_field": None, "concurrency": 1}
    row = chain(Row, each("cells", leaf_of(calls), "result", "results", **counting)).compile()
    around = FailureIsolation({"results": []}, event_name="isolated")
    retry = Retry(classifier=lambda *_: True, backoff=lambda _: 0.0)
    rows = each("rows", row, "results", "value", error_policy=policy, instance_middleware=[around, retry])
    graph = chain(Table, rows).with_checkpointer(await harness.open()).compile()
    with pytest.raises(Crash):
        await graph.run({"value": [[]]}, invocation_id="counted")
    count = now
    outcome = await graph.run(resume_invocation="counted")
    assert isinstance(outcome.error, CheckpointRecordInvalid)
    assert outcome.error.category == "checkpoint_record_invalid"
    assert calls.number == 3
    count = 3
    assert (await graph.invoke(resume_invocation="counted")).value == [[0, 0, 0]]
    assert calls.done == {"leaf 0": 3}


async def test_a_fan_out_in_a_branch_of_an_instance_runs_again_as_a_whole(harness: OurHarness) -> None:
    expected = None
    for at in [None, 3, 4]:
        calls = Calls(at)
        cells = chain(Row, each("cells", leaf_of(calls), "result", "results", concurrency=1)).compile()
        both = {"left": Branch(subgraph=cells, inputs={"value": "value"}, outputs={"results": "results"})}

        def branches(builder: GraphBuilder[Any], both: Any = both) -> str:
            builder.add_parallel_branches_node("both", both)
            return "both"

        row = chain(Row, branches).compile()
        rows = each("rows", row, "results", "value", concurrency=1)
        graph = chain(Table, rows).with_checkpointer(await harness.open()).compile()
        if at is None:
            expected = await graph.invoke({"value": [[1], [2, 3, 4]]})
            continue
        with pytest.raises(Crash):
            await graph.run({"value": [[1], [2, 3, 4]]}, invocation_id=f"branch-{at}")
        assert await graph.invoke(resume_invocation=f"branch-{at}") == expected
        assert calls.again("leaf") == [f"leaf {value}" for value in range(2, at)]
