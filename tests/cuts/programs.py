"""What the sessions run whose verbs are cut off."""

from typing import Annotated, Any

from tenuto import Store
from tenuto.errors import TenutoError
from tenuto.graph import END, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.testing.agent import Script, ScriptedAgent, calls


@program
async def echo(turn: Turn) -> None:
    """Answer with what was said, in two commits."""
    turn.state.update(last=turn.text)
    await turn.save()
    turn.append(f"re: {turn.text}", once="reply")


@program
async def waits(turn: Turn) -> Any:
    """Wait for an answer."""
    turn.append({"role": "assistant", "content": str(await turn.wait("question"))}, once="reply")


@program
async def fails(turn: Turn) -> None:
    """Fail the first time."""
    if not turn.state.get("tried"):
        turn.state.update(tried=True)
        await turn.save()
        raise TenutoError("not yet")
    turn.append({"role": "assistant", "content": "at last"}, once="reply")


async def _pay() -> str:
    return "receipt"


@program
async def flaky(turn: Turn) -> None:
    """Pay, and ask a model that is down until the turn is resumed."""

    async def ask() -> str:
        if not turn.resumed:
            raise ConnectionError("it is down")
        return "at last"

    await turn.effect("pay", _pay)
    turn.append({"role": "assistant", "content": await turn.model(ask, retries=0)}, once="reply")


PROGRAMS: list[Any] = [
    echo,
    waits,
    fails,
    flaky,
    ScriptedAgent(model=Script(calls(("c1", "ask", {})), "thanks"), tools=[Tool(name="ask")]),
]


class Desk(State):
    """The state of a graph."""

    messages: Annotated[list[str], append] = []
    approved: bool | None = None


class Memory(SessionState):
    """What of it is kept."""

    messages: list[str]


async def _read(state: Desk) -> dict[str, Any]:
    return {"messages": ["read"]}


async def _gate(state: Desk) -> dict[str, Any]:
    if state.messages[0] == "ask":
        await suspend(SignalDescriptor("approval", {}))
    return {}


async def _reply(state: Desk) -> dict[str, Any]:
    return {"messages": ["done"]}


def graph_on(store: Store) -> Any:
    """Return a graph that keeps its session and its checkpoints in a store."""
    builder = GraphBuilder(Desk).add_node("read", _read).add_node("gate", _gate).add_node("reply", _reply)
    builder = builder.add_edge("read", "gate").add_edge("gate", "reply").add_edge("reply", END).set_entry("read")
    builder.with_session_store(store, state=Memory, concurrency="last_write_wins")
    return builder.with_checkpointer(store).compile()
