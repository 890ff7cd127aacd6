"""The runtime's scenes: a queue of messages, an approval answered after a restart, and a takeover."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from demos.tour.shop import cashier, desk, packer, world
from demos.tour.stage import check, run_and_kill, run_to_its_end, say
from tenuto import SessionRuntime, open_store
from tenuto.model.session import SessionKey
from tenuto.store.schemes import sqlite_path

QUESTIONS = ("one", "two", "three", "four", "five")


async def queue(url: str) -> None:
    """Send five messages at once to one session."""
    async with open_store(url) as store, SessionRuntime(store, [desk]) as runtime:
        await runtime.create("desk", session_id="customer-43")
        started = [
            await runtime.session("customer-43").start(text, key=f"msg-{text}", when_busy="queue") for text in QUESTIONS
        ]
        waiting = len(await store.inbox.list(SessionKey("customer-43")))
        say(f"all five are stored; {waiting} wait in the inbox while the first is answered")
        outcomes = await asyncio.gather(*(each.wait() for each in started))
        for outcome in outcomes:
            say(outcome.text)
        session = await runtime.get("customer-43")
        said = [text for question in QUESTIONS for text in (question, f"You asked: {question}")]
        check("five turns, in order, nothing interleaved", [each["content"] for each in session.messages], said)
        again = await runtime.send("customer-43", "two", key="msg-two")
        check("the second message, sent again, is the same turn", again.run_id, outcomes[1].run_id)


async def ask_for_approval(url: str) -> None:
    """Run a turn until it needs an approval."""
    async with open_store(url) as store, SessionRuntime(store, [cashier(_folder(url))]) as runtime:
        await runtime.create("cashier", session_id="refund-7", title="Order 7")
        outcome = await runtime.send("refund-7", "Please refund order 7.")
        (wait,) = outcome.waits
        print(f"the turn is {outcome.status}; it waits for an {wait.kind}: {wait.metadata['arguments']}")


async def approve(url: str) -> None:
    """Answer the approval, which resumes the turn."""
    async with open_store(url) as store, SessionRuntime(store, [cashier(_folder(url))]) as runtime:
        session = runtime.session("refund-7")
        (wait,) = await session.waits()
        answered = await session.answer(wait, True)
        assert answered.outcome is not None
        print(f"approved; the turn is {answered.outcome.status}: {answered.outcome.text}")


async def approval(url: str) -> None:
    """Suspend in one process, answer in another."""
    await run_to_its_end("ask", url)
    say("no process is running; the question is stored in the file")
    await run_to_its_end("approve", url)
    check("refunded once, after the approval", world(_folder(url)), ["refunded 49 for order 7"])


async def pack_until_killed(url: str) -> None:
    """Start a turn and wait to be killed while a tool runs."""
    async with open_store(url) as store, SessionRuntime(store, [packer(_folder(url), dies=True)]) as runtime:
        await runtime.create("packer", session_id="parcel-9")
        await runtime.send("parcel-9", "Pack the lamp.")


async def work(url: str) -> None:
    """Run whatever is due, as a worker does."""
    async with open_store(url) as store, SessionRuntime(store, [packer(_folder(url))]) as runtime:
        await runtime.drain()
        (run,) = await runtime.session("parcel-9").runs()
        session = await runtime.get("parcel-9")
        print(f"found the orphaned turn and finished it (attempt {run.run.attempt}): {session.messages[-1]['content']}")


async def takeover(url: str) -> None:
    """Kill a process during a turn and let another one finish it."""
    (_folder(url) / "world.txt").unlink()
    await run_and_kill("pack", url)
    await run_to_its_end("work", url)
    done = ["reserved lamp", "label requested by attempt 1", "label requested by attempt 2"]
    check("reserved once; only the label, a tool declared idempotent, was requested again", world(_folder(url)), done)


ROLES: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
    "ask": ask_for_approval,
    "approve": approve,
    "pack": pack_until_killed,
    "work": work,
}


def _folder(url: str) -> Path:
    return Path(sqlite_path(url)).parent
