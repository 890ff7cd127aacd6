"""The race on LangGraph: one thread, a saver on a file, five `ainvoke` at once."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph

from demos.history import Said
from demos.peer.chat import Chat, history, saver, thread


async def send_at_once(folder: str, questions: list[str], think: float, lock: bool) -> dict[str, Any]:
    """Send all at once; with `lock`, each waits for a lock that the application keeps around the graph."""

    async def reply(state: Chat) -> dict[str, Any]:
        await asyncio.sleep(think)
        return {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]}

    builder = StateGraph(Chat)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    one_at_a_time: AbstractAsyncContextManager[Any] = asyncio.Lock() if lock else nullcontext()
    config = thread("customer-42")
    async with saver(folder) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)

        async def send(question: str) -> None:
            async with one_at_a_time:
                await graph.ainvoke({"messages": [HumanMessage(question)]}, config)

        outcomes = await asyncio.gather(*map(send, questions), return_exceptions=True)
        kept: list[Said] = await history(graph, config)
    return {"history": kept, "told": [type(error).__name__ for error in outcomes if error is not None]}
