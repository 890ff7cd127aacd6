"""A process killed in the middle of a graph; another one goes on from its last checkpoint."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenuto import open_store
from tests.conftest import OurHarness

pytestmark = pytest.mark.long("each kill is a process of its own")

SCRIPT = """
import asyncio, json, sys, os
from typing import Annotated, Any
from tenuto import open_store
from tenuto.graph import END, GraphBuilder, State
from tenuto.graph import append

class S(State):
    n: int = 0
    log: Annotated[list[int], append] = []
    items: list[int] = []
    results: Annotated[list[int], append] = []

class C(State):
    item: int = 0
    result: int = 0

def say(word):
    print(word, flush=True)

async def up(state):
    say(f"up {state.n}")
    await asyncio.sleep(0.002)
    return {"n": state.n + 1, "log": [state.n], "items": [state.n * 10 + k for k in range(4)]}

async def cell(state):
    await asyncio.sleep(0.002)
    say(f"cell {state.item}")
    return {"result": state.item}

def graph(store):
    child = GraphBuilder(C).add_node("cell", cell).add_edge("cell", END).set_entry("cell").compile()
    return (
        GraphBuilder(S)
        .with_checkpointer(store)
        .add_node("up", up)
        .add_fan_out_node("fan", child, items_field="items", item_field="item", collect_field="result",
                          target_field="results", concurrency=2)
        .add_edge("up", "fan")
        .add_conditional_edge("fan", lambda s: END if s.n == 25 else "up")
        .set_entry("up")
        .compile()
    )

async def main(url, options, resume):
    async with open_store(url, **json.loads(options)) as store:
        if resume:
            state = await graph(store).invoke(resume_invocation=resume)
        else:
            state = await graph(store).invoke(invocation_id="first")
        say("done " + json.dumps([state.n, state.log, state.results]))

asyncio.run(main(*sys.argv[1:4]))
"""


async def run_and_kill(script: Path, harness: OurHarness, resume: str, after: int | None) -> list[str]:
    """Run the script, and kill it when it has said so many words; return what it said."""
    arguments = [sys.executable, str(script), harness.address or "", json.dumps(harness.options), resume]
    child = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE)
    assert child.stdout is not None
    said: list[str] = []
    async for line in child.stdout:
        said.append(line.decode().strip())
        if len(said) == after:
            os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    return said


async def last_with_checkpoint(harness: OurHarness) -> str:
    """Return the last invocation that left a checkpoint; one may have died before its first."""
    async with open_store(harness.address or "", **harness.options) as store:
        dump = await store.dump()
        left = {row["run_id"] for row in dump["checkpoint"]}
        runs = sorted((row["number"], row["invocation_id"]) for row in dump["run"] if row["run_id"] in left)
        return str(runs[-1][1])


@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_killed_again_and_again_it_ends_as_if_unbroken(harness: OurHarness, tmp_path: Path) -> None:
    script = tmp_path / "graph_script.py"
    script.write_text(SCRIPT)
    chance = random.Random(7)
    said: list[str] = []
    resume = ""
    for _ in range(6):
        said += await run_and_kill(script, harness, resume, after=chance.randint(3, 20))
        resume = await last_with_checkpoint(harness)
    said += await run_and_kill(script, harness, resume, after=None)
    n, log, results = json.loads(said[-1].removeprefix("done "))
    assert (n, log) == (25, list(range(25)))
    assert results == [step * 10 + k for step in range(25) for k in range(4)]
    # Each kill may repeat what was under way: one node, or two instances.
    again = sum(count - 1 for word, count in Counter(said).items() if not word.startswith("done"))
    assert again <= 6 * 2
