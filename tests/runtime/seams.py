"""The private parts of the runtime that tests reach into: each by a named function, and all of them here.

What a test needs of them cannot be had through the runtime's face: a process that dies between two of its steps, an
outbox item that is delivered twice, what is kept in memory.
"""

import asyncio
from typing import Any

import pytest

from tenuto.model.input import Input
from tenuto.model.outgoing_item import Outgoing
from tenuto.model.run import Stop
from tenuto.model.session import SessionKey
from tenuto.runtime.queue import worker
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.turn.context import Continuation, TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store import host
from tenuto.store.store import Store
from tenuto.testing.fake_clock import FakeClock
from tenuto.writing import lane_claim


def live_turns(runtime: SessionRuntime) -> list[TurnContext]:
    """Return the turns that the runtime runs at this moment."""
    return list(runtime._lifetime.parts().live)


def live_turn(runtime: SessionRuntime, run_id: str) -> TurnContext:
    """Return the turn of a run that the runtime runs at this moment."""
    return next(turn for turn in runtime._lifetime.parts().live if turn.run_id == run_id)


async def commit_now(turn: TurnContext) -> None:
    """Write what the turn has pending."""
    await turn.commit()


def stop_renewing(turn: TurnContext) -> None:
    """Let nobody renew the turn's lane, without the turn knowing."""
    turn.writer.release()


def hear_stop(turn: TurnContext, stop: Stop) -> None:
    """Let a turn hear of a stop, as whoever watches for stops does."""
    turn.ask_to_stop(stop)


async def begin_and_lose(runtime: SessionRuntime, key: SessionKey, text: str, *, input_key: str) -> str:
    """Begin a turn as `send` does, and lose it before its program runs; return its run's id."""
    message = {"role": "user", "content": text}
    begun = await runtime._lifetime.parts().sender.begin(key, message, input_key=input_key, body={"message": message})
    assert isinstance(begun, TurnContext)
    await begun.writer.abandon()
    return begun.run_id


def fail_takeovers(runtime: SessionRuntime, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Let the runtime's next attempts to take over a lost run fail, each with one of these."""
    take_over, failures = runtime._lifetime.parts().dispatcher._take_over, iter(errors)

    async def failing(*arguments: Any) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        await take_over(*arguments)

    monkeypatch.setattr(runtime._lifetime.parts().dispatcher, "_take_over", failing)


async def advance(
    runtime: SessionRuntime, session_id: str, *, tenant: str = "", should_continue: Continuation | None = None
) -> bool:
    """Do what is due for one session, as a worker does; return whether anything was done."""
    dispatcher = runtime._lifetime.parts().dispatcher
    key = SessionKey(session_id, tenant=tenant)
    return (await dispatcher.advance(key, should_continue=should_continue)).worked


async def deliver_due(runtime: SessionRuntime) -> int:
    """Deliver what sessions sent each other and what is due, as a worker does; return how much there was."""
    return await runtime._lifetime.parts().deliveries.deliver_due()


async def deliver(runtime: SessionRuntime, item: Outgoing) -> None:
    """Deliver one item of the outbox, and mark it."""
    await runtime._lifetime.parts().deliveries.deliver(item)


async def hand_over(runtime: SessionRuntime, item: Outgoing) -> bool:
    """Deliver one item of the outbox without marking it, as a process does that dies in between."""
    return bool(await runtime._lifetime.parts().deliveries._hand_over(item))


def take_replica(runtime: SessionRuntime, key: SessionKey) -> Replica | None:
    """Return what the runtime keeps of a session in memory, and let it forget that."""
    return runtime._lifetime.parts().dispatcher._replicas.pop(key)


def has_tasks(runtime: SessionRuntime) -> bool:
    """Tell whether turns that were started in the background are under way."""
    return bool(runtime._lifetime._tasks)


async def until_idle(runtime: SessionRuntime) -> None:
    """Wait for what the runtime does in the background, as closing it does, but leave it open."""
    lifetime = runtime._lifetime
    while under_way := [*lifetime._tasks, *lifetime.parts().sender.background]:
        await asyncio.wait(under_way)


def handle_of(
    runtime: SessionRuntime, begun: TurnContext | Input, task: "asyncio.Task[Outcome[Any]]"
) -> RunHandle[Any]:
    """Return the handle of a turn that began, or was queued, elsewhere."""
    return RunHandle(runtime._lifetime, begun, task)


def look_at_a_time(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let workers look at this many sessions at a time."""
    monkeypatch.setattr(worker, "_PAGE", count)


def lines(store: Store) -> int:
    """Return in how many lines callers of this process stand, one for each session."""
    return len(lane_claim._lines[store])


def clock_of(store: Store) -> FakeClock:
    """Return the clock that the store was given."""
    assert isinstance(store._clock, FakeClock)
    return store._clock


def leave_event_loop() -> None:
    """Let a forked child forget the event loop that its parent was running."""
    asyncio.events._set_running_loop(None)


def leave_no_trace_of_the_host() -> None:
    """Let this process write nothing by which others could see that it is dead."""
    host._place = lambda: (None, None, None)  # type: ignore[assignment]
