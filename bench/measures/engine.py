"""What a node costs in the engine, against a bare loop, against LangGraph, and against itself on more state."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import TypeAdapter

from bench.harness import Measure, Scene, Stopwatch, wall
from tenuto.graph import END, CompiledGraph, GraphBuilder, State, append

_NODES = 50
_MESSAGES = 5_000
_INSTANCES = 1_000


class Tiny(State):
    n: int = 0


class Chat(State):
    n: int = 0
    messages: Annotated[list[dict[str, str]], append] = []


class Crowd(State):
    items: list[int] = []
    results: Annotated[list[int], append] = []


class Member(State):
    item: int = 0
    result: int = 0


async def up(state: Any) -> dict[str, Any]:
    return {"n": state.n + 1}


async def say(_: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}]}


def chain(kind: type[State], body: Callable[[Any], Awaitable[dict[str, Any]]]) -> CompiledGraph[Any]:
    builder = GraphBuilder(kind)
    for number in range(_NODES):
        builder.add_node(f"n{number}", body)
        builder.add_edge(f"n{number}", f"n{number + 1}" if number + 1 < _NODES else END)
    return builder.set_entry("n0").compile()


def per_node(graph: CompiledGraph[Any], initial: Any, **options: Any) -> Callable[[], Awaitable[float]]:
    async def side() -> float:
        with Stopwatch(wall) as watch:
            await graph.invoke(initial, **options)
        return watch.seconds / _NODES

    return side


async def against_loop(scene: Scene) -> float:
    """Return a node of the engine against awaiting the function, validating its field and copying the model."""
    check = TypeAdapter(int).validate_python

    async def loop() -> float:
        state = Tiny()
        with Stopwatch(wall) as watch:
            for _ in range(_NODES):
                update = await up(state)
                state = state.model_copy(update={"n": check(update["n"])})
        return watch.seconds / _NODES

    return await scene.ratio(per_node(chain(Tiny, up), {}), loop, rounds=300)


async def against_langgraph(scene: Scene) -> float:
    """Return a node of the engine against the same of LangGraph, as a part of it."""
    from langgraph.graph import END as THEIR_END
    from langgraph.graph import START, StateGraph
    from typing_extensions import TypedDict

    class Theirs(TypedDict):
        n: int

    async def their_up(state: Theirs) -> Theirs:
        return {"n": state["n"] + 1}

    theirs: Any = StateGraph(Theirs)
    for number in range(_NODES):
        theirs.add_node(f"n{number}", their_up)
        theirs.add_edge(f"n{number}", f"n{number + 1}" if number + 1 < _NODES else THEIR_END)
    theirs.add_edge(START, "n0")
    compiled = theirs.compile()

    async def their_side() -> float:
        with Stopwatch(wall) as watch:
            await compiled.ainvoke({"n": 0}, {"recursion_limit": 2 * _NODES})
        return watch.seconds / _NODES

    return await scene.ratio(per_node(chain(Tiny, up), {}), their_side, rounds=40)


async def with_history(scene: Scene) -> float:
    """Return a node that touches one number while the state holds 5,000 messages, against a tiny state."""
    full = Chat(messages=[{"role": "user", "content": str(number)} for number in range(_MESSAGES)])
    return await scene.ratio(per_node(chain(Chat, up), full), per_node(chain(Tiny, up), {}), rounds=200)


async def appending(scene: Scene) -> float:
    """Return a node that appends one message to 5,000, against the tiny node plus making that list."""
    full = Chat(messages=[{"role": "user", "content": str(number)} for number in range(_MESSAGES)])
    prior = list(full.messages)
    tiny = chain(Tiny, up)

    async def floor() -> float:
        with Stopwatch(wall) as watch:
            await tiny.invoke({})
            for _ in range(_NODES):
                _ = [*prior, {"role": "user", "content": "hello"}]
        return watch.seconds / _NODES

    return await scene.ratio(per_node(chain(Chat, say), full), floor, rounds=100)


async def fanning_out(scene: Scene) -> float:
    """Return one instance of a fan-out of 1,000, against the tiny node."""

    async def double(state: Member) -> dict[str, Any]:
        return {"result": state.item * 2}

    child = GraphBuilder(Member).add_node("double", double).add_edge("double", END).set_entry("double").compile()
    fan = (
        GraphBuilder(Crowd)
        .add_fan_out_node(
            "fan", child, items_field="items", item_field="item", collect_field="result", target_field="results"
        )
        .add_edge("fan", END)
        .set_entry("fan")
        .compile()
    )
    crowd = Crowd(items=list(range(_INSTANCES)))

    async def instances() -> float:
        with Stopwatch(wall) as watch:
            await fan.invoke(crowd, step_limit=2 * _INSTANCES)
        return watch.seconds / _INSTANCES

    return await scene.ratio(instances, per_node(chain(Tiny, up), {}), rounds=60)


async def observed(scene: Scene) -> float:
    """Return a node with one observer, its events delivered, against one with none."""
    graph = chain(Tiny, up)

    async def ignore(_: Any) -> None: ...

    async def watched() -> float:
        with Stopwatch(wall) as watch:
            await graph.invoke({}, observers=[ignore])
            await graph.drain()
        return watch.seconds / _NODES

    return await scene.ratio(watched, per_node(graph, {}), rounds=200)


MEASURES = (
    Measure(name="engine: a node against a bare loop", unit="x", run=against_loop),
    Measure(name="engine: a node against LangGraph's", unit="x", run=against_langgraph),
    Measure(name="engine: a node beside 5,000 messages against a tiny state", unit="x", run=with_history),
    Measure(name="engine: appending to 5,000 against the tiny node and the list", unit="x", run=appending),
    Measure(name="engine: an instance of 1,000 against the tiny node", unit="x", run=fanning_out),
    Measure(name="engine: one observer, drained, against none", unit="x", run=observed),
)
