"""Collection: what nothing reaches goes after its grace, and nothing else does."""

from tenuto.model.commit import EndRun, Reset
from tenuto.model.event import NewEvent
from tenuto.model.report import GcReport
from tenuto.model.run import RunStatus
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.upkeep_scene import a_left_run, a_timed_store


async def test_gc_waits_for_the_grace_and_then_takes_exactly_what_was_left(harness: Harness) -> None:
    """Counted from when it was first seen unreachable; `waiting` says that something is."""
    store, clock = await a_timed_store(harness)
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
    """A value that is written again and dropped again waits for the whole grace period."""
    store, clock = await a_timed_store(harness)
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
    """Each by itself is enough; once none is left the branch goes."""
    key, _ = await a_session(store, None, "a")
    run = await a_left_run(store, key, "run")
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
    """It takes entries on branches that no record names."""
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store, None, "a")
    await a_left_run(store, key, *"bcd", end=RunStatus.FAILED)
    assert await store.upkeep.gc(grace=0) == GcReport()
    clock.advance(10)
    assert (await store.upkeep.prune(runs_older_than=5)).runs == 1
    report = await store.upkeep.gc(grace=0)
    assert (report.entries, report.branches) == (3, 1)
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state["messages"] == ["a"]


async def test_gc_keeps_a_tombstones_numbers(store: Store) -> None:
    """However often upkeep runs, the id's next life continues from them."""
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


async def test_many_entries_are_collected_in_slices_and_counted_once(store: Store) -> None:
    """More than one slice's worth, in one report."""
    key, _ = await a_session(store, None, *range(2500))
    await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("last",))}))
    assert await store.upkeep.gc(grace=0) == GcReport(families=1, entries=2500, branches=1)
    dump = await store.dump()
    assert [row["body"] for row in dump["entry"]] == ['"last"']
