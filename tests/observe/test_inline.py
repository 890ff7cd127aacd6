"""Inline observers: called in place, told more, and of no consequence to the run or to other observers."""

import asyncio
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from tenuto.graph import END, GraphBuilder
from tenuto.graph.events.event_queue import subscription, trace_context
from tenuto.graph.events.node_event import FrameEvent, InvocationEvent, NodeEvent
from tests.observe.graphs import Broken, Count, around, line, spread, up

mark: ContextVar[str] = ContextVar("mark", default="")


class Inline:
    """Writes down what it is told."""

    inline = True

    def __init__(self, name: str = "", told: list[str] | None = None) -> None:
        self.name = name
        self.told: list[str] = [] if told is None else told
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)
        what = {NodeEvent: "node", FrameEvent: "frame", InvocationEvent: "invocation"}[type(event)]
        self.told.append(f"{self.name}{what} {event.phase}")


def recorder() -> tuple[list[Any], Callable[[Any], Any]]:
    heard: list[Any] = []

    async def observer(event: Any) -> None:
        heard.append(event)

    return heard, observer


async def test_an_inline_observer_is_told_of_the_invocation_and_of_graphs_in_nodes() -> None:
    inline = Inline()
    outcome = await around("sub", line("x")).run(observers=[inline])
    assert inline.told == [
        "invocation started",
        "frame started",
        "node started",
        "node completed",
        "frame completed",
        "invocation completed",
    ]
    assert inline.events[0].scope.invocation_id == outcome.invocation_id
    assert inline.events[1].node_name == "sub"


async def test_it_is_called_in_the_running_codes_context() -> None:
    def enter(event: Any) -> None:
        if isinstance(event, NodeEvent) and event.phase == "started":
            mark.set(event.node_name)

    observer: Any = type("Marking", (), {"inline": True, "__call__": staticmethod(enter)})()
    seen = []

    async def body(state: Count) -> dict[str, Any]:
        seen.append(mark.get())
        return {}

    await line("a", "b", body=body).run(observers=[observer])
    assert seen == ["b"]


async def test_other_observers_hear_the_same_with_and_without_one_beside_them() -> None:
    alone, first = recorder()
    beside, second = recorder()
    graph = around("sub", line("x", "y"))
    await graph.run(observers=[first])
    await graph.run(observers=[Inline(), second])
    assert (await graph.drain()).undelivered_count == 0
    assert all(type(event) is NodeEvent for event in beside)
    assert [(e.node_name, e.phase) for e in alone] == [(e.node_name, e.phase) for e in beside]
    assert len(beside) == 4


async def test_one_that_raises_is_warned_of_and_disturbs_nobody() -> None:
    def fail(_: Any) -> None:
        raise Broken("observer down")

    broken: Any = type("Failing", (), {"inline": True, "__call__": staticmethod(fail)})()
    heard, observer = recorder()
    inline = Inline()
    graph = around("sub", line("x"))
    with pytest.warns(RuntimeWarning, match="observer down"):
        outcome = await graph.run(observers=[broken, inline, observer])
    await graph.drain()
    assert outcome.completed
    assert (len(inline.told), len(heard)) == (6, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await graph.run(observers=[broken])).completed


async def test_ends_are_told_in_reverse_so_that_observers_nest() -> None:
    told: list[str] = []
    await line("a").run(observers=[Inline("1 ", told), Inline("2 ", told)])
    assert told == [
        "1 invocation started",
        "2 invocation started",
        "1 node started",
        "2 node started",
        "2 node completed",
        "1 node completed",
        "2 invocation completed",
        "1 invocation completed",
    ]


async def test_its_phases_are_those_of_nodes_and_it_can_be_detached() -> None:
    inline = Inline()
    graph = line("a")
    attached = graph.attach_observer(inline, phases=["completed"])
    await graph.run()
    assert inline.told == ["invocation started", "node completed", "invocation completed"]
    attached.remove()
    await graph.run()
    assert len(inline.told) == 3


async def test_an_invocation_ends_as_it_did() -> None:
    inline = Inline()

    async def fail(state: Any) -> dict[str, Any]:
        raise Broken("boom")

    await spread(fail, concurrency=1).run(observers=[inline])
    assert inline.told[-3:] == ["frame errored", "node completed", "invocation errored"]
    assert "boom" in str(inline.events[-1].error)

    asked = [False, True]
    await line("a", "b").run(observers=[inline], stop=lambda: asked.pop(0))
    assert inline.told[-1] == "invocation interrupted"

    begun = asyncio.Event()

    async def forever(state: Any) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        return {}

    running = asyncio.create_task(around("sub", line("a", body=forever)).run(observers=[inline]))
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert inline.told[-3:] == ["node started", "frame cancelled", "invocation cancelled"]


async def test_the_first_observer_that_keeps_a_trace_names_the_invocation() -> None:
    class Tracing(Inline):
        def __init__(self, found: str | None) -> None:
            super().__init__()
            self._found = found

        def trace_context(self) -> str | None:
            if self._found == "broken":
                raise Broken("no trace")
            return self._found

    _, ordinary = recorder()
    observers: list[Any] = [ordinary, Inline(), Tracing(None), Tracing("t-1"), Tracing("t-2")]
    assert trace_context(map(subscription, observers)) == "t-1"
    assert trace_context([subscription(ordinary)]) is None
    with pytest.warns(RuntimeWarning, match="no trace"):
        assert trace_context([subscription(Tracing("broken"))]) is None


async def test_an_observer_of_an_inner_graph_is_told_of_that_graph_only() -> None:
    inline = Inline()
    inner = line("x")
    inner.attach_observer(inline)
    graph = (
        GraphBuilder(Count)
        .add_node("a", up)
        .add_subgraph_node("sub", inner)
        .add_edge("a", "sub")
        .add_edge("sub", END)
        .set_entry("a")
        .compile()
    )
    await graph.run()
    assert inline.told == ["frame started", "node started", "node completed", "frame completed"]
