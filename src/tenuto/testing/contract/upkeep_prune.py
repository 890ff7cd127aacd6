"""Pruning: rows go by age, and never while something may still need them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import CursorBeyondTail, LaneLost, RunNotLive, SessionDeleted
from tenuto.model.commit import BeginRun, EndRun, NewCheckpoint, SettleWait
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.report import PruneReport
from tenuto.model.run import RunStatus
from tenuto.model.token_usage import NewUsage
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.upkeep_scene import a_left_run, a_timed_store


async def test_prune_takes_receipts_by_age(harness: Harness) -> None:
    """An old operation is then forgotten, a young one still repeats."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    old = a_save(key, "old")
    await store.commit(old)
    clock.advance(100)
    young = a_save(key, "young")
    await store.commit(young)
    assert await store.upkeep.prune(receipts_older_than=100) == PruneReport()
    clock.advance(0.000001)
    assert await store.upkeep.prune(receipts_older_than=100) == PruneReport(receipts=2)
    assert await store.receipt(key, old.operation_id) is None
    assert (await store.commit(young)).replayed


async def test_prune_takes_ended_runs_with_their_checkpoints_and_waits(harness: Harness) -> None:
    """Running, suspended, young and current ones stay, with all that hangs on them."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    ended = [await a_left_run(store, key, end=status) for status in (RunStatus.COMPLETED, RunStatus.FAILED)]
    ended.append(await a_left_run(store, key, end=RunStatus.INTERRUPTED))
    kept = [await a_left_run(store, key), await a_left_run(store, key, end=RunStatus.SUSPENDED)]
    lane = await store.lanes.acquire(key, an_owner())
    kept.append(await a_left_run(store, key, generation=lane.generation, end=RunStatus.COMPLETED))
    clock.advance(100)
    kept.append(await a_left_run(store, key, end=RunStatus.FAILED))
    report = await store.upkeep.prune(runs_older_than=50)
    assert report == PruneReport(runs=3, checkpoints=3, waits=3)
    assert [await store.runs.get(run.run_id) for run in ended] == [None] * 3
    for run in kept:
        assert await store.runs.get(run.run_id) is not None
        assert await store.checkpoints.latest(key, run_id=run.run_id) is not None
        assert len(await store.waits.of_session(key, run_id=run.run_id, status=None)) == 1
    assert await store.upkeep.prune(runs_older_than=50) == PruneReport()


async def test_prune_takes_an_invocation_that_is_over_whole_and_one_that_may_continue_not_at_all(
    harness: Harness,
) -> None:
    """A suspended run that was resumed goes with its successor, so that nobody takes it for one that waits."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    ends = {RunStatus.COMPLETED: "over", RunStatus.SUSPENDED: "paused again", None: "under way"}
    for end, name in ends.items():
        sent = await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=name, key=name))
        first = BeginRun(run_id=f"{name} 1", invocation_id=name)
        consume = (Consume(input_id=sent.input.input_id),)
        paused = EndRun(status=RunStatus.SUSPENDED)
        await store.commit(a_commit(key, run=first, end=paused, consume=consume, checkpoint=NewCheckpoint(step=1)))
        second = BeginRun(run_id=f"{name} 2", invocation_id=name, fresh=False)
        await store.commit(a_commit(key, run=second, end=EndRun(status=end) if end else None))
    clock.advance(100)
    report = await store.upkeep.prune(runs_older_than=50, inputs_older_than=50)
    assert (report.runs, report.checkpoints, report.inputs) == (2, 1, 1)
    assert await store.runs.of_invocation("over") == []
    for name in ("paused again", "under way"):
        assert len(await store.runs.of_invocation(name)) == 2


async def test_prune_takes_settled_input_whose_run_is_over(harness: Harness) -> None:
    """By the time it was consumed or cancelled; open input, and input of a run that is not over, stays however old."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)

    async def send(name: str) -> str:
        sent = await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=name, key=name))
        return sent.input.input_id

    opened = await send("open")
    cancelled, free = await send("cancelled"), await send("consumed without a run")
    await store.inbox.cancel(key, [cancelled])
    await store.commit(a_commit(key, consume=(Consume(input_id=free),)))
    orphaned = await send("of a pruned run")
    await a_left_run(store, key, end=RunStatus.FAILED, consume=(Consume(input_id=orphaned),))
    clock.advance(0.000001)
    assert (await store.upkeep.prune(runs_older_than=0)).runs == 1
    kept, gone = [opened], [cancelled, free, orphaned]
    for end in (None, *RunStatus):
        if end is RunStatus.RUNNING:
            continue
        sent = await send(f"run {end}")
        await a_left_run(store, key, end=end, consume=(Consume(input_id=sent),))
        (kept if end in (None, RunStatus.SUSPENDED) else gone).append(sent)
    lately = await send("queued long ago, consumed lately")
    kept.append(lately)
    clock.advance(100)
    await store.commit(a_commit(key, consume=(Consume(input_id=lately),)))
    assert await store.upkeep.prune(inputs_older_than=101) == PruneReport()
    assert await store.upkeep.prune(inputs_older_than=50) == PruneReport(inputs=len(gone))
    assert [await store.inbox.get(each) for each in gone] == [None] * len(gone)
    assert all([await store.inbox.get(each) for each in kept])
    assert await store.upkeep.prune(inputs_older_than=50) == PruneReport()


async def test_an_input_key_is_known_until_its_row_is_pruned(harness: Harness) -> None:
    """That holds to the microsecond; then the same key is new input, with whatever content."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    new = NewInput(kind=InputKind.MESSAGE, body="first", key="k")
    first = (await store.inbox.enqueue(key, new)).input
    await store.commit(a_commit(key, consume=(Consume(input_id=first.input_id),)))
    clock.advance(100)
    assert await store.upkeep.prune(inputs_older_than=100) == PruneReport()
    assert (await store.inbox.enqueue(key, new)).replayed
    clock.advance(0.000001)
    assert await store.upkeep.prune(inputs_older_than=100) == PruneReport(inputs=1)
    assert await store.inbox.find(key, "k") is None
    again = await store.inbox.enqueue(key, replace(new, body="second"))
    assert (again.replayed, again.input.body) == (False, "second")
    assert again.input.input_id != first.input_id


async def test_prune_takes_final_outgoing_items_and_never_others(harness: Harness) -> None:
    """By when they were due, or sent; pending and delivered ones stay, however old. Usage stays too."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    past = to_datetime(clock.now()) - timedelta(days=365)
    new = NewOutgoing(kind="wake", target=a_key())
    sent = (*(new for _ in OutgoingStatus), replace(new, delay=60.0), replace(new, due_at=past))
    ids = (await store.commit(a_commit(key, outgoing=sent, usage=(NewUsage(model="m", input=7),)))).outgoing_ids
    statuses = (*OutgoingStatus, OutgoingStatus.DONE, OutgoingStatus.DONE)
    items = {item.outbox_id: item for item in await store.outbox.of_session(key)}
    for outbox_id, status in zip(ids, statuses, strict=True):
        if status is OutgoingStatus.REFUSED:
            await store.outbox.refuse(items[outbox_id], {"category": "gone", "message": "gone"})
        elif status is not OutgoingStatus.PENDING:
            await store.outbox.mark(outbox_id, status)
    assert await store.upkeep.prune(outgoing_older_than=0) == PruneReport()  # sent at the same instant
    clock.advance(50.000001)
    assert await store.upkeep.prune(outgoing_older_than=50) == PruneReport(outgoing=4)
    left = [item.outbox_id for item in await store.outbox.of_session(key)]
    assert set(left) == {ids[statuses.index(s)] for s in (OutgoingStatus.PENDING, OutgoingStatus.DELIVERED)} | {ids[5]}
    clock.advance(60)
    assert await store.upkeep.prune(outgoing_older_than=50) == PruneReport(outgoing=1)
    clock.advance(10**6)
    everything = {f"{name}_older_than": 0 for name in ("receipts", "events", "runs", "inputs", "outgoing")}
    assert (await store.upkeep.prune(**everything)).outgoing == 0
    assert (await store.usage.report(key)).total.input == 7


async def test_a_never_saved_id_goes_with_its_last_run(harness: Harness) -> None:
    """Not while a run or a live lane is there; then every row of it, counted once."""
    store, clock = await a_timed_store(harness)
    key, bystander = a_key(), (await a_session(store))[0]
    begun = await a_left_run(store, key, "a", events=(NewEvent(type="begun"),))
    assert not await store.exists(key)
    clock.advance(100)
    assert await store.upkeep.prune(runs_older_than=0) == PruneReport()
    await store.commit(a_commit(key, run=begun, end=EndRun(status=RunStatus.FAILED)))
    lane = await store.lanes.acquire(key, an_owner(), ttl=5)
    clock.advance(1)
    report = await store.upkeep.prune(runs_older_than=0)
    assert (report.runs, report.rows) == (1, 0)
    await store.lanes.disarm(lane)
    assert await store.upkeep.prune(runs_older_than=0) == PruneReport(rows=1)
    dump = await store.dump()
    assert [row["session_id"] for row in dump["session"]] == [bystander.session_id]
    assert {row["session"] for table, rows in dump.items() if table not in {"session", "content"} for row in rows} == {
        dump["session"][0]["sid"]
    }


async def test_a_stale_copy_of_a_removed_id_is_refused(harness: Harness) -> None:
    """Its lane, run and wait belong to a life that no new session has, whether the id is used again or not."""
    store, clock = await a_timed_store(harness)
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner(), ttl=5)
    run = await a_left_run(store, key, generation=lane.generation)
    (wait,) = await store.waits.of_session(key)
    await store.commit(a_commit(key, generation=1, run=run, end=EndRun(status=RunStatus.FAILED)))
    # A lane-less run becomes no current one, so a second lane and run make the first prunable.
    clock.advance(100)
    await store.delete(key)
    headless = a_key()
    old = await store.lanes.acquire(headless, an_owner(), ttl=5)
    left = await a_left_run(store, headless, end=RunStatus.FAILED)
    clock.advance(100)
    report = await store.upkeep.prune(runs_older_than=0)
    assert (report.runs, report.rows) == (1, 1)
    for again in (False, True):
        if again:
            await a_session(store, key=headless)
        before = await store.dump()
        with pytest.raises(SessionDeleted):
            await store.commit(a_save(headless, "stale"))
        with pytest.raises(SessionDeleted):
            await store.commit(a_commit(headless, life=old.life, generation=old.generation, run=left))
        with pytest.raises(SessionDeleted):
            await store.commit(a_commit(headless, settle_waits=(SettleWait(wait_id=wait.wait_id),)))
        with pytest.raises(SessionDeleted):
            await store.events.append(old, [NewEvent(type="stale")])
        with pytest.raises(SessionDeleted):
            await store.lanes.disarm(old)
        assert (await store.lanes.renew([old], runs=[left])).lost == {headless}
        assert await store.dump() == before
    life = await store.life(headless)
    with pytest.raises(RunNotLive):
        await store.commit(a_commit(headless, life=life, run=left))
    with pytest.raises(LaneLost):
        await store.commit(a_commit(headless, life=life, generation=old.generation))


async def test_a_cursor_of_a_removed_id_is_not_taken_for_one_of_its_next_use(harness: Harness) -> None:
    """Wherever it stood, it is refused or gets `truncated`; it never reads on as if nothing had happened."""
    store, clock = await a_timed_store(harness)
    key = a_key()
    await a_left_run(store, key, events=tuple(NewEvent(type=f"old-{n}") for n in range(3)), end=RunStatus.FAILED)
    clock.advance(1)
    assert (await store.upkeep.prune(runs_older_than=0)).rows == 1
    await a_session(store, key=key)
    life = await store.life(key)
    await store.commit(a_commit(key, life=life, events=tuple(NewEvent(type=f"new-{n}") for n in range(5))))
    for cursor in (1, 2, 3):
        try:
            page = await store.events.read(key, after=cursor)
        except CursorBeyondTail:
            continue
        assert page.truncated
        assert [event.type for event in page.events] == [f"new-{n}" for n in range(5)]


async def test_a_never_saved_id_stays_while_a_fork_of_its_fork_reaches_its_entries(harness: Harness) -> None:
    """The direct fork is gone, its own fork still reads entries the headless id holds."""
    store, clock = await a_timed_store(harness)
    key, fork, grandfork = a_key(), a_key(), a_key()
    await a_left_run(store, key, *"abc", end=RunStatus.FAILED)
    point = await store.checkpoints.latest(key)
    assert point is not None
    await store.fork(key, fork, at=point.commit_number)
    await store.fork(fork, grandfork)
    await store.delete(fork)
    clock.advance(10)
    await store.upkeep.prune(runs_older_than=5)
    await store.upkeep.gc(grace=0)
    loaded = await store.load(grandfork)
    assert loaded is not None
    assert loaded.state["messages"] == ["a", "b", "c"]
