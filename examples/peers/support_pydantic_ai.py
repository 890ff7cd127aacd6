"""The same as apps/support.py, with Pydantic AI and a table for each thing that outlives the process."""

import asyncio
import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter

agent = Agent("openai-chat:small", output_type=[str, DeferredToolRequests])


@agent.tool_plain
def look_up(order: str) -> str:
    """Look up an order."""
    return f"order {order} was sent"


@agent.tool_plain(requires_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    with Path("refunds.log").open("a") as file:
        file.write(f"{order}\n")
    return f"order {order} is paid back"


@agent.tool_plain
def locate() -> str:
    """Find out where the customer is."""
    raise CallDeferred  # the browser answers


app = FastAPI()
locks = defaultdict[str, asyncio.Lock](asyncio.Lock)
db = sqlite3.connect("support.db", check_same_thread=False)
db.executescript("""
    CREATE TABLE IF NOT EXISTS chats (name PRIMARY KEY, messages);
    CREATE TABLE IF NOT EXISTS waits (id PRIMARY KEY, chat, kind, tool, arguments, answer);
    CREATE TABLE IF NOT EXISTS replies (chat, key, text, PRIMARY KEY (chat, key));
""")


async def run(name: str, text: str | None, results: DeferredToolResults | None, key: str) -> str:
    row = db.execute("SELECT messages FROM chats WHERE name = ?", (name,)).fetchone()
    history = ModelMessagesTypeAdapter.validate_json(row[0] if row else b"[]")
    result = await agent.run(text, message_history=history, deferred_tool_results=results)
    asked = result.output if isinstance(result.output, DeferredToolRequests) else DeferredToolRequests()
    calls = [("approval", each) for each in asked.approvals] + [("result", each) for each in asked.calls]
    reply = result.output if isinstance(result.output, str) else ""
    with db:
        db.execute("REPLACE INTO chats VALUES (?, ?)", (name, result.all_messages_json()))
        db.execute("DELETE FROM waits WHERE chat = ?", (name,))
        for kind, call in calls:
            values = (call.tool_call_id, name, kind, call.tool_name, call.args_as_json_str())
            db.execute("INSERT INTO waits VALUES (?, ?, ?, ?, ?, NULL)", values)
        db.execute("INSERT INTO replies VALUES (?, ?, ?)", (name, key, reply))
    return reply


@app.post("/chats/{name}")
async def say(name: str, text: str, key: str) -> str:
    async with locks[name]:
        row = db.execute("SELECT text FROM replies WHERE chat = ? AND key = ?", (name, key)).fetchone()
        return row[0] if row else await run(name, text, None, key)


@app.get("/waits")
async def waits() -> list[dict[str, Any]]:
    rows = db.execute("SELECT id, tool, arguments FROM waits WHERE answer IS NULL")
    return [{"id": each[0], "tool": each[1], "arguments": json.loads(each[2])} for each in rows]


@app.post("/waits/{wait_id}")
async def answer(wait_id: str, value: Annotated[Any, Body()]) -> str:
    (name,) = db.execute("SELECT chat FROM waits WHERE id = ?", (wait_id,)).fetchone()
    async with locks[name]:
        with db:
            db.execute("UPDATE waits SET answer = ? WHERE id = ?", (json.dumps(value), wait_id))
        rows = db.execute("SELECT id, kind, answer FROM waits WHERE chat = ?", (name,)).fetchall()
        if any(each[2] is None for each in rows):
            return ""
        approvals = {each[0]: json.loads(each[2]) for each in rows if each[1] == "approval"}
        calls = {each[0]: json.loads(each[2]) for each in rows if each[1] == "result"}
        return await run(name, None, DeferredToolResults(approvals=approvals, calls=calls), wait_id)
