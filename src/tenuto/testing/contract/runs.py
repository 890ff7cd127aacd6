"""Runs, the checkpoints they leave, and the waits they suspend on."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import CommitRefused, InvocationExists, LaneLost, RunNotLive
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, OpenWait, SettleWait, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import ANY_TENANT, SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_commit, a_key, a_run, a_save, a_session, a_turn, an_id, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness


def _checkpoint(key: SessionKey, run: RunRef, step: int, *items: Any, **parts: Any) -> Commit:
    """Return a checkpoint of a run that also appends to its messages."""
    logs = {"messages": Append(items=items)} if items else {}
    return a_commit(key, run=run, logs=logs, checkpoint=NewCheckpoint(step=step, cursor={"at": step}), **parts)


async def test_the_latest_checkpoint_is_the_last_written_whatever_its_step(store: Store) -> None:
    """A new turn counts its steps from the start again."""
    key, _ = await a_session(store)
    long, short = await a_run(store, key), await a_run(store, key)
    for step in (1, 2, 9):
        await store.commit(_checkpoint(key, long, step))
    last = await store.commit(_checkpoint(key, short, 1))
    latest = await store.checkpoints.latest(key)
    assert latest is not None
    assert (latest.commit_number, latest.run_id, latest.step) == (last.commit_number, short.run_id, 1)
    of_long = await store.checkpoints.latest(key, run_id=long.run_id)
    assert of_long is not None
    assert (of_long.step, of_long.cursor) == (9, {"at": 9})


async def test_checkpoints_are_listed_newest_first_in_pages_and_by_run(store: Store) -> None:
    """By commit number; an id that a former run or another session has is not among them."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    one, two = await a_run(store, key), await a_run(store, key)
    numbers = [
        (await store.commit(_checkpoint(key, run, step))).commit_number for step, run in enumerate((one, two) * 2)
    ]
    await store.commit(_checkpoint(other, await a_run(store, other), 7))
    assert [c.commit_number for c in await store.checkpoints.of_session(key)] == numbers[::-1]
    page = await store.checkpoints.of_session(key, before=numbers[2], limit=1)
    assert [c.commit_number for c in page] == [numbers[1]]
    of_two = await store.checkpoints.of_session(key, run_id=two.run_id)
    assert [c.commit_number for c in of_two] == [numbers[3], numbers[1]]
    assert await store.checkpoints.get(key, numbers[3] + 1) is None
    assert await store.checkpoints.get(key, numbers[0] - 1) is None


async def test_one_read_after_a_checkpointing_commit_gives_it_whole(harness: Harness) -> None:
    """Cursor, document with small and big fields, schema version, and log ends that fit its entries."""
    store = await harness.open()
    key, _ = await a_session(store, None, message("one"))
    run = await a_run(store, key)
    document = {"small": [1, None], "big": "b" * 2000}
    checkpoint = NewCheckpoint(step=4, cursor=["outer", {"inner": 2}], document=document, schema_version="v7")
    logs = {"messages": Append(items=(message("two"), message("three"))), "inner/notes": Append(items=("n",))}
    receipt = await store.commit(a_commit(key, run=run, logs=logs, checkpoint=checkpoint))
    reopened = await harness.open()
    for found in (await store.checkpoints.latest(key), await reopened.checkpoints.get(key, receipt.commit_number)):
        assert found is not None
        assert (found.key, found.commit_number, found.run_id) == (key, receipt.commit_number, run.run_id)
        assert (found.step, found.cursor, found.document) == (4, ["outer", {"inner": 2}], document)
        assert (found.schema_version, found.created_at) == ("v7", receipt.committed_at)
        assert found.ends == receipt.ends
        read = await store.logs.read(key, "messages", end=found.ends["messages"])
        assert [entry.value["content"] for entry in read] == ["one", "two", "three"]
        assert [entry.commit_number for entry in read] == [1, *[receipt.commit_number] * 2]
        notes = await store.logs.read(key, "inner/notes", end=found.ends["inner/notes"])
        assert [entry.value for entry in notes] == ["n"]
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state == {"messages": [message("one")]}
    assert loaded.version == 1


async def test_what_a_session_was_before_a_run_is_found_by_the_commit_that_began_it(harness: Harness) -> None:
    """It is not one of the run's own checkpoints, and goes with the run when that is pruned."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, "a", state={"mood": "calm"})
    before = NewCheckpoint(step=0, document={"mood": "calm"}, before=True)
    turns = [a_turn(key, None, item, checkpoint=before, document={"mood": item}) for item in "bc"]
    receipts = [await store.commit(turn) for turn in turns]
    runs = list(reversed(await store.runs.of_session(key)))
    assert [run.commit_number for run in runs] == [receipt.commit_number for receipt in receipts]
    for run, length in zip(runs, (1, 2), strict=True):
        point = await store.checkpoints.get(key, run.commit_number)
        assert point is not None
        assert (point.run_id, point.document, point.ends["messages"].position) == (None, {"mood": "calm"}, length)
        assert await store.checkpoints.latest(key, run_id=run.run_id) is None
    clock.advance(100)
    report = await store.upkeep.prune(runs_older_than=50)
    left = [run.run_id for run in await store.runs.of_session(key)]
    assert (report.runs, report.checkpoints) == (2 - len(left), 2 - len(left))
    for run in runs:
        kept = await store.checkpoints.get(key, run.commit_number)
        assert (kept is not None) == (run.run_id in left)


async def test_a_session_is_loaded_with_its_current_run(store: Store) -> None:
    """The run under a lane that began last, under way or over; without one there is none."""
    key, _ = await a_session(store)
    found = await store.load_with_run(key)
    assert found is not None
    assert (found[0], found[1]) == (await store.load(key), None)
    lane = await store.lanes.acquire(key, an_owner())
    for item in "ab":
        await store.commit(a_turn(key, lane, item))
        found = await store.load_with_run(key)
        assert found is not None
        assert found[0] == await store.load(key)
        assert found[1] == (await store.runs.of_session(key))[0] == await store.runs.current(key)
    assert await store.load_with_run(a_key()) is None


async def test_checkpoints_read_the_same_before_and_after_the_runs_save(store: Store) -> None:
    """A save takes the run's entries onto the head, and every earlier checkpoint still reads whole."""
    key, _ = await a_session(store, None, "a")
    run = await a_run(store, key)
    receipts = [await store.commit(_checkpoint(key, run, step, item)) for step, item in enumerate("bcd")]
    await store.commit(a_save(key, "e", run=run, end=EndRun(status=RunStatus.COMPLETED)))
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state["messages"] == list("abcde")
    for receipt, wanted in zip(receipts, ("ab", "abc", "abcd"), strict=True):
        found = await store.checkpoints.get(key, receipt.commit_number)
        assert found is not None
        read = await store.logs.read(key, "messages", end=found.ends["messages"])
        assert [entry.value for entry in read] == list(wanted)


async def test_a_failed_run_changes_nothing_of_the_head(store: Store) -> None:
    """Its entries stay on its own branches, its record says how it went."""
    key, created = await a_session(store, None, "a")
    run = await a_run(store, key)
    await store.commit(_checkpoint(key, run, 1, "b"))
    error = {"category": "provider_unavailable", "message": "gone", "details": {"try": 2}}
    end = EndRun(status=RunStatus.FAILED, partial=True, error=error, outcome={"node": "ask"})
    ended = await store.commit(a_commit(key, run=run, end=end, steps=5))
    head = await store.head(key)
    assert head is not None
    assert (head.version, head.ends) == (1, created.ends)
    found = await store.runs.get(run.run_id)
    assert found is not None
    assert (found.status, found.partial, found.steps) == (RunStatus.FAILED, True, 5)
    assert (found.error, found.outcome, found.ended_at) == (error, {"node": "ask"}, ended.committed_at)


async def test_a_run_reads_back_as_it_was_begun(harness: Harness) -> None:
    """Distinct values in every field, through reopen; the defaults are the invocation's own id."""
    store = await harness.open(clock=FakeClock())
    key, _ = await a_session(store, None, "a")
    await store.commit(a_save(key, "b", events=(NewEvent(type="x"),) * 3))
    given: dict[str, Any] = {
        "invocation_id": an_id("inv"),
        "origin_id": "origin-1",
        "correlation_id": "corr-2",
        "worker": "w-3",
    }
    run = await a_run(store, key, ttl=40, **given)
    plain = await a_run(store, key)
    head = await store.head(key)
    assert head is not None
    found = await (await harness.open()).runs.get(run.run_id)
    assert found is not None
    assert {name: getattr(found, name) for name in given} == given
    assert (found.key, found.life, found.number, found.attempt) == (key, 1, 1, 1)
    assert (found.status, found.generation, found.start_sequence) == (RunStatus.RUNNING, None, 3)
    assert (found.base_version, found.base_ends, found.ends) == (2, head.ends, head.ends)
    assert found.expires_at == found.started_at + timedelta(seconds=40)
    assert (found.ended_at, found.error, found.outcome, found.own_logs) == (None, None, None, frozenset())
    default = await store.runs.get(plain.run_id)
    assert default is not None
    assert (default.number, default.origin_id, default.correlation_id) == (2, *[f"inv-{plain.run_id}"] * 2)


async def test_runs_are_found_by_session_by_invocation_and_as_current(store: Store) -> None:
    """The current one is the last begun under a lane; a lane-less one is not."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    invocation = an_id("inv")
    first = await a_run(store, key, lane=lane, invocation_id=invocation)
    again = await a_run(store, key, lane=lane, invocation_id=invocation, fresh=False)
    beside = await a_run(store, key)
    await a_run(store, other)
    assert [run.run_id for run in await store.runs.of_session(key)] == [beside.run_id, again.run_id, first.run_id]
    assert [run.run_id for run in await store.runs.of_session(key, limit=1, before=3)] == [again.run_id]
    assert [run.run_id for run in await store.runs.of_invocation(invocation)] == [first.run_id, again.run_id]
    assert await store.runs.of_invocation(invocation, tenant="other") == []
    current = await store.runs.current(key)
    assert current is not None
    assert (current.run_id, current.generation) == (again.run_id, lane.generation)
    assert await store.runs.current(other) is None
    assert await store.runs.get("unknown") is None


async def test_a_fresh_use_of_a_known_invocation_id_is_refused_in_its_tenant(store: Store) -> None:
    """Another session cannot use it either; another tenant's is its own."""
    key, _ = await a_session(store)
    invocation = an_id("inv")
    run = await a_run(store, key, invocation_id=invocation)
    other, _ = await a_session(store)
    before = await store.dump()
    for where in (key, other):
        with pytest.raises(InvocationExists):
            await a_run(store, where, invocation_id=invocation)
    with pytest.raises(CommitRefused):
        await a_run(store, key, run_id=run.run_id, invocation_id=an_id("inv"))
    assert await store.dump() == before
    await a_run(store, a_key(tenant="another"), invocation_id=invocation)


async def test_of_concurrent_fresh_uses_of_an_invocation_id_one_begins(store: Store) -> None:
    """They are on different sessions, so that no session row decides between them."""
    keys = [(await a_session(store))[0] for _ in range(6)]
    invocation = an_id("inv")
    async with asyncio.timeout(20):
        results = await asyncio.gather(
            *(a_run(store, key, invocation_id=invocation) for key in keys), return_exceptions=True
        )
    assert sum(isinstance(result, RunRef) for result in results) == 1, results
    assert sum(isinstance(result, InvocationExists) for result in results) == 5, results
    assert len(await store.runs.of_invocation(invocation)) == 1


async def test_of_concurrent_takers_of_an_orphaned_run_one_continues_it(harness: Harness) -> None:
    """The attempt rises once, the former runner and the other takers can write nothing."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key = a_key()
    run = await a_run(store, key, ttl=5, worker="w-old")
    clock.advance(6)
    takes = [a_commit(key, run=TakeRun(run_id=run.run_id, attempt=1, worker=f"w-{n}", ttl=30)) for n in range(5)]
    async with asyncio.timeout(20):
        results = await asyncio.gather(*map(store.commit, takes), return_exceptions=True)
    assert sum(isinstance(result, RunNotLive) for result in results) == 4, results
    (winner,) = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    found = await store.runs.get(run.run_id)
    assert found is not None
    assert (found.attempt, found.worker, found.number) == (2, f"w-{winner}", 1)
    assert found.expires_at == found.started_at + timedelta(seconds=36)
    before = await store.dump()
    with pytest.raises(RunNotLive):
        await store.commit(_checkpoint(key, run, 1))
    assert (await store.lanes.renew([], runs=[run])).lost_runs == {run.run_id}
    assert await store.dump() == before
    await store.commit(_checkpoint(key, RunRef(run_id=run.run_id, attempt=2), 1))


async def test_a_laned_run_continues_under_the_successors_generation(harness: Harness) -> None:
    """Same run, next attempt; the successor continues from its checkpoints and entries."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, "a")
    lane = await store.lanes.acquire(key, an_owner("old"), ttl=5)
    run = await a_run(store, key, lane=lane)
    await store.commit(_checkpoint(key, run, 1, "b", generation=1))
    clock.advance(5)
    successor = await store.lanes.acquire(key, an_owner("new"))
    take = TakeRun(run_id=run.run_id, attempt=1, worker="w-new")
    with pytest.raises(LaneLost):
        await store.commit(a_commit(key, generation=1, run=take))
    await store.commit(a_commit(key, generation=2, run=take))
    with pytest.raises(RunNotLive):
        await store.commit(a_commit(key, generation=2, run=run, steps=1))
    taken = replace(run, attempt=2)
    end = EndRun(status=RunStatus.COMPLETED)
    await store.commit(a_save(key, "c", generation=successor.generation, run=taken, end=end, disarm=True))
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state["messages"] == ["a", "b", "c"]
    found = await store.runs.get(run.run_id)
    assert found is not None
    assert (found.attempt, found.generation, found.worker) == (2, 2, "w-new")


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.RUNNING])
async def test_an_ended_run_can_write_nothing(store: Store, status: RunStatus) -> None:
    """Completed, failed, interrupted and suspended alike; the refusal says which."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    run = await a_run(store, key, lane=lane)
    await store.commit(a_commit(key, generation=1, run=run, end=EndRun(status=status)))
    before = await store.dump()
    parts: list[dict[str, Any]] = [
        {"save": True, "document": {"late": 1}},
        {"checkpoint": NewCheckpoint(step=1)},
        {"open_waits": (OpenWait(kind="signal"),)},
        {"events": (NewEvent(type="late"),)},
        {"end": EndRun(status=RunStatus.FAILED)},
    ]
    for part in parts:
        with pytest.raises(RunNotLive) as refused:
            await store.commit(a_commit(key, generation=1, run=run, **part))
        assert (refused.value.run_id, refused.value.found) == (run.run_id, status)
    with pytest.raises(RunNotLive):
        await store.events.append(lane, [NewEvent(type="late")], run=run)
    with pytest.raises(RunNotLive):
        await store.commit(a_commit(key, generation=1, run=TakeRun(run_id=run.run_id, attempt=1)))
    assert await store.dump() == before


async def test_a_commit_that_leaves_its_runs_row_as_it_is_is_refused_once_another_has_taken_the_run(
    harness: Harness,
) -> None:
    """Its row is not written, so the session's has to be enough of a guard; also for who remembers it from before."""
    clock = FakeClock()
    mine, theirs = await harness.open(clock=clock), await harness.open(clock=clock)
    key, _ = await a_session(mine)
    run = await a_run(mine, key)

    def telling() -> Commit:
        return a_commit(key, run=run, expected_version=1, events=(NewEvent(type="told"),))

    await mine.commit(telling())
    clock.advance(60)
    await theirs.commit(a_commit(key, run=TakeRun(run_id=run.run_id, attempt=1)))
    async with unchanged(mine):
        with pytest.raises(RunNotLive):
            await mine.commit(telling())


async def test_runs_checkpoints_and_waits_read_back_equal(store: Store) -> None:
    """Present optional parts come back too, {} still {}."""
    key, _ = await a_session(store, None, "m")
    begin = BeginRun(
        run_id="r-1", invocation_id="inv-1", origin_id="inv-0", correlation_id="c-2", worker="w-3", ttl=20.0
    )
    deadline = datetime(2040, 1, 1, 1, 1, 1, 999999, tzinfo=UTC)
    wait = OpenWait(kind="approval", signal_id="s-4", deadline=deadline, schema={}, metadata={"who": "me"})
    point = NewCheckpoint(step=3, cursor={}, document={"big": "z" * 3000, "small": {}}, schema_version="v5")
    receipt = await store.commit(a_commit(key, run=begin, checkpoint=point, open_waits=(wait,), steps=6))
    settle = SettleWait(wait_id=receipt.wait_ids[0], answer={})
    end = EndRun(status=RunStatus.FAILED, partial=True, error={"category": "x"}, outcome={})
    await store.commit(a_commit(key, run=RunRef(run_id="r-1"), settle_waits=(settle,), end=end))
    run, found = await store.runs.get("r-1"), await store.waits.get(receipt.wait_ids[0])
    latest = await store.checkpoints.latest(key)
    assert run is not None
    assert found is not None
    assert latest is not None
    assert (run.origin_id, run.correlation_id, run.worker, run.steps) == ("inv-0", "c-2", "w-3", 6)
    assert (run.status, run.partial, run.error, run.outcome) == (RunStatus.FAILED, True, {"category": "x"}, {})
    assert run.ended_at is not None
    assert (found.kind, found.signal_id, found.deadline, found.schema) == ("approval", "s-4", deadline, {})
    assert (found.metadata, found.answer, found.status) == ({"who": "me"}, {}, "answered")
    assert (latest.step, latest.cursor, latest.schema_version) == (3, {}, "v5")
    assert latest.document == {"big": "z" * 3000, "small": {}}


async def test_runs_that_left_a_checkpoint_and_stopped_can_be_resumed(store: Store) -> None:
    """Failed and interrupted ones of a tenant or of all, by id, if no later run took their place."""
    ends = {"b-failed": RunStatus.FAILED, "a-cut": RunStatus.INTERRUPTED, "c-done": RunStatus.COMPLETED}
    key, _ = await a_session(store)
    elsewhere = a_key(tenant="t")
    for name, status in {**ends, "d-bare": RunStatus.FAILED, "e-other": RunStatus.FAILED}.items():
        place = elsewhere if name == "e-other" else key
        run = await a_run(store, place, run_id=name, invocation_id=f"i-{name}")
        if name != "d-bare":
            await store.commit(_checkpoint(place, run, 1))
        await store.commit(a_commit(place, run=run, end=EndRun(status=status)))
    assert [run.run_id for run in await store.runs.resumable()] == ["a-cut", "b-failed"]
    assert [run.run_id for run in await store.runs.resumable(after="a-cut", limit=1)] == ["b-failed"]
    assert [run.run_id for run in await store.runs.resumable(tenant="t")] == ["e-other"]
    assert [run.run_id for run in await store.runs.resumable(tenant=ANY_TENANT)] == ["a-cut", "b-failed", "e-other"]
    again = await a_run(store, key, run_id="f-again", invocation_id="i-a-cut", origin_id="i-a-cut", fresh=False)
    assert [run.run_id for run in await store.runs.resumable()] == ["b-failed"]
    await store.commit(a_commit(key, run=again, end=EndRun(status=RunStatus.FAILED)))
    assert [run.run_id for run in await store.runs.resumable()] == ["a-cut", "b-failed"]
