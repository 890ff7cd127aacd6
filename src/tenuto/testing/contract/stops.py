"""Stops: a durable request on a run that returns at once, and that the first of it and the run's last commit wins."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import InvalidInput, OperationConflict, RunNotLive, StopRequested, StopWithdrawn
from tenuto.model.commit import BeginRun, Commit, EndRun, OpenWait, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.input import Boundary, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunRef, RunStatus, StopAnswer, StopKind
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements


async def _live_run(store: Store, key: SessionKey, *, laned: bool = True) -> tuple[Lane | None, RunRef]:
    lane = await store.lanes.acquire(key, an_owner()) if laned else None
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    await store.commit(a_commit(key, generation=lane.generation if lane else None, run=begin))
    return lane, run


def _of_run(key: SessionKey, lane: Lane | None, run: RunRef, status: RunStatus | None = None, **parts: Any) -> Commit:
    end = EndRun(status=status) if status else None
    return a_commit(key, generation=lane.generation if lane else None, run=run, end=end, **parts)


async def _found(store: Store, run: RunRef) -> Run:
    found = await store.runs.get(run.run_id)
    assert found is not None
    return found


@pytest.mark.parametrize("laned", [True, False])
async def test_a_stop_is_recorded_at_once_and_outlives_asker_and_runner(harness: Harness, laned: bool) -> None:
    """It is in the run's row and in the stream, also after a reopen and a takeover."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    _, run = await _live_run(store, key, laned=laned)
    assert (await _found(store, run)).stop is None
    before = await store.head(key)
    assert before is not None
    reply = await store.runs.request_stop(run.run_id, StopKind.INTERRUPT, "user pressed stop")
    assert (reply.answer, reply.status) == (StopAnswer.RECORDED, RunStatus.RUNNING)
    assert reply.stop is not None
    assert (reply.stop.kind, reply.stop.reason, reply.stop.seen_at) == ("interrupt", "user pressed stop", None)
    await store.aclose()
    clock.advance(60)
    reopened = await harness.open(clock=clock)
    assert (await _found(reopened, run)).stop == reply.stop
    (event,) = (await reopened.events.read(key, after=before.event_seq)).events
    told = {"run_id": run.run_id, "kind": "interrupt", "reason": "user pressed stop"}
    assert (event.type, event.data, event.run_id) == ("stop_requested", told, run.run_id)
    lane = await reopened.lanes.acquire(key, an_owner("worker-2")) if laned else None
    take = TakeRun(run_id=run.run_id, attempt=1)
    await reopened.commit(a_commit(key, generation=lane.generation if lane else None, run=take))
    assert (await _found(reopened, run)).stop == reply.stop
    with pytest.raises(StopRequested):
        await reopened.commit(_of_run(key, lane, RunRef(run_id=run.run_id, attempt=2), RunStatus.COMPLETED))


async def test_a_second_stop_changes_nothing_and_says_so(store: Store) -> None:
    """Asking twice gives one outcome; the first reason stays."""
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    first = await store.runs.request_stop(run.run_id, StopKind.INTERRUPT, "one")
    async with unchanged(store):
        again = await store.runs.request_stop(run.run_id, StopKind.INTERRUPT, "two")
    assert (again.answer, again.stop) == (StopAnswer.ALREADY, first.stop)


async def test_an_abort_takes_the_place_of_an_interrupt_and_not_the_other_way_round(store: Store) -> None:
    """The stronger of two stops counts, and has to be seen again."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id, StopKind.INTERRUPT, "one")
    await store.commit(_of_run(key, lane, run, sees_stop=True))
    aborted = await store.runs.request_stop(run.run_id, StopKind.ABORT, "two")
    assert aborted.answer is StopAnswer.RECORDED
    found = (await _found(store, run)).stop
    assert found is not None
    assert (found.kind, found.reason, found.seen_at) == (StopKind.ABORT, "two", None)
    async with unchanged(store):
        assert (await store.runs.request_stop(run.run_id)).answer is StopAnswer.ALREADY


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.SUSPENDED])
async def test_a_stopped_run_ends_neither_as_completed_nor_as_suspended(store: Store, status: RunStatus) -> None:
    """Refused whole, also where the runner's commit needed no look; interrupted and failed it may end."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.commit(_of_run(key, lane, run, steps=1))
    reply = await store.runs.request_stop(run.run_id, StopKind.ABORT)
    waits = (OpenWait(kind="signal"),) if status is RunStatus.SUSPENDED else ()
    async with unchanged(store):
        with pytest.raises(StopRequested) as refusal:
            await store.commit(_of_run(key, lane, run, status, open_waits=waits))
    assert (refusal.value.run_id, refusal.value.stop) == (run.run_id, reply.stop)
    assert refusal.value.category == "store_commit_failed"
    await store.commit(_of_run(key, lane, run, steps=2))  # anything but an end still lands
    await store.commit(_of_run(key, lane, run, RunStatus.INTERRUPTED, sees_stop=True))
    found = await _found(store, run)
    assert (found.status, found.steps) == (RunStatus.INTERRUPTED, 2)
    assert found.stop is not None
    assert found.stop.seen_at == found.ended_at


async def test_a_stop_never_hits_a_later_run(store: Store) -> None:
    """The next run of the session is not stopped, even in the same invocation."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id)
    await store.commit(_of_run(key, lane, run, RunStatus.INTERRUPTED))
    begin = BeginRun(run_id=an_id("run"), invocation_id=f"inv-{run.run_id}", fresh=False)
    assert lane is not None
    await store.commit(a_turn(key, lane, run=begin))
    later = await _found(store, RunRef(run_id=begin.run_id))
    assert (later.status, later.stop) == (RunStatus.COMPLETED, None)


@pytest.mark.parametrize("status", list(RunStatus)[1:])
async def test_a_stop_of_an_ended_run_says_how_it_ended(store: Store, status: RunStatus) -> None:
    """Nothing of it is recorded."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.commit(_of_run(key, lane, run, status))
    async with unchanged(store):
        for call in (store.runs.request_stop(run.run_id), store.runs.withdraw_stop(run.run_id)):
            reply = await call
            assert (reply.answer, reply.status, reply.stop) == (StopAnswer.ENDED, status, None)


async def test_a_stop_can_be_withdrawn_until_it_is_seen(store: Store) -> None:
    """Then the run ends as it likes; the stream has both; once seen, a stop stands."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    async with unchanged(store):
        assert (await store.runs.withdraw_stop(run.run_id)).answer is StopAnswer.NONE
    await store.runs.request_stop(run.run_id)
    reply = await store.runs.withdraw_stop(run.run_id)
    assert (reply.answer, reply.stop) == (StopAnswer.WITHDRAWN, None)
    page = await store.events.read(key)
    assert [event.type for event in page.events] == ["stop_requested", "stop_withdrawn"]
    await store.runs.request_stop(run.run_id)
    await store.commit(_of_run(key, lane, run, sees_stop=True))
    seen = (await _found(store, run)).stop
    async with unchanged(store):
        reply = await store.runs.withdraw_stop(run.run_id)
    assert (reply.answer, reply.stop) == (StopAnswer.SEEN, seen)


async def test_after_a_withdrawal_the_run_completes(store: Store) -> None:
    """A commit that would still act on the stop is refused, so that the run continues."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id)
    await store.runs.withdraw_stop(run.run_id)
    async with unchanged(store):
        with pytest.raises(StopWithdrawn):
            await store.commit(_of_run(key, lane, run, RunStatus.INTERRUPTED, sees_stop=True))
    await store.commit(_of_run(key, lane, run, RunStatus.COMPLETED))
    assert (await _found(store, run)).status is RunStatus.COMPLETED


async def test_seeing_a_stop_belongs_to_what_a_commit_means(store: Store) -> None:
    """The time it was first seen stays."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id)
    commit = _of_run(key, lane, run, sees_stop=True)
    await store.commit(commit)
    first = (await _found(store, run)).stop
    with pytest.raises(OperationConflict):
        await store.commit(replace(commit, sees_stop=False))
    await store.commit(_of_run(key, lane, run, sees_stop=True))
    assert (await _found(store, run)).stop == first


@needs(Capability.PROBES)
async def test_the_stops_of_many_runs_are_one_read(store: Store) -> None:
    """By run, as each run has it; without one, withdrawn, unknown and not asked for are left out."""
    key, _ = await a_session(store)
    runs = [(await _live_run(store, key, laned=False))[1] for _ in range(6)]
    interrupted, aborted, ended, withdrawn, free, other = runs
    await store.runs.request_stop(interrupted.run_id, StopKind.INTERRUPT, "one")
    await store.runs.request_stop(aborted.run_id, StopKind.ABORT)
    await store.commit(_of_run(key, None, aborted, sees_stop=True))
    await store.runs.request_stop(ended.run_id, StopKind.ABORT, "three")
    await store.commit(_of_run(key, None, ended, RunStatus.INTERRUPTED))
    await store.runs.request_stop(withdrawn.run_id)
    await store.runs.withdraw_stop(withdrawn.run_id)
    await store.runs.request_stop(other.run_id, StopKind.INTERRUPT, "not asked for")
    asked = [run.run_id for run in (interrupted, aborted, ended, withdrawn, free, interrupted)]
    async with unchanged(store):
        with statements(store) as seen:
            stops = await store.runs.stops([*asked, "nobody", 'quo"te'])
        assert seen == ["stops_of_runs"]
        assert await store.runs.stops(()) == {}
    assert stops == {run.run_id: (await _found(store, run)).stop for run in (interrupted, aborted, ended)}
    assert [stop.reason for stop in stops.values()].count("one") == 1
    with pytest.raises(InvalidInput):
        await store.runs.stops([interrupted.run_id, ""])


async def test_a_stop_of_an_unknown_run_is_refused(store: Store) -> None:
    """Unknown is loud; delete removes the run and its stop, also for the id's next life."""
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id)
    await store.delete(key)
    await a_session(store, key=key)
    async with unchanged(store):
        for run_id in (run.run_id, "nobody"):
            for call in (store.runs.request_stop(run_id), store.runs.withdraw_stop(run_id)):
                with pytest.raises(RunNotLive):
                    await call


async def test_a_stop_of_another_sessions_run_is_refused_like_one_of_none(store: Store) -> None:
    """If the session is named; a withdrawal likewise."""
    key, other = (await a_session(store))[0], (await a_session(store))[0]
    _, run = await _live_run(store, key)
    await store.runs.request_stop(run.run_id, session=key)
    async with unchanged(store):
        for verb in (store.runs.request_stop, store.runs.withdraw_stop):
            with pytest.raises(RunNotLive):
                await verb(run.run_id, session=other)
    assert (await store.runs.withdraw_stop(run.run_id, session=key)).answer == StopAnswer.WITHDRAWN


async def test_a_malformed_stop_is_refused(store: Store) -> None:
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    async with unchanged(store):
        with pytest.raises(InvalidInput):
            await store.runs.request_stop(run.run_id, "pause")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await store.runs.request_stop(run.run_id, StopKind.ABORT, 7)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await store.runs.request_stop("")
        with pytest.raises(InvalidInput):
            await store.commit(a_commit(key, sees_stop=True))


async def test_a_stop_against_the_last_commit_ends_in_exactly_one_of_the_two(harness: Harness) -> None:
    """The same in the answer, the run and the stream."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])

    async def complete(lane: Lane | None, run: RunRef) -> bool:
        try:
            await stores[0].commit(_of_run(key, lane, run, RunStatus.COMPLETED))
        except StopRequested:
            await stores[0].commit(_of_run(key, lane, run, RunStatus.INTERRUPTED, sees_stop=True))
            return False
        return True

    for nth in range(12):
        lane, run = await _live_run(stores[0], key)
        completing, stopping = complete(lane, run), stores[1].runs.request_stop(run.run_id)
        if nth % 2:
            reply, completed = await asyncio.gather(stopping, completing)
        else:
            completed, reply = await asyncio.gather(completing, stopping)
        assert reply.answer is (StopAnswer.ENDED if completed else StopAnswer.RECORDED)
        found = await _found(stores[0], run)
        assert found.status is (RunStatus.COMPLETED if completed else RunStatus.INTERRUPTED)
        assert (found.stop is None) == completed
        events = (await stores[0].events.read(key, run_id=run.run_id)).events
        assert [event.type for event in events] == ([] if completed else ["stop_requested"])
        assert lane is not None
        await stores[0].lanes.disarm(lane)


@pytest.mark.parametrize("between", ["input", "chunk", "input for the run"])
async def test_a_stop_from_elsewhere_is_noticed_whatever_the_runner_wrote_since(harness: Harness, between: str) -> None:
    """A runner that remembers its session, and takes event numbers itself, does not pass over it."""
    store, elsewhere = await harness.open(), await harness.open()
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    assert lane is not None
    await store.commit(_of_run(key, lane, run, steps=1))
    await elsewhere.runs.request_stop(run.run_id)
    if between == "chunk":
        await store.events.append(lane, [NewEvent(type="chunk")])
    else:
        boundary = Boundary.AFTER_STEP if between == "input for the run" else None
        await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1, boundary=boundary))
    with pytest.raises(StopRequested):
        await store.commit(_of_run(key, lane, run, RunStatus.COMPLETED))


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_stop_leaves_no_trace(store: Store) -> None:
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    reply, failed = await fail_at_each_statement(store, lambda: store.runs.request_stop(run.run_id))
    assert reply.answer is StopAnswer.RECORDED
    assert {"take_number", "insert_events", "stop_runs"} <= set(failed)
    reply, failed = await fail_at_each_statement(store, lambda: store.runs.withdraw_stop(run.run_id))
    assert reply.answer is StopAnswer.WITHDRAWN
    assert {"take_number", "insert_events", "stop_runs"} <= set(failed)
