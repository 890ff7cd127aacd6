"""Chunks of a reply under way: when they are stored, with what, and that each is stored once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, NotJson
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.stream import chunks
from tenuto.runtime.stream.reader import fold
from tenuto.testing.faults import FaultyBackend
from tenuto.testing.harness import Harness
from tests.polling import until
from tests.runtime.runtimes import opened

Body = Callable[[Turn], Awaitable[None]]


async def _made(store: Store, body: Body) -> SessionRuntime:
    runtime = await opened(store, [program(name="talk")(body)])
    await runtime.create("talk", session_id="s")
    return runtime


async def _stored(store: Store) -> list[Any]:
    """Return the chunks in the stream, in order."""
    page = await store.events.read("s")
    found: list[Any] = [event.data for event in page.events if event.type == "chunk"]
    return [each["chunk"] for each in found]


async def _until_stored(store: Store, count: int) -> None:
    """Wait until so many chunks are in the stream."""

    async def are_stored() -> bool:
        return len(await _stored(store)) >= count

    await until(are_stored)


async def _rows(store: Store) -> list[int]:
    """Return how many chunks each stored row of events has that has some."""
    counts = []
    after, page = 0, await store.events.read("s")
    firsts = sorted(row["last_seq"] for row in (await store.dump())["event"])
    for last in firsts:
        count = sum(event.type == "chunk" for event in page.events if after < event.seq <= last)
        counts += [count] if count else []
        after = last
    return counts


async def test_the_first_chunk_is_stored_at_once_and_the_turn_need_not_wait_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "FLUSH_SECONDS", 600.0)
    before: list[Any] = []

    async def body(turn: Turn) -> None:
        turn.emit("one")
        before.extend(await _stored(store))
        await _until_stored(store, 1)

    await (await _made(store, body)).send("s", "go")
    assert before in ([], ["one"])
    assert await _stored(store) == ["one"]


async def test_a_full_batch_is_stored_at_once_and_what_is_less_waits_for_the_next_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "FLUSH_SECONDS", 600.0)
    seen: list[int] = []

    async def body(turn: Turn) -> None:
        turn.emit("0")
        await _until_stored(store, 1)
        for number in range(1, 1 + chunks.FLUSH_CHUNKS):
            turn.emit(str(number))
        await _until_stored(store, 1 + chunks.FLUSH_CHUNKS)
        for number in range(1 + chunks.FLUSH_CHUNKS, 2 * chunks.FLUSH_CHUNKS):
            turn.emit(str(number))
            await asyncio.sleep(0)
        seen.append(len(await _stored(store)))

    await (await _made(store, body)).send("s", "go")
    assert seen == [1 + chunks.FLUSH_CHUNKS]
    assert await _stored(store) == [str(number) for number in range(2 * chunks.FLUSH_CHUNKS)]
    assert await _rows(store) == [1, chunks.FLUSH_CHUNKS, chunks.FLUSH_CHUNKS - 1]


async def test_what_is_less_than_a_batch_is_stored_after_a_moment(store: Store) -> None:
    async def body(turn: Turn) -> None:
        turn.emit("one")
        await _until_stored(store, 1)
        turn.emit("two")
        turn.emit("three")
        await _until_stored(store, 3)

    await (await _made(store, body)).send("s", "go")
    assert await _rows(store) == [1, 2]


async def test_a_commit_takes_along_what_waits_before_whatever_it_says_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "FLUSH_SECONDS", 600.0)

    async def body(turn: Turn) -> None:
        turn.emit("one")
        turn.append({"role": "assistant", "content": "one"})
        await turn.save()
        turn.emit("two")

    runtime = await _made(store, body)
    await runtime.send("s", "go")
    names = [item.name async for item in runtime.session("s").events(live=False)]
    assert [name for name in names if name in ("chunk", "reply_saved", "run_ended")] == [
        "chunk",
        "reply_saved",
        "chunk",
        "run_ended",
    ]


@pytest.fixture
async def faults(harness: Harness) -> FaultyBackend:
    return FaultyBackend((await harness.open()).backend)


async def test_a_batch_whose_reply_was_lost_is_not_stored_twice(faults: FaultyBackend) -> None:
    store = Store(faults)

    async def body(turn: Turn) -> None:
        faults.lose_reply()
        turn.emit("one")
        await _until_stored(store, 1)
        turn.emit("two")
        await _until_stored(store, 2)
        turn.emit("three")

    outcome = await (await _made(store, body)).send("s", "go")
    assert outcome.status == "completed"
    assert await _stored(store) == ["one", "two", "three"]
    await store.keeper.aclose()


async def test_a_batch_that_never_reached_the_store_is_stored_later_in_its_place(faults: FaultyBackend) -> None:
    store = Store(faults)

    async def body(turn: Turn) -> None:
        faults.fail_call()
        turn.emit("one")
        await asyncio.sleep(0)
        turn.emit("two")
        await _until_stored(store, 2)
        turn.emit("three")

    outcome = await (await _made(store, body)).send("s", "go")
    assert outcome.status == "completed"
    assert await _stored(store) == ["one", "two", "three"]
    await store.keeper.aclose()


@pytest.mark.parametrize("landed", [True, False], ids=["it had landed", "it had not"])
async def test_a_batch_of_which_nobody_could_be_asked_for_a_while_is_stored_once(
    harness: Harness, faults: FaultyBackend, landed: bool
) -> None:
    store, elsewhere = Store(faults), await harness.open()

    async def body(turn: Turn) -> None:
        if landed:
            faults.lose_reply()
            turn.emit("one")
            await _until_stored(elsewhere, 1)
            faults.cut()
        else:
            faults.cut()
            turn.emit("one")
            await asyncio.sleep(0)
        turn.emit("two")
        asyncio.get_running_loop().call_later(0.1, faults.heal)
        turn.append({"role": "assistant", "content": "done"})
        await turn.save()

    outcome = await (await _made(store, body)).send("s", "go")
    assert (outcome.status, outcome.error) == ("completed", None)
    assert await _stored(store) == ["one", "two"]
    await store.keeper.aclose()


@pytest.mark.parametrize("stored_first", [True, False], ids=["stored before", "still waiting"])
async def test_what_is_discarded_is_marked_before_what_is_said_instead(store: Store, stored_first: bool) -> None:
    async def body(turn: Turn) -> None:
        turn.emit("kept")
        turn.append({"role": "assistant", "content": "kept"})
        await turn.save()
        turn.emit("wrong")
        if stored_first:
            await _until_stored(store, 2)
        context_of(turn).discard_chunks()
        turn.emit("wrong again")
        if stored_first:
            await _until_stored(store, 3)
        context_of(turn).discard_chunks()
        turn.emit("right")
        if stored_first:
            await _until_stored(store, 4)
        turn.append({"role": "assistant", "content": "right"})

    runtime = await _made(store, body)
    outcome = await runtime.send("s", "go")
    items = [item async for item in runtime.session("s").events(run=outcome.run_id)]
    shown = [item.data for item in items if item.type == "chunk"]
    assert shown == ["kept", "wrong", "wrong again", "right"]
    assert [item.type for item in items].count("rewound") == 2
    assert [item.data for item in fold(items) if item.type == "chunk"] == ["kept", "right"]


async def test_chunks_of_a_turn_that_fails_stay_in_the_stream(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "FLUSH_SECONDS", 600.0)

    async def body(turn: Turn) -> None:
        for number in range(10):
            turn.emit(str(number))
        raise ValueError("no luck")

    outcome = await (await _made(store, body)).send("s", "go")
    assert outcome.status == "failed"
    assert await _stored(store) == [str(number) for number in range(10)]


async def test_a_chunk_that_is_no_json_is_refused_and_nothing_of_it_is_shown(store: Store) -> None:
    refused: list[bool] = []

    async def body(turn: Turn) -> None:
        wrong: list[Any] = [{1, 2}, {"data": {1, 2}}, {"text": b"bytes"}]
        for each in wrong:
            with pytest.raises(NotJson):
                turn.emit(each)
        refused.append(True)
        turn.emit("fine")

    outcome = await (await _made(store, body)).send("s", "go")
    assert (outcome.status, refused) == ("completed", [True])
    assert await _stored(store) == ["fine"]


async def test_nothing_is_emitted_in_a_turn_that_is_over(store: Store) -> None:
    turns: list[Turn] = []

    async def body(turn: Turn) -> None:
        turns.append(turn)

    await (await _made(store, body)).send("s", "go")
    with pytest.raises(InvalidInput, match="over"):
        turns[0].emit("too late")
    assert await _stored(store) == []
