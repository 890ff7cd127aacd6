"""Upkeep: expiry, collection, pruning and vacuum take what is due, count it once, and say how far they came."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import (
    CursorBeyondTail,
    InvalidInput,
    LaneLost,
    RunNotLive,
    SessionDeleted,
    StoreUnavailable,
    Unsupported,
    UpkeepFailed,
)
from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, OpenWait, Reset, SettleWait
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.outgoing import NewOutgoing, OutgoingStatus
from tenuto.model.report import ExpiryReport, GcReport, PruneReport, VacuumReport
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile, SessionKey
from tenuto.model.token_usage import NewUsage
from tenuto.store.store import Store
from tenuto.testing.clock import FakeClock
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner, message
from tenuto.testing.harness import Harness


async def _timed(harness: Harness) -> tuple[Store, FakeClock]:
    clock = FakeClock()
    return await harness.open(clock=clock), clock


async def _run(store: Store, key: SessionKey, *items: Any, end: RunStatus | None = None, **parts: Any) -> RunRef:
    """Begin a run that leaves a checkpoint and a wait, and end it if a status is given."""
    run_id = an_id("run")
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    commit = a_commit(
        key,
        run=begin,
        logs={"messages": Append(items=items)} if items else {},
        checkpoint=NewCheckpoint(step=1),
        open_waits=(OpenWait(kind="signal"),),
        **parts,
    )
    receipt = await store.commit(commit)
    ref = RunRef(run_id=run_id)
    if end:
        fenced = {name: parts[name] for name in ("generation", "life") if name in parts}
        settle = tuple(SettleWait(wait_id=wait_id) for wait_id in receipt.wait_ids)
        await store.commit(a_commit(key, run=ref, end=EndRun(status=end), settle_waits=settle, **fenced))
    return ref


@contextmanager
def _failing(store: Store, number: int) -> Iterator[None]:
    """Let the store's n-th statement from here on fail."""
    backend: Any = store.backend
    probe, left = backend.probe, [number]

    def count(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise StoreUnavailable(f"injected before {name}")

    backend.probe = count
    try:
        yield
    finally:
        backend.probe = probe


async def test_every_verb_reports_zeros_when_there_is_nothing_to_do(harness: Harness) -> None:
    """D7: on an empty store, and on one with live sessions, whose rows stay equal."""
    store, _ = await _timed(harness)
    for _ in range(2):
        before = await store.dump()
        assert await store.upkeep.expire() == ExpiryReport()
        assert await store.upkeep.gc() == GcReport()
        assert await store.upkeep.gc(grace=0) == GcReport()
        everything = {"receipts_older_than": 0, "events_older_than": 0, "events_keep": 9, "runs_older_than": 0}
        everything |= {"inputs_older_than": 0, "outgoing_older_than": 0}
        assert await store.upkeep.prune(**everything) == PruneReport()
        assert await store.upkeep.prune() == PruneReport()
        assert await store.dump() == before
        key, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000})
        await _run(store, key, "d", end=RunStatus.FAILED)
        await store.commit(a_save(key, "e", events=(NewEvent(type="saved"),)))


@pytest.mark.parametrize("age", [-1, float("nan"), float("inf"), "1", True], ids=repr)
async def test_an_age_that_is_no_number_of_seconds_is_refused(store: Store, age: Any) -> None:
    """D7: before anything is removed."""
    key, _ = await a_session(store, None, "a")
    await store.commit(a_commit(key, save=True, logs={"messages": Reset()}))
    before = await store.dump()
    for name in ("receipts", "events", "runs", "inputs", "outgoing"):
        with pytest.raises((InvalidInput, UpkeepFailed)):
            await store.upkeep.prune(**{f"{name}_older_than": age})
    with pytest.raises((InvalidInput, UpkeepFailed)):
        await store.upkeep.gc(grace=age)
    assert await store.dump() == before


async def test_expire_deletes_what_is_due_and_names_what_a_runner_holds(harness: Harness) -> None:
    """D8: at its time and not a microsecond before; a held one goes once its lane is free."""
    store, clock = await _timed(harness)
    now = to_datetime(clock.now())
    due = {name: Profile(expires_at=now + timedelta(seconds=10)) for name in ("due", "held")}
    due |= {"later": Profile(expires_at=now + timedelta(seconds=10, microseconds=1)), "never": Profile()}
    keys = {name: (await a_session(store, None, name, profile=profile))[0] for name, profile in due.items()}
    clock.advance(9.999999)
    assert await store.upkeep.expire() == ExpiryReport()
    lane = await store.lanes.acquire(keys["held"], an_owner())
    clock.advance(0.000001)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["due"],), held=(keys["held"],))
    assert [await store.exists(key) for key in keys.values()] == [False, True, True, True]
    await store.lanes.disarm(lane)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["held"],))
    assert [await store.exists(key) for key in keys.values()] == [False, False, True, True]
    clock.advance(3600)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["later"],))
    assert await store.exists(keys["never"])


async def test_gc_waits_for_the_grace_and_then_takes_exactly_what_was_left(harness: Harness) -> None:
    """D6: counted from when it was first seen unreachable; `waiting` says that something is."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000, "kept": "k" * 2000})
    await store.commit(a_save(key, document={"big": "y" * 2000}))
    await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("d",))}))
    first = await store.upkeep.gc(grace=100)
    assert (first.entries, first.branches, first.contents) == (0, 0, 0)
    assert first.waiting == 2
    clock.advance(99.999)
    assert await store.upkeep.gc(grace=100) == first
    clock.advance(0.001)
    second = await store.upkeep.gc(grace=100)
    assert second == GcReport(families=1, entries=3, branches=1, contents=1)
    assert await store.upkeep.gc(grace=100) == GcReport()
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state == {"messages": ["d"], "big": "y" * 2000, "kept": "k" * 2000}


async def test_gc_forgets_the_grace_of_what_is_reached_again(harness: Harness) -> None:
    """D6: a value written again waits anew when it is left once more."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000})
    await store.commit(a_commit(key, save=True, document={"big": "y" * 2000}))
    assert (await store.upkeep.gc(grace=100)).waiting == 1
    clock.advance(60)
    await store.commit(a_commit(key, save=True, document={"big": "x" * 2000}))
    await store.commit(a_commit(key, save=True, document={"big": "z" * 2000}))
    await store.upkeep.gc(grace=100)
    clock.advance(60)
    report = await store.upkeep.gc(grace=100)
    assert (report.contents, report.waiting) == (0, 2)  # the first value was in use until 60 seconds ago
    clock.advance(40)
    assert await store.upkeep.gc(grace=100) == GcReport(contents=2)
    assert {row["body"][1] for row in (await store.dump())["content"]} == {"z"}


async def test_gc_keeps_what_a_head_checkpoint_fork_and_unfinished_run_reach(store: Store) -> None:
    """D6: each by itself is enough; once none is left the branch goes."""
    key, _ = await a_session(store, None, "a")
    run = await _run(store, key, "run")
    fork = a_key()
    await store.fork(key, fork)
    await store.commit(a_save(key, "b"))
    await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("c",))}))
    report = await store.upkeep.gc(grace=0)
    assert report.entries == 1  # "b", which only the old head reached
    for where, wanted in ((key, ["c"]), (fork, ["a"])):
        loaded = await store.load(where)
        assert loaded is not None
        assert loaded.state["messages"] == wanted
    found = await store.runs.get(run.run_id)
    assert found is not None
    read = await store.logs.read(key, "messages", end=found.ends["messages"])
    assert [entry.value for entry in read] == ["a", "run"]
    await store.commit(a_save(key, run=run, end=EndRun(status=RunStatus.COMPLETED)))
    assert (await store.upkeep.gc(grace=0)).entries == 1  # "c": the run's save moved the head to its own branch
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state["messages"] == ["a", "run"]
    assert await store.upkeep.gc(grace=0) == GcReport()


async def test_gc_takes_what_a_dead_and_pruned_run_left(harness: Harness) -> None:
    """D9: entries on branches that no record names any more."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store, None, "a")
    await _run(store, key, *"bcd", end=RunStatus.FAILED)
    assert await store.upkeep.gc(grace=0) == GcReport()
    clock.advance(10)
    assert (await store.upkeep.prune(runs_older_than=5)).runs == 1
    report = await store.upkeep.gc(grace=0)
    assert (report.entries, report.branches) == (3, 1)
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state["messages"] == ["a"]


async def test_gc_keeps_a_tombstones_numbers(store: Store) -> None:
    """D8: however often upkeep runs, the id's next life goes on from them."""
    key, _ = await a_session(store, None, "a")
    lane = await store.lanes.acquire(key, an_owner())
    last = await store.commit(a_save(key, "b", generation=lane.generation, events=(NewEvent(type="x"),) * 3))
    await store.delete(key)
    tombstone = (await store.dump())["session"]
    for _ in range(2):
        await store.upkeep.gc(grace=0)
        await store.upkeep.prune(receipts_older_than=0, events_older_than=0, events_keep=0, runs_older_than=0)
        assert (await store.dump())["session"] == tombstone
    receipt = await store.create(key)
    assert (receipt.life, receipt.version, receipt.event_seq) == (2, last.version + 1, last.event_seq + 1)
    assert receipt.commit_number > last.commit_number
    assert receipt.generation > last.generation


async def test_prune_takes_receipts_by_age(harness: Harness) -> None:
    """D8, C15: an old operation is then forgotten, a young one still repeats."""
    store, clock = await _timed(harness)
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
    """D8: running, suspended, young and current ones stay, with all that hangs on them."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store)
    ended = [await _run(store, key, end=status) for status in (RunStatus.COMPLETED, RunStatus.FAILED)]
    ended.append(await _run(store, key, end=RunStatus.INTERRUPTED))
    kept = [await _run(store, key), await _run(store, key, end=RunStatus.SUSPENDED)]
    lane = await store.lanes.acquire(key, an_owner())
    kept.append(await _run(store, key, generation=lane.generation, end=RunStatus.COMPLETED))
    clock.advance(100)
    kept.append(await _run(store, key, end=RunStatus.FAILED))
    report = await store.upkeep.prune(runs_older_than=50)
    assert report == PruneReport(runs=3, checkpoints=3, waits=3)
    assert [await store.runs.get(run.run_id) for run in ended] == [None] * 3
    for run in kept:
        assert await store.runs.get(run.run_id) is not None
        assert await store.checkpoints.latest(key, run_id=run.run_id) is not None
        assert len(await store.waits.of_session(key, run_id=run.run_id, status=None)) == 1
    assert await store.upkeep.prune(runs_older_than=50) == PruneReport()


async def test_prune_takes_an_invocation_that_is_over_whole_and_one_that_may_go_on_not_at_all(harness: Harness) -> None:
    """D8: a suspended run that was gone on with goes with its successor, so that nobody takes it for one that waits."""
    store, clock = await _timed(harness)
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
    """D8: consumed or cancelled, by when; open input and that of a run that goes on stay, however old."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store)

    async def send(name: str) -> str:
        sent = await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=name, key=name))
        return sent.input.input_id

    opened = await send("open")
    cancelled, free = await send("cancelled"), await send("consumed without a run")
    await store.inbox.cancel(key, [cancelled])
    await store.commit(a_commit(key, consume=(Consume(input_id=free),)))
    orphaned = await send("of a pruned run")
    await _run(store, key, end=RunStatus.FAILED, consume=(Consume(input_id=orphaned),))
    clock.advance(0.000001)
    assert (await store.upkeep.prune(runs_older_than=0)).runs == 1
    kept, gone = [opened], [cancelled, free, orphaned]
    for end in (None, *RunStatus):
        if end is RunStatus.RUNNING:
            continue
        sent = await send(f"run {end}")
        await _run(store, key, end=end, consume=(Consume(input_id=sent),))
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
    """E2: to the microsecond; then the same key is new input, with whatever content."""
    store, clock = await _timed(harness)
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
    """D8: by when they were due, or sent; pending and delivered ones stay, however old. Usage stays too."""
    store, clock = await _timed(harness)
    key, _ = await a_session(store)
    past = to_datetime(clock.now()) - timedelta(days=365)
    new = NewOutgoing(kind="wake", target=a_key())
    sent = (new, new, new, new, replace(new, delay=60.0), replace(new, due_at=past))
    ids = (await store.commit(a_commit(key, outgoing=sent, usage=(NewUsage(model="m", input=7),)))).outgoing_ids
    statuses = (*OutgoingStatus, OutgoingStatus.DONE, OutgoingStatus.DONE)
    for outbox_id, status in zip(ids, statuses, strict=True):
        if status is not OutgoingStatus.PENDING:
            await store.outbox.mark(outbox_id, status)
    assert await store.upkeep.prune(outgoing_older_than=0) == PruneReport()  # sent at this very instant
    clock.advance(50.000001)
    assert await store.upkeep.prune(outgoing_older_than=50) == PruneReport(outgoing=3)
    left = [item.outbox_id for item in await store.outbox.of_session(key)]
    assert set(left) == {ids[statuses.index(s)] for s in (OutgoingStatus.PENDING, OutgoingStatus.DELIVERED)} | {ids[4]}
    clock.advance(60)
    assert await store.upkeep.prune(outgoing_older_than=50) == PruneReport(outgoing=1)
    clock.advance(10**6)
    everything = {f"{name}_older_than": 0 for name in ("receipts", "events", "runs", "inputs", "outgoing")}
    assert (await store.upkeep.prune(**everything)).outgoing == 0
    assert (await store.usage.report(key)).total.input == 7


async def test_a_never_saved_id_goes_with_its_last_run(harness: Harness) -> None:
    """D8: not while a run or a live lane is there; then every row of it, counted once."""
    store, clock = await _timed(harness)
    key, bystander = a_key(), (await a_session(store))[0]
    begun = await _run(store, key, "a", events=(NewEvent(type="begun"),))
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
    """D8, A9: its lane, run and wait are of a life that no new id has, whether the id is used again or not."""
    store, clock = await _timed(harness)
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner(), ttl=5)
    run = await _run(store, key, generation=lane.generation)
    (wait,) = await store.waits.of_session(key)
    await store.commit(a_commit(key, generation=1, run=run, end=EndRun(status=RunStatus.FAILED)))
    # A lane-less run becomes no current one, so a second lane and run make the first prunable.
    clock.advance(100)
    await store.delete(key)
    headless = a_key()
    old = await store.lanes.acquire(headless, an_owner(), ttl=5)
    left = await _run(store, headless, end=RunStatus.FAILED)
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
    """J4: whatever it stood at, it is refused or told `truncated`; it never reads on as if nothing had happened."""
    store, clock = await _timed(harness)
    key = a_key()
    await _run(store, key, events=tuple(NewEvent(type=f"old-{n}") for n in range(3)), end=RunStatus.FAILED)
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
    """D6, D8: the direct fork is gone, its own fork still reads entries the headless id holds."""
    store, clock = await _timed(harness)
    key, fork, grandfork = a_key(), a_key(), a_key()
    await _run(store, key, *"abc", end=RunStatus.FAILED)
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


async def test_vacuum_gives_pages_back_or_is_refused(harness: Harness) -> None:
    """D7: SQLite frees as many pages as asked and says how many are left; the others have no such verb."""
    store = await harness.open()
    if harness.name != "sqlite":
        with pytest.raises(Unsupported) as refused:
            await store.upkeep.vacuum()
        assert refused.value.category == "store_verb_unsupported"
        return
    await store.upkeep.vacuum()
    key, _ = await a_session(store, None, *("x" * 5000 for _ in range(100)))
    assert await store.upkeep.vacuum() == VacuumReport()
    await store.delete(key)
    first = await store.upkeep.vacuum(pages=10)
    assert first.pages_freed == 10
    assert first.pages_left > 50
    second = await store.upkeep.vacuum()
    assert second == VacuumReport(pages_freed=first.pages_left, pages_left=0)
    assert await store.upkeep.vacuum() == VacuumReport()


async def _litter(store: Store, clock: FakeClock, keys: list[SessionKey]) -> None:
    """Leave something to collect in each session, and old rows of every kind to prune."""
    for key in keys:
        arrived = (NewInput(kind=InputKind.MESSAGE, body=1, key=an_id("key")),)
        outgoing = (NewOutgoing(kind="wake", target=key),)
        for outbox_id in (await store.commit(a_commit(key, inputs=arrived, outgoing=outgoing))).outgoing_ids:
            await store.outbox.mark(outbox_id, OutgoingStatus.DONE)
        value = an_id("big ") * 1000
        await _run(store, key, "run", end=RunStatus.FAILED, events=(NewEvent(type="e"),) * 2)
        await store.commit(a_save(key, *"abc", document={"big": value}))
        await store.commit(a_commit(key, save=True, logs={"messages": Reset()}, document={"big": value + "!"}))
    clock.advance(100)


def _counts(dump: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    return {table: len(rows) for table, rows in dump.items()}


@pytest.mark.parametrize("verb", ["gc", "prune"])
async def test_a_sweep_that_fails_says_what_it_had_done(harness: Harness, verb: str) -> None:
    """D7: at every statement in turn; what it reports is what is gone, and running it again does the rest."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    pruned = ("receipts", "events", "runs", "inputs", "outgoing") if verb == "prune" else ()
    options: dict[str, Any] = {f"{name}_older_than": 50 for name in pruned}

    async def sweep() -> GcReport | PruneReport:
        return await store.upkeep.prune(**options) if options else await store.upkeep.gc(grace=0)

    tables = {"receipts": "receipt", "runs": "run", "checkpoints": "checkpoint", "waits": "wait"}
    tables |= {"entries": "entry", "branches": "branch", "contents": "content", "inputs": "input"}
    tables["outgoing"] = "outgoing"
    keys = [(await a_session(store))[0] for _ in range(2)]
    partial = 0
    for number in range(1, 200):
        await _litter(store, clock, keys)
        before = _counts(await store.dump())
        failure: UpkeepFailed | None = None
        try:
            with _failing(store, number):
                report = await sweep()
        except UpkeepFailed as error:
            failure, report = error, error.report
        after = _counts(await store.dump())
        for name, table in tables.items():
            if hasattr(report, name):
                assert getattr(report, name) == before[table] - after[table], (number, name)
        assert report.events == 2 * (before["event"] - after["event"]), number
        if failure is None:
            assert partial > 2
            return
        assert failure.category == "upkeep_failed"
        assert isinstance(failure.__cause__, StoreUnavailable)
        partial += report not in (GcReport(), PruneReport())
        await sweep()
        assert await sweep() in (GcReport(), PruneReport())
    pytest.fail("a sweep of two families has no 200 statements")


async def test_a_prune_that_fails_between_two_slices_counts_the_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: what a finished slice removed is in the report, never zero."""
    monkeypatch.setattr("tenuto.store.housekeeping.sweep.ROWS_PER_SLICE", 2)
    store, clock = await _timed(harness)
    key, _ = await a_session(store)
    for n in range(6):
        await store.commit(a_save(key, f"{n}", events=(NewEvent(type="e"),)))
    clock.advance(10)
    with pytest.raises(UpkeepFailed) as failed, _failing(store, 3):
        await store.upkeep.prune(receipts_older_than=5)
    assert failed.value.report == PruneReport(receipts=4)
    assert len((await store.dump())["receipt"]) == 3
    with pytest.raises(UpkeepFailed) as failed, _failing(store, 3):
        await store.upkeep.prune(events_keep=1)  # the floor, one slice, then the failure
    assert failed.value.report == PruneReport(events=2)
    assert await store.upkeep.prune(receipts_older_than=5, events_keep=1) == PruneReport(receipts=3, events=3)


async def test_an_expiry_that_fails_names_what_it_had_deleted(harness: Harness) -> None:
    """D7: those are gone, the others are still there, and the next call takes them."""
    store, clock = await _timed(harness)
    profile = Profile(expires_at=to_datetime(clock.now()) + timedelta(seconds=5))
    keys = [(await a_session(store, None, message("m"), profile=profile))[0] for _ in range(3)]
    clock.advance(5)
    partial: set[int] = set()
    for number in range(1, 100):
        report = None
        try:
            with _failing(store, number):
                await store.upkeep.expire()
        except UpkeepFailed as failure:
            report = failure.report
        gone = {key for key in keys if not await store.exists(key)}
        if report is None:
            assert partial >= {0, 1, 2}
            assert gone == set(keys)
            return
        assert set(report.deleted) == gone, number
        partial.add(len(gone))
        for key in gone:
            await a_session(store, None, message("m"), key=key, profile=profile)
    pytest.fail("three deletes have no hundred statements")


async def test_many_entries_are_collected_in_slices_and_counted_once(store: Store) -> None:
    """D8: more than one slice's worth, in one report."""
    key, _ = await a_session(store, None, *range(2500))
    await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("last",))}))
    assert await store.upkeep.gc(grace=0) == GcReport(families=1, entries=2500, branches=1)
    dump = await store.dump()
    assert [row["body"] for row in dump["entry"]] == ['"last"']
