"""Faults inside a commit: whichever statement fails, nothing of it stays."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import StoreError, StoreUnavailable
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Held, NewCheckpoint, OpenWait, Reset, SettleWait
from tenuto.model.event import NewEvent
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged, values
from tenuto.testing.factories import a_commit, a_key, a_session, an_owner
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, probed


async def _begins(store: Store) -> Commit:
    """A commit that begins and ends a run and touches every table a commit can touch."""
    key, created = await a_session(store, None, "a", "b", state={"big": "b" * 2000})
    lane = await store.lanes.acquire(key, an_owner())
    begin = BeginRun(run_id=new_id(), invocation_id=new_id())
    wait = (OpenWait(kind="signal"), OpenWait(kind="kept"))
    ended = EndRun(status=RunStatus.SUSPENDED)
    first = await store.commit(a_commit(key, generation=lane.generation, run=begin, open_waits=wait, end=ended))
    (content,) = [row["hash"] for row in await rows(store, "content")]
    return a_commit(
        key,
        generation=lane.generation,
        run=BeginRun(run_id=new_id(), invocation_id=new_id()),
        save=True,
        document={"x": 1, "copy": Held(hash=content), "new": "n" * 3000},
        logs={
            "messages": Reset(keep=created.ends["messages"]._replace(position=1), items=("c",)),
            "notes": Append(items=("n",)),
        },
        profile={"title": "T"},
        end=EndRun(status=RunStatus.SUSPENDED),
        checkpoint=NewCheckpoint(step=1, document={"y": "y" * 3000}),
        open_waits=wait,
        settle_waits=(SettleWait(wait_id=first.wait_ids[0]),),
        keep_waits=(first.wait_ids[1],),
        events=(NewEvent(type="e"),),
        disarm=True,
    )


async def _folds(store: Store) -> Commit:
    """A commit that continues a run, moves its branch onto the head's and ends it."""
    key, _ = await a_session(store, None, "a")
    run_id = new_id()
    begin = BeginRun(run_id=run_id, invocation_id=new_id())
    await store.commit(a_commit(key, run=begin, logs={"messages": Append(items=("b",))}))
    end = EndRun(status=RunStatus.COMPLETED)
    logs = {"messages": Append(items=("c",))}
    return a_commit(key, run=RunRef(run_id=run_id), save=True, logs=logs, end=end)


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_commit_leaves_no_trace(store: Store) -> None:
    """The receipt included; repeated with its operation id the commit then lands, once."""
    commit = await _begins(store)
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert not receipt.replayed
    assert {
        "find_session",
        "move_session",
        "hold_contents",
        "touch_contents",
        "insert_holdings",
        "share_branches",
        "insert_branches",
        "insert_entries",
        "insert_runs",
        "put_profile",
        "insert_checkpoints",
        "insert_waits",
        "settle_waits",
        "keep_waits",
        "insert_events",
        "insert_receipts",
    } <= set(failed)
    assert values(await store.logs.read(commit.key, "messages")) == ["a", "c"]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_fold_leaves_no_trace(store: Store) -> None:
    """A run's branch is moved onto the head's whole or not at all."""
    commit = await _folds(store)
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert not receipt.replayed
    assert {"move_session", "rekey_branch", "rekey_entries", "insert_entries", "update_runs"} <= set(failed)
    assert values(await store.logs.read(commit.key, "messages")) == ["a", "b", "c"]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_create_leaves_no_trace(store: Store) -> None:
    """No row of a session that was not created."""
    key = a_key()
    state = {"m": ["a"], "big": "b" * 2000}

    async def create() -> Any:
        return await store.create(key, state=state, logs={"m"}, profile=Profile(title="T"), operation_id="op")

    receipt, failed = await fail_at_each_statement(store, create)
    assert not receipt.replayed
    assert {"insert_session", "hold_contents", "insert_entries", "put_profile", "insert_receipts"} <= set(failed)


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_a_fork_leaves_no_trace(store: Store) -> None:
    """Neither a half fork nor a mark on its source."""
    source, _ = await a_session(store, None, "a", state={"big": "b" * 2000})
    key = a_key()
    receipt, failed = await fail_at_each_statement(store, lambda: store.fork(source, key, operation_id="op"))
    assert not receipt.replayed
    assert {"insert_session", "share_branches", "insert_branches", "touch_contents", "insert_receipts"} <= set(failed)


@needs(Capability.TRIGGERS)
async def test_a_statement_that_the_database_itself_refuses_leaves_no_trace(harness: Harness) -> None:
    """A real trigger of somebody else's on each table in turn; without it the commit lands."""
    store = await harness.open()
    commit = await _begins(store)
    for table in ("run", "branch", "entry", "checkpoint", "wait", "event", "content", "holding", "receipt"):
        await store.aclose()
        await harness.refuse_inserts(table)
        store = await harness.open()
        async with unchanged(store):
            with pytest.raises(StoreError) as refused:
                await store.commit(commit)
        assert not refused.value.retryable, table
        assert await store.receipt(commit.key, commit.operation_id) is None
        await store.aclose()
        await harness.accept_inserts(table)
        store = await harness.open()
    assert not (await store.commit(commit)).replayed


@needs(Capability.TRIGGERS)
async def test_a_failed_commit_does_not_take_its_neighbours_down(harness: Harness) -> None:
    """Commits of other sessions under way at the same time land, each with its own answer."""
    store = await harness.open()
    keys = [(await a_session(store, None, "a"))[0] for _ in range(6)]
    await store.aclose()
    await harness.refuse_inserts("checkpoint")
    store = await harness.open()
    commits = [a_commit(key, save=True, logs={"messages": Append(items=("b",))}) for key in keys]
    begin = BeginRun(run_id=new_id(), invocation_id=new_id())
    commits[2] = replace(commits[2], run=begin, checkpoint=NewCheckpoint(step=1))
    found = await asyncio.gather(*map(store.commit, commits), return_exceptions=True)
    assert [isinstance(item, StoreError) for item in found] == [n == 2 for n in range(6)]
    for n, key in enumerate(keys):
        assert values(await store.logs.read(key, "messages")) == (["a"] if n == 2 else ["a", "b"])


@needs(Capability.PROBES)
async def test_a_refused_commit_does_not_take_its_neighbours_down(store: Store) -> None:
    """The same for a guard that misses and for a fault between two statements."""
    keys = [(await a_session(store, None, "a"))[0] for _ in range(6)]
    commits = [a_commit(key, save=True, logs={"messages": Append(items=("b",))}) for key in keys]
    commits[1] = replace(commits[1], expected_version=7)
    commits[3] = replace(commits[3], profile={"title": "T"})

    def probe(name: str) -> None:
        if name == "put_profile":
            raise StoreUnavailable("injected")

    with probed(store, probe):
        found = await asyncio.gather(*map(store.commit, commits), return_exceptions=True)
    assert [type(item).__name__ for item in found] == [
        "Receipt",
        "VersionConflict",
        "Receipt",
        "StoreUnavailable",
        "Receipt",
        "Receipt",
    ]
    for n, key in enumerate(keys):
        assert values(await store.logs.read(key, "messages")) == (["a"] if n in {1, 3} else ["a", "b"])
