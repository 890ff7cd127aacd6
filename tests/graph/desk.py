"""A desk at which money is asked back: graphs of a few nodes in a line, as programs of the runtime."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pytest

from tenuto import Store
from tenuto.graph import (
    END,
    CompiledGraph,
    End,
    GraphBuilder,
    SessionState,
    SignalDescriptor,
    State,
    append,
    current_turn,
    suspend,
)
from tenuto.graph.runtime.node_turn import NodeTurn
from tenuto.model.run import RunStatus
from tenuto.runtime.runtime import SessionRuntime
from tests.graph.talking import Body
from tests.runtime.runtimes import opened

Message = dict[str, Any]


class Desk(State):
    schema_version: ClassVar[str] = "desk-2"
    messages: Annotated[list[Message], append] = []
    total: int = 0
    approved: bool | None = None
    scratch: Annotated[list[str], append] = []


class Memory(SessionState):
    schema_version: ClassVar[str] = "memory-7"
    messages: list[Message]
    total: int


def says(text: str, **fields: Any) -> Body:
    async def say(_: Desk) -> Mapping[str, Any]:
        return {"messages": [{"role": "assistant", "content": text}], **fields}

    return say


def adds(amount: int) -> Body:
    async def add(state: Desk) -> Mapping[str, Any]:
        return {"total": state.total + amount, "scratch": [f"+{amount}"]}

    return add


async def answers(state: Desk) -> Mapping[str, Any]:
    """Say how many messages there are, the last one, and the total."""
    text = f"{len(state.messages)}: {state.messages[-1]['content']}, {state.total}, {len(state.scratch)}"
    return {"messages": [{"role": "assistant", "content": text}]}


async def waits(_: Desk) -> Mapping[str, Any]:
    await suspend(SignalDescriptor("approval", metadata={"of": "refund"}))


async def fails(_: Desk) -> Mapping[str, Any]:
    raise ValueError("the till is stuck")


def line(*bodies: Body, kind: type[State] = Desk, store: Store | None = None) -> CompiledGraph[Any]:
    builder = GraphBuilder(kind, name="desk")
    names = [f"n{number}" for number in range(len(bodies))]
    targets: list[str | End] = [*names[1:], END]
    for name, body, following in zip(names, bodies, targets, strict=True):
        builder.add_node(name, body).add_edge(name, following)
    if store is not None:
        builder.with_session_store(store, Memory)
    return builder.set_entry("n0").compile()


async def desk(store: Store, *bodies: Body, checkpoints: bool = True, **options: Any) -> SessionRuntime:
    """Return a runtime with a graph of nodes in a line, which keeps messages and total."""
    graph = line(*bodies, store=store)
    return await opened(store, [graph.as_program(checkpoints=checkpoints)], **options)


def turn_here() -> NodeTurn:
    turn = current_turn()
    assert turn is not None
    return turn


def texts(messages: Any) -> list[str]:
    return [each["content"] for each in messages]


async def runs_of(runtime: SessionRuntime, session_id: str = "s") -> list[RunStatus]:
    return [each.status for each in reversed(await runtime.session(session_id).runs())]


both = pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "no checkpoints"])
