"""Waits: opened with a suspension, answered once, and known again when repeated."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import InvalidInput, OperationConflict, SessionDeleted, WaitNotOpen
from tenuto.model.commit import BeginRun, Commit, EndRun, OpenWait, SettleWait
from tenuto.model.event import NewEvent
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitStatus
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_key, a_run, a_session, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness

_APPROVAL = OpenWait(
    kind="approval",
    signal_id="refund",
    deadline=datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
    schema={"type": "boolean"},
    metadata={"amount": 12.5},
)


def _suspending(key: SessionKey, run: RunRef, *waits: OpenWait, **parts: Any) -> Commit:
    """Return the commit that suspends a run on some waits."""
    return a_commit(key, run=run, end=EndRun(status=RunStatus.SUSPENDED), open_waits=waits, **parts)


async def test_a_wait_reads_back_as_it_was_opened(harness: Harness) -> None:
    """Every field, through reopen, with the minted id the receipt names."""
    store = await harness.open()
    key, _ = await a_session(store)
    run = await a_run(store, key)
    receipt = await store.commit(_suspending(key, run, _APPROVAL, OpenWait(kind="timer")))
    reopened = await harness.open()
    approval, timer = await reopened.waits.of_session(key)
    assert (approval.wait_id, timer.wait_id) == receipt.wait_ids
    assert (approval.key, approval.run_id, approval.kind, approval.signal_id) == (key, run.run_id, "approval", "refund")
    assert (approval.deadline, approval.schema) == (_APPROVAL.deadline, _APPROVAL.schema)
    assert (approval.metadata, approval.status) == (_APPROVAL.metadata, WaitStatus.OPEN)
    assert (approval.commit_number, approval.created_at) == (receipt.commit_number, receipt.committed_at)
    assert (approval.answer, approval.settled_at) == (None, None)
    assert (timer.kind, timer.signal_id, timer.deadline, timer.schema, timer.metadata) == (
        "timer",
        None,
        None,
        None,
        {},
    )
    assert await reopened.waits.get(approval.wait_id) == approval


async def test_the_repeat_of_a_suspending_commit_gives_the_same_wait_ids(harness: Harness) -> None:
    """That holds after a reopen and after a takeover, and no second wait is opened."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("old"), ttl=5)
    run = await a_run(store, key, lane=lane)
    commit = _suspending(key, run, _APPROVAL, _APPROVAL, generation=lane.generation)
    receipt = await store.commit(commit)
    assert len(set(receipt.wait_ids)) == 2
    assert (await store.commit(commit)).wait_ids == receipt.wait_ids
    clock.advance(5)
    reopened = await harness.open(clock=clock)
    await reopened.lanes.acquire(key, an_owner("new"))
    assert (await reopened.commit(commit)).wait_ids == receipt.wait_ids
    waits = await reopened.waits.for_signal("refund")
    assert tuple(wait.wait_id for wait in waits) == receipt.wait_ids
    assert [wait.wait_id for wait in await store.waits.of_session(key)] == list(receipt.wait_ids)


async def test_waits_with_one_signal_id_are_told_apart_by_wait_id(store: Store) -> None:
    """Settling one leaves the other open, and a tenant sees its own only."""
    key, _ = await a_session(store)
    foreign, _ = await a_session(store, key=a_key(tenant="other"))
    wait = OpenWait(kind="signal", signal_id="s")
    (one,) = (await store.commit(_suspending(key, await a_run(store, key), wait))).wait_ids
    (two,) = (await store.commit(_suspending(key, await a_run(store, key), wait))).wait_ids
    await store.commit(_suspending(foreign, await a_run(store, foreign), wait))
    settled = await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=one, answer={"yes": 1}),)))
    assert [wait.wait_id for wait in await store.waits.for_signal("s")] == [two]
    assert [wait.wait_id for wait in await store.waits.for_signal("s", status=None)] == [one, two]
    found = await store.waits.get(one)
    assert found is not None
    assert (found.status, found.answer, found.settled_at) == (WaitStatus.ANSWERED, {"yes": 1}, settled.committed_at)
    answered = await store.waits.of_session(key, status=WaitStatus.ANSWERED)
    assert [wait.wait_id for wait in answered] == [one]


async def test_the_waits_of_an_invocation_are_those_of_all_its_runs(harness: Harness) -> None:
    """By origin, settled or not, as opened; not of another origin, session or life, whatever its invocation."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    origin = an_id("inv")
    opened: list[str] = []

    async def suspend(where: SessionKey, kind: str, **begin: Any) -> tuple[str, ...]:
        run = await a_run(store, where, **begin)
        clock.advance(1)
        waits = (OpenWait(kind=f"{kind} 1"), OpenWait(kind=f"{kind} 2"))
        return (await store.commit(_suspending(where, run, *waits))).wait_ids

    opened += await suspend(key, "first", invocation_id=origin)
    await suspend(key, "another", invocation_id=an_id("inv"), origin_id=an_id("inv"))
    opened += await suspend(key, "again", invocation_id=origin, fresh=False)
    opened += await suspend(key, "its child", invocation_id=an_id("inv"), origin_id=origin)
    await suspend(key, "not its own origin", invocation_id=origin, fresh=False, origin_id=an_id("inv"))
    theirs = await suspend(other, "elsewhere", invocation_id=an_id("inv"), origin_id=origin)
    await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=opened[0], answer=1),)))
    found = await store.waits.of_invocation(key, origin)
    assert [wait.wait_id for wait in found] == opened
    assert [wait.kind for wait in found] == ["first 1", "first 2", "again 1", "again 2", "its child 1", "its child 2"]
    assert [wait.status for wait in found[:2]] == [WaitStatus.ANSWERED, WaitStatus.OPEN]
    assert tuple(wait.wait_id for wait in await store.waits.of_invocation(other, origin)) == theirs
    assert await store.waits.of_invocation(key, "nobody") == []
    await store.delete(key)
    await a_session(store, key=key)
    assert await store.waits.of_invocation(key, origin) == []


async def test_a_run_keeps_the_open_waits_of_the_one_it_resumes(harness: Harness) -> None:
    """Only those it names, unchanged; one that is settled, unknown, foreign or named twice refuses the commit."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    first = await a_run(store, key)
    ids = (await store.commit(_suspending(key, first, _APPROVAL, _APPROVAL, _APPROVAL, OpenWait(kind="k")))).wait_ids
    theirs = (await store.commit(_suspending(other, await a_run(store, other), _APPROVAL))).wait_ids
    await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=ids[0], answer="yes"),)))
    second = await a_run(store, key, invocation_id=f"inv-{first.run_id}", fresh=False)
    before = await store.dump()
    tries = [
        (key, (ids[1], ids[0]), "answered"),
        (key, (ids[1], "unknown"), "unknown in this session"),
        (key, (ids[1], ids[1]), "named twice in this commit"),
        (key, (ids[1], theirs[0]), "unknown in this session"),
    ]
    for where, wanted, found in tries:
        with pytest.raises(WaitNotOpen) as refused:
            await store.commit(a_commit(where, run=second, keep_waits=wanted))
        assert (refused.value.wait_id, refused.value.found) == (wanted[1], found)
    with pytest.raises(InvalidInput):
        await store.commit(a_commit(key, keep_waits=(ids[1],)))
    assert await store.dump() == before
    kept = a_commit(key, run=second, keep_waits=(ids[1], ids[2]))
    clock.advance(9)
    assert not (await store.commit(kept)).replayed
    assert (await store.commit(kept)).replayed
    with pytest.raises(OperationConflict):
        await store.commit(replace(kept, keep_waits=(ids[1],)))
    waits = {wait.wait_id: wait for wait in await store.waits.of_session(key, status=None)}
    runs = (first.run_id, second.run_id, second.run_id, first.run_id)
    assert tuple(waits[each].run_id for each in ids) == runs
    was = {wait["wait_id"]: wait for wait in before["wait"]}
    now = {wait["wait_id"]: wait for wait in (await store.dump())["wait"]}
    assert {each: {**row, "run_id": was[each]["run_id"]} for each, row in now.items()} == was


async def test_a_wait_is_settled_once_and_only_by_its_own_session(store: Store) -> None:
    """Unknown, foreign, settled and twice in one commit are refused whole, each saying what was found."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    ids = (await store.commit(_suspending(key, await a_run(store, key), _APPROVAL, _APPROVAL))).wait_ids
    done = SettleWait(wait_id=ids[0], status=WaitStatus.EXPIRED)
    await store.commit(a_commit(key, settle_waits=(done,)))
    fine = SettleWait(wait_id=ids[1], answer="fine")
    before = await store.dump()
    tries = [
        (key, (fine, SettleWait(wait_id="unknown")), "unknown in this session"),
        (other, (fine,), "unknown in this session"),
        (key, (fine, done), "expired"),
        (key, (fine, fine), "named twice in this commit"),
    ]
    for where, settles, found in tries:
        with pytest.raises(WaitNotOpen) as refused:
            await store.commit(a_commit(where, settle_waits=settles, events=(NewEvent(type="answered"),)))
        assert (refused.value.wait_id, refused.value.found) == (settles[-1].wait_id, found)
        assert refused.value.category == "store_commit_failed"
    assert await store.dump() == before


async def test_past_its_deadline_a_wait_takes_a_late_answer_only_while_it_is_open(harness: Harness) -> None:
    """Refused without `late`, from the deadline on; every other settlement needs no leave."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    timed = OpenWait(kind="approval", timeout=10.0)
    late, expired = (await store.commit(_suspending(key, await a_run(store, key), timed, timed))).wait_ids
    clock.advance(10)
    async with unchanged(store):
        with pytest.raises(WaitNotOpen) as refused:
            await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=late, answer="in time"),)))
    assert refused.value.found == "past its deadline"
    await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=late, answer="late", late=True),)))
    await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=expired, status=WaitStatus.EXPIRED),)))
    found = await store.waits.get(late)
    assert found is not None
    assert (found.status, found.answer) == (WaitStatus.ANSWERED, "late")
    async with unchanged(store):
        for wait_id, state in ((late, "answered"), (expired, "expired")):
            with pytest.raises(WaitNotOpen) as refused:
                await store.commit(a_commit(key, settle_waits=(SettleWait(wait_id=wait_id, late=True),)))
            assert refused.value.found == state


async def test_an_answer_that_landed_in_time_is_known_again_when_repeated_as_late(harness: Harness) -> None:
    """`late` is a guard; the runner that lost the reply does not know which of the two it was."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    timed = OpenWait(kind="approval", timeout=10.0)
    (wait_id,) = (await store.commit(_suspending(key, await a_run(store, key), timed))).wait_ids
    answer = SettleWait(wait_id=wait_id, answer="yes")
    commit = a_commit(key, settle_waits=(answer,))
    await store.commit(commit)
    clock.advance(11)
    async with unchanged(store):
        assert (await store.commit(replace(commit, settle_waits=(replace(answer, late=True),)))).replayed


async def test_of_concurrent_answers_to_one_wait_one_lands(store: Store) -> None:
    """The others find it answered, and the stored answer is the winner's."""
    key, _ = await a_session(store)
    (wait_id,) = (await store.commit(_suspending(key, await a_run(store, key), _APPROVAL))).wait_ids
    answers = [a_commit(key, settle_waits=(SettleWait(wait_id=wait_id, answer=n),)) for n in range(8)]
    async with asyncio.timeout(20):
        results = await asyncio.gather(*map(store.commit, answers), return_exceptions=True)
    assert sum(isinstance(result, WaitNotOpen) for result in results) == 7, results
    (winner,) = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    found = await store.waits.get(wait_id)
    assert found is not None
    assert found.answer == winner


async def test_after_delete_the_old_wait_ids_are_refused_and_new_ones_work(harness: Harness) -> None:
    """By life, after reopen, and in the id's next life under its own life number."""
    store = await harness.open()
    key, _ = await a_session(store)
    (old,) = (await store.commit(_suspending(key, await a_run(store, key), _APPROVAL))).wait_ids
    await store.delete(key)
    reopened = await harness.open()
    settle = (SettleWait(wait_id=old, answer="late"),)
    for opened in (store, reopened):
        assert await opened.waits.get(old) is None
        with pytest.raises(SessionDeleted):
            await opened.commit(a_commit(key, settle_waits=settle))
        with pytest.raises(WaitNotOpen):
            await opened.commit(a_commit(key, life=2, settle_waits=settle))
    await a_session(store, key=key)
    run = an_id("run")
    begin = BeginRun(run_id=run, invocation_id=f"inv-{run}")
    suspend = a_commit(key, life=2, run=begin, end=EndRun(status=RunStatus.SUSPENDED), open_waits=(_APPROVAL,))
    (new,) = (await store.commit(suspend)).wait_ids
    before = await store.dump()
    with pytest.raises(SessionDeleted):
        await reopened.commit(a_commit(key, settle_waits=settle))
    with pytest.raises(WaitNotOpen):
        await reopened.commit(a_commit(key, life=2, settle_waits=settle))
    assert await store.dump() == before
    await reopened.commit(a_commit(key, life=2, settle_waits=(SettleWait(wait_id=new, answer="in time"),)))
    found = await store.waits.get(new)
    assert found is not None
    assert found.answer == "in time"
