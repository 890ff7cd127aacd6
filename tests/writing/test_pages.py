"""Lists that are longer than a page are read to their end."""

import asyncio
from typing import Any

import pytest

from tenuto.model.outgoing_item import OutgoingStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.writing import pages
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, as_data

KEY = SessionKey("s")
EFFECTS = 2 * 3 + 1


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 3)


async def test_a_takeover_knows_every_call_and_makes_none_again(harness: OurHarness) -> None:
    made: list[int] = []
    gate = Gate()

    @program
    async def calls(turn: Turn) -> int:
        async def call() -> int:
            made.append(1)
            return len(made)

        for number in range(EFFECTS):
            await turn.effect(f"call {number}", call)
        if turn.attempt == 1:
            await gate()
        return len(made)

    database = Database(harness)
    first = await database.runtime(calls)
    await first.create("calls", session_id="s")
    task = asyncio.create_task(first.send("s", "go", key="k"))
    await gate.reached.wait()
    await database.lose(first, task)
    second = await database.runtime(calls)
    await second.drain()
    assert (await second.send("s", "go", key="k")).output == EFFECTS
    assert len(made) == EFFECTS


async def test_every_call_in_doubt_is_listed(harness: OurHarness) -> None:
    gate = Gate()

    @program
    async def calls(turn: Turn) -> None:
        await asyncio.gather(*(turn.effect(f"call {number}", gate) for number in range(EFFECTS)))

    database = Database(harness)
    first = await database.runtime(calls)
    await first.create("calls", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    async with asyncio.timeout(10):
        while gate.entered < EFFECTS:
            await gate.reached.wait()
            await asyncio.sleep(0)
    await database.lose(first, task)
    second = await database.runtime(calls, in_doubt="fail")
    await second.drain()
    found = await second.session("s").effects_in_doubt()
    assert {each.effect_key for each in found} == {f"call {number}" for number in range(EFFECTS)}


async def test_what_was_sent_queued_and_run_is_read_to_its_end(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        return as_data(await turn.child("asks", "more", name=f"child {turn.text}"))

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    for number in range(EFFECTS):
        await runtime.send("s", str(number))
        await runtime.session("s").enqueue(f"later {number}", delay=3600)
    sent = [each async for each in pages.all_sent(runtime.store, KEY)]
    assert len({each.outbox_id for each in sent if each.kind == "child"}) == EFFECTS
    assert all(each.status is OutgoingStatus.PENDING for each in sent)
    queued: list[Any] = [each.body async for each in pages.all_inputs(runtime.store, KEY)]
    assert [each["message"]["content"] for each in queued] == [f"later {number}" for number in range(EFFECTS)]
    runs = [each.number async for each in pages.all_runs(runtime.store, KEY)]
    assert runs == sorted(runs, reverse=True)
    assert len(runs) == EFFECTS


async def test_a_stop_waits_for_a_child_that_is_yet_to_begin_however_much_was_sent(harness: OurHarness) -> None:
    """The child of the last message is told to stop before it is begun, and is begun no more."""

    @program
    async def parent(turn: Turn) -> Any:
        return as_data(await turn.child("kid", "work", name=f"child {turn.text}"))

    begun: list[str] = []

    @program
    async def kid(turn: Turn) -> None:
        begun.append(turn.session_id)

    runtime = await Database(harness).runtime(parent, kid)
    await runtime.create("parent", session_id="s")
    for number in range(EFFECTS):
        await runtime.send("s", str(number))  # gives up the child of the message before
    await runtime.session("s").abandon_waits()
    await runtime.drain()
    assert begun == []
    assert {each.status async for each in pages.all_sent(runtime.store, KEY)} == {OutgoingStatus.DONE}
