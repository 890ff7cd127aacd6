"""Delete: everything of the session goes, its numbers stay, and no copy from before ever wins again."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import (
    CommitRefused,
    DeliveryLost,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionDeleted,
    SessionError,
    SessionNotFound,
    StoreUnavailable,
    TenutoError,
    UpkeepFailed,
    VersionConflict,
    WaitNotOpen,
)
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, OpenWait, SettleWait, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane, Rearm
from tenuto.model.outgoing import NewOutgoing, OutgoingStatus
from tenuto.model.report import DeleteReport, GcReport
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Kind, Profile, SessionKey, SessionRecord
from tenuto.store.facets.dump import Dump
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner
from tenuto.testing.faults import FaultyBackend
from tenuto.testing.harness import Harness


class _Full:
    """A session with something in every table, and what a runner of it holds."""

    def __init__(self, key: SessionKey, lane: Lane, run: RunRef, wait_id: str, checkpoint: int, landed: Commit) -> None:
        self.key = key
        self.lane = lane
        self.run = run
        self.wait_id = wait_id
        self.checkpoint = checkpoint
        self.landed = landed


async def _full(store: Store, key: SessionKey | None = None, **create: Any) -> _Full:
    """Create a session with a lane, a live run, a checkpoint, a wait, events and a big value."""
    key = key or a_key()
    text = f"of {key.session_id} "
    await a_session(store, None, text + "one", key=key, state={"big": text + "x" * 2000}, **create)
    lane = await store.lanes.acquire(key, an_owner(text))
    run_id = an_id("run")
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    landed = a_commit(
        key,
        life=lane.life,
        generation=lane.generation,
        run=begin,
        logs={"messages": Append(items=(text + "two",))},
        checkpoint=NewCheckpoint(step=1, document={"big": text + "y" * 2000}),
        open_waits=(OpenWait(kind="signal", signal_id=text),),
        events=(NewEvent(type="a", data=text), NewEvent(type="b", data=text)),
    )
    receipt = await store.commit(landed)
    return _Full(key, lane, RunRef(run_id=run_id), receipt.wait_ids[0], receipt.commit_number, landed)


def _sid(dump: Dump, key: SessionKey) -> int:
    (sid,) = {row["sid"] for row in dump["session"] if row["session_id"] == key.session_id}
    return int(sid)


def _rows_of(dump: Dump, sid: int) -> dict[str, int]:
    """Count a session's rows in every table but its own."""
    tables = {name: rows for name, rows in dump.items() if name not in {"session", "content"}}
    counts = {name: sum(row["session"] == sid for row in rows) for name, rows in tables.items()}
    return {name: count for name, count in counts.items() if count}


async def test_delete_of_an_unknown_id_does_nothing_and_reports_zeros(store: Store) -> None:
    """A8: beside a session of the same id under another tenant and kind, which stays."""
    key = a_key()
    await a_session(store, key=replace(key, tenant="other"))
    await a_session(store, key=replace(key, kind=Kind.INVOCATION))
    before = await store.dump()
    assert await store.delete(key) == DeleteReport()
    assert await store.delete(key, cascade=True) == DeleteReport()
    assert await store.dump() == before


async def test_the_second_delete_succeeds_and_reports_zeros(store: Store) -> None:
    """A8: also with cascade; the tombstone does not change."""
    full = await _full(store)
    report = await store.delete(full.key)
    assert report.sessions == 1
    before = await store.dump()
    assert await store.delete(full.key) == DeleteReport()
    assert await store.delete(full.key, cascade=True) == DeleteReport()
    assert await store.dump() == before


async def test_of_concurrent_deletes_one_reports_the_work(store: Store) -> None:
    """A8: nothing is counted twice."""
    full = await _full(store)
    async with asyncio.timeout(20):
        reports = await asyncio.gather(*(store.delete(full.key) for _ in range(5)))
    assert sorted(report.sessions for report in reports) == [0, 0, 0, 0, 1]
    assert sum(report.runs for report in reports) == 1


async def test_delete_reports_what_it_removed(store: Store) -> None:
    """A11: each kind by its own number."""
    key, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000})
    for n in range(2):
        begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
        waits = tuple(OpenWait(kind="signal") for _ in range(2))
        events = tuple(NewEvent(type=f"e{n}") for _ in range(5))
        checkpoint = NewCheckpoint(step=n, document={"big": f"{n}" * 3000})
        await store.commit(a_commit(key, run=begin, checkpoint=checkpoint, open_waits=waits, events=events))
    report = await store.delete(key)
    assert report == DeleteReport(
        sessions=1, runs=2, checkpoints=2, waits=4, receipts=3, events=10, entries=3, branches=1, contents=3
    )


async def test_delete_needs_no_lane_and_is_never_busy(store: Store) -> None:
    """A10: a held lane does not stop it, and its holder has lost it."""
    full = await _full(store)
    assert (await store.delete(full.key)).sessions == 1
    assert (await store.lanes.renew([full.lane])).lost == {full.key}


async def test_after_delete_objects_opened_before_see_nothing_of_the_session(harness: Harness) -> None:
    """A10: no head, record, run, checkpoint, wait, event, log or list entry, in either opened store."""
    store, other = await harness.open(), await harness.open()
    full = await _full(store)
    key = full.key
    assert await other.load(key) is not None
    await store.delete(key)
    for opened in (store, other, await harness.open()):
        assert await opened.head(key) is None
        assert await opened.load(key) is None
        assert not await opened.exists(key)
        assert await opened.runs.get(full.run.run_id) is None
        assert await opened.runs.current(key) is None
        assert await opened.runs.of_session(key) == []
        assert await opened.runs.of_invocation(f"inv-{full.run.run_id}") == []
        assert await opened.checkpoints.latest(key) is None
        assert await opened.checkpoints.get(key, full.checkpoint) is None
        assert await opened.waits.of_session(key, status=None) == []
        assert await opened.waits.get(full.wait_id) is None
        assert (await opened.events.read(key)).events == ()
        assert await opened.receipt(key, full.landed.operation_id) is None
        assert key not in [summary.key for summary in await opened.list()]
        assert await opened.lanes.orphans() == []
        with pytest.raises(SessionNotFound):
            await opened.logs.read(key, "messages")
        with pytest.raises(SessionNotFound):
            await opened.fork(key, a_key(), at=full.checkpoint)


async def test_delete_leaves_every_other_sessions_rows_equal_and_none_of_its_own(store: Store) -> None:
    """A11: beside the same id under another tenant and kind; only the tombstone is left."""
    full = await _full(store)
    for other in (replace(full.key, tenant="other"), replace(full.key, kind=Kind.INVOCATION), a_key()):
        await _full(store, other)
    before = await store.dump()
    (sid,) = {row["sid"] for row in before["session"] if (row["tenant"], row["kind"]) == ("", "session")} & {
        row["sid"] for row in before["session"] if row["session_id"] == full.key.session_id
    }
    await store.delete(full.key)
    after = await store.dump()
    assert _rows_of(before, sid) == {
        "profile": 1,
        "receipt": 2,
        "run": 1,
        "branch": 2,
        "entry": 2,
        "checkpoint": 1,
        "wait": 1,
        "event": 1,
        "holding": 2,
    }
    assert _rows_of(after, sid) == {}
    for table, rows in before.items():
        if table == "content":
            continue
        owner = "sid" if table == "session" else "session"
        assert [row for row in after[table] if row[owner] != sid] == [row for row in rows if row[owner] != sid]
    (tombstone,) = [row for row in after["session"] if row["sid"] == sid]
    assert (tombstone["alive"], tombstone["status"], tombstone["life"]) == (0, "deleted", 2)
    assert (tombstone["heads"], tombstone["document"], tombstone["held"]) == ("{}", "{}", None)


async def test_values_that_another_session_holds_too_outlive_a_delete(store: Store) -> None:
    """A13: an equal value is one body; it goes with its last holder."""
    shared = "z" * 3000
    one, _ = await a_session(store, state={"big": shared, "own": "1" * 3000})
    two, _ = await a_session(store, state={"other": shared})
    assert (await store.delete(one)).contents == 1
    loaded = await store.load(two)
    assert loaded is not None
    assert loaded.state["other"] == shared
    assert (await store.delete(two)).contents == 1
    assert (await store.dump())["content"] == []


async def test_a_fork_reads_whole_after_its_source_is_deleted(store: Store) -> None:
    """A13: what only the source held goes at once; entries and values the fork reaches stay."""
    source, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000})
    fork = a_key()
    await store.fork(source, fork)
    await store.commit(a_save(source, *"defg", document={"big": "y" * 2000}))
    await store.commit(a_save(fork, "F"))
    report = await store.delete(source)
    assert (report.entries, report.contents, report.forks) == (4, 1, (fork,))
    loaded = await store.load(fork)
    assert loaded is not None
    assert loaded.state == {"messages": ["a", "b", "c", "F"], "big": "x" * 2000}
    assert await store.upkeep.gc(grace=0) == GcReport()
    assert len((await store.dump())["entry"]) == 4
    last = await store.delete(fork)
    assert (last.entries, last.contents) == (4, 1)  # what the fork kept of its source goes with the fork
    dump = await store.dump()
    assert (dump["entry"], dump["branch"], dump["content"]) == ([], [], [])
    assert await store.upkeep.gc(grace=0) == GcReport()


async def test_a_fork_of_a_fork_reads_whole_after_both_its_ancestors_are_deleted(store: Store) -> None:
    """A13: and the sources' ids begin a new life beside it."""
    one, _ = await a_session(store, None, "a")
    two, three = a_key(), a_key()
    await store.fork(one, two)
    await store.commit(a_save(two, "b"))
    await store.fork(two, three)
    await store.commit(a_save(three, "c"))
    for key in (one, two):
        await store.delete(key)
        await store.upkeep.gc(grace=0)
    await a_session(store, None, "new", key=one)
    await store.upkeep.gc(grace=0)
    loaded = await store.load(three)
    assert loaded is not None
    assert loaded.state["messages"] == ["a", "b", "c"]


async def test_a_delete_of_a_parent_leaves_children_and_forks_and_names_them(store: Store) -> None:
    """helix 13: the second call is a no-op and names nobody."""
    parent, _ = await a_session(store, None, "p")
    child, _ = await a_session(store, profile=Profile(parent=parent.session_id, root=parent.session_id))
    stranger, _ = await a_session(store, key=a_key(tenant="other"), profile=Profile(parent=parent.session_id))
    fork = a_key()
    await store.fork(parent, fork)
    report = await store.delete(parent)
    assert (report.sessions, report.children, report.forks) == (1, (child,), (fork,))
    for key in (child, stranger, fork):
        assert await store.exists(key)
    assert await store.delete(parent, cascade=True) == DeleteReport()
    assert await store.exists(child)


async def test_cascade_deletes_the_childrens_tree_and_never_forks(store: Store) -> None:
    """helix 13: one report counts it all and names the forks that stay."""
    root, _ = await a_session(store, None, "r")
    child, _ = await a_session(store, None, "c", profile=Profile(parent=root.session_id, root=root.session_id))
    grand, _ = await a_session(store, None, "g", profile=Profile(parent=child.session_id, root=root.session_id))
    fork, bystander = a_key(), (await a_session(store))[0]
    await store.fork(child, fork)
    report = await store.delete(root, cascade=True)
    assert (report.sessions, report.forks) == (3, (fork,))
    for key in (root, child, grand):
        assert not await store.exists(key)
    loaded = await store.load(fork)
    assert loaded is not None
    assert loaded.state["messages"] == ["c"]
    assert await store.exists(bystander)
    before = await store.dump()
    assert await store.delete(root, cascade=True) == report
    assert await store.delete(root) == DeleteReport()
    assert await store.dump() == before
    assert await store.upkeep.gc(grace=0) == GcReport()
    assert (await store.dump())["deletion"] == []
    assert await store.delete(root, cascade=True) == DeleteReport()


async def _tree(store: Store, width: int = 2) -> tuple[SessionKey, list[SessionKey]]:
    """Create a root with children, of which each has a child; return the root and all below it."""
    root, _ = await a_session(store, None, "root")
    below: list[SessionKey] = []
    for _ in range(width):
        child, _ = await a_session(store, None, "c", profile=Profile(parent=root.session_id, root=root.session_id))
        grand, _ = await a_session(store, None, "g", profile=Profile(parent=child.session_id, root=root.session_id))
        below += [child, grand]
    return root, below


async def test_a_cascade_that_was_cut_off_anywhere_is_finished_by_a_repeat(harness: Harness) -> None:
    """The report of the repeat is the whole report, also if only the last reply was lost."""
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, _ = await _tree(store)
    before = faults.transactions
    whole = await store.delete(root, cascade=True)
    assert whole.sessions == 5
    for nth in range(1, faults.transactions - before + 1):
        root, below = await _tree(store)
        faults.lose_reply(nth)
        with pytest.raises(StoreUnavailable):
            await store.delete(root, cascade=True)
        faults.heal()
        report = await store.delete(root, cascade=True)
        counted = [report.sessions, report.receipts, len(report.children)]
        assert counted == [whole.sessions, whole.receipts, len(whole.children)], nth
        assert [await store.exists(key) for key in (root, *below)] == [False] * 5
    assert await store.upkeep.gc(grace=0) == GcReport()
    dump = await store.dump()
    assert {table for table, found in dump.items() if found} == {"session"}


@pytest.mark.parametrize("verb", ["gc", "finish_deletes"])
async def test_upkeep_finishes_a_cascade_that_was_cut_off(harness: Harness, verb: str) -> None:
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, below = await _tree(store)
    faults.fail_call(2)
    with pytest.raises(StoreUnavailable):
        await store.delete(root, cascade=True)
    faults.heal()
    left = [key for key in below if await store.exists(key)]
    assert left
    assert not await store.exists(root)
    done = await getattr(store.upkeep, verb)()
    assert (done.sessions if verb == "gc" else done) >= len(left)
    assert not any([await store.exists(key) for key in below])
    assert (await store.delete(root, cascade=True)).sessions == 5


async def test_a_cascade_ends_each_session_in_the_life_it_had(harness: Harness) -> None:
    """Ids that were used again meanwhile live on, and so do the new children of a root that was begun again."""
    faults = FaultyBackend((await harness.open()).backend)
    store = Store(faults)
    root, below = await _tree(store)
    faults.fail_call(2)
    with pytest.raises(StoreUnavailable):
        await store.delete(root, cascade=True)
    faults.heal()
    assert (await store.dump())["deletion"]
    again = below[0]
    await store.delete(again)
    await a_session(store, key=again)
    await a_session(store, key=root)
    child, _ = await a_session(store, profile=Profile(parent=root.session_id))
    await store.upkeep.finish_deletes()
    assert [await store.exists(key) for key in (root, again, child)] == [True] * 3
    assert not any([await store.exists(key) for key in below[1:]])  # also of a child that was deleted without its own
    assert (await store.delete(root, cascade=True)).children == (child,)


async def test_a_child_begun_as_its_parent_ends_is_ended_with_it_or_not_begun(store: Store) -> None:
    for _ in range(20):
        root, _ = await _tree(store, 1)
        life = await store.life(root)
        late = a_key()
        creating = store.create(late, profile=Profile(parent=root.session_id), parent_life=life)
        async with asyncio.timeout(20):
            found = await asyncio.gather(store.delete(root, cascade=True), creating, return_exceptions=True)
        assert isinstance(found[0], DeleteReport)
        assert isinstance(found[1], SessionNotFound) or found[0].sessions == 4
        assert not await store.exists(late)


async def test_a_child_needs_its_parent_in_the_life_it_was_seen_in(store: Store) -> None:
    root, _ = await a_session(store)
    life = await store.life(root)
    await store.delete(root)
    for lives_again in (False, True):
        if lives_again:
            await a_session(store, key=root)
        before = await store.dump()
        with pytest.raises(SessionNotFound):
            await store.create(a_key(), profile=Profile(parent=root.session_id), parent_life=life)
        assert await store.dump() == before


async def _asking(store: Store, child: SessionKey, parent: SessionKey | None = None) -> tuple[SessionKey, list[str]]:
    """Let a parent wait twice for a child, and for something else."""
    parent = parent or (await a_session(store))[0]
    await a_session(store, key=child, profile=Profile(parent=parent.session_id))
    run = BeginRun(run_id=new_id(), invocation_id=new_id())
    names: list[dict[str, str]] = [
        {"child": child.session_id, "token": "t1"},
        {"child": child.session_id, "token": "t2"},
        {"child": "somebody else", "token": "t3"},
    ]
    waits = (*(OpenWait(kind="child", metadata=each) for each in names), OpenWait(kind="signal", metadata=names[0]))
    receipt = await store.commit(
        a_commit(
            parent, run=run, open_waits=waits, end=EndRun(status=RunStatus.SUSPENDED), life=await store.life(parent)
        )
    )
    return parent, list(receipt.wait_ids)


@pytest.mark.parametrize("verb", ["delete", "bury", "expire", "cascade"])
async def test_whoever_deletes_a_child_owes_its_parent_an_answer(store: Store, verb: str) -> None:
    """With the tombstone: nothing lies between the two. It stays until it is delivered, and then goes too."""
    child = a_key()
    parent, waits = await _asking(store, child)
    answered = SettleWait(wait_id=waits[1], answer={"result": 1})
    await store.commit(a_commit(parent, settle_waits=(answered,)))
    match verb:
        case "expire":
            past = datetime(2000, 1, 1, tzinfo=UTC)
            await store.commit(a_commit(child, profile={"expires_at": past}))
            assert (await store.upkeep.expire()).deleted == (child,)
        case "cascade":
            assert (await store.delete(child, cascade=True)).sessions == 1
        case _:
            assert (await getattr(store, verb)(child)).sessions == 1
    (owed,) = await store.outbox.pending()
    assert (owed.kind, owed.key, owed.target) == ("child_result", child, parent)
    assert owed.body["token"] == "t1"
    assert owed.body["error"]["category"] == "child_lost"
    assert await store.outbox.of_session(child) == []
    assert await store.delete(child) == DeleteReport()
    await a_session(store, key=child)
    assert await store.outbox.of_session(child) == []
    await store.delete(child)
    (left,) = await store.outbox.pending()
    assert left == owed
    await store.outbox.mark(owed.outbox_id, OutgoingStatus.DONE)
    assert (await store.dump())["outgoing"] == []
    with pytest.raises(DeliveryLost):
        await store.outbox.mark(owed.outbox_id, OutgoingStatus.DONE)


async def test_a_deleted_childs_result_that_is_on_its_way_arrives(store: Store) -> None:
    """It is what the parent gets then; stops stay owed as well, and all else it sent goes."""
    child = a_key()
    parent, _ = await _asking(store, child)
    sent = [("child_result", {"token": "t2", "result": 5}), ("stop_child", {"token": "x"}), ("child", {}), ("wake", {})]
    outgoing = tuple(NewOutgoing(kind=kind, target=parent, body=body) for kind, body in sent)
    await store.commit(a_commit(child, outgoing=outgoing))
    report = await store.delete(child)
    assert report.outgoing == 2
    owed = {(each.kind, each.body["token"]): each.body for each in await store.outbox.pending()}
    assert owed.keys() == {("child_result", "t2"), ("stop_child", "x"), ("child_result", "t1")}
    assert owed["child_result", "t2"]["result"] == 5


async def test_a_child_whose_parent_is_gone_owes_nothing(store: Store) -> None:
    child, again = a_key(), a_key()
    parent, _ = await _asking(store, child)
    await store.delete(parent)
    await store.delete(child)
    parent, _ = await _asking(store, again)
    await store.delete(parent, cascade=True)
    assert await store.outbox.pending() == []
    assert not await store.exists(again)


async def _stale_writes(store: Store, full: _Full) -> None:
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


async def _borrowed_writes(store: Store, full: _Full) -> None:
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
    """A9: commit, event batch, answer, renew, disarm, each tried; through objects opened earlier and after gc."""
    store, other = await harness.open(), await harness.open()
    full = await _full(store)
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
    """A9: however it began, its numbers go on and no stale copy wins against it."""
    store, other = await harness.open(), await harness.open()
    full = await _full(store)
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
    """A9: a last-write-wins save begins a new life, one that expects a version never does."""
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


async def test_a_branch_of_the_old_life_cannot_be_gone_on_with(store: Store) -> None:
    """A9: not as the base of an append, and not as where a run begins, even while its entries are still there."""
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
    """A9: a create repeated after the delete begins a new life; it is not answered with the old receipt."""
    key = a_key()
    first = await store.create(key, state={"a": 1}, operation_id="op")
    await store.delete(key)
    second = await store.create(key, state={"a": 2}, operation_id="op")
    assert (second.replayed, second.life, second.version) == (False, 2, first.version + 1)
    with pytest.raises(OperationConflict):
        await store.create(key, state={"a": 1}, operation_id="op")


async def test_concurrent_deletes_recreates_and_stale_commits_never_let_a_stale_copy_win(store: Store) -> None:
    """A9: versions only rise, and what is loaded at the end was written in the life it is read in."""
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


async def test_a_failure_at_any_statement_of_delete_is_whole_or_nothing(harness: Harness) -> None:
    """A14: before the tombstone nothing is deleted; after it the session is gone, and gc removes what was left."""
    store = await harness.open()
    landed = False
    for number in range(1, 100):
        full = await _full(store)
        before = await store.dump()
        sid = _sid(before, full.key)
        try:
            with _failing(store, number):
                await store.delete(full.key)
        except (StoreUnavailable, UpkeepFailed):
            after = await store.dump()
            if await store.exists(full.key):
                assert not landed, "a later statement fails earlier"
                assert after == before
                await store.delete(full.key)
            else:
                landed = True
                assert {"run", "wait", "checkpoint", "receipt", "profile"} & _rows_of(after, sid).keys() == set()
                assert (await store.delete(full.key)).sessions == 0
                await store.upkeep.gc(grace=0)
        else:
            assert number > 10
            assert _rows_of(await store.dump(), sid) == {}
            return
        assert _rows_of(await store.dump(), sid) == {}
        assert (await store.dump())["content"] == []
    pytest.fail("a delete has no hundred statements")


class _failing:  # noqa: N801 - reads as a verb
    """Let the store's n-th statement from here on fail, on whatever thread it runs."""

    def __init__(self, store: Store, number: int) -> None:
        self._backend: Any = store.backend
        self._left = number

    def __enter__(self) -> None:
        self._probe = self._backend.probe
        self._backend.probe = self._count

    def __exit__(self, *_: object) -> None:
        self._backend.probe = self._probe

    def _count(self, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise StoreUnavailable(f"injected before {name}")


_ITS_ROWS = "session = (SELECT sid FROM session WHERE session_id = '{id}')"
_DAMAGE = {
    "head": "UPDATE session SET heads = 'not json', document = '[' WHERE session_id = '{id}'",
    "lineage": f"UPDATE branch SET lineage = 'not json' WHERE {_ITS_ROWS}",
    "branches": f"DELETE FROM branch WHERE {_ITS_ROWS}",
}


@pytest.mark.parametrize("damage", _DAMAGE)
@pytest.mark.parametrize("other", ["stranger", "fork", "child"])
async def test_delete_works_while_another_sessions_rows_are_damaged(harness: Harness, damage: str, other: str) -> None:
    """A15: the damaged one may be a stranger, a child or a fork; it keeps what it has, and a store-wide gc may fail."""
    store = await harness.open()
    key, _ = await a_session(store, None, *"abc")
    damaged = a_key()
    if other == "fork":
        await store.fork(key, damaged)
        await store.commit(a_save(damaged, "d"))
    else:
        profile = Profile(parent=key.session_id) if other == "child" else Profile()
        await a_session(store, None, *"xyz", key=damaged, profile=profile)
    await store.aclose()
    await harness.damage(_DAMAGE[damage].format(id=damaged.session_id))
    store = await harness.open()
    rows = [row for row in (await store.dump())["entry"] if row["session"] == _sid(await store.dump(), damaged)]
    with suppress(UpkeepFailed):  # it may not guess what a damaged session reaches
        await store.upkeep.gc(grace=0)
    report = await store.delete(key)
    assert report.sessions == 1
    assert not await store.exists(key)
    assert await store.load(key) is None
    dump = await store.dump()
    assert [row for row in dump["entry"] if row["session"] == _sid(dump, damaged)] == rows or damage == "branches"
    assert (await store.delete(key)).sessions == 0
