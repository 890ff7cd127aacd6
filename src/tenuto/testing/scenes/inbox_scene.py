"""Input for a session, and runs that take it."""

from datetime import UTC, datetime
from typing import Any

from tenuto.model.commit import BeginRun, Commit, EndRun
from tenuto.model.input import Boundary, Input, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, an_id, an_owner

AFTER, BEFORE = Boundary.AFTER_STEP, Boundary.BEFORE_COMPLETION
LATER = datetime(2031, 5, 6, 7, 8, 9, 123, tzinfo=UTC)


def a_message(text: str, **parts: Any) -> NewInput:
    """Return a message to queue."""
    return NewInput(kind=InputKind.MESSAGE, body={"text": text}, **parts)


def a_command(name: str, **parts: Any) -> NewInput:
    """Return a command to queue."""
    return NewInput(kind=InputKind.COMMAND, body={"action": name}, **parts)


async def send(store: Store, key: SessionKey, *new: NewInput) -> list[Input]:
    """Queue these one after the other; return them as stored."""
    return [(await store.inbox.enqueue(key, each)).input for each in new]


async def a_live_run(store: Store, key: SessionKey, **parts: Any) -> tuple[Lane, RunRef]:
    """Take the lane and begin a run under it."""
    lane = await store.lanes.acquire(key, an_owner())
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    await store.commit(a_commit(key, generation=lane.generation, run=begin, **parts))
    return lane, run


def an_ending(
    key: SessionKey, lane: Lane, run: RunRef, status: RunStatus = RunStatus.COMPLETED, **parts: Any
) -> Commit:
    """Return the commit that ends a run."""
    return a_commit(key, generation=lane.generation, run=run, end=EndRun(status=status), **parts)


async def input_of(store: Store, input_id: str) -> Input:
    """Return one input that must be there."""
    found = await store.inbox.get(input_id)
    assert found is not None
    return found


def ids_of(inputs: Any) -> list[str]:
    """Return the ids of inputs, in order."""
    return [each.input_id for each in inputs]
