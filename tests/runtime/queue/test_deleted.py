"""Whoever waits for a session that is deleted meanwhile is told so, and nothing else."""

import asyncio
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import SessionDeleted, SessionNotFound
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tests.runtime.runtimes import Gate, opened
from tests.runtime.talking import echo


def held(gate: Gate) -> Any:
    """Return a program whose turns wait to be let go."""

    @program(name="held")
    async def run(turn: Turn) -> None:
        await gate()
        turn.append({"role": "assistant", "content": "done"})

    return run


@pytest.mark.parametrize("lives_again", [False, True])
async def test_the_sender_of_a_turn_under_way_hears_that_its_session_was_deleted(
    store: Store, lives_again: bool
) -> None:
    gate = Gate()
    runtime = await opened(store, [held(gate)])
    await runtime.create("held", session_id="s")
    sending = asyncio.create_task(runtime.send("s", "one"))
    await gate.reached.wait()
    await runtime.session("s").delete()
    if lives_again:
        await runtime.create("held", session_id="s")
    gate.open.set()
    with pytest.raises(SessionDeleted):
        await asyncio.wait_for(sending, 9)


@pytest.mark.parametrize("lives_again", [False, True])
async def test_who_waits_in_line_hears_that_the_session_was_deleted(store: Store, lives_again: bool) -> None:
    """Here and through another runtime, which waits for an input that is not its own to do."""
    gate = Gate()
    runtime, other = await opened(store, [held(gate)]), await opened(store, [held(Gate())])
    await runtime.create("held", session_id="s")
    first = await runtime.session("s").start("one")
    await gate.reached.wait()
    waiting = [await each.session("s").start(f"of {n}", when_busy="queue") for n, each in enumerate((runtime, other))]
    await runtime.session("s").delete()
    if lives_again:
        await runtime.create("held", session_id="s")
    gate.open.set()
    for each in (first, *waiting):
        with pytest.raises(SessionDeleted) as told:
            await asyncio.wait_for(each.wait(), 9)
        assert "deleted" in str(told.value)


async def test_who_forks_hears_that_the_fork_was_deleted_before_its_turn_ended(store: Store) -> None:
    gate = Gate()
    runtime = await opened(store, [held(gate)])
    await runtime.create("held", session_id="s")
    forking = asyncio.create_task(runtime.session("s").fork(session_id="fork", message="go"))
    await gate.reached.wait()
    await runtime.session("fork").delete()
    gate.open.set()
    with pytest.raises(SessionDeleted):
        await asyncio.wait_for(forking, 9)


async def test_a_session_that_never_was_is_not_found(store: Store) -> None:
    runtime = await opened(store, [echo])
    with pytest.raises(SessionNotFound):
        await runtime.send("s", "one")
    for cascade in (False, True):
        with pytest.raises(SessionNotFound):
            await runtime.session("s").delete(cascade=cascade)
