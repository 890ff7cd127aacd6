"""What the LangGraph sides share: the state its guides begin with, the saver on a file, and reading a thread back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from demos.history import Said


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


@asynccontextmanager
async def saver(folder: str) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "langgraph.db")) as opened:
        yield opened


async def history(graph: Any, config: RunnableConfig) -> list[Said]:
    """Return what the thread holds now, as its own reader shows it."""
    state = await graph.aget_state(config)
    return in_words(state.values.get("messages", []))


def in_words(messages: Sequence[Any]) -> list[Said]:
    said: list[Said] = []
    for message in messages:
        match message:
            case HumanMessage():
                said.append({"role": "user", "text": str(message.content)})
            case ToolMessage():
                said.append({"role": "tool", "text": str(message.content), "answers": message.tool_call_id})
            case AIMessage():
                calls = [str(call["id"]) for call in message.tool_calls]
                said.append({"role": "assistant", "text": str(message.content), "calls": calls})
    return said
