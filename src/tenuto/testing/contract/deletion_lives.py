"""The id of a deleted session: no copy from before ever wins against its next life."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import (
    CommitRefused,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionDeleted,
    SessionError,
    TenutoError,
    VersionConflict,
    WaitNotOpen,
)
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, SettleWait, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.lane import Rearm
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionRecord
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.deletion_scene import FullSession, a_full_session


async def _stale_writes(store: Store, full: FullSession) -> None:
    """Try every verb with what the old life's runner holds; each is refused and nothing changes."""
    key, lane, run = full.key, full.lane, full.run
    fenced: dict[str, Any] = {"generation": lane.generation}
    settle = (SettleWait(wait_id=full.wait_id, answer="late"),)
    before = await store.dump()
    commits = [
        a_save(key, "stale"),
        a_save(key, "stale", expected_version=1),
        a_save(key, "stale", **fenced),
        a_save(key, "stale", **fenced, run=run, end=EndRun(status=RunStatus.COMPLETED), disarm=True),
        a_commit(key, run=run, checkpoint=NewCheckpoint(step=2)),
        a_commit(key, **fenced, run=TakeRun(run_id=run.run_id, attempt=1)),
        a_commit(key, run=BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))),
        a_commit(key, events=(NewEvent(type="stale"),)),
        a_commit(key, settle_waits=settle),
        a_commit(key, profile={"title": "stale"}),
        a_commit(key, **fenced, expected_commit=full.checkpoint, rearm=Rearm(nonce="n", ttl=5)),
        full.landed,
    ]
    for commit in commits:
        with pytest.raises(SessionDeleted) as refused:
            await store.commit(commit)
        assert (refused.value.expected_life, refused.value.found_life) == (1, 2)
        assert refused.value.category == "session_deleted"
    with pytest.raises(SessionDeleted):
        await store.events.append(lane, [NewEvent(type="stale")], run=run)
    with pytest.raises(SessionDeleted):
        await store.lanes.disarm(lane)
    with pytest.raises(SessionDeleted):
        await store.lanes.acquire(key, an_owner(), nonce=lane.nonce, life=lane.life)
    renewal = await store.lanes.renew([lane], runs=[run])
    assert renewal.lost == {key}
    assert renewal.lost_runs == {run.run_id}
    assert await store.dump() == before


async def _borrowed_writes(store: Store, full: FullSession) -> None:
    """Name the new life with the old one's generation, run, wait, version or branch; each is refused still."""
    key, lane, run = full.key, full.lane, full.run
    before = await store.dump()
    tries: list[tuple[type[TenutoError], Commit]] = [
        (LaneLost, a_save(key, "stale", life=2, generation=lane.generation)),
        (RunNotLive, a_commit(key, life=2, run=run, checkpoint=NewCheckpoint(step=2))),
        (WaitNotOpen, a_commit(key, life=2, settle_waits=(SettleWait(wait_id=full.wait_id),))),
        (VersionConflict, a_save(key, "stale", life=2, expected_version=1)),
    ]
    for error, commit in tries:
        with pytest.raises(error):
            await store.commit(commit)
    with pytest.raises(LaneLost):
        await store.events.append(replace(lane, life=2), [NewEvent(type="stale")])
    with pytest.raises(LaneLost):
        await store.lanes.disarm(replace(lane, life=2))
    assert (await store.lanes.renew([replace(lane, life=2)])).lost == {key}
    assert await store.dump() == before


async def test_every_write_of_the_old_life_is_refused_while_the_id_is_deleted(harness: Harness) -> None:
    """Commit, event batch, answer, renew, disarm, each tried; through objects opened earlier and after gc."""
    store, other = await harness.open(), await harness.open()
    full = await a_full_session(store)
    await store.delete(full.key)
    for opened in (store, other, await harness.open()):
        await _stale_writes(opened, full)
        await _borrowed_writes(opened, full)
    await store.upkeep.gc(grace=0)
    await store.upkeep.prune(receipts_older_than=0, events_keep=0, runs_older_than=0)
    for opened in (store, other):
        await _stale_writes(opened, full)
        await _borrowed_writes(opened, full)


@pytest.mark.parametrize("again", ["create", "save", "commit", "fork"])
async def test_every_write_of_the_old_life_is_refused_in_the_ids_next_life(harness: Harness, again: str) -> None:
    """However it began, its numbers continue those of the old life, and no stale copy wins against it."""
    store, other = await harness.open(), await harness.open()
    full = await a_full_session(store)
    old = await store.head(full.key)
    assert old is not None
    await store.delete(full.key)
    match again:
        case "create":
            receipt = await store.create(full.key, state={"new": 1})
        case "save":
            receipt = await store.save(full.key, SessionRecord(session_id=full.key.session_id, state={"new": 1}))
        case "commit":
            life = await store.life(full.key)
            receipt = await store.commit(a_commit(full.key, life=life, save=True, document={"new": 1}))
        case _:
            source, _ = await a_session(store, state={"new": 1})
            receipt = await store.fork(source, full.key)
    assert receipt.life == 2
    assert receipt.version > old.version
    assert receipt.commit_number > old.commit_number
    assert receipt.generation > old.generation
    assert receipt.event_seq > old.event_seq
    for opened in (store, other):
        await _stale_writes(opened, full)
        await _borrowed_writes(opened, full)
    await store.upkeep.gc(grace=0)
    for opened in (store, other, await harness.open()):
        await _stale_writes(opened, full)
        await _borrowed_writes(opened, full)
    lane = await store.lanes.acquire(full.key, an_owner("next"))
    assert lane.generation > receipt.generation
    await _stale_writes(other, full)
    loaded = await store.load(full.key)
    assert loaded is not None
    assert loaded.state["new"] == 1
    assert loaded.version == receipt.version


async def test_a_save_with_the_old_lifes_version_is_refused(store: Store) -> None:
    """A last-write-wins save begins a new life, one that expects a version never does."""
    key, created = await a_session(store, None, "a")
    record = await store.load(key)
    assert record is not None
    await store.delete(key)
    before = await store.dump()
    with pytest.raises(VersionConflict) as refused:
        await store.save(key, record, expected_version=created.version)
    assert (refused.value.expected, refused.value.found) == (created.version, None)
    assert await store.dump() == before
    begun = await store.save(key, record)
    assert begun.version == created.version + 1
    with pytest.raises(VersionConflict):
        await store.save(key, record, expected_version=created.version)


async def test_a_branch_of_the_old_life_cannot_be_continued(store: Store) -> None:
    """Not as the base of an append, and not as where a run begins, even while its entries are still there."""
    key, created = await a_session(store, None, *"abc")
    fork = a_key()
    await store.fork(key, fork)
    await store.delete(key)
    await a_session(store, None, "new", key=key)
    old = created.ends["messages"]
    before = await store.dump()
    tries = [
        a_commit(key, life=2, save=True, logs={"messages": Append(items=("stale",), base=old)}),
        a_commit(
            key,
            life=2,
            run=BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"), fresh=False, ends={"messages": old}),
        ),
    ]
    for commit in tries:
        with pytest.raises((CommitRefused, VersionConflict)):
            await store.commit(commit)
    assert await store.dump() == before


async def test_the_operation_ids_of_the_old_life_are_forgotten_with_it(store: Store) -> None:
    """A create repeated after the delete begins a new life; it is not answered with the old receipt."""
    key = a_key()
    first = await store.create(key, state={"a": 1}, operation_id="op")
    await store.delete(key)
    second = await store.create(key, state={"a": 2}, operation_id="op")
    assert (second.replayed, second.life, second.version) == (False, 2, first.version + 1)
    with pytest.raises(OperationConflict):
        await store.create(key, state={"a": 1}, operation_id="op")


async def test_concurrent_deletes_recreates_and_stale_commits_never_let_a_stale_copy_win(store: Store) -> None:
    """Versions only rise, and what is loaded at the end was written in the life it is read in."""
    key, _ = await a_session(store, state={"life": 1})
    versions: list[int] = []

    async def stale(life: int, n: int) -> None:
        commit = a_commit(key, life=life, save=True, document={"life": life, "n": n})
        with suppress(SessionError):
            versions.append((await store.commit(commit)).version)

    async def renewed(n: int) -> None:
        await store.delete(key)
        record = SessionRecord(session_id=key.session_id, state={"life": 0})
        versions.append((await store.save(key, record)).version)

    async with asyncio.timeout(30):
        for n in range(5):
            life = await store.life(key)
            await asyncio.gather(stale(life, 0), renewed(n), stale(life, 1), stale(life, 2))
            loaded = await store.load(key)
            assert loaded is not None
            assert loaded.head is not None
            assert loaded.head.life == life + 1
            assert loaded.state == {"life": 0}
    assert len(set(versions)) == len(versions)
