"""The stream: numbered without gaps, replayed the same for everyone, live after what is stored."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import CursorBeyondTail, InvalidInput, LaneLost, VersionConflict
from tenuto.model.commit import BeginRun, EndRun
from tenuto.model.event import Event, EventPage, NewEvent
from tenuto.model.lane import Lane
from tenuto.model.report import PruneReport
from tenuto.model.run import RunRef, RunStatus
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.event_scene import all_events, names_of, news, subscribed, write_events


async def test_an_event_reads_back_as_it_was_written(harness: Harness) -> None:
    """Number, type, data, run and time, the same through every opened store."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    first = await store.commit(a_commit(key, run=begin, events=(NewEvent(type="begun", data=[1, {"a": None}]),)))
    clock.advance(2)
    second = await store.commit(
        a_save(key, message("hi"), events=(NewEvent(type="saved"), NewEvent(type="said", data=0)))
    )
    expected = [
        Event(seq=1, type="begun", data=[1, {"a": None}], run_id=begin.run_id, at=first.committed_at),
        Event(seq=2, type="saved", data=None, run_id=None, at=second.committed_at),
        Event(seq=3, type="said", data=0, run_id=None, at=second.committed_at),
    ]
    for opened in (store, await harness.open()):
        page = await opened.events.read(key)
        assert list(page.events) == expected
        assert (page.truncated, page.floor, page.tail, page.next) == (False, 0, 3, 3)


async def test_reading_after_a_cursor_excludes_it(store: Store) -> None:
    """A cursor may stand inside a batch that was written as one row; at the tail there is nothing."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b", "c")
    await write_events(store, key, "d")
    for after, wanted in enumerate(("abcd", "bcd", "cd", "d", "")):
        page = await store.events.read(key, after=after)
        assert names_of(page.events) == list(wanted)
        assert [event.seq for event in page.events] == list(range(after + 1, 5))
        assert (page.tail, page.next, page.truncated) == (4, 4, False)


async def test_an_unknown_session_has_an_empty_stream(store: Store) -> None:
    """Asking creates nothing."""
    before = await store.dump()
    page = await store.events.read(a_key())
    assert page == EventPage(events=(), truncated=False, floor=0, tail=0, next=0)
    assert await store.dump() == before


async def test_pages_join_into_the_whole_stream(store: Store) -> None:
    """With every limit, no event is skipped or repeated at a page's edge."""
    key, _ = await a_session(store)
    for size in (1, 3, 2, 1, 4):
        await write_events(store, key, *(f"{size}-{n}" for n in range(size)))
    whole = await all_events(store, key)
    assert [event.seq for event in whole] == list(range(1, 12))
    for limit in (1, 2, 3, 5, 6):
        assert await all_events(store, key, limit=limit) == whole
    assert await all_events(store, key, after=5, limit=1) == whole[5:]


async def test_a_page_of_nothing_leaves_the_cursor_where_it_was(store: Store) -> None:
    """A limit of 0 asks for the tail alone."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b")
    page = await store.events.read(key, after=1, limit=0)
    assert (page.events, page.next, page.tail) == ((), 1, 2)


@pytest.mark.parametrize("after", [-1, 2**53, 1.0, "1", True, None], ids=repr)
async def test_a_cursor_that_is_not_a_count_is_refused(store: Store, after: Any) -> None:
    """The refusal comes before anything is read."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b")
    with pytest.raises(InvalidInput):
        await store.events.read(key, after=after)


async def test_a_cursor_beyond_the_tail_is_refused(store: Store) -> None:
    """By read and by subscribe, for known and unknown sessions, never silent waiting."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b")
    for where, tail in ((key, 2), (a_key(), 0)):
        with pytest.raises(CursorBeyondTail) as refused:
            await store.events.read(where, after=tail + 1)
        assert (refused.value.cursor, refused.value.tail) == (tail + 1, tail)
        async with subscribed(store, where, after=tail + 1) as reader:
            with pytest.raises(CursorBeyondTail):
                await reader.page()


async def test_a_cursor_of_a_former_life_is_told_that_the_stream_was_cut(store: Store) -> None:
    """Wherever it stood, it gets `truncated` and then the new life's events only, under numbers never used."""
    key, _ = await a_session(store)
    await write_events(store, key, "old-1", "old-2", "old-3")
    await store.delete(key)
    for after in range(4):
        page = await store.events.read(key, after=after)
        assert (page.events, page.truncated) == ((), True)
    await a_session(store, key=key)
    first = await write_events(store, key, "new-1", "new-2", life=2) - 1
    assert first > 4
    for after in range(4):
        page = await store.events.read(key, after=after)
        assert (names_of(page.events), page.truncated, page.floor) == (["new-1", "new-2"], True, first - 1)
        assert [event.seq for event in page.events] == [first, first + 1]
    assert not (await store.events.read(key, after=first - 1)).truncated


async def test_20_concurrent_commits_and_20_batches_number_without_gaps(harness: Harness) -> None:
    """They go through two stores; each writer's own events stay together, and refused ones leave no hole."""
    one, two = await harness.open(), await harness.open()
    key, _ = await a_session(one)
    lane = await one.lanes.acquire(key, an_owner())
    stale = replace(lane, generation=7)

    async def commit(n: int) -> int:
        return await write_events((one, two)[n % 2], key, f"c{n}-0", f"c{n}-1")

    async def batch(n: int) -> int:
        return await (one, two)[n % 2].events.append(lane, news(f"b{n}-0", f"b{n}-1", f"b{n}-2"))

    async def refused(n: int) -> int:
        with pytest.raises(LaneLost):
            await (one, two)[n % 2].events.append(stale, news("never"))
        return 0

    async with asyncio.timeout(60):
        lasts = await asyncio.gather(*(verb(n) for n in range(20) for verb in (commit, batch, refused)))
    events = await all_events(one, key)
    assert [event.seq for event in events] == list(range(1, 101))
    assert await all_events(two, key, limit=7) == events
    writers = [name.split("-")[0] for name in names_of(events)]
    order = sorted(set(writers), key=writers.index)
    assert len(order) == 40
    assert names_of(events) == [f"{w}-{n}" for w in order for n in range(2 if w[0] == "c" else 3)]
    assert sorted(last for last in lasts if last) == sorted(
        max(event.seq for event, w in zip(events, writers, strict=True) if w == name) for name in order
    )
    head = await one.head(key)
    assert head is not None
    assert (head.event_seq, head.commit_number) == (100, 21)


async def test_numbers_go_on_across_a_takeover(harness: Harness) -> None:
    """The successor's first event follows the displaced holder's last one."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("old"), ttl=5)
    assert await store.events.append(lane, news("old-1", "old-2")) == 2
    clock.advance(5)
    successor = await store.lanes.acquire(key, an_owner("new"))
    assert await store.events.append(successor, news("new-1")) == 3
    with pytest.raises(LaneLost):
        await store.events.append(lane, news("late"))
    assert names_of(await all_events(store, key)) == ["old-1", "old-2", "new-1"]


async def test_a_repeated_commit_writes_its_events_once(store: Store) -> None:
    """The repeat names the first sequence, also after others have written."""
    key, _ = await a_session(store)
    commit = a_commit(key, events=news("a", "b"))
    first = await store.commit(commit)
    await write_events(store, key, "c")
    assert (await store.commit(commit)).event_seq == first.event_seq == 2
    assert names_of(await all_events(store, key)) == ["a", "b", "c"]


async def test_a_batch_that_names_where_the_stream_stands_is_not_written_twice(store: Store) -> None:
    """The lost reply of a batch is resolved by reading on."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    assert await store.events.append(lane, news("a", "b"), after=0) == 2
    before = await store.dump()
    with pytest.raises(VersionConflict) as refused:
        await store.events.append(lane, news("a", "b"), after=0)
    assert (refused.value.expected, refused.value.found) == (0, 2)
    assert await store.dump() == before
    assert await store.events.append(lane, news("c"), after=2) == 3


async def test_an_empty_or_unnamed_batch_is_refused(store: Store) -> None:
    """Nothing is numbered that nobody can read."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    before = await store.dump()
    for events in ([], [NewEvent(type="")]):
        with pytest.raises(InvalidInput):
            await store.events.append(lane, events)
    assert await store.dump() == before


async def test_a_batch_needs_an_armed_lane(store: Store) -> None:
    """Neither one of an unused id nor a disarmed one is."""
    lane: Lane = await store.lanes.acquire(a_key(), an_owner())
    await store.lanes.disarm(lane)
    before = await store.dump()
    for tried in (lane, replace(lane, key=a_key())):
        with pytest.raises(LaneLost):
            await store.events.append(tried, news("late"))
    assert await store.dump() == before


@pytest.mark.parametrize("by", ["count", "age"])
async def test_below_the_retention_floor_a_reader_is_told(harness: Harness, by: str) -> None:
    """Below it `truncated` with the floor and what is left; at the floor and above as ever."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    untouched, _ = await a_session(store)
    await write_events(store, untouched, "kept")
    await write_events(store, key, "a", "b")
    await write_events(store, key, "c")
    clock.advance(100)
    await write_events(store, untouched, "kept too")
    await write_events(store, key, "d")
    await write_events(store, key, "e", "f")
    if by == "count":
        report = await store.upkeep.prune(events_keep=3)
        assert report.events == 3
        assert names_of(await all_events(store, untouched)) == ["kept", "kept too"]
    else:
        report = await store.upkeep.prune(events_older_than=50)
        assert report.events == 4
        assert names_of(await all_events(store, untouched)) == ["kept too"]
    for after in range(7):
        page = await store.events.read(key, after=after)
        assert (page.floor, page.truncated, page.tail) == (3, after < 3, 6)
        assert names_of(page.events) == list("abcdef")[max(after, 3) :]
        if after < 6:
            async with subscribed(store, key, after=after) as reader:
                assert await reader.page() == page


async def test_a_floor_inside_a_batch_cuts_there(store: Store) -> None:
    """The row stays while one of its events is above the floor, its others are not shown."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b", "c", "d")
    report = await store.upkeep.prune(events_keep=1)
    assert report.events == 0
    page = await store.events.read(key, after=1)
    assert (names_of(page.events), page.truncated, page.floor) == (["d"], True, 3)
    assert not (await store.events.read(key, after=3)).truncated


async def test_a_stream_pruned_empty_is_truncated_until_its_tail(store: Store) -> None:
    """The subscriber gets neither silence nor an ordinary empty page; numbering continues."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b")
    assert (await store.upkeep.prune(events_keep=0)).events == 2
    page = await store.events.read(key, after=1)
    assert (page.events, page.truncated, page.floor, page.next) == ((), True, 2, 2)
    assert not (await store.events.read(key, after=2)).truncated
    assert await write_events(store, key, "c") == 3


async def test_a_head_carries_the_event_number_of_its_own_instant(store: Store) -> None:
    """Subscribing after it gives each later event exactly once."""
    key, _ = await a_session(store, None, message("one"))
    await write_events(store, key, "a", "b")
    async with asyncio.timeout(30):
        commits = [store.commit(a_save(key, message(str(n)), events=news(f"said-{n}"))) for n in range(10)]
        tasks = [asyncio.create_task(commit) for commit in commits]
        heads = []
        while not all(task.done() for task in tasks):
            heads.append(await store.head(key))
            await asyncio.sleep(0)  # a memory store answers without giving way
        await asyncio.gather(*tasks)
    for head in {head.event_seq: head for head in heads if head}.values():
        # Every save of this session wrote one event, so a head of one instant has as many of both.
        assert head.event_seq - 2 == head.counts["messages"] - 1 == head.version - 1
        async with subscribed(store, key, after=head.event_seq) as reader:
            if head.event_seq < 12:
                assert [event.seq for event in await reader.upto(12)] == list(range(head.event_seq + 1, 13))


async def test_pruned_chunks_of_a_run_that_is_over_leave_one_mark_for_each_stretch(harness: Harness) -> None:
    """What was elided keeps its numbers, everything else stays, and no run under way is touched."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    fence = {"generation": lane.generation, "life": lane.life}
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=an_id("inv"))
    await store.commit(a_commit(key, run=begin, events=(NewEvent(type="run_started"),), **fence))
    chunks = [NewEvent(type="chunk", data={"n": n}) for n in range(7)]
    await store.events.append(lane, chunks[:3], run=run)
    await store.events.append(lane, chunks[3:5], run=run)
    await store.commit(a_commit(key, run=run, events=(*chunks[5:6], NewEvent(type="reply_saved")), **fence))
    await store.events.append(lane, chunks[6:], run=run)
    tail = (await store.events.read(key)).tail
    clock.advance(100)
    assert (await store.upkeep.prune(chunks_older_than=10)).chunks == 0
    end = EndRun(status=RunStatus.COMPLETED)
    await store.commit(a_commit(key, run=run, end=end, events=(NewEvent(type="run_ended"),), **fence))
    assert (await store.upkeep.prune(chunks_older_than=101)).chunks == 0
    clock.advance(1)
    assert (await store.upkeep.prune(chunks_older_than=10)) == PruneReport(chunks=7)
    kept = await all_events(store, key)
    start = tail - 8
    assert [(event.seq, event.type, event.data) for event in kept] == [
        (start, "run_started", None),
        (start + 6, "elided", {"from": start + 1, "to": start + 6}),
        (start + 7, "reply_saved", None),
        (start + 8, "elided", {"from": start + 8, "to": start + 8}),
        (start + 9, "run_ended", None),
    ]
    assert await all_events(store, key, after=start + 3) == kept[1:]
    assert await all_events(store, key, after=start + 6) == kept[2:]
    assert (await store.upkeep.prune(chunks_older_than=0)) == PruneReport()
    assert await all_events(store, key) == kept
