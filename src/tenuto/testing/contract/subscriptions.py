"""Subscribing to a stream: stored events, then live ones, each exactly once, and no busy waiting."""

import asyncio

from tenuto.model.commit import BeginRun
from tenuto.model.event import Event
from tenuto.model.run import RunRef
from tenuto.store.store import Store
from tenuto.testing.factories import a_key, a_save, a_session, an_id, an_owner, message
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements
from tenuto.testing.scenes.event_scene import all_events, names_of, news, subscribed, write_events


async def test_a_subscriber_learns_of_a_delete_and_then_gets_the_next_life(store: Store) -> None:
    """It neither hangs nor takes the next life's events for a continuation."""
    key, _ = await a_session(store)
    await write_events(store, key, "old")
    async with subscribed(store, key) as reader:
        assert names_of((await reader.page()).events) == ["old"]
        waiting = asyncio.create_task(reader.page())
        await store.delete(key)
        page = await waiting
        assert (page.events, page.truncated) == ((), True)
        await a_session(store, key=key)
        await write_events(store, key, "new", life=2)
        assert names_of((await reader.page()).events) == ["new"]


async def test_subscribe_gives_stored_then_live_events_once_each(store: Store) -> None:
    """What is committed between the stored page and the wait is not lost and not repeated."""
    key, _ = await a_session(store)
    await write_events(store, key, "a", "b")
    async with subscribed(store, key, after=1) as reader:
        assert names_of((await reader.page()).events) == ["b"]
        await write_events(store, key, "c")
        await write_events(store, key, "d", "e")
        await reader.upto(5)
        waiting = asyncio.create_task(reader.upto(6))
        await write_events(store, key, "f")
        await waiting
        assert names_of(reader.events) == list("bcdef")
        assert [event.seq for event in reader.events] == [2, 3, 4, 5, 6]


async def test_subscribers_under_concurrent_writers_get_each_event_exactly_once(harness: Harness) -> None:
    """Begun at several heads of a growing stream, in the writer's store and in another one."""
    writer, other = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    readers: list[tuple[int, asyncio.Task[list[Event]]]] = []

    async def follow(store: Store, after: int) -> list[Event]:
        async with subscribed(store, key, after=after) as reader:
            return await reader.upto(24) if after < 24 else []

    for number in range(12):
        head = await writer.head(key)
        assert head is not None
        assert head.event_seq == 2 * number
        if number % 3 == 0:
            readers += [(head.event_seq, asyncio.create_task(follow(s, head.event_seq))) for s in (writer, other)]
        await write_events(writer, key, f"{number}-x", f"{number}-y")
    whole = await all_events(writer, key)
    assert [event.seq for event in whole] == list(range(1, 25))
    async with asyncio.timeout(20):
        for after, task in readers:
            assert await task == whole[after:]


async def test_a_subscriber_in_another_opened_store_is_woken(harness: Harness) -> None:
    """By commits and by batches of a store it does not share."""
    writer, other = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    lane = await writer.lanes.acquire(key, an_owner())
    async with subscribed(other, key) as reader:
        waiting = asyncio.create_task(reader.upto(1))
        await write_events(writer, key, "committed")
        await waiting
        waiting = asyncio.create_task(reader.upto(3))
        await writer.events.append(lane, news("batched-1", "batched-2"))
        await waiting
        assert names_of(reader.events) == ["committed", "batched-1", "batched-2"]


async def test_a_subscription_begun_while_another_store_writes_misses_nothing(harness: Harness) -> None:
    """The write lands around the subscriber's first read, and nothing is written after it; tried several times."""
    writer = await harness.open()
    for _ in range(6):
        key, _ = await a_session(writer)
        other = await harness.open()
        async with subscribed(other, key) as reader:
            _, events = await asyncio.gather(write_events(writer, key, "in between"), reader.upto(1))
        assert names_of(events) == ["in between"]
        await other.aclose()


async def test_a_subscriber_to_an_id_not_yet_used_gets_its_first_event(store: Store) -> None:
    """Subscribing creates nothing and misses nothing."""
    key = a_key()
    async with subscribed(store, key) as reader:
        waiting = asyncio.create_task(reader.upto(1))
        await a_session(store, key=key)
        await write_events(store, key, "first")
        assert names_of(await waiting) == ["first"]


async def test_a_subscriber_at_the_tail_waits_without_reading(store: Store) -> None:
    """Another session's events, and commits without events, give it nothing."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await write_events(store, key, "a")
    async with subscribed(store, key, after=1) as reader:
        waiting = asyncio.create_task(reader.page())
        await store.commit(a_save(key, message("no event")))
        for n in range(5):
            await write_events(store, other, f"elsewhere-{n}")
        assert not waiting.done()
        await write_events(store, key, "b")
        assert names_of((await waiting).events) == ["b"]


@needs(Capability.PROBES)
async def test_a_subscriber_at_the_tail_makes_no_statement_until_it_is_woken(harness: Harness) -> None:
    """Waiting is not busy polling; counted at the backend over many turns of the event loop."""
    store, writer = await harness.open(), await harness.open()
    key, _ = await a_session(writer)
    await write_events(writer, key, "a")
    async with subscribed(store, key) as reader:
        assert names_of((await reader.page()).events) == ["a"]
        with statements(store) as seen:
            waiting = asyncio.create_task(reader.page())
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(seen) <= 4  # one read, in case it was woken in between
            await write_events(writer, key, "b")
            assert names_of((await waiting).events) == ["b"]
        assert seen


async def test_reading_and_subscribing_by_run_give_that_runs_events(store: Store) -> None:
    """Numbers are the session's, so they have gaps here; pages and live events alike."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    await write_events(store, key, "begun", generation=lane.generation, run=begin)
    run = RunRef(run_id=begin.run_id)
    await write_events(store, key, "besides")
    await store.events.append(lane, news("chunk-1", "chunk-2"), run=run)
    await store.events.append(lane, news("of-no-run"))
    page = await store.events.read(key, run_id=run.run_id)
    assert names_of(page.events) == ["begun", "chunk-1", "chunk-2"]
    assert ([event.seq for event in page.events], page.next, page.tail) == ([1, 3, 4], 5, 5)
    assert await all_events(store, key, run_id=run.run_id, limit=1) == list(page.events)
    assert (await store.events.read(key, run_id="unknown")).events == ()
    async with subscribed(store, key, run_id=run.run_id) as reader:
        await reader.upto(4)
        waiting = asyncio.create_task(reader.page())
        await write_events(store, key, "besides again")
        await store.events.append(lane, news("chunk-3"), run=run)
        await waiting
        assert names_of(reader.events) == ["begun", "chunk-1", "chunk-2", "chunk-3"]
