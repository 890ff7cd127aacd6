"""Input that falls due: which sessions to wake, when, and what a query costs."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import InvalidInput
from tenuto.model.input import Consume, InputKind, NewInput, Nothing
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.store.host import this_process
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_key, a_session, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements
from tenuto.testing.scenes.inbox_scene import (
    AFTER,
    BEFORE,
    LATER,
    a_command,
    a_live_run,
    a_message,
    an_ending,
    ids_of,
    send,
)


async def test_future_input_only_gives_the_next_due_time_and_never_empty(harness: Harness) -> None:
    """By due time or delay, in the database's time; due input passes it meanwhile."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    assert (await store.inbox.next(a_key())).reason is Nothing.EMPTY
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY
    far, near = await send(store, key, a_message("far", due_at=LATER), a_message("near", delay=30.0))
    assert near.due_at == near.created_at + timedelta(seconds=30)
    may = await store.inbox.next(key)
    assert (may.inputs, may.reason, may.due_at) == ((), Nothing.NOT_DUE, near.due_at)
    (now,) = await send(store, key, a_message("now"))
    assert ids_of((await store.inbox.next(key)).inputs) == [now.input_id]
    await store.inbox.cancel(key, [now.input_id])
    clock.advance(30)
    assert ids_of((await store.inbox.next(key)).inputs) == [near.input_id]
    await store.inbox.cancel(key, [near.input_id])
    assert (await store.inbox.next(key)).due_at == far.due_at
    await store.inbox.cancel(key, [far.input_id])
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY


@needs(Capability.PROBES)
async def test_the_stamp_tells_whether_any_input_is_open(harness: Harness) -> None:
    """In its one read; due or not, for a turn or a run, of this session and life only."""
    store = await harness.open()
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await send(store, other, a_message("theirs"))

    async def has_input(asked: SessionKey = key) -> bool:
        with statements(store) as seen:
            stamp = await store.stamp(asked)
        assert seen == ["stamp_by_key"]
        assert stamp is not None
        assert type(stamp.has_input) is bool
        return stamp.has_input

    assert (await has_input(), await has_input(other)) == (False, True)
    (future,) = await send(store, key, a_message("a", due_at=LATER))
    assert await has_input()
    await store.inbox.cancel(key, [future.input_id])
    assert not await has_input()
    lane, run = await a_live_run(store, key)
    (bound,) = await send(store, key, a_message("b", boundary=AFTER))
    assert await has_input()
    await store.commit(an_ending(key, lane, run, consume=(Consume(input_id=bound.input_id),)))
    assert not await has_input()
    await send(store, key, a_message("c"))
    await store.delete(key)
    assert await store.stamp(key) is None
    await a_session(store, key=key)
    assert not await has_input()


async def test_the_stamp_tells_whether_input_is_for_a_boundary(store: Store) -> None:
    """What waits for the next turn does not count, and what was consumed or left to it counts no more."""
    key, _ = await a_session(store)

    async def steers() -> bool:
        stamp = await store.stamp(key)
        assert stamp is not None
        return stamp.steers

    await send(store, key, a_message("turn"))
    assert await steers() is False
    lane, run = await a_live_run(store, key)
    taken, _ = await send(store, key, a_message("step", boundary=AFTER), a_message("end", boundary=BEFORE))
    claims = (Consume(input_id=taken.input_id),)
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    assert await steers() is True
    await store.commit(an_ending(key, lane, run))
    assert await steers() is False


@needs(Capability.PROBES)
async def test_the_first_input_is_the_one_to_take_between_turns(harness: Harness) -> None:
    """In one read, and never another than `next` gives; None where that has a reason."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    await a_live_run(store, key)
    await send(store, key, a_message("step", boundary=AFTER), a_message("far", delay=60.0))
    for expected in (None, "near", "far"):
        if expected == "near":
            await send(store, key, a_message("near"), a_command("behind"))
        with statements(store) as seen:
            first = await store.inbox.first(key)
        assert seen == ["first_input"]
        assert (first and first.body) == (expected and {"text": expected})
        assert (await store.inbox.next(key)).inputs == ((first,) if first else ())
        clock.advance(60 if expected == "near" else 0)
    assert await store.inbox.first(a_key()) is None


async def test_a_bounded_scan_is_not_filled_by_what_cannot_be_taken(store: Store) -> None:
    """Consumed, future and bound rows before it do not hide a later one."""
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    consumed = await send(store, key, *(a_message(str(n), boundary=AFTER) for n in range(5)))
    claims = tuple(Consume(input_id=each.input_id) for each in consumed)
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    await send(store, key, *(a_message("far", due_at=LATER) for _ in range(3)), a_message("done", boundary=BEFORE))
    last, step = await send(store, key, a_message("last"), a_message("step", boundary=AFTER))
    assert ids_of((await store.inbox.next(key, limit=1)).inputs) == [last.input_id]
    assert ids_of((await store.inbox.next(key, boundary=AFTER, limit=1)).inputs) == [step.input_id]


@needs(Capability.PROBES)
async def test_looking_into_an_inbox_writes_nothing(store: Store) -> None:
    """Neither with something to take nor without; an unknown session is not created by asking."""
    key, _ = await a_session(store)
    await send(store, key, a_message("a"))
    async with unchanged(store):
        with statements(store) as seen:
            for asked in (key, a_key()):
                await store.inbox.next(asked)
                await store.inbox.next(asked, boundary=AFTER)
                await store.inbox.first(asked)
                await store.inbox.list(asked)
            await store.inbox.due()
    reads = {"first_input", "session_by_key", "inbox_look", "due_inputs", "open_inputs", "due_sessions"}
    assert set(seen) == reads


async def test_due_names_active_sessions_with_due_input_that_nobody_works_on(harness: Harness) -> None:
    """No empty inbox, no future input, no held lane, no closed session; every kind counts, and a dead run's."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    assert await store.inbox.due() == ()
    empty, future, held, closed, message, command, wake, orphan = [(await a_session(store))[0] for _ in range(8)]
    await send(store, future, a_message("f", delay=3600.0))
    await send(store, closed, a_message("c"))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    await send(store, message, a_message("m"))
    await send(store, command, a_command("c"))
    await send(store, wake, NewInput(kind=InputKind.WAKE, body=None, delay=10.0))
    await a_live_run(store, orphan)
    await send(store, orphan, a_message("o", boundary=AFTER))
    clock.advance(20)  # the orphan's lane lapses
    await store.lanes.acquire(held, an_owner())
    await send(store, held, a_message("h"))
    assert set(await store.inbox.due()) == {message, command, wake, orphan}
    clock.advance(3600)
    assert set(await store.inbox.due()) == {future, held, message, command, wake, orphan}
    assert empty not in await store.inbox.due()


async def test_sessions_with_due_input_whose_holder_is_proven_gone_are_stranded(harness: Harness) -> None:
    """Held by a dead process of this host: yes, oldest lane first; by a live one, by nobody, or without due input: no.

    A lane that has lapsed, or lost its dead holder, is named by `due` again. Reads only.
    """
    clock = FakeClock()
    store = await harness.open(clock=clock)
    here = this_process()
    alive = replace(an_owner(), host=here)
    dead = replace(an_owner(), host=replace(here, started=(here.started or 0) - 1))
    second, first, living, unproven, free, idle, later, closed = [(await a_session(store))[0] for _ in range(8)]
    for key, owner, ttl in (
        (second, dead, 9),
        (first, dead, 6),
        (living, alive, 9),
        (unproven, an_owner(), 9),
        (idle, dead, 9),
        (later, dead, 9),
    ):
        await store.lanes.acquire(key, owner, ttl=ttl)
    for key in (second, first, living, unproven, free, closed):
        await send(store, key, a_message("m"))
    await send(store, later, a_message("l", delay=3600.0))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    await store.lanes.acquire(closed, dead)
    async with unchanged(store):
        assert list(await store.inbox.stranded()) == [first, second]
        assert list(await store.inbox.stranded(limit=1)) == [first]
        assert await store.inbox.due() == (free,)
    await store.lanes.acquire(first, alive)
    assert list(await store.inbox.stranded()) == [second]
    clock.advance(10)
    assert list(await store.inbox.stranded()) == []
    assert second in await store.inbox.due()


async def test_the_next_due_time_is_when_due_will_name_a_session(harness: Harness) -> None:
    """The first of all sessions; at that instant `due` names it, and not a microsecond before. Reads only."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    assert await store.inbox.next_due() is None
    far, near, held, closed = [(await a_session(store))[0] for _ in range(4)]
    await send(store, closed, a_message("c"))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    assert await store.inbox.next_due() is None
    await send(store, far, a_message("f", delay=3600.0))
    (soon,) = await send(store, near, a_message("n", delay=30.0))
    lane = await store.lanes.acquire(held, an_owner(), ttl=20)
    (waiting,) = await send(store, held, a_message("h"))
    for expected, named in ((lane.expires_at, held), (soon.due_at, near)):
        async with unchanged(store):
            due = await store.inbox.next_due()
        assert due is not None
        assert due == expected
        clock.advance((due - to_datetime(clock.now())).total_seconds() - 0.000001)
        assert await store.inbox.due() == ()
        clock.advance(0.000001)
        assert await store.inbox.due() == (named,)
        for sent in await store.inbox.list(named):
            await store.inbox.cancel(named, [sent.input_id])
    assert waiting.due_at is None
    await store.lanes.disarm(await store.lanes.acquire(near, an_owner(), ttl=600))
    (now,) = await send(store, near, a_message("now"))
    assert await store.inbox.next_due() == now.created_at
    assert await store.inbox.due() == (near,)


async def test_due_comes_in_pages_that_name_each_session_once(store: Store) -> None:
    """A session comes once, however much input it has."""
    keys = [(await a_session(store))[0] for _ in range(5)]
    for key in keys:
        await send(store, key, *(a_message(str(n)) for n in range(3)))
    seen: list[SessionKey] = []
    after = None
    while True:
        page = await store.inbox.due(limit=2, after=after)
        seen += page
        after = page.next
        if after is None:
            break
        assert len(page) == 2
    assert seen == keys
    with pytest.raises(InvalidInput):
        await store.inbox.due(after="soon")
