"""A fan-out over what a function of the state returns."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import CheckpointRecordInvalid, FanOutEmpty, GraphCompileError, NodeException
from tenuto.graph import END, CompiledGraph, GraphBuilder, State, append


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


class Order(State):
    lines: dict[str, int] = {}
    cap: int = 100
    prices: Annotated[list[int], append] = []


class Line(State):
    line: tuple[str, int] = ("", 0)
    price: int = 0


def lines(state: Order) -> list[tuple[str, int]]:
    return [(name, count) for name, count in sorted(state.lines.items()) if count < state.cap]


async def price(state: Order, line: tuple[str, int]) -> int:
    return len(line[0]) * line[1]


def graph_of(call: Any = price, store: Store | None = None, **options: Any) -> CompiledGraph[Order]:
    options = {"items": lines, "target_field": "prices", **options}
    builder = GraphBuilder(Order).add_fan_out_node("each", call, **options)
    if store is not None:
        builder.with_checkpointer(store)
    return builder.add_edge("each", END).set_entry("each").compile()


LINES = {"pear": 2, "fig": 3, "melon": 1, "barrel": 500}


async def test_the_function_gets_what_the_state_says_item_by_item_in_order() -> None:
    assert (await graph_of().invoke({"lines": LINES})).prices == [9, 5, 8]


async def test_a_graph_takes_an_item_in_its_field() -> None:
    async def work(state: Line) -> dict[str, int]:
        return {"price": state.line[1]}

    inner = GraphBuilder(Line).add_node("work", work).add_edge("work", END).set_entry("work").compile()
    graph = graph_of(inner, item_field="line", collect_field="price")
    assert (await graph.invoke({"lines": LINES})).prices == [3, 1, 2]


async def test_without_items_it_is_empty_as_it_would_be_with_a_field() -> None:
    outcome = await graph_of().run()
    assert outcome.error is not None
    assert isinstance(outcome.error.__cause__, FanOutEmpty)
    assert (await graph_of(on_empty="noop").invoke()).prices == []


@pytest.mark.parametrize("wrong", [None, 3, "text", {"a": 1}, iter([1])])
async def test_what_is_not_a_list_fails_the_node(wrong: Any) -> None:
    outcome = await graph_of(items=lambda _: wrong).run()
    assert isinstance(outcome.error, NodeException)
    assert outcome.error.node_name == "each"
    assert "must be a list" in str(outcome.error.__cause__)


async def test_what_the_function_raises_fails_the_node() -> None:
    def broken(_: Order) -> Sequence[Any]:
        raise LookupError("no lines")

    outcome = await graph_of(items=broken).run()
    assert isinstance(outcome.error, NodeException)
    assert isinstance(outcome.error.__cause__, LookupError)


@pytest.mark.parametrize(
    "options", [{"items_field": "prices"}, {"count": 3}, {"items": None}, {"items": None, "items_field": None}]
)
def test_items_are_given_in_one_way(options: dict[str, Any]) -> None:
    with pytest.raises(GraphCompileError) as refused:
        graph_of(**options)
    assert refused.value.category == "fan_out_count_mode_ambiguous"


def test_a_graph_needs_a_field_for_its_item() -> None:
    async def work(_: Line) -> dict[str, int]:
        return {}

    inner = GraphBuilder(Line).add_node("work", work).add_edge("work", END).set_entry("work").compile()
    with pytest.raises(GraphCompileError) as refused:
        graph_of(inner, collect_field="price")
    assert refused.value.category == "fan_out_count_mode_ambiguous"


def test_it_is_drawn() -> None:
    assert '"each (each item)"' in graph_of().to_mermaid()


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_after_a_crash_only_the_instances_run_that_were_not_done(store: Store, at: int) -> None:
    done: Counter[str] = Counter()
    calls = 0

    async def work(state: Order, line: tuple[str, int]) -> int:
        nonlocal calls
        calls += 1
        if calls == at:
            raise Crash
        done[line[0]] += 1
        return await price(state, line)

    graph = graph_of(work, store, concurrency=1)
    with pytest.raises(Crash):
        await graph.run({"lines": LINES}, invocation_id="crashed")
    assert (await graph.invoke(resume_invocation="crashed")).prices == [9, 5, 8]
    assert done == {"fig": 1, "melon": 1, "pear": 1}


async def test_another_number_of_items_than_before_the_crash_is_refused(store: Store) -> None:
    count = 3

    async def work(_: Order, item: int) -> int:
        if item == 1:
            raise Crash
        return item

    graph = graph_of(work, store, items=lambda _: range(count), concurrency=1)
    with pytest.raises(Crash):
        await graph.run(invocation_id="crashed")
    count = 4
    outcome = await graph.run(resume_invocation="crashed")
    assert isinstance(outcome.error, CheckpointRecordInvalid)
