"""What a memory store does for a turn does not grow with what it holds, counted in instructions of its code."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tenuto import open_store
from tenuto.model.event import NewEvent
from tenuto.model.lane import Owner
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run import stop as stopping
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.backends import memory

USER = {"role": "user", "content": "How is it?"}
REPLY = {"role": "assistant", "content": "As it was."}

Action = Callable[[SessionRuntime, str], Awaitable[None]]

_CODE = str(Path(memory.__file__).parent)


class Steps:
    """How many instructions of the memory backend were executed."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        """Follow a frame if it is the backend's."""
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, _frame: FrameType, event: str, _arg: object) -> Any:
        self.count += event == "opcode"
        return self._step


@pytest.fixture(autouse=True)
def _no_looks_for_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a turn read the same however long it takes."""
    monkeypatch.setattr(stopping, "STOP_POLL", 3600.0)


@contextmanager
def counted() -> Iterator[Steps]:
    steps, former = Steps(), sys.gettrace()
    sys.settrace(steps.enter)
    try:
        yield steps
    finally:
        sys.settrace(former)


async def _weather() -> str:
    return "fair"


@program
async def talk(turn: Turn) -> None:
    await turn.effect("weather", _weather)
    turn.append(REPLY)


@program
async def ask(turn: Turn) -> None:
    turn.emit("Well")
    await turn.effect("weather", _weather)
    turn.use("small", input=3, output=5)
    await turn.wait("go")
    turn.append(REPLY)


async def _others(runtime: SessionRuntime, turns: int) -> None:
    """Let twenty other sessions have turns: of each five one is enqueued and one waits for an answer."""
    for number in range(turns):
        program, session = ("ask", f"asking {number % 4}") if number % 5 == 0 else ("talk", f"talking {number % 16}")
        if not await runtime.store.exists(session):
            await runtime.create(program, session_id=session)
        if number % 5 == 1:
            await runtime.enqueue(session, USER)
            await runtime.drain()
        else:
            await runtime.send(session, USER)
        for wait in await runtime.waits(session):
            await runtime.answer(wait.wait_id, "yes")


async def _send(runtime: SessionRuntime, session: str) -> None:
    await runtime.send(session, USER)


async def _send_cold(runtime: SessionRuntime, session: str) -> None:
    async with SessionRuntime(runtime.store, [talk]) as other:
        await other.send(session, USER)


async def _enqueue(runtime: SessionRuntime, session: str) -> None:
    await runtime.enqueue(session, USER)


async def _work(runtime: SessionRuntime, session: str) -> None:
    await runtime.enqueue(session, USER)
    assert await runtime.advance(session)


async def _look(runtime: SessionRuntime, session: str) -> None:
    store = runtime.store
    assert await runtime.deliver() == 0
    assert not await store.inbox.due()
    assert not await store.inbox.stranded()
    assert await store.inbox.next_due() is None
    assert await store.outbox.next_due() is None
    assert not await store.lanes.orphans()
    assert not await store.runs.running()
    assert await store.inbox.first(session) is None
    assert await store.stamp(session)
    assert await store.runs.current(session)


async def _load(runtime: SessionRuntime, session: str) -> None:
    assert await runtime.store.load(session)


async def _stream(runtime: SessionRuntime, session: str) -> None:
    store = runtime.store
    lane = await store.lanes.acquire(session, Owner(owner_id="streaming", incarnation="1"))
    last = await store.events.append(lane, [NewEvent(type="seen", data={})])
    await store.lanes.disarm(lane)
    run = await store.runs.current(session)
    assert run
    assert [event.seq for event in (await store.events.read(session, after=last - 1)).events] == [last]
    assert (await store.events.read(session, run_id=run.run_id)).events


async def _cost(action: Action, runtime: SessionRuntime, session: str) -> int:
    with counted() as steps:
        await action(runtime, session)
    return steps.count


async def _costs_beside(others: int) -> dict[str, int]:
    async with open_store("memory://") as store, SessionRuntime(store, [talk, ask]) as runtime:
        await _others(runtime, others)
        costs = {}
        for action in (_look, _load, _stream, _send, _send_cold, _work, _enqueue):
            session = action.__name__
            await runtime.create("talk", session_id=session)
            for _ in range(3):
                await runtime.send(session, USER)
            costs[session] = await _cost(action, runtime, session)
        return costs


async def test_a_turn_an_input_and_a_look_cost_the_same_beside_any_number_of_turns_of_others() -> None:
    assert await _costs_beside(500) == await _costs_beside(5)


async def test_a_turn_and_an_input_cost_the_same_after_any_number_of_turns_of_the_session() -> None:
    async with open_store("memory://") as store, SessionRuntime(store, [talk]) as runtime:
        await runtime.create("talk", session_id="s")
        costs = []
        for turns in (5, 100):
            for _ in range(turns):
                await runtime.send("s", USER)
            costs.append([await _cost(action, runtime, "s") for action in (_send, _look, _stream, _enqueue)])
            await runtime.drain()
        assert costs[0] == costs[1]
