"""The killed processes on LangGraph: a tool loop and a pause, as its guides write them."""

import asyncio
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.func import task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from demos import shop
from demos.history import Said
from demos.peer.chat import Chat, history, saver, thread
from demos.processes import die_now, say_and_wait_to_be_killed

CONFIG = thread("customer-42")


def tool_loop(folder: str, *, deadly: bool) -> Any:
    async def think(state: Chat) -> dict[str, Any]:
        shop.do(folder, "thought")
        match state["messages"][-1]:
            case ToolMessage():
                answer = AIMessage("Refunded.")
            case HumanMessage(content=str(asked)) if "refund" in asked:
                call = {"name": "refund", "args": {"order": 7}, "id": "call-1"}
                answer = AIMessage("", tool_calls=[call])
            case _:
                answer = AIMessage("You are welcome.")
        return {"messages": [answer]}

    async def tools(state: Chat) -> dict[str, Any]:
        asked: Any = state["messages"][-1]
        await asyncio.sleep(0.05)
        shop.do(folder, "refund")
        if deadly:
            die_now()
        return {"messages": [ToolMessage("done", tool_call_id=asked.tool_calls[0]["id"])]}

    def wants_tool(state: Chat) -> str:
        said: Any = state["messages"][-1]
        return "tools" if said.tool_calls else END

    builder: Any = StateGraph(Chat)
    builder.add_node("think", think)
    builder.add_node("tools", tools)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", wants_tool, ["tools", END])
    builder.add_edge("tools", "think")
    return builder


async def talk_until_killed(folder: str) -> None:
    """Finish one turn, and die in the second right after the refund."""
    async with saver(folder) as checkpointer:
        graph = tool_loop(folder, deadly=True).compile(checkpointer=checkpointer)
        await graph.ainvoke({"messages": [HumanMessage("hello")]}, CONFIG)
        await graph.ainvoke({"messages": [HumanMessage("refund order 7")]}, CONFIG)


async def resume(folder: str) -> dict[str, Any]:
    """Resume the turn that was killed."""
    async with saver(folder) as checkpointer:
        graph = tool_loop(folder, deadly=False).compile(checkpointer=checkpointer)
        await graph.ainvoke(None, CONFIG)
        return {"history": await history(graph, CONFIG)}


async def send_next(folder: str) -> dict[str, Any]:
    """Send another message instead, as a customer who got no answer does; then try to resume the killed turn."""
    async with saver(folder) as checkpointer:
        graph = tool_loop(folder, deadly=False).compile(checkpointer=checkpointer)
        await graph.ainvoke({"messages": [HumanMessage("are you there?")]}, CONFIG)
        after: list[Said] = await history(graph, CONFIG)
        refused = ""
        try:
            await graph.ainvoke(None, CONFIG)
        except Exception as error:
            refused = type(error).__name__
        return {"history": after, "resumed": await history(graph, CONFIG), "refused": refused}


class Refund(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    approved: bool


def approval(folder: str, *, in_task: bool) -> Any:
    async def mail() -> None:
        shop.do(folder, "mail")

    mailing = task(mail) if in_task else mail

    async def ask(_: Refund) -> dict[str, Any]:
        await mailing()
        return {"approved": interrupt({"approve": "refund of order 7"})}

    async def pay(state: Refund) -> dict[str, Any]:
        if state["approved"]:
            shop.do(folder, "refund")
        return {"messages": [AIMessage("Refunded." if state["approved"] else "Refused.")]}

    builder: Any = StateGraph(Refund)
    builder.add_node("ask", ask)
    builder.add_node("pay", pay)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "pay")
    builder.add_edge("pay", END)
    return builder


async def pause(folder: str, in_task: bool = False) -> None:
    """Run until the approval is asked for, and wait to be killed."""
    async with saver(folder) as checkpointer:
        graph = approval(folder, in_task=in_task).compile(checkpointer=checkpointer)
        paused = await graph.ainvoke({"messages": [HumanMessage("refund order 7")]}, CONFIG)
        await say_and_wait_to_be_killed({"paused": bool(paused["__interrupt__"]), "resume": ""})


async def answer(folder: str, resume: str, in_task: bool = False) -> dict[str, Any]:  # noqa: ARG001
    """Approve, and approve once more; a thread needs no other name for what is paused."""
    async with saver(folder) as checkpointer:
        graph = approval(folder, in_task=in_task).compile(checkpointer=checkpointer)
        await graph.ainvoke(Command(resume=True), CONFIG)
        after: list[Said] = await history(graph, CONFIG)
        refused = ""
        try:
            await graph.ainvoke(Command(resume=True), CONFIG)
        except Exception as error:
            refused = type(error).__name__
        return {"history": after, "again": refused}
