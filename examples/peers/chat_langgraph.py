"""The same as apps/chat.py, with LangGraph: `python chat_langgraph.py NAME`."""

import asyncio
import sys
from typing import Any

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="small")


async def chat(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat")


async def say(graph: Any, given: Any, config: Any) -> None:
    async for chunk, _ in graph.astream(given, config, stream_mode="messages"):
        print(chunk.content, end="", flush=True)
    print()


async def main(name: str) -> None:
    config: Any = {"configurable": {"thread_id": name}}
    async with AsyncSqliteSaver.from_conn_string("chat.db") as saver:
        graph = builder.compile(checkpointer=saver)
        state = await graph.aget_state(config)
        for message in state.values.get("messages", []):
            print(f"{message.type}> {message.content}")
        if state.next:  # the process died before the reply
            await say(graph, None, config)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await say(graph, {"messages": [("user", line)]}, config)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
