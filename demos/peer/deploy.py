"""The deployment on LangGraph: threads and a pause written by the first version of a state, opened by the third.

The state is written in both ways its guides show, as a TypedDict and as a Pydantic model; and once more as they advise
to change one, by add-then-remove: new fields beside the old ones, none of them required, and nodes that cope with both.
"""

from typing import Annotated, Any, NotRequired

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from demos.customers import CUSTOMERS, PAUSED
from demos.peer.chat import in_words, saver, thread


class FirstDict(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    customer: str
    orders: str


class ThirdDict(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    first_name: str
    last_name: str
    orders: list[int]


class FirstModel(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []
    customer: str = ""
    orders: str = ""


class ThirdModel(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []
    first_name: str
    last_name: str
    orders: list[int]


class AddedDict(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    customer: NotRequired[str]
    first_name: NotRequired[str]
    last_name: NotRequired[str]
    orders: NotRequired[str]
    order_numbers: NotRequired[list[int]]


FIRST: dict[str, Any] = {"TypedDict": FirstDict, "Pydantic": FirstModel, "add-then-remove": FirstDict}
THIRD: dict[str, Any] = {"TypedDict": ThirdDict, "Pydantic": ThirdModel, "add-then-remove": AddedDict}
FIELDS = ("customer", "first_name", "last_name", "orders", "order_numbers")


def built(kind: Any, ask: Any, reply: Any) -> Any:
    builder: Any = StateGraph(kind)
    builder.add_node("ask", ask)
    builder.add_node("reply", reply)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "reply")
    builder.add_edge("reply", END)
    return builder


def first(style: str) -> Any:
    async def ask(state: Any) -> dict[str, Any]:
        if "refund" in get(state, "messages")[-1].content:
            interrupt({"approve": "refund"})
        return {}

    async def reply(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{get(state, 'customer')} ordered {get(state, 'orders')}.")]}

    return built(FIRST[style], ask, reply)


def third(style: str) -> Any:
    async def ask(state: Any) -> dict[str, Any]:
        if "refund" in get(state, "messages")[-1].content:
            interrupt({"approve": "refund"})
        return {}

    async def reply(state: Any) -> dict[str, Any]:
        name = f"{get(state, 'last_name')}, {get(state, 'first_name')}"
        return {"messages": [AIMessage(f"{name} has {len(get(state, 'orders'))} orders.")]}

    async def reply_coping(state: AddedDict) -> dict[str, Any]:
        if "last_name" not in state:
            first_name, last_name = state["customer"].split(" ")
            numbers = [int(number) for number in state["orders"].split(",")]
        else:
            first_name, last_name, numbers = state["first_name"], state["last_name"], state["order_numbers"]
        text = f"{last_name}, {first_name} has {len(numbers)} orders."
        added = {"first_name": first_name, "last_name": last_name, "order_numbers": numbers}
        return {"messages": [AIMessage(text)], **added}

    return built(THIRD[style], ask, reply_coping if style == "add-then-remove" else reply)


def get(state: Any, field: str) -> Any:
    return state[field] if isinstance(state, dict) else getattr(state, field)


async def write_first(folder: str, style: str) -> str:
    """Write a thread for every customer, and pause one more at its gate."""
    async with saver(folder) as checkpointer:
        graph = first(style).compile(checkpointer=checkpointer)
        for name, fields in CUSTOMERS.items():
            await graph.ainvoke({"messages": [HumanMessage("hello")], **fields}, thread(name))
        name, fields = PAUSED
        paused = await graph.ainvoke({"messages": [HumanMessage("refund it")], **fields}, thread(name))
        assert paused["__interrupt__"]
    return ""


async def open_third(folder: str, style: str) -> dict[str, Any]:
    """Send every customer's thread one more message under the third version."""
    return await ask_all(folder, third(style))


async def open_first(folder: str, style: str) -> dict[str, Any]:
    """Do the same under the first version again, as after a deployment taken back."""
    return await ask_all(folder, first(style))


async def ask_all(folder: str, builder: Any) -> dict[str, Any]:
    async with saver(folder) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)
        given = {"messages": [HumanMessage("what did I order?")]}
        return {name: await outcome(graph, given, name) for name in CUSTOMERS}


async def resume_third(folder: str, style: str, resume: str) -> dict[str, Any]:  # noqa: ARG001
    """Answer the pause under the third version; a thread needs no other name for what is paused."""
    async with saver(folder) as checkpointer:
        graph = third(style).compile(checkpointer=checkpointer)
        return await outcome(graph, Command(resume=True), PAUSED[0])


async def outcome(graph: Any, given: Any, name: str) -> dict[str, Any]:
    """Return what came of a turn: its error if there was one, and what the thread's newest checkpoint then holds."""
    error = ""
    try:
        await graph.ainvoke(given, thread(name))
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised).splitlines()[0]}"
    # Not by `aget_state`, which raises the same error where the state is a Pydantic model.
    newest = await graph.checkpointer.aget_tuple(thread(name))
    values = newest.checkpoint["channel_values"]
    fields = {field: values[field] for field in FIELDS if field in values}
    before = [older async for older in graph.checkpointer.alist(thread(name))]
    return {
        "error": error,
        "history": in_words(values["messages"]),
        "fields": fields,
        "name_in_an_older_checkpoint": any("customer" in older.checkpoint["channel_values"] for older in before),
    }
