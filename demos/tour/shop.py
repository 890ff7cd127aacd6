"""The programs of the tour: a desk that answers, and two agents that use tools. None of them calls a real model."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto import Tool, Turn, program
from tenuto.codec import JSON
from tenuto.testing.agent import Script, ScriptedAgent, calls


@program
async def desk(turn: Turn) -> None:
    """Answer after a while, as a model does."""
    await asyncio.sleep(0.05)
    turn.append(f"You asked: {turn.text}")


def record(folder: Path, what: str) -> None:
    """Do something that cannot be undone: add a line to a file outside the store."""
    with (folder / "world.txt").open("a") as world:
        world.write(what + "\n")


def world(folder: Path) -> list[str]:
    """Return what was done outside the store."""
    return (folder / "world.txt").read_text().splitlines()


def cashier(folder: Path) -> ScriptedAgent:
    """Return an agent that pays a refund once somebody has approved it."""

    async def refund(_: Turn, arguments: Mapping[str, Any]) -> JSON:
        record(folder, f"refunded {arguments['amount']} for order {arguments['order']}")
        return "done"

    model = Script(calls(("call-1", "refund", {"order": 7, "amount": 49})), "Your refund is on its way.")
    return ScriptedAgent(model, [Tool(name="refund", run=refund, needs_approval=True)], name="cashier")


def packer(folder: Path, *, dies: bool = False) -> ScriptedAgent:
    """Return an agent that reserves, then prints a label; with `dies` it waits to be killed while it prints."""

    async def reserve(_: Turn, arguments: Mapping[str, Any]) -> JSON:
        record(folder, f"reserved {arguments['item']}")
        return "reserved"

    async def label(turn: Turn, _: Mapping[str, Any]) -> JSON:
        record(folder, f"label requested by attempt {turn.attempt}")
        if dies:
            print(f"in the middle of printing a label (attempt {turn.attempt}, pid {os.getpid()})", flush=True)
            await asyncio.Event().wait()
        return "printed"

    model = Script(
        calls(("call-1", "reserve", {"item": "lamp"})), calls(("call-2", "label", {"to": "u-9"})), "The lamp is packed."
    )
    return ScriptedAgent(
        model, [Tool(name="reserve", run=reserve), Tool(name="label", run=label, idempotent=True)], name="packer"
    )
