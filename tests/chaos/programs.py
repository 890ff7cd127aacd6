"""What the sessions of a run do: an agent with every kind of tool, and functions that wait, sleep, ask and talk.

A message begins with its marker, which nobody else uses; the words after it say what is to be done.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

from tenuto import Tool, Turn, program
from tenuto.errors import WaitExpired
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.runtime.program.program import Program
from tests.guide_agent import guide_agent

GONE = {"content": "gone"}
"""What a turn goes on with whose message was taken back meanwhile."""

TOOLS = ("look", "pay", "ship", "ask", "kid", "flaky")
ONCE = frozenset({"pay", "ship", "flaky"})
"""The tools that must not be called twice for one call."""


@dataclass(slots=True)
class World:
    """The outside: a file in which every execution of a tool is counted, by all processes."""

    folder: Path
    who: str = ""

    def act(self, tool: str, call_id: str, turn: Turn) -> None:
        """Do something that cannot be undone."""
        line = {
            "at": time.time(),
            "who": self.who,
            "tool": tool,
            "call": call_id,
            "session": turn.session_id,
            "run": turn.run_id,
            "attempt": turn.attempt,
        }
        file = os.open(self.folder / "acts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)


def marker_of(content: object) -> str:
    """Return the marker a message begins with."""
    return str(content).partition(" ")[0]


def words_of(content: object) -> list[str]:
    """Return what a message asks for."""
    return str(content).split(" ")[1:]


def dice(text: str, sides: int) -> int:
    """Return a number below `sides` that is the same whenever a program runs again."""
    return crc32(text.encode()) % sides


class OutOfOrder(ValueError):
    """What a tool raises on purpose, for the model to be told."""


def programs(world: World) -> list[Program[Any]]:
    """Return every program of a run."""
    return [_agent(world), clerk, chief, _kid(world), talker, _notes()]


def _agent(world: World) -> Program[Any]:
    def tool(name: str) -> Tool:
        async def run(turn: Turn, arguments: Mapping[str, Any]) -> Any:
            await asyncio.sleep(dice(arguments["call"], 30) / 1000)
            world.act(name, arguments["call"], turn)
            await asyncio.sleep(dice(arguments["call"] + "after", 250) / 1000)
            turn.update(lambda state: {"acts": state.get("acts", 0) + 1})
            if name == "flaky":
                raise OutOfOrder("it does not work today")
            return f"did {name}"

        return Tool(name=name, run=run, idempotent=name == "look", needs_approval=name == "ship")

    tools = [tool("look"), tool("pay"), tool("ship"), tool("flaky"), Tool(name="ask"), Tool(name="kid", child="kid")]

    async def model(turn: Turn) -> Any:
        nonce = secrets.randbits(40)
        turn.record_usage("chaos", input=nonce, output=1)
        await asyncio.sleep(dice(str(nonce), 20) / 1000)
        said: Any = turn.input or GONE
        since = list(turn.messages)
        begun = max((at for at, each in enumerate(since) if each.get("content") == said["content"]), default=-1)
        done = sum(1 for each in since[begun + 1 :] if each.get("tool_calls"))
        steps = words_of(said["content"])
        metadata = {"nonce": nonce}
        if done >= len(steps):
            last = next((each for each in reversed(since) if each["role"] == "user"), said)
            return {"role": "assistant", "content": f"re: {marker_of(last['content'])}", "metadata": metadata}
        calls = []
        for number, name in enumerate(steps[done].split("+")):
            call = f"c{nonce:x}.{number}"
            arguments = {"call": call, "message": f"{call} " + ("wait" if dice(call, 7) == 0 else "now")}
            calls.append({"id": call, "name": name, "arguments": arguments})
        return {"role": "assistant", "content": "", "tool_calls": calls, "metadata": metadata}

    return guide_agent(model, tools)


@program
async def clerk(turn: Turn) -> None:
    """Say something, sleep or wait for a word, and say the rest."""
    said: Any = turn.input or GONE
    marker, words = marker_of(said["content"]), words_of(said["content"])
    turn.append({"role": "assistant", "content": f"one moment, {marker}"}, once="moment")
    if "sleep" in words:
        await turn.sleep(0.1 + dice(marker, 5) / 10)
    word: Any = None
    if "wait" in words:
        try:
            word = await turn.wait("word", timeout=1 + dice(marker, 3))
        except WaitExpired:
            word = "nothing"
    turn.append({"role": "assistant", "content": f"re: {marker} {word}"}, once="done")


@program
async def chief(turn: Turn) -> None:
    """Ask a child, a new one or the one from before."""
    said: Any = turn.input or GONE
    marker = marker_of(said["content"])
    known: Any = turn.state.get("kid")
    again = known if known is not None and dice(marker, 2) else None
    token = f"{marker}.kid"
    how = "wait" if dice(marker, 5) == 0 else "now"
    answer = await turn.child("kid", f"{token} {how}", session_id=again)
    if answer.error is None:
        turn.state.update(kid=answer.session_id)
    turn.append({"role": "assistant", "content": f"re: {marker}"}, once="done")


def _kid(world: World) -> Program[Any]:
    @program
    async def kid(turn: Turn) -> None:
        """Do something for a parent; sometimes only when told so, sometimes by a child of its own."""
        said: Any = turn.input or GONE
        marker, words = marker_of(said["content"]), words_of(said["content"])

        async def pay() -> str:
            world.act("pay", f"{marker}.effect", turn)
            await asyncio.sleep(dice(marker, 40) / 1000)
            return "paid"

        if dice(marker, 3) == 0:
            await turn.effect(f"{marker}.effect", pay, {"for": marker})
        if "wait" in words:
            with suppress(WaitExpired):
                await turn.wait("go", timeout=2)
        if dice(marker, 6) == 1 and ".kid.kid" not in marker:
            await turn.child("kid", f"{marker}.kid now")
        turn.append({"role": "assistant", "content": f"kid: {marker}"}, once="done")

    return kid


@program
async def talker(turn: Turn) -> None:
    """Talk for a while, in steps, so that there is something to interrupt, to steer and to follow."""
    said: Any = turn.input or GONE
    marker = marker_of(said["content"])
    lines = 2 + dice(marker, 3)
    async for number in turn.steps():
        for line in range(6):
            turn.emit(f"{marker}/{number}/{line} ")
            await asyncio.sleep(0.01)
        if number >= lines:
            turn.append({"role": "assistant", "content": f"re: {marker}"})
            return
        turn.append({"role": "assistant", "content": f"{marker} line {number}"})


class Talk(State):
    """The state of the graph among the programs."""

    messages: Annotated[list[dict[str, Any]], append] = []


def _notes() -> Program[Any]:
    async def reply(state: Talk) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        last = next(each for each in reversed(state.messages) if each["role"] == "user")
        return {"messages": [{"role": "assistant", "content": f"re: {marker_of(last['content'])}"}]}

    graph = GraphBuilder(Talk, "notes").add_node("reply", reply).add_edge("reply", END).set_entry("reply").compile()
    return graph.as_program()
