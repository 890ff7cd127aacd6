"""Suspending inside subgraphs, fan-outs and branches, and where it is refused."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import SuspensionInUnsupportedContext
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, SignalDescriptor, State, append, suspend
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.middleware import FailureIsolation
from tests.graph.talking import Body, Ran, ended, gate, held, nothing, resumed

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])


class Outer(State):
    n: int = 0
    verdict: str = "none"
    items: list[int] = [1, 2, 3]
    log: Annotated[list[str], append] = []
    results: Annotated[list[Any], append] = []


class Inner(State):
    n: int = 0
    item: int = 0
    verdict: str = "unasked"
    deep: str = ""
    log: Annotated[list[str], append] = []


def logs(text: str) -> Body:
    async def body(state: Any) -> Mapping[str, Any]:
        return {"log": [f"{text} {state.n} {state.verdict}"], "n": state.n + 1}

    return body


def graph_of(
    kind: type[State], build: Any, store: Store | None = None, checkpoints: bool = False
) -> CompiledGraph[Any]:
    builder = GraphBuilder(kind)
    names = build(builder)
    for name, following in zip(names, [*names[1:], END], strict=True):
        builder.add_edge(name, following)
    if store is not None:
        builder.with_session_store(store)
    if checkpoints and store is not None:
        builder.with_checkpointer(store)
    return builder.set_entry(names[0]).compile()


def nodes(**bodies: Body) -> Any:
    def build(builder: GraphBuilder[Any]) -> list[str]:
        for name, body in bodies.items():
            builder.add_node(name, body)
        return list(bodies)

    return build


def wrapped(inner: CompiledGraph[Any]) -> Any:
    def build(builder: GraphBuilder[Any]) -> list[str]:
        builder.add_node("first", logs("first"))
        builder.add_subgraph_node("sub", inner, inputs={"n": "n"}, outputs={"n": "n", "log": "log"})
        builder.add_node("last", logs("last"))
        return ["first", "sub", "last"]

    return build


@CHECKPOINTS
async def test_a_run_suspended_in_a_nested_subgraph_goes_on_inside_it(store: Store, checkpoints: bool) -> None:
    ran = Ran()

    def deepest() -> CompiledGraph[Any]:
        bodies = {"before": ran.node("before", logs("before")), "gate": gate(), "after": ran.node("after", _deep)}
        return graph_of(Inner, nodes(**bodies))

    async def _deep(state: Any) -> Mapping[str, Any]:
        return {"log": [f"after {state.n} {state.verdict} {state.deep}"], "n": state.n + 1}

    def build(builder: GraphBuilder[Any]) -> list[str]:
        builder.add_subgraph_node("wrap", deepest(), inputs={"n": "n"}, outputs={"n": "n", "log": "log"})
        return ["wrap"]

    graph = graph_of(Outer, wrapped(graph_of(Inner, build)), store, checkpoints)
    paused = await graph.run({"n": 10}, session_id="s")
    assert (paused.node_name, paused.namespace) == ("gate", ("sub", "wrap", "gate"))
    assert paused.state is not None
    assert (paused.state.n, paused.state.log) == (11, ["first 10 none"])
    # `verdict` is declared by the outermost graph, `deep` only by the innermost.
    out = await resumed(graph, paused, verdict="yes", deep="down")
    assert (ended(out), ran.nodes) == ("completed", ["before", "after"])
    assert out.state is not None
    assert out.state.log == ["first 10 none", "before 11 unasked", "after 12 unasked down", "last 13 yes"]
    assert (await held(store))["log"] == out.state.log


@CHECKPOINTS
async def test_a_subgraph_node_that_is_not_completed_runs_again(store: Store, checkpoints: bool) -> None:
    ran = Ran()

    async def ask(state: Any) -> Mapping[str, Any]:
        if not state.deep:
            await suspend(SignalDescriptor("go"), mark_node_completed=False)
        return {"log": [state.deep]}

    inner = graph_of(Inner, nodes(one=ran.node("one", logs("one")), ask=ran.node("ask", ask)))
    graph = graph_of(Outer, wrapped(inner), store, checkpoints)
    out = await resumed(graph, await graph.run(session_id="s"), deep="answer")
    assert (ended(out), ran.nodes) == ("completed", ["one", "ask", "ask"])
    assert (await held(store))["log"] == ["first 0 none", "one 1 unasked", "answer", "last 2 none"]


class Siblings:
    """Instances of which one suspends once the others are under way."""

    def __init__(self, suspending: int, **options: Any) -> None:
        self.suspending = suspending
        self.options = options
        self.under_way = 0
        self.cancelled = 0
        self.awaited = 0
        self.ran: list[int] = []
        self.suspended = False

    async def work(self, state: Any) -> Mapping[str, Any]:
        return {"n": await self.called(state, state.item)}

    async def called(self, _: Any, item: int) -> int:
        self.ran.append(item)
        if self.suspended:
            return item * 10
        if item == self.suspending:
            async with asyncio.timeout(10):
                while self.under_way < 2:
                    await asyncio.sleep(0)
            self.suspended = True
            await suspend(SignalDescriptor("go", {"item": item}), **self.options)
        self.under_way += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0)
            self.awaited += 1
            raise
        return 0

    def fan_out(self, kind: str, **options: Any) -> Any:
        def build(builder: GraphBuilder[Any]) -> list[str]:
            given: dict[str, Any] = {"items_field": "items", "target_field": "results", **options}
            if kind == "called":
                builder.add_fan_out_node("fan", self.called, **given)
            else:
                inner = graph_of(Inner, nodes(work=self.work))
                builder.add_fan_out_node("fan", inner, item_field="item", collect_field="n", **given)
            builder.add_node("last", logs("last"))
            return ["fan", "last"]

        return build


@CHECKPOINTS
@pytest.mark.parametrize("kind", ["graph", "called"])
async def test_a_fan_out_suspends_whole_with_its_siblings_cancelled_and_awaited(
    store: Store, kind: str, checkpoints: bool
) -> None:
    siblings = Siblings(2)
    graph = graph_of(Outer, siblings.fan_out(kind), store, checkpoints)
    before = asyncio.all_tasks()
    paused = await graph.run(session_id="s")
    assert (siblings.cancelled, siblings.awaited) == (2, 2)
    assert asyncio.all_tasks() <= before
    assert paused.descriptor is not None
    assert paused.descriptor.metadata == {"item": 2, "fan_out_index": 1}
    assert paused.namespace[0] == "fan"
    (wait,) = await graph.waiting()
    assert wait.metadata["fan_out_index"] == 1
    out = await resumed(graph, paused, verdict="yes")
    assert ended(out) == "completed"
    assert out.state is not None
    assert (out.state.results, out.state.log) == ([], ["last 0 yes"])


@CHECKPOINTS
async def test_a_fan_out_that_is_not_completed_runs_again(store: Store, checkpoints: bool) -> None:
    siblings = Siblings(2, mark_node_completed=False)
    graph = graph_of(Outer, siblings.fan_out("graph"), store, checkpoints)
    out = await resumed(graph, await graph.run(session_id="s"))
    assert out.state is not None
    assert (out.state.results, sorted(siblings.ran)) == ([10, 20, 30], [1, 1, 2, 2, 3, 3])


async def test_instances_done_before_the_pause_do_not_run_again_with_checkpoints(store: Store) -> None:
    ran: list[int] = []

    async def work(state: Any) -> Mapping[str, Any]:
        ran.append(state.item)
        if state.item == 3 and ran.count(3) == 1:
            await suspend(SignalDescriptor("go"), mark_node_completed=False)
        return {"n": state.item * 10}

    def build(builder: GraphBuilder[Any]) -> list[str]:
        inner = graph_of(Inner, nodes(work=work))
        options: dict[str, Any] = {"item_field": "item", "collect_field": "n", "target_field": "results"}
        builder.add_fan_out_node("fan", inner, items_field="items", concurrency=1, **options)
        return ["fan"]

    graph = graph_of(Outer, build, store, checkpoints=True)
    out = await resumed(graph, await graph.run(session_id="s"))
    assert out.state is not None
    assert (out.state.results, ran) == ([10, 20, 30], [1, 2, 3, 3])


async def test_a_fan_out_left_behind_begins_anew_when_the_graph_comes_back_to_it(store: Store) -> None:
    ran: list[int] = []

    async def work(state: Any) -> Mapping[str, Any]:
        ran.append(state.item)
        if len(ran) == 3:
            await suspend(SignalDescriptor("go"))
        return {"n": state.item * 10}

    options: dict[str, Any] = {"item_field": "item", "collect_field": "n", "target_field": "results"}
    graph = (
        GraphBuilder(Outer)
        .add_fan_out_node("fan", graph_of(Inner, nodes(work=work)), items_field="items", concurrency=1, **options)
        .add_conditional_edge("fan", lambda state: END if state.results else "fan")
        .set_entry("fan")
        .with_session_store(store)
        .with_checkpointer(store)
        .compile()
    )
    out = await resumed(graph, await graph.run(session_id="s"), items=[4, 5])
    assert out.state is not None
    assert (out.state.results, ran) == ([40, 50], [1, 2, 3, 4, 5])


@CHECKPOINTS
@pytest.mark.parametrize("kind", ["graph", "called"])
async def test_branches_suspend_whole_with_their_siblings_cancelled_and_awaited(
    store: Store, kind: str, checkpoints: bool
) -> None:
    siblings = Siblings(1)

    def branch(item: int) -> Branch:
        async def call(state: Any) -> Mapping[str, Any]:
            await siblings.called(state, item)
            return {}

        if kind == "called":
            return Branch(call=call)
        return Branch(subgraph=graph_of(Inner, nodes(work=call)))

    def build(builder: GraphBuilder[Any]) -> list[str]:
        builder.add_parallel_branches_node("fork", {"asks": branch(1), "other": branch(2), "third": branch(3)})
        builder.add_node("last", logs("last"))
        return ["fork", "last"]

    graph = graph_of(Outer, build, store, checkpoints)
    before = asyncio.all_tasks()
    paused = await graph.run(session_id="s")
    assert (siblings.cancelled, siblings.awaited) == (2, 2)
    assert asyncio.all_tasks() <= before
    assert paused.descriptor is not None
    assert (paused.descriptor.metadata["branch_name"], paused.namespace[0]) == ("asks", "fork")
    out = await resumed(graph, paused, verdict="yes")
    assert out.state is not None
    assert (ended(out), out.state.log) == ("completed", ["last 0 yes"])


@pytest.mark.parametrize("kind", ["fan-out", "called", "branches", "subgraph in fan-out"])
async def test_what_collects_errors_cannot_be_suspended_and_the_refusal_is_not_collected(
    store: Store, kind: str
) -> None:
    async def call(*_: Any) -> Any:
        await suspend(SignalDescriptor("go"))

    asks = graph_of(Inner, nodes(gate=gate()))

    def around(builder: GraphBuilder[Any]) -> list[str]:
        builder.add_subgraph_node("sub", asks)
        return ["sub"]

    def build(builder: GraphBuilder[Any]) -> list[str]:
        options: dict[str, Any] = {"items_field": "items", "target_field": "results", "error_policy": "collect"}
        match kind:
            case "fan-out":
                builder.add_fan_out_node("node", asks, item_field="item", collect_field="n", **options)
            case "called":
                builder.add_fan_out_node("node", call, **options)
            case "branches":
                builder.add_parallel_branches_node("node", {"one": Branch(subgraph=asks)}, error_policy="collect")
            case _:
                inner = graph_of(Inner, around)
                builder.add_fan_out_node("node", inner, item_field="item", collect_field="n", **options)
        return ["node"]

    graph = graph_of(Outer, build, store)
    assert ended(await graph.run(session_id="s")) == "failed: suspension_in_unsupported_context"
    assert await graph.waiting() == ()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_middleware_cannot_suspend_and_isolation_does_not_hide_that(store: Store, when: str) -> None:
    async def meddles(state: Any, following: Any) -> Mapping[str, Any]:
        if when == "after":
            await following(state)
        await suspend(SignalDescriptor("go"))

    def build(builder: GraphBuilder[Any]) -> list[str]:
        builder.add_node("node", nothing, middleware=[FailureIsolation({}, "isolated"), meddles])
        return ["node"]

    out = await graph_of(Outer, build, store).run(session_id="s")
    assert ended(out) == "failed: suspension_in_unsupported_context"


async def test_outside_an_invocation_nothing_can_be_suspended() -> None:
    with pytest.raises(SuspensionInUnsupportedContext):
        await suspend(SignalDescriptor("go"))


async def test_each_attempt_that_suspends_is_told_of_once(store: Store) -> None:
    told: list[tuple[str, ...]] = []

    async def observe(event: Any) -> None:
        if isinstance(event, NodeEvent) and event.phase == "suspended":
            told.append(
                (*event.namespace, str((event.descriptor or SignalDescriptor("?")).metadata.get("fan_out_index")))
            )

    async def deaf(event: Any) -> None:
        told.append(("deaf", str(event.phase)))

    siblings = Siblings(1)
    graph = graph_of(Outer, siblings.fan_out("graph"), store)
    graph.attach_observer(observe)
    graph.attach_observer(deaf, phases={"completed"})
    await graph.run(session_id="s")
    await graph.drain()
    assert [each for each in told if each[0] != "deaf"] == [("fan", "work", "None"), ("fan", "0")]
    assert ("deaf", "suspended") not in told
