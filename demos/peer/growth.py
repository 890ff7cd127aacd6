"""The long conversation on LangGraph, in the three ways it offers to keep one."""

from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from demos.peer.chat import Chat, saver, thread
from demos.texts import texts


def join(messages: Any, writes: Sequence[Any]) -> Any:
    return add_messages(messages, [message for write in writes for message in write])


class DeltaChat(TypedDict):
    """Its newer way of keeping a list, in beta: what a step wrote, and a whole copy now and then."""

    messages: Annotated[list[AnyMessage], DeltaChannel(join)]


async def converse(folder: str, turns: int, delta: bool = False, durability: str | None = None) -> dict[str, Any]:
    """Return the seconds every turn took, on the clock and of the processor, and the messages kept at the end."""
    text = texts()

    async def reply(_: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(next(text))]}

    builder: Any = StateGraph(DeltaChat if delta else Chat)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    config = thread("customer-42")
    seconds, processor = [], []
    async with saver(folder) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)
        for _ in range(turns):
            question = HumanMessage(next(text))
            begun, worked = perf_counter(), process_time()
            await graph.ainvoke({"messages": [question]}, config, durability=durability)
            seconds.append(perf_counter() - begun)
            processor.append(process_time() - worked)
        state = await graph.aget_state(config)
    return {"seconds": seconds, "processor": processor, "messages": len(state.values["messages"])}
