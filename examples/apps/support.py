"""A shop's support as a web service, with tools that a person approves or that the customer's browser answers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI
from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program, run_tools, tool
from tenuto.messages import AssistantMessage, from_openai, to_openai

create = AsyncOpenAI().chat.completions.create


@tool(idempotent=True)
def look_up(order: str) -> str:
    """Look up an order."""
    return f"order {order} was sent"


@tool(needs_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    with Path("refunds.log").open("a") as file:
        file.write(f"{order}\n")
    return f"order {order} is paid back"


@tool(client=True)
def locate() -> str:
    """Find out where the customer is."""
    raise NotImplementedError  # the browser answers


TOOLS = [look_up, refund, locate]


@program
async def support(turn: Turn) -> None:
    async def ask() -> AssistantMessage:
        said = to_openai(turn.context)
        return from_openai(await create(model="small", messages=said, tools=[each.openai() for each in TOOLS]))

    async for _ in turn.steps():
        reply = await turn.model(ask)
        turn.append(reply)
        if not reply.get("tool_calls"):
            return
        await run_tools(turn, TOOLS)


runtime = SessionRuntime("sqlite:///support.db", support)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
    async with runtime:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chats/{name}")
async def say(name: str, text: str, key: str) -> str:
    session = await runtime.create(support, session_id=name, exists_ok=True)
    return (await session.send(text, key, when_busy="queue")).text


@app.get("/waits")
async def waits() -> list[dict[str, Any]]:
    return [{"id": each.wait_id, "tool": each.tool, "arguments": each.arguments} for each in await runtime.waits()]


@app.post("/waits/{wait_id}")
async def answer(wait_id: str, value: Annotated[Any, Body()]) -> str:
    outcome = (await runtime.answer(wait_id, value)).outcome
    return outcome.text if outcome else ""
