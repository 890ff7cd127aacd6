"""Small conversations: graphs of a few nodes in a line that keep a session."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, ClassVar

from tenuto import Store
from tenuto.graph import (
    END,
    CompiledGraph,
    End,
    GraphBuilder,
    GraphOutcome,
    SessionState,
    SignalDescriptor,
    State,
    append,
    suspend,
)
from tenuto.model.session import Key

Body = Callable[[Any], Awaitable[Mapping[str, Any]]]


class Talk(State):
    schema_version: ClassVar[str] = "talk-3"
    messages: Annotated[list[str], append] = []
    notes: Annotated[list[str], append] = []
    mood: str = "calm"
    count: int = 0
    scratch: str = ""


class Memory(SessionState):
    schema_version: ClassVar[str] = "memory-5"
    messages: list[str]
    notes: list[str]
    mood: str
    count: int


def line(
    *bodies: Body,
    store: Any = None,
    kind: type[State] = Talk,
    state: type[SessionState] | None = Memory,
    checkpoints: Store | None = None,
    build: Callable[[GraphBuilder[Any]], Any] | None = None,
    **session: Any,
) -> CompiledGraph[Any]:
    """Return a graph whose nodes n0, n1, ... have these bodies and follow each other."""
    builder = GraphBuilder(kind)
    names = [f"n{number}" for number in range(len(bodies))]
    targets: list[str | End] = [*names[1:], END]
    for name, body, following in zip(names, bodies, targets, strict=True):
        builder.add_node(name, body).add_edge(name, following)
    if store is not None:
        builder.with_session_store(store, state, **session)
    if checkpoints is not None:
        builder.with_checkpointer(checkpoints)
    if build is not None:
        build(builder)
    return builder.set_entry("n0").compile()


def says(*texts: str, **fields: Any) -> Body:
    """Return a node that adds messages, and sets fields."""

    async def say(_: Any) -> Mapping[str, Any]:
        return {"messages": list(texts), **fields}

    return say


def gate(signal_id: str = "go", **options: Any) -> Body:
    """Return a node that suspends."""

    async def wait(_: Any) -> Mapping[str, Any]:
        await suspend(SignalDescriptor(signal_id, {"asks": signal_id}), **options)
        raise AssertionError("a suspended node does not go on")

    return wait


async def fails(_: Any) -> Mapping[str, Any]:
    raise ValueError("no luck")


async def nothing(_: Any) -> Mapping[str, Any]:
    return {}


class Ran:
    """Counts the nodes that ran, and runs what it is told to in their place."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def node(self, name: str, body: Body = nothing) -> Body:
        async def counted(state: Any) -> Mapping[str, Any]:
            self.nodes.append(name)
            return await body(state)

        return counted


async def held(store: Store, key: Key = "s") -> dict[str, Any]:
    """Return what the store has of a session."""
    record = await store.load(key)
    return dict(record.state) if record else {}


def ended(outcome: GraphOutcome[Any]) -> str:
    """Return how an invocation went, with the category of its error."""
    return f"{outcome.status}: {outcome.error.category}" if outcome.error else outcome.status


async def resumed(graph: CompiledGraph[Any], paused: GraphOutcome[Any], **payload: Any) -> GraphOutcome[Any]:
    """Answer a paused invocation."""
    assert paused.suspended, paused
    return await graph.run(resume_invocation=paused.invocation_id, signal_payload=payload)
