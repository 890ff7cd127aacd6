"""What readers of a session's stream see: every event once, and how each run ended, or that nobody can tell."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import SessionNotFound, StreamDropped
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.stream.reader import StreamItem, fold
from tenuto.testing.faults import FaultyBackend
from tenuto.testing.harness import Harness
from tenuto.words import ItemType, StopKind
from tests.runtime.runtimes import opened


class Talk:
    """A program that says what it is told word by word, and can be held, failed or made to wait on the way."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def run(self, turn: Turn) -> None:
        for word in turn.text.split():
            match word:
                case "hold":
                    self.reached.set()
                    await self.release.wait()
                case "fail":
                    raise ValueError("no luck")
                case "ask":
                    await turn.wait("answer")
                case _:
                    turn.emit(word)
        turn.append({"role": "assistant", "content": "done"})


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
async def runtime(store: Store, talk: Talk) -> AsyncIterator[SessionRuntime]:
    async with SessionRuntime(store, [program(name="talk")(talk.run)]) as runtime:
        await runtime.create("talk", session_id="s")
        yield runtime


async def _next(items: AsyncIterator[StreamItem]) -> StreamItem:
    return await asyncio.wait_for(anext(items), 30)


async def _all(items: AsyncIterator[StreamItem]) -> list[StreamItem]:
    async with asyncio.timeout(30):
        return [item async for item in items]


def _kinds(items: list[StreamItem]) -> list[str]:
    return [item.name if item.type == "event" else item.type for item in items]


async def test_a_runs_stream_has_its_chunks_and_ends_with_its_status(runtime: SessionRuntime) -> None:
    outcome = await runtime.send("s", "one two")
    items = await _all(runtime.session("s").events(run=outcome.run_id))
    chunks = [item for item in items if item.type == "chunk"]
    assert [(item.data, item.attempt, item.step, item.run_id) for item in chunks] == [
        ("one", 1, 1, outcome.run_id),
        ("two", 1, 1, outcome.run_id),
    ]
    last: Any = items[-1]
    assert (last.type, last.data["status"], last.run_id) == ("end", "completed", outcome.run_id)
    assert [item.seq for item in items] == sorted({item.seq for item in items})
    assert "caught_up" not in {item.type for item in items}


@pytest.mark.parametrize(
    ("text", "stop", "kind", "status", "category"),
    [
        ("one ask", None, "end", "suspended", None),
        ("one fail", None, "fail", "failed", "ValueError"),
        ("one hold", "interrupt", "end", "interrupted", "run_interrupted"),
        ("one hold", "abort", "fail", "failed", "run_aborted"),
    ],
)
async def test_the_last_item_says_how_the_run_ended_live_and_replayed(
    runtime: SessionRuntime,
    talk: Talk,
    text: str,
    stop: StopKind | None,
    kind: ItemType,
    status: str,
    category: str | None,
) -> None:
    handle = await runtime.session("s").start(text)
    live = asyncio.create_task(_all(handle.events()))
    if stop is not None:
        await talk.reached.wait()
        await handle.stop(stop)
    outcome = await handle.wait()
    replayed = await _all(runtime.session("s").events(run=handle.run_id))
    assert outcome.status == status
    for items in (await live, replayed):
        last: Any = items[-1]
        assert (last.type, last.data["status"], (last.data.get("error") or {}).get("category")) == (
            kind,
            status,
            category,
        )
        assert [item.data for item in items if item.type == "chunk"] == ["one"]
    assert _stored(await live) == _stored(replayed)


def _stored(items: list[StreamItem]) -> list[StreamItem]:
    return [item for item in items if item.type != "caught_up"]


async def test_stored_items_come_first_then_caught_up_then_live_ones(runtime: SessionRuntime) -> None:
    await runtime.send("s", "one")
    items = runtime.session("s").events()
    seen = [await _next(items)]
    while seen[-1].type != "caught_up":
        seen.append(await _next(items))
    tail = seen[-1].seq
    assert _stored(seen) == _stored(await _all(runtime.session("s").events(live=False)))
    await runtime.send("s", "two")
    while not (await _next(items)).is_end:
        pass
    again = [item.data async for item in runtime.session("s").events(after=tail, live=False) if item.name == "chunk"]
    assert again == ["two"]


async def test_a_reader_that_begins_at_the_tail_is_told_at_once_that_it_has_caught_up(
    runtime: SessionRuntime, talk: Talk, store: Store
) -> None:
    handle = await runtime.session("s").start("hold")
    await talk.reached.wait()
    head = await store.head("s")
    assert head is not None
    for run in (None, handle.run_id):
        item = await _next(runtime.session("s").events(after=head.event_seq, run=run))
        assert (item.type, item.seq) == ("caught_up", head.event_seq)
    talk.release.set()
    await handle.wait()


async def test_a_reader_behind_the_end_of_a_run_is_still_told_how_it_ended(runtime: SessionRuntime) -> None:
    outcome = await runtime.send("s", "one")
    tail = (await runtime.session("s").info()).event_seq
    items = await _all(runtime.session("s").events(after=tail, run=outcome.run_id))
    assert [item.type for item in items] == ["caught_up", "end"]
    assert items[-1].data["status"] == "completed"


async def test_a_reader_below_the_floor_is_told_and_still_hears_the_end(runtime: SessionRuntime, store: Store) -> None:
    outcome = await runtime.send("s", "one fail")
    await runtime.send("s", "two")
    await store.upkeep.prune(events_keep=1)
    items = await _all(runtime.session("s").events(run=outcome.run_id))
    assert [item.type for item in items] == ["truncated", "caught_up", "fail"]
    assert items[0].data == {"floor": items[0].seq}
    assert items[-1].data["error"]["category"] == "ValueError"


async def test_a_runs_stream_has_nothing_of_other_runs(runtime: SessionRuntime) -> None:
    outcomes = [await runtime.send("s", word) for word in ("one", "two", "three")]
    for outcome, word in zip(outcomes, ("one", "two", "three"), strict=True):
        items = _stored(await _all(runtime.session("s").events(run=outcome.run_id)))
        assert {item.run_id for item in items} == {outcome.run_id}
        assert [item.data for item in items if item.type == "chunk"] == [word]
    whole = _kinds(await _all(runtime.session("s").events(live=False)))
    assert (whole.count("chunk"), whole.count("end"), whole[-1]) == (3, 3, "caught_up")


async def test_the_stream_of_a_run_nobody_knows_is_dropped_and_not_silent(runtime: SessionRuntime) -> None:
    await runtime.create("talk", session_id="other")
    foreign = await runtime.send("other", "one")
    for run in ("no such run", foreign.run_id):
        with pytest.raises(StreamDropped):
            await _all(runtime.session("s").events(run=run))


async def test_the_stream_of_a_session_that_is_deleted_under_its_run_is_dropped(
    runtime: SessionRuntime, talk: Talk
) -> None:
    handle = await runtime.session("s").start("one hold")
    items = runtime.session("s").events(run=handle.run_id)
    await talk.reached.wait()
    while (await _next(items)).type != "chunk":
        pass
    await runtime.session("s").delete()
    with pytest.raises(StreamDropped):
        await _all(items)
    talk.release.set()
    with pytest.raises(Exception, match="deleted|took over"):  # noqa: RUF043
        await handle.wait()


async def test_a_reader_whose_store_is_cut_off_reads_on_from_the_cursor_it_is_given(
    harness: Harness, runtime: SessionRuntime, talk: Talk
) -> None:
    faults = FaultyBackend((await harness.open()).backend)
    elsewhere = await opened(Store(faults))
    handle = await runtime.session("s").start("one hold two")
    await talk.reached.wait()
    seen: list[StreamItem] = []

    async def read(after: int) -> None:
        async for item in elsewhere.session("s").events(after=after, run=handle.run_id):
            seen.append(item)
            if item.type == "chunk" and item.data == "one":
                faults.cut()
                talk.release.set()

    with pytest.raises(StreamDropped) as dropped:
        await asyncio.wait_for(read(0), 30)
    await handle.wait()
    faults.heal()
    await asyncio.wait_for(read(dropped.value.cursor), 30)
    assert _stored(seen) == _stored(await _all(runtime.session("s").events(run=handle.run_id)))


async def test_a_reader_whose_store_is_closed_is_told_that_the_stream_was_dropped(
    harness: Harness, runtime: SessionRuntime
) -> None:
    elsewhere = await harness.open()
    items = (await opened(elsewhere)).session("s").events()
    while (last := await _next(items)).type != "caught_up":
        pass
    waiting = asyncio.create_task(_next(items))
    await asyncio.sleep(0)
    await elsewhere.aclose()
    with pytest.raises(StreamDropped) as dropped:
        await waiting
    assert dropped.value.cursor == last.seq == (await runtime.session("s").info()).event_seq


async def test_pruned_chunks_leave_a_mark_and_the_end_stands(runtime: SessionRuntime, store: Store) -> None:
    outcome: Outcome = await runtime.send("s", "one two three")
    before = await _all(runtime.session("s").events(run=outcome.run_id))
    await store.upkeep.prune(chunks_older_than=0)
    items = await _all(runtime.session("s").events(run=outcome.run_id))
    assert "chunk" not in {item.type for item in items}
    assert "elided" in {item.type for item in items}
    assert items[-1] == before[-1]


def _chunk(seq: int, text: str, run: str = "r", attempt: int = 1) -> StreamItem:
    return StreamItem(type="chunk", seq=seq, name="chunk", run_id=run, data=text, attempt=attempt)


def _rewound(seq: int, since: int, run: str = "r") -> StreamItem:
    return StreamItem(type="rewound", seq=seq, name="rewound", run_id=run, data={"from": since}, attempt=2)


def test_fold_drops_what_was_taken_back_of_that_run_and_nothing_else() -> None:
    event = StreamItem(type="event", seq=5, name="lane_taken_over", run_id="r")
    items = [
        _chunk(1, "kept"),
        _chunk(2, "other", run="q"),
        _chunk(3, "lost"),
        _chunk(4, "other", run="q"),
        event,
        _rewound(6, 2),
        _chunk(7, "lost too", attempt=2),
        _rewound(8, 6),
        _chunk(9, "said", attempt=3),
    ]
    assert [item.seq for item in fold(items)] == [1, 2, 4, 5, 9]
    assert fold(fold(items)) == fold(items)
    assert fold([]) == []


async def test_there_is_no_stream_of_a_session_that_is_not_there(store: Store) -> None:
    runtime = await opened(store)
    for live in (True, False):
        with pytest.raises(SessionNotFound):
            await anext(runtime.session("nobody").events(live=live))
