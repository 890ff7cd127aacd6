"""Runtimes that share a database, the time it is there, and runners that are lost without a word."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tenuto.errors import TenutoError
from tenuto.model.wait import Wait
from tenuto.runtime.program.child_result import ChildResult
from tenuto.runtime.program.program import Program
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.store.open import Opening
from tenuto.store.store import Store
from tenuto.testing.agent import Script, ScriptedAgent
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness

on_disk = pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
in_memory = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
"""For what is the same on every database: once, on a file that lies in memory."""

PAST_TTL = 60.0


async def opened(store: str | Opening | Store, programs: Iterable[Program[Any]] = (), **options: Any) -> SessionRuntime:
    """Return a runtime that is open; what it has open goes with the store of the test."""
    runtime = SessionRuntime(store, programs, **options)
    await runtime.__aenter__()
    return runtime


class Database:
    """One database with a clock that stands still, and as many runtimes on it as a test wants."""

    def __init__(self, harness: OurHarness) -> None:
        self.clock = FakeClock()
        self._harness = harness

    async def runtime(self, *programs: Program[Any], **options: Any) -> SessionRuntime:
        """Return a runtime with a store of its own on the database."""
        return await opened(await self._harness.open(clock=self.clock), programs, **options)

    async def lose(self, runtime: SessionRuntime, task: "asyncio.Task[Any]") -> None:
        """Let a runner die in its turn: nothing it does from now on is written, and its lane lapses."""
        await runtime.store.aclose()
        task.cancel()
        with suppress(asyncio.CancelledError, TenutoError):
            await task
        self.clock.advance(PAST_TTL)


class Gate:
    """A call that says when it is reached, and waits until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.entered = 0

    async def __call__(self) -> None:
        """Say that it is reached, and wait."""
        self.entered += 1
        self.reached.set()
        await self.open.wait()


def agent(*replies: "str | Mapping[str, Any]", tools: Sequence[Any] = (), **options: Any) -> ScriptedAgent:
    """Return a scripted agent that says these replies."""
    return ScriptedAgent(model=Script(*replies), tools=tools, **options)


def waiting(outcome: Outcome[Any], kind: str) -> Wait:
    """Return the one wait of a kind that a suspended turn has open."""
    (found,) = [wait for wait in outcome.waits if wait.kind == kind]
    return found


def as_data(child: ChildResult[Any]) -> dict[str, Any]:
    """Return how a child's turn went as plain data: its error, or what it returned or else said."""
    if child.error is not None:
        return {"session_id": child.session_id, "error": dict(child.error)}
    return {"session_id": child.session_id, "result": child.text if child.output is None else child.output}


def contents(messages: Sequence[Any], role: str) -> list[Any]:
    """Return what the messages of a role say."""
    return [message["content"] for message in messages if message["role"] == role]


def results(messages: Sequence[Any]) -> dict[str, Any]:
    """Return the result of each tool call; there is one for each."""
    found = [(message["tool_call_id"], message["content"]) for message in messages if message["role"] == "tool"]
    assert len(dict(found)) == len(found)
    return dict(found)


def counting(calls: list[Any], result: Any = "ok") -> Callable[[Any, Mapping[str, Any]], Awaitable[Any]]:
    """Return a tool that notes the arguments of each call."""

    async def tool(_: Any, arguments: Mapping[str, Any]) -> Any:
        calls.append(dict(arguments))
        return result

    return tool
