"""A next run: the commit that ends a run begins the one that follows on it, or does nothing at all."""

from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import (
    ClaimLost,
    CommitRefused,
    InvalidInput,
    InvocationExists,
    LaneBusy,
    OperationConflict,
    StatusRefused,
    StopRequested,
    TenutoError,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, NextRun
from tenuto.model.event import NewEvent
from tenuto.model.input import Boundary, Consume, InputKind, InputStatus, NewInput
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_save, a_session, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement

HELLO, REPLY, NEXT = message("hello"), message("hi", "assistant"), message("and?")


async def _running(store: Store, **create: Any) -> tuple[SessionKey, Lane]:
    """Return a session whose run "one" is running under a lane."""
    key, _ = await a_session(store, None, **create)
    lane = await store.lanes.acquire(key, an_owner())
    begin = BeginRun(run_id=f"one-{key.session_id}", invocation_id=f"inv-one-{key.session_id}")
    await store.commit(a_save(key, HELLO, generation=lane.generation, run=begin))
    return key, lane


async def _queued(store: Store, key: SessionKey, body: Any = NEXT, **parts: Any) -> str:
    enqueued = await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=body, **parts))
    return enqueued.input.input_id


def _one(key: SessionKey) -> str:
    return f"one-{key.session_id}"


def _two(key: SessionKey) -> str:
    return f"two-{key.session_id}"


def _next(key: SessionKey, input_id: str, **parts: Any) -> NextRun:
    begin = BeginRun(run_id=_two(key), invocation_id=f"inv-two-{key.session_id}", worker="w")
    return replace(NextRun(begin=begin, input_id=input_id, log="messages", item=NEXT), **parts)


def _passing_on(key: SessionKey, lane: Lane, following: NextRun, **parts: Any) -> Commit:
    """Return the commit that ends the run "one" with a reply and begins the run "two"."""
    fixed: dict[str, Any] = {
        "generation": lane.generation,
        "run": RunRef(run_id=_one(key), attempt=1),
        "end": EndRun(status=RunStatus.COMPLETED),
        "next_run": following,
    }
    return a_save(key, REPLY, **(fixed | parts))


async def test_one_commit_ends_a_run_and_begins_the_one_that_follows(store: Store) -> None:
    key, lane = await _running(store)
    input_id = await _queued(store, key)
    before = await store.head(key)
    assert before is not None
    receipt = await store.commit(_passing_on(key, lane, _next(key, input_id)))
    one, two = await store.runs.get(_one(key)), await store.runs.get(_two(key))
    assert one is not None
    assert two is not None
    assert (one.status, two.status) == (RunStatus.COMPLETED, RunStatus.RUNNING)
    assert (two.number, two.attempt, two.worker) == (one.number + 1, 1, "w")
    assert one.ended_at == two.started_at
    assert await store.runs.current(key) == two
    assert (receipt.version, receipt.commit_number) == (before.version + 1, before.commit_number + 1)
    record = await store.load(key)
    assert record is not None
    assert record.state["messages"] == [HELLO, REPLY, NEXT]
    assert receipt.ends["messages"].position == 3


async def test_a_next_run_consumes_its_input_at_its_entry(store: Store) -> None:
    key, lane = await _running(store)
    input_id = await _queued(store, key)
    await store.commit(_passing_on(key, lane, _next(key, input_id)))
    found = await store.inbox.get(input_id)
    assert found is not None
    assert (found.status, found.run_id, found.log, found.position) == (InputStatus.CONSUMED, _two(key), "messages", 2)
    assert not found.has_body


async def test_a_next_run_continues_like_any_other(store: Store) -> None:
    key, lane = await _running(store)
    await store.commit(_passing_on(key, lane, _next(key, await _queued(store, key))))
    third = replace(
        _next(key, await _queued(store, key)), begin=BeginRun(run_id=new_id(), invocation_id=new_id()), item=HELLO
    )
    await store.commit(_passing_on(key, lane, third, run=RunRef(run_id=_two(key), attempt=1)))
    last = RunRef(run_id=third.begin.run_id, attempt=1)
    end = EndRun(status=RunStatus.COMPLETED)
    await store.commit(a_save(key, REPLY, generation=lane.generation, run=last, end=end, disarm=True))
    record = await store.load(key)
    assert record is not None
    assert record.state["messages"] == [HELLO, REPLY, NEXT, REPLY, HELLO, REPLY]
    assert [run.status for run in await store.runs.of_session(key)] == [RunStatus.COMPLETED] * 3


async def test_the_point_before_a_next_run_has_what_the_ended_one_left(store: Store) -> None:
    key, lane = await _running(store, state={"mood": "calm"})
    following = _next(key, await _queued(store, key), cursor={"for": "parent"})
    receipt = await store.commit(_passing_on(key, lane, following, document={"mood": "glad"}))
    two = await store.runs.get(_two(key))
    assert two is not None
    assert two.commit_number == receipt.commit_number
    point = await store.checkpoints.get(key, receipt.commit_number)
    assert point is not None
    assert (point.run_id, point.step, point.cursor) == (None, 0, {"for": "parent"})
    assert point.document == {"mood": "glad"}
    fork = await store.fork(key, f"fork-of-{key.session_id}", at=receipt.commit_number)
    assert fork.ends["messages"].position == 2


async def test_the_lane_stays_with_its_holder_and_is_renewed(harness: Harness) -> None:
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, lane = await _running(store)
    clock.advance(10)
    following = _next(key, await _queued(store, key))
    await store.commit(_passing_on(key, lane, replace(following, begin=replace(following.begin, ttl=15.0))))
    clock.advance(10)  # past the end of what was acquired
    with pytest.raises(LaneBusy):
        await store.lanes.acquire(key, an_owner("worker-2"))
    await store.lanes.disarm(lane)


async def test_the_stream_tells_of_both_runs_in_order(store: Store) -> None:
    key, lane = await _running(store)
    input_id = await _queued(store, key)
    head = await store.head(key)
    assert head is not None
    following = _next(key, input_id, events=(NewEvent(type="began"), NewEvent(type="went_on")))
    receipt = await store.commit(_passing_on(key, lane, following, events=(NewEvent(type="ended"),)))
    page = await store.events.read(key, after=head.event_seq)
    assert [(each.type, each.run_id, each.seq) for each in page.events] == [
        ("ended", _one(key), head.event_seq + 1),
        ("began", _two(key), head.event_seq + 2),
        ("went_on", _two(key), head.event_seq + 3),
    ]
    assert receipt.event_seq == head.event_seq + 3
    two = await store.runs.get(_two(key))
    assert two is not None
    assert two.start_sequence == head.event_seq + 1


async def test_repeated_it_returns_the_first_receipt_and_another_next_run_is_refused(store: Store) -> None:
    key, lane = await _running(store)
    commit = _passing_on(key, lane, _next(key, await _queued(store, key)))
    first = await store.commit(commit)
    other = await _queued(store, key)
    async with unchanged(store):
        assert await store.commit(commit) == replace(first, replayed=True)
        for changed in (
            _next(key, other),
            _next(key, commit.next_run.input_id if commit.next_run else "", item=HELLO),
            _next(key, commit.next_run.input_id if commit.next_run else "", cursor=1),
            None,
        ):
            with pytest.raises(OperationConflict):
                await store.commit(replace(commit, next_run=changed))


async def test_input_that_is_not_open_refuses_the_whole_commit(store: Store) -> None:
    key, lane = await _running(store)
    cancelled, meant = await _queued(store, key), await _queued(store, key, boundary=Boundary.AFTER_STEP)
    await store.inbox.cancel(key, [cancelled])
    other, _ = await a_session(store)
    elsewhere = await _queued(store, other)
    async with unchanged(store):
        for input_id in (cancelled, meant, elsewhere, "unknown"):
            with pytest.raises(ClaimLost):
                await store.commit(_passing_on(key, lane, _next(key, input_id)))
    await store.commit(_passing_on(key, lane, _next(key, await _queued(store, key))))


async def test_a_stop_a_status_or_a_moved_session_refuses_the_whole_commit(store: Store) -> None:
    key, lane = await _running(store)
    following = _next(key, await _queued(store, key))
    async with unchanged(store):
        with pytest.raises(VersionConflict):
            await store.commit(_passing_on(key, lane, following, expected_version=99))
        with pytest.raises(StatusRefused):
            await store.commit(_passing_on(key, lane, following, statuses=frozenset({SessionStatus.SUSPENDED})))
    await store.runs.request_stop(_one(key), StopKind.INTERRUPT, "enough")
    async with unchanged(store):
        with pytest.raises(StopRequested):
            await store.commit(_passing_on(key, lane, following))


async def test_a_run_or_an_invocation_that_is_known_cannot_be_the_next(store: Store) -> None:
    key, lane = await _running(store)
    other, _ = await _running(store)
    following = _next(key, await _queued(store, key))
    async with unchanged(store):
        with pytest.raises(CommitRefused):
            await store.commit(
                _passing_on(key, lane, replace(following, begin=replace(following.begin, run_id=_one(other))))
            )
        with pytest.raises(InvocationExists):
            await store.commit(
                _passing_on(
                    key, lane, replace(following, begin=replace(following.begin, invocation_id=f"inv-{_one(other)}"))
                )
            )


async def test_what_does_not_go_with_a_next_run_is_refused_before_anything_is_asked(store: Store) -> None:
    key, lane = await _running(store)
    following = _next(key, await _queued(store, key))
    begin = following.begin
    fits = _passing_on(key, lane, following)
    misfits: list[Commit] = [
        replace(fits, generation=None),
        replace(fits, disarm=True),
        replace(fits, save=False, logs={}),
        replace(fits, end=None),
        replace(fits, end=EndRun(status=RunStatus.SUSPENDED)),
        replace(fits, run=BeginRun(run_id=new_id(), invocation_id=new_id())),
        replace(fits, checkpoint=NewCheckpoint(step=0)),
        replace(fits, consume=(Consume(input_id=following.input_id),)),
        replace(fits, document={"messages": 1}, logs={}),
        replace(fits, removed=frozenset({"messages"}), logs={}),
        *(
            replace(fits, next_run=replace(following, **wrong))
            for wrong in (
                {"log": "frame/messages"},
                {"log": ""},
                {"input_id": ""},
                {"item": float("nan")},
                {"cursor": {1: 2}},
                {"events": (NewEvent(type=""),)},
                {"begin": replace(begin, fresh=False)},
                {"begin": replace(begin, run_id=_one(key))},
                {"begin": replace(begin, ends={})},
                {"begin": replace(begin, base_ends={})},
                {"begin": replace(begin, ttl=0)},
            )
        ),
    ]
    async with unchanged(store):
        for misfit in misfits:
            with pytest.raises(InvalidInput):
                await store.commit(misfit)
    await store.commit(fits)


async def test_a_next_run_may_begin_in_a_log_that_is_new(store: Store) -> None:
    key, lane = await _running(store)
    following = _next(key, await _queued(store, key), log="orders", item={"dish": "soup"})
    receipt = await store.commit(_passing_on(key, lane, following))
    record = await store.load(key)
    assert record is not None
    assert record.state["orders"] == [{"dish": "soup"}]
    assert receipt.ends["orders"].position == 1
    head = await store.head(key)
    assert head is not None
    assert head.ends == receipt.ends


async def test_a_next_run_cannot_begin_in_a_field_of_the_document(store: Store) -> None:
    key, lane = await _running(store, state={"orders": 3})
    following = _next(key, await _queued(store, key), log="orders", item={"dish": "soup"})
    async with unchanged(store):
        with pytest.raises(CommitRefused, match="orders"):
            await store.commit(_passing_on(key, lane, following))


async def test_what_a_run_wrote_ahead_is_folded_in_before_the_next_one_begins(store: Store) -> None:
    key, lane = await _running(store)
    run = RunRef(run_id=_one(key), attempt=1)
    ahead = {"messages": Append(items=(REPLY,)), "frame/scratch": Append(items=(1,))}
    await store.commit(a_commit(key, generation=lane.generation, run=run, logs=ahead))
    receipt = await store.commit(replace(_passing_on(key, lane, _next(key, await _queued(store, key))), logs={}))
    record = await store.load(key)
    assert record is not None
    assert record.state["messages"] == [HELLO, REPLY, NEXT]
    two = await store.runs.get(_two(key))
    assert two is not None
    assert set(receipt.ends) == {"messages"}
    assert two.ends == receipt.ends


async def test_a_run_that_failed_can_be_followed_too_and_stays_where_it_stood(store: Store) -> None:
    key, lane = await _running(store)
    following = _next(key, await _queued(store, key))
    failed = EndRun(status=RunStatus.FAILED, error={"category": "error"})
    await store.commit(_passing_on(key, lane, following, end=failed))
    one = await store.runs.get(_one(key))
    assert one is not None
    assert (one.status, one.error) == (RunStatus.FAILED, {"category": "error"})
    assert one.ends is not None
    assert one.ends["messages"].position == 2


async def test_too_big_a_next_run_is_refused_by_the_budget(store: Store) -> None:
    key, lane = await _running(store)
    following = _next(key, await _queued(store, key), item=message("x" * (store.budget.max_bytes + 1)))
    async with unchanged(store):
        with pytest.raises(TenutoError, match="budget"):
            await store.commit(_passing_on(key, lane, following))


@needs(Capability.PROBES)
async def test_it_lands_whole_or_not_at_all_whichever_statement_fails(store: Store) -> None:
    key, lane = await _running(store)
    commit = _passing_on(key, lane, _next(key, await _queued(store, key), events=(NewEvent(type="began"),)))
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert {"update_runs", "insert_runs", "consume_inputs", "insert_checkpoints"} <= set(failed)
    assert not receipt.replayed
