"""Schedules: messages that fall due again and again, queued once for each occurrence."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import InvalidInput, ScheduleNotFound, SessionNotFound, StatusRefused
from tenuto.model.commit import EndRun, OpenWait, SettleWait
from tenuto.model.input import Input, InputKind, NewInput
from tenuto.model.run import RunStatus
from tenuto.model.schedule import Missed, NewSchedule, Schedule, WhenWaiting
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.model.wait import WaitStatus
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, unchanged
from tenuto.testing.factories import a_commit, a_key, a_session
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements
from tenuto.testing.scenes.inbox_scene import a_live_run

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY = 86_400.0
MOST_AT_ONCE = 100
MOST_SCHEDULES = 100


def nightly(**parts: Any) -> NewSchedule:
    """Return a schedule for every night in Vienna."""
    fixed = {"name": "nightly", "body": {"message": "report"}, "cron": "0 3 * * *", "tz": "Europe/Vienna"}
    return NewSchedule(**(fixed | parts))


async def _opened(harness: Harness) -> tuple[Store, FakeClock, SessionKey]:
    clock = FakeClock(START)
    store = await harness.open(clock=clock)
    return store, clock, (await a_session(store))[0]


async def _only(store: Store, key: SessionKey) -> Schedule:
    (found,) = await store.schedules.of_session(key)
    return found


async def _keys(store: Store, key: SessionKey) -> list[str | None]:
    return [each.input_key for each in await store.inbox.list(key)]


async def _taken(store: Store, key: SessionKey) -> list[Input]:
    """Settle what is in the inbox, as a turn would; return it."""
    found = await store.inbox.list(key)
    await store.inbox.cancel(key, [each.input_id for each in found])
    return list(found)


def _missed(inputs: Any) -> list[int]:
    return [each.body["schedule"]["missed"] for each in inputs]


async def _suspended(store: Store, key: SessionKey) -> str:
    """Have the session wait for an answer; return the wait's id."""
    lane, run = await a_live_run(store, key)
    receipt = await store.commit(
        a_commit(
            key,
            generation=lane.generation,
            run=run,
            open_waits=(OpenWait(kind="approval"),),
            end=EndRun(status=RunStatus.SUSPENDED),
        )
    )
    return receipt.wait_ids[0]


async def test_a_declared_schedule_reads_back_after_reopen(harness: Harness) -> None:
    """With its next occurrence; of this session only, by name."""
    store, _, key = await _opened(harness)
    other, _ = await a_session(store)
    every = NewSchedule(name="a", body={"n": 1}, every=90, missed=Missed.ALL, when_waiting=WhenWaiting.SKIP)
    made = [await store.schedules.declare(key, each) for each in (nightly(), every)]
    await store.schedules.declare(other, nightly())
    reopened = await harness.open()
    first, second = await reopened.schedules.of_session(key)
    assert [second, first] == made
    assert (first.name, first.body, first.every, first.cron, first.tz) == ("a", {"n": 1}, 90.0, None, "UTC")
    assert (first.missed, first.when_waiting, first.anchor) == (Missed.ALL, WhenWaiting.SKIP, START)
    assert first.next_at == START + timedelta(seconds=90)
    assert (second.key, second.cron, second.tz) == (key, "0 3 * * *", "Europe/Vienna")
    assert second.next_at == datetime(2030, 1, 2, 2, tzinfo=UTC)
    assert (second.fired_at, second.input_id, second.paused) == (None, None, None)
    assert await store.schedules.of_session(a_key()) == []


async def test_the_same_words_again_change_nothing_and_others_replace_it(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    first = await store.schedules.declare(key, nightly())
    clock.advance(60)
    async with unchanged(store):
        assert await store.schedules.declare(key, nightly()) == first
    others = [
        nightly(body={"message": "other"}),
        nightly(cron="0 4 * * *"),
        nightly(tz="UTC"),
        nightly(missed=Missed.NONE),
        nightly(when_waiting=WhenWaiting.ABANDON),
        nightly(cron=None, every=60.0),
    ]
    for other in others:
        clock.advance(1)
        changed = await store.schedules.declare(key, other)
        assert await _only(store, key) == changed
        assert changed.anchor > first.anchor
    assert changed.next_at == changed.anchor + timedelta(seconds=60)


async def test_an_occurrence_is_queued_once_and_the_schedule_moves_on(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    declared = await store.schedules.declare(key, nightly())
    assert await store.schedules.due() == []
    assert (await store.schedules.fire(key, "nightly")).inputs == ()
    clock.advance((declared.next_at - START).total_seconds())
    assert await store.schedules.due() == [declared]
    (queued,) = (await store.schedules.fire(key, "nightly")).inputs
    assert await store.inbox.list(key) == (queued,)
    assert (queued.input_key, queued.kind) == ("schedule:nightly:2030-01-02T02:00:00Z", InputKind.MESSAGE)
    about = {"name": "nightly", "at": "2030-01-02T02:00:00Z", "missed": 0, "when_waiting": "hold"}
    assert queued.body == {"message": "report", "schedule": about}
    moved = await _only(store, key)
    assert moved.next_at == datetime(2030, 1, 3, 2, tzinfo=UTC)
    assert (moved.fired_at, moved.input_id) == (declared.next_at, queued.input_id)
    event = (await store.events.read(key)).events[-1]
    assert (event.seq, event.type) == (queued.seq, "input_queued")
    assert event.data == {"input_id": queued.input_id, "kind": "message", "schedule": "nightly"}
    async with unchanged(store):
        assert (await store.schedules.fire(key, "nightly")).inputs == ()


async def test_of_many_that_fire_at_once_one_queues(harness: Harness) -> None:
    clock = FakeClock(START)
    stores = [await harness.open(clock=clock) for _ in range(2)]
    key, _ = await a_session(stores[0])
    await stores[0].schedules.declare(key, nightly())
    for _ in range(3):
        clock.advance(DAY)
        fired = await asyncio.gather(*(store.schedules.fire(key, "nightly") for store in stores * 4))
        assert sum(len(each.inputs) for each in fired) == 1
        assert len(await _taken(stores[0], key)) == 1


async def test_an_occurrence_whose_key_is_known_counts_as_fired(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    mine = NewInput(kind=InputKind.MESSAGE, body={"message": "by hand"}, key="schedule:nightly:2030-01-02T02:00:00Z")
    await store.inbox.enqueue(key, mine)
    clock.advance(DAY)
    assert (await store.schedules.fire(key, "nightly")).inputs == ()
    assert len(await store.inbox.list(key)) == 1
    assert (await _only(store, key)).next_at == datetime(2030, 1, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("missed", "fired", "counts"),
    [(Missed.LATEST, [4], [2]), (Missed.ALL, [2, 3, 4], [0, 0, 0]), (Missed.NONE, [], [])],
)
async def test_after_an_outage_of_three_days(
    harness: Harness, missed: Missed, fired: list[int], counts: list[int]
) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly(missed=missed))
    clock.advance(3 * DAY)
    done = (await store.schedules.fire(key, "nightly")).inputs
    assert [each.input_key for each in done] == [f"schedule:nightly:2030-01-0{day}T02:00:00Z" for day in fired]
    assert _missed(done) == counts
    assert (await _only(store, key)).next_at == datetime(2030, 1, 5, 2, tzinfo=UTC)
    await _taken(store, key)
    clock.advance(14 * 3600 + 30)
    assert _missed((await store.schedules.fire(key, "nightly")).inputs) == [0]


async def test_all_that_was_missed_is_made_up_for_up_to_a_bound(harness: Harness) -> None:
    """The newest; the first of them says how many were left out."""
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly(cron="* * * * *", missed=Missed.ALL))
    clock.advance(150 * 60)
    done = (await store.schedules.fire(key, "nightly")).inputs
    assert len(done) == MOST_AT_ONCE
    assert _missed(done) == [150 - MOST_AT_ONCE] + [0] * (MOST_AT_ONCE - 1)
    assert done[-1].input_key == "schedule:nightly:2030-01-01T14:30:00Z"
    assert [each.seq for each in done] == list(range(done[0].seq, done[0].seq + MOST_AT_ONCE))
    assert (await store.stamp(key)).event_seq == done[-1].seq  # type: ignore[union-attr]


async def test_it_waits_while_its_last_message_is_in_the_inbox(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    clock.advance(DAY)
    await store.schedules.fire(key, "nightly")
    clock.advance(2 * DAY)
    async with unchanged(store):
        assert await store.schedules.due() == []
        assert (await store.schedules.fire(key, "nightly")).inputs == ()
    await _taken(store, key)
    assert [each.name for each in await store.schedules.due()] == ["nightly"]
    assert _missed((await store.schedules.fire(key, "nightly")).inputs) == [1]


async def test_a_session_that_waits_holds_it(harness: Harness) -> None:
    """The wait stays open; once it is settled, the occurrence is made up for."""
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    wait_id = await _suspended(store, key)
    clock.advance(DAY)
    async with unchanged(store):
        assert await store.schedules.due() == []
        assert (await store.schedules.fire(key, "nightly")).inputs == ()
    await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=wait_id, status=WaitStatus.ANSWERED),)))
    assert [each.name for each in await store.schedules.due()] == ["nightly"]
    assert len((await store.schedules.fire(key, "nightly")).inputs) == 1


async def test_a_session_that_waits_has_it_left_out_or_is_abandoned_if_so_declared(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly(name="skip", when_waiting=WhenWaiting.SKIP))
    await store.schedules.declare(key, nightly(name="abandon", when_waiting=WhenWaiting.ABANDON))
    await _suspended(store, key)
    clock.advance(DAY)
    assert [each.name for each in await store.schedules.due()] == ["abandon", "skip"]
    assert (await store.schedules.fire(key, "skip")).inputs == ()
    assert len((await store.schedules.fire(key, "abandon")).inputs) == 1
    assert {each.next_at for each in await store.schedules.of_session(key)} == {datetime(2030, 1, 3, 2, tzinfo=UTC)}


async def test_a_session_that_is_not_active_pauses_it_with_a_reason(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    await store.commit(a_commit(key, status=SessionStatus.COMPLETED))
    clock.advance(DAY)
    assert (await store.schedules.fire(key, "nightly")).paused == "The session is completed."
    assert (await _only(store, key)).paused == "The session is completed."
    assert (await store.events.read(key)).events[-1].data == {
        "name": "nightly",
        "next_at": "2030-01-02T02:00:00Z",
        "paused": "The session is completed.",
    }
    async with unchanged(store):
        assert await store.schedules.due() == []
        assert (await store.schedules.fire(key, "nightly")).paused is None
        for verb in (store.schedules.declare(key, nightly(tz="UTC")), store.schedules.resume(key, "nightly")):
            with pytest.raises(StatusRefused):
                await verb
    await store.commit(a_commit(key, status=SessionStatus.ACTIVE))
    assert (await store.schedules.resume(key, "nightly")).next_at == datetime(2030, 1, 3, 2, tzinfo=UTC)


async def test_what_a_pause_left_out_was_not_missed(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    declared = await store.schedules.declare(key, nightly())
    paused = await store.schedules.pause(key, "nightly", "holidays")
    assert paused == replace(declared, paused="holidays")
    async with unchanged(store):
        assert await store.schedules.pause(key, "nightly", "other") == paused
        assert await store.schedules.declare(key, nightly()) == paused
    clock.advance(5 * DAY)
    assert await store.schedules.due() == []
    resumed = await store.schedules.resume(key, "nightly")
    assert resumed == replace(declared, next_at=datetime(2030, 1, 7, 2, tzinfo=UTC))
    async with unchanged(store):
        assert await store.schedules.resume(key, "nightly") == resumed
    clock.advance(DAY)
    assert _missed((await store.schedules.fire(key, "nightly")).inputs) == [0]


async def test_a_removed_one_is_gone_and_its_message_stays(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    clock.advance(DAY)
    await store.schedules.fire(key, "nightly")
    assert await store.schedules.remove(key, "nightly")
    async with unchanged(store):
        assert not await store.schedules.remove(key, "nightly")
        assert not await store.schedules.remove(a_key(), "nightly")
        assert (await store.schedules.fire(key, "nightly")).inputs == ()
        for verb in (store.schedules.pause, store.schedules.resume):
            with pytest.raises(ScheduleNotFound):
                await verb(key, "nightly")
            with pytest.raises(SessionNotFound):
                await verb(a_key(), "nightly")
    assert await _keys(store, key) == ["schedule:nightly:2030-01-02T02:00:00Z"]


async def test_a_deleted_session_takes_its_schedules_with_it(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    await store.schedules.declare(key, nightly(name="b"))
    assert (await store.delete(key)).schedules == 2
    await store.create(key)
    clock.advance(DAY)
    assert await store.schedules.of_session(key) == []
    assert await store.schedules.due() == []
    with pytest.raises(SessionNotFound):
        await store.schedules.declare(a_key(), nightly())


async def test_a_fork_does_not_take_schedules(harness: Harness) -> None:
    store, _, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    fork = a_key()
    await store.fork(key, fork)
    assert await store.schedules.of_session(fork) == []
    assert len(await store.schedules.of_session(key)) == 1


async def test_the_number_of_schedules_has_a_bound(harness: Harness) -> None:
    store, _, key = await _opened(harness)
    for n in range(MOST_SCHEDULES):
        await store.schedules.declare(key, nightly(name=f"s{n}"))
    async with unchanged(store):
        with pytest.raises(InvalidInput, match="remove one first"):
            await store.schedules.declare(key, nightly())
    await store.schedules.declare(key, nightly(name="s0", tz="UTC"))


@needs(Capability.PROBES)
async def test_malformed_schedules_are_refused_before_any_statement(store: Store) -> None:
    key, _ = await a_session(store)
    wrong = {
        "no name": nightly(name=""),
        "long name": nightly(name="n" * 256),
        "no time": nightly(cron=None),
        "both times": nightly(every=60.0),
        "too often": nightly(cron=None, every=0.5),
        "not a number": nightly(cron=None, every=float("nan")),
        "a truth": nightly(cron=None, every=True),
        "bad cron": nightly(cron="often"),
        "seconds": nightly(cron="0 0 3 * * *"),
        "never": nightly(cron="0 0 30 2 *"),
        "zone": nightly(tz="Europe/Wien"),
        "missed": nightly(missed="some"),
        "waiting": nightly(when_waiting="never"),
        "body": nightly(body="text"),
        "not JSON": nightly(body={"message": object()}),
    }
    given: dict[str, Any] = {**wrong, "not one": {"name": "nightly"}}
    calls = {name: (lambda new=new: store.schedules.declare(key, new)) for name, new in given.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_firing_leaves_nothing(harness: Harness) -> None:
    store, clock, key = await _opened(harness)
    await store.schedules.declare(key, nightly())
    clock.advance(DAY)

    fired, failed = await fail_at_each_statement(store, lambda: store.schedules.fire(key, "nightly"))
    assert len(fired.inputs) == 1
    assert {"move_schedules", "insert_inputs", "insert_events", "take_number"} <= set(failed)
