"""The stream: numbered without gaps, replayed the same for everyone, live after what is stored."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import CursorBeyondTail, InvalidInput, LaneLost, VersionConflict
from tenuto.model.commit import BeginRun, EndRun
from tenuto.model.event import Event, EventPage, NewEvent
from tenuto.model.lane import Lane
from tenuto.model.report import PruneReport
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.clock import FakeClock
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner, message
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements


def _news(*names: str) -> tuple[NewEvent, ...]:
    return tuple(NewEvent(type=f"type-{name}", data={"name": name}) for name in names)


async def _write(store: Store, key: SessionKey, *names: str, **parts: Any) -> int:
    """Write events in a commit of their own; return the stream's last number."""
    return (await store.commit(a_commit(key, events=_news(*names), **parts))).event_seq


def _names(events: tuple[Event, ...] | list[Event]) -> list[str]:
    return [event.data["name"] for event in events]


async def _all(store: Store, key: SessionKey, **read: Any) -> list[Event]:
    """Read a stream page by page to its end."""
    found: list[Event] = []
    after = read.pop("after", 0)
    while True:
        page = await store.events.read(key, after=after, **read)
        found += page.events
        if page.next == page.tail:
            return found
        assert page.next > after
        after = page.next


class _Reader:
    """A subscription that a test takes pages from."""

    def __init__(self, pages: AsyncIterator[EventPage]) -> None:
        self._pages = pages
        self.events: list[Event] = []

    async def page(self) -> EventPage:
        async with asyncio.timeout(10):
            page = await anext(self._pages)
        self.events += page.events
        return page

    async def upto(self, seq: int) -> list[Event]:
        while not self.events or self.events[-1].seq < seq:
            await self.page()
        return self.events


@asynccontextmanager
async def _subscribed(store: Store, key: SessionKey, **subscribe: Any) -> AsyncIterator[_Reader]:
    pages = store.events.subscribe(key, **subscribe)
    async with aclosing(pages):  # type: ignore[type-var]
        yield _Reader(pages)


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
    await _write(store, key, "a", "b", "c")
    await _write(store, key, "d")
    for after, wanted in enumerate(("abcd", "bcd", "cd", "d", "")):
        page = await store.events.read(key, after=after)
        assert _names(page.events) == list(wanted)
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
        await _write(store, key, *(f"{size}-{n}" for n in range(size)))
    whole = await _all(store, key)
    assert [event.seq for event in whole] == list(range(1, 12))
    for limit in (1, 2, 3, 5, 6):
        assert await _all(store, key, limit=limit) == whole
    assert await _all(store, key, after=5, limit=1) == whole[5:]


async def test_a_page_of_nothing_leaves_the_cursor_where_it_was(store: Store) -> None:
    """A limit of 0 asks for the tail alone."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b")
    page = await store.events.read(key, after=1, limit=0)
    assert (page.events, page.next, page.tail) == ((), 1, 2)


@pytest.mark.parametrize("after", [-1, 2**53, 1.0, "1", True, None], ids=repr)
async def test_a_cursor_that_is_no_count_is_refused(store: Store, after: Any) -> None:
    """The refusal comes before anything is read."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b")
    with pytest.raises(InvalidInput):
        await store.events.read(key, after=after)


async def test_a_cursor_beyond_the_tail_is_refused(store: Store) -> None:
    """By read and by subscribe, for known and unknown sessions, never silent waiting."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b")
    for where, tail in ((key, 2), (a_key(), 0)):
        with pytest.raises(CursorBeyondTail) as refused:
            await store.events.read(where, after=tail + 1)
        assert (refused.value.cursor, refused.value.tail) == (tail + 1, tail)
        async with _subscribed(store, where, after=tail + 1) as reader:
            with pytest.raises(CursorBeyondTail):
                await reader.page()


async def test_a_cursor_of_a_former_life_is_told_that_the_stream_was_cut(store: Store) -> None:
    """Wherever it stood, it gets `truncated` and then the new life's events only, under numbers never used."""
    key, _ = await a_session(store)
    await _write(store, key, "old-1", "old-2", "old-3")
    await store.delete(key)
    for after in range(4):
        page = await store.events.read(key, after=after)
        assert (page.events, page.truncated) == ((), True)
    await a_session(store, key=key)
    first = await _write(store, key, "new-1", "new-2", life=2) - 1
    assert first > 4
    for after in range(4):
        page = await store.events.read(key, after=after)
        assert (_names(page.events), page.truncated, page.floor) == (["new-1", "new-2"], True, first - 1)
        assert [event.seq for event in page.events] == [first, first + 1]
    assert not (await store.events.read(key, after=first - 1)).truncated


async def test_a_subscriber_is_told_of_a_delete_and_then_gets_the_next_life(store: Store) -> None:
    """It neither hangs nor takes the next life's events for a continuation."""
    key, _ = await a_session(store)
    await _write(store, key, "old")
    async with _subscribed(store, key) as reader:
        assert _names((await reader.page()).events) == ["old"]
        waiting = asyncio.create_task(reader.page())
        await store.delete(key)
        page = await waiting
        assert (page.events, page.truncated) == ((), True)
        await a_session(store, key=key)
        await _write(store, key, "new", life=2)
        assert _names((await reader.page()).events) == ["new"]


async def test_subscribe_gives_stored_then_live_events_once_each(store: Store) -> None:
    """What is committed between the stored page and the wait is not lost and not repeated."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b")
    async with _subscribed(store, key, after=1) as reader:
        assert _names((await reader.page()).events) == ["b"]
        await _write(store, key, "c")
        await _write(store, key, "d", "e")
        await reader.upto(5)
        waiting = asyncio.create_task(reader.upto(6))
        await _write(store, key, "f")
        await waiting
        assert _names(reader.events) == list("bcdef")
        assert [event.seq for event in reader.events] == [2, 3, 4, 5, 6]


async def test_subscribers_under_concurrent_writers_get_each_event_exactly_once(harness: Harness) -> None:
    """Begun at several heads of a growing stream, in the writer's store and in another one."""
    writer, other = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    readers: list[tuple[int, asyncio.Task[list[Event]]]] = []

    async def follow(store: Store, after: int) -> list[Event]:
        async with _subscribed(store, key, after=after) as reader:
            return await reader.upto(24) if after < 24 else []

    for number in range(12):
        head = await writer.head(key)
        assert head is not None
        assert head.event_seq == 2 * number
        if number % 3 == 0:
            readers += [(head.event_seq, asyncio.create_task(follow(s, head.event_seq))) for s in (writer, other)]
        await _write(writer, key, f"{number}-x", f"{number}-y")
    whole = await _all(writer, key)
    assert [event.seq for event in whole] == list(range(1, 25))
    async with asyncio.timeout(20):
        for after, task in readers:
            assert await task == whole[after:]


async def test_a_subscriber_in_another_opened_store_is_woken(harness: Harness) -> None:
    """By commits and by batches of a store it does not share."""
    writer, other = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    lane = await writer.lanes.acquire(key, an_owner())
    async with _subscribed(other, key) as reader:
        waiting = asyncio.create_task(reader.upto(1))
        await _write(writer, key, "committed")
        await waiting
        waiting = asyncio.create_task(reader.upto(3))
        await writer.events.append(lane, _news("batched-1", "batched-2"))
        await waiting
        assert _names(reader.events) == ["committed", "batched-1", "batched-2"]


async def test_a_subscription_begun_while_another_store_writes_misses_nothing(harness: Harness) -> None:
    """The write lands around the subscriber's first look, and nothing is written after it; several times over."""
    writer = await harness.open()
    for _ in range(6):
        key, _ = await a_session(writer)
        other = await harness.open()
        async with _subscribed(other, key) as reader:
            _, events = await asyncio.gather(_write(writer, key, "in between"), reader.upto(1))
        assert _names(events) == ["in between"]
        await other.aclose()


async def test_a_subscriber_to_an_id_not_yet_used_gets_its_first_event(store: Store) -> None:
    """Subscribing creates nothing and misses nothing."""
    key = a_key()
    async with _subscribed(store, key) as reader:
        waiting = asyncio.create_task(reader.upto(1))
        await a_session(store, key=key)
        await _write(store, key, "first")
        assert _names(await waiting) == ["first"]


async def test_a_subscriber_at_the_tail_waits_without_reading(store: Store) -> None:
    """Another session's events, and commits without events, give it nothing."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await _write(store, key, "a")
    async with _subscribed(store, key, after=1) as reader:
        waiting = asyncio.create_task(reader.page())
        await store.commit(a_save(key, message("no event")))
        for n in range(5):
            await _write(store, other, f"elsewhere-{n}")
        assert not waiting.done()
        await _write(store, key, "b")
        assert _names((await waiting).events) == ["b"]


@needs(Capability.PROBES)
async def test_a_subscriber_at_the_tail_makes_no_statement_until_it_is_woken(harness: Harness) -> None:
    """Waiting is not busy polling; counted at the backend over many turns of the event loop."""
    store, writer = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    await _write(writer, key, "a")
    async with _subscribed(store, key) as reader:
        assert _names((await reader.page()).events) == ["a"]
        with statements(store) as seen:
            waiting = asyncio.create_task(reader.page())
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(seen) <= 4  # one look, should a wake have come meanwhile
            await _write(writer, key, "b")
            assert _names((await waiting).events) == ["b"]
        assert seen


async def test_reading_and_subscribing_by_run_give_that_runs_events(store: Store) -> None:
    """Numbers are the session's, so they have gaps here; pages and live events alike."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    await _write(store, key, "begun", generation=lane.generation, run=begin)
    run = RunRef(run_id=begin.run_id)
    await _write(store, key, "besides")
    await store.events.append(lane, _news("chunk-1", "chunk-2"), run=run)
    await store.events.append(lane, _news("of-no-run"))
    page = await store.events.read(key, run_id=run.run_id)
    assert _names(page.events) == ["begun", "chunk-1", "chunk-2"]
    assert ([event.seq for event in page.events], page.next, page.tail) == ([1, 3, 4], 5, 5)
    assert await _all(store, key, run_id=run.run_id, limit=1) == list(page.events)
    assert (await store.events.read(key, run_id="unknown")).events == ()
    async with _subscribed(store, key, run_id=run.run_id) as reader:
        await reader.upto(4)
        waiting = asyncio.create_task(reader.page())
        await _write(store, key, "besides again")
        await store.events.append(lane, _news("chunk-3"), run=run)
        await waiting
        assert _names(reader.events) == ["begun", "chunk-1", "chunk-2", "chunk-3"]


async def test_20_concurrent_commits_and_20_batches_number_without_gaps(harness: Harness) -> None:
    """They go through two stores; each writer's own events stay together, and refused ones leave no hole."""
    one, two = await harness.open(), await harness.open()
    key, _ = await a_session(one)
    lane = await one.lanes.acquire(key, an_owner())
    stale = replace(lane, generation=7)

    async def commit(n: int) -> int:
        return await _write((one, two)[n % 2], key, f"c{n}-0", f"c{n}-1")

    async def batch(n: int) -> int:
        return await (one, two)[n % 2].events.append(lane, _news(f"b{n}-0", f"b{n}-1", f"b{n}-2"))

    async def refused(n: int) -> int:
        with pytest.raises(LaneLost):
            await (one, two)[n % 2].events.append(stale, _news("never"))
        return 0

    async with asyncio.timeout(60):
        lasts = await asyncio.gather(*(verb(n) for n in range(20) for verb in (commit, batch, refused)))
    events = await _all(one, key)
    assert [event.seq for event in events] == list(range(1, 101))
    assert await _all(two, key, limit=7) == events
    writers = [name.split("-")[0] for name in _names(events)]
    order = sorted(set(writers), key=writers.index)
    assert len(order) == 40
    assert _names(events) == [f"{w}-{n}" for w in order for n in range(2 if w[0] == "c" else 3)]
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
    assert await store.events.append(lane, _news("old-1", "old-2")) == 2
    clock.advance(5)
    successor = await store.lanes.acquire(key, an_owner("new"))
    assert await store.events.append(successor, _news("new-1")) == 3
    with pytest.raises(LaneLost):
        await store.events.append(lane, _news("late"))
    assert _names(await _all(store, key)) == ["old-1", "old-2", "new-1"]


async def test_a_repeated_commit_writes_its_events_once(store: Store) -> None:
    """The repeat names the first sequence, also after others have written."""
    key, _ = await a_session(store)
    commit = a_commit(key, events=_news("a", "b"))
    first = await store.commit(commit)
    await _write(store, key, "c")
    assert (await store.commit(commit)).event_seq == first.event_seq == 2
    assert _names(await _all(store, key)) == ["a", "b", "c"]


async def test_a_batch_that_names_where_the_stream_stands_is_not_written_twice(store: Store) -> None:
    """The lost reply of a batch is resolved by reading on."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    assert await store.events.append(lane, _news("a", "b"), after=0) == 2
    before = await store.dump()
    with pytest.raises(VersionConflict) as refused:
        await store.events.append(lane, _news("a", "b"), after=0)
    assert (refused.value.expected, refused.value.found) == (0, 2)
    assert await store.dump() == before
    assert await store.events.append(lane, _news("c"), after=2) == 3


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
            await store.events.append(tried, _news("late"))
    assert await store.dump() == before


@pytest.mark.parametrize("by", ["count", "age"])
async def test_below_the_retention_floor_a_reader_is_told(harness: Harness, by: str) -> None:
    """Below it `truncated` with the floor and what is left; at the floor and above as ever."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    untouched, _ = await a_session(store)
    await _write(store, untouched, "kept")
    await _write(store, key, "a", "b")
    await _write(store, key, "c")
    clock.advance(100)
    await _write(store, untouched, "kept too")
    await _write(store, key, "d")
    await _write(store, key, "e", "f")
    if by == "count":
        report = await store.upkeep.prune(events_keep=3)
        assert report.events == 3
        assert _names(await _all(store, untouched)) == ["kept", "kept too"]
    else:
        report = await store.upkeep.prune(events_older_than=50)
        assert report.events == 4
        assert _names(await _all(store, untouched)) == ["kept too"]
    for after in range(7):
        page = await store.events.read(key, after=after)
        assert (page.floor, page.truncated, page.tail) == (3, after < 3, 6)
        assert _names(page.events) == list("abcdef")[max(after, 3) :]
        if after < 6:
            async with _subscribed(store, key, after=after) as reader:
                assert await reader.page() == page


async def test_a_floor_inside_a_batch_cuts_there(store: Store) -> None:
    """The row stays while one of its events is above the floor, its others are not shown."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b", "c", "d")
    report = await store.upkeep.prune(events_keep=1)
    assert report.events == 0
    page = await store.events.read(key, after=1)
    assert (_names(page.events), page.truncated, page.floor) == (["d"], True, 3)
    assert not (await store.events.read(key, after=3)).truncated


async def test_a_stream_pruned_empty_is_truncated_until_its_tail(store: Store) -> None:
    """The subscriber gets neither silence nor an ordinary empty page; numbers go on."""
    key, _ = await a_session(store)
    await _write(store, key, "a", "b")
    assert (await store.upkeep.prune(events_keep=0)).events == 2
    page = await store.events.read(key, after=1)
    assert (page.events, page.truncated, page.floor, page.next) == ((), True, 2, 2)
    assert not (await store.events.read(key, after=2)).truncated
    assert await _write(store, key, "c") == 3


async def test_a_head_carries_the_event_number_of_its_own_instant(store: Store) -> None:
    """Subscribing after it gives each later event exactly once."""
    key, _ = await a_session(store, None, message("one"))
    await _write(store, key, "a", "b")
    async with asyncio.timeout(30):
        commits = [store.commit(a_save(key, message(str(n)), events=_news(f"said-{n}"))) for n in range(10)]
        tasks = [asyncio.create_task(commit) for commit in commits]
        heads = []
        while not all(task.done() for task in tasks):
            heads.append(await store.head(key))
            await asyncio.sleep(0)  # a memory store answers without giving way
        await asyncio.gather(*tasks)
    for head in {head.event_seq: head for head in heads if head}.values():
        # Every save of this session wrote one event, so a head of one instant has as many of both.
        assert head.event_seq - 2 == head.counts["messages"] - 1 == head.version - 1
        async with _subscribed(store, key, after=head.event_seq) as reader:
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
    kept = await _all(store, key)
    start = tail - 8
    assert [(event.seq, event.type, event.data) for event in kept] == [
        (start, "run_started", None),
        (start + 6, "elided", {"from": start + 1, "to": start + 6}),
        (start + 7, "reply_saved", None),
        (start + 8, "elided", {"from": start + 8, "to": start + 8}),
        (start + 9, "run_ended", None),
    ]
    assert await _all(store, key, after=start + 3) == kept[1:]
    assert await _all(store, key, after=start + 6) == kept[2:]
    assert (await store.upkeep.prune(chunks_older_than=0)) == PruneReport()
    assert await _all(store, key) == kept
