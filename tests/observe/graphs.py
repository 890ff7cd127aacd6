"""Small graphs with every kind of node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from tenuto.graph import END, Branch, CompiledGraph, End, GraphBuilder, State, append

Body = Callable[[Any], Awaitable[dict[str, Any]]]


class Count(State):
    n: int = 0
    log: Annotated[list[str], append] = []


class Many(State):
    items: list[int] = [10, 20, 30]
    results: Annotated[list[int | None], append] = []


class One(State):
    item: int = 0
    result: int = 0


class Broken(Exception):
    """A failure with a category of its own."""

    def __init__(self, message: str, category: str | None = None) -> None:
        super().__init__(message)
        self.category = category


async def up(state: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"n": state.n + 1}


async def double(state: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"result": state.item * 2}


def line(*names: str, body: Body = up, name: str | None = None, **node: Any) -> CompiledGraph[Count]:
    """Return nodes one after the other; all but the last only count."""
    builder = GraphBuilder(Count, name)
    targets: list[str | End] = [*names[1:], END]
    for each, following in zip(names, targets, strict=True):
        builder.add_node(each, body if following is END else up, **(node if following is END else {}))
        builder.add_edge(each, following)
    return builder.set_entry(names[0]).compile()


def around(node: str, inner: CompiledGraph[Any], **options: Any) -> CompiledGraph[Count]:
    """Return a graph of one node that is a graph."""
    return GraphBuilder(Count).add_subgraph_node(node, inner, **options).add_edge(node, END).set_entry(node).compile()


def one(body: Body = double) -> CompiledGraph[One]:
    return GraphBuilder(One, "worker").add_node("work", body).add_edge("work", END).set_entry("work").compile()


def spread(body: Body = double, inner: CompiledGraph[Any] | None = None, **options: Any) -> CompiledGraph[Many]:
    """Return a graph whose node `all` runs `work` for each of three items."""
    given: dict[str, Any] = {
        "items_field": "items",
        "item_field": "item",
        "collect_field": "result",
        "target_field": "results",
    }
    builder = GraphBuilder(Many).add_fan_out_node("all", inner or one(body), **(given | options))
    return builder.add_edge("all", END).set_entry("all").compile()


def fork(branches: dict[str, Branch], **options: Any) -> CompiledGraph[Count]:
    builder = GraphBuilder(Count).add_parallel_branches_node("fork", branches, **options)
    return builder.add_edge("fork", END).set_entry("fork").compile()
