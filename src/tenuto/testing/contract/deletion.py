"""Delete: everything of the session goes, and its numbers stay."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from tenuto.errors import SessionNotFound, StoreUnavailable, UpkeepFailed
from tenuto.model.commit import BeginRun, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.report import DeleteReport, GcReport
from tenuto.model.session import Kind, Profile, SessionKey
from tenuto.store.session_record import Dump
from tenuto.store.store import Store
from tenuto.testing.checks import damaged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import failing
from tenuto.testing.scenes.deletion_scene import a_full_session


def _sid(dump: Dump, key: SessionKey) -> int:
    (sid,) = {row["sid"] for row in dump["session"] if row["session_id"] == key.session_id}
    return int(sid)


def _rows_of(dump: Dump, sid: int) -> dict[str, int]:
    """Count a session's rows in every table but its own."""
    tables = {name: rows for name, rows in dump.items() if name not in {"session", "content"}}
    counts = {name: sum(row["session"] == sid for row in rows) for name, rows in tables.items()}
    return {name: count for name, count in counts.items() if count}


async def test_delete_of_an_unknown_id_does_nothing_and_reports_zeros(store: Store) -> None:
    """A session of the same id under another tenant or kind stays."""
    key = a_key()
    await a_session(store, key=replace(key, tenant="other"))
    await a_session(store, key=replace(key, kind=Kind.INVOCATION))
    before = await store.dump()
    assert await store.delete(key) == DeleteReport()
    assert await store.delete(key, cascade=True) == DeleteReport()
    assert await store.dump() == before


async def test_the_second_delete_succeeds_and_reports_zeros(store: Store) -> None:
    """The same holds with cascade; the tombstone does not change."""
    full = await a_full_session(store)
    report = await store.delete(full.key)
    assert report.sessions == 1
    before = await store.dump()
    assert await store.delete(full.key) == DeleteReport()
    assert await store.delete(full.key, cascade=True) == DeleteReport()
    assert await store.dump() == before


async def test_of_concurrent_deletes_one_reports_the_work(store: Store) -> None:
    """Nothing is counted twice."""
    full = await a_full_session(store)
    async with asyncio.timeout(20):
        reports = await asyncio.gather(*(store.delete(full.key) for _ in range(5)))
    assert sorted(report.sessions for report in reports) == [0, 0, 0, 0, 1]
    assert sum(report.runs for report in reports) == 1


async def test_delete_reports_what_it_removed(store: Store) -> None:
    """Each kind by its own number."""
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
    """A held lane does not stop it, and its holder has lost it."""
    full = await a_full_session(store)
    assert (await store.delete(full.key)).sessions == 1
    assert (await store.lanes.renew([full.lane])).lost == {full.key}


async def test_after_delete_objects_opened_before_see_nothing_of_the_session(harness: Harness) -> None:
    """No head, record, run, checkpoint, wait, event, log or list entry, in either opened store."""
    store, other = await harness.open(), await harness.open()
    full = await a_full_session(store)
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
    """The same id under another tenant and kind is untouched; only the tombstone is left."""
    full = await a_full_session(store)
    for other in (replace(full.key, tenant="other"), replace(full.key, kind=Kind.INVOCATION), a_key()):
        await a_full_session(store, other)
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
    """An equal value is one body; it goes with its last holder."""
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
    """What only the source held goes at once; entries and values the fork reaches stay."""
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
    """The sources' ids may begin a new life beside it."""
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


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_delete_is_whole_or_nothing(harness: Harness) -> None:
    """Before the tombstone nothing is deleted; after it the session is gone, and gc removes what was left."""
    store = await harness.open()
    landed = False
    for number in range(1, 100):
        full = await a_full_session(store)
        before = await store.dump()
        sid = _sid(before, full.key)
        try:
            with failing(store, number):
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


_ITS_ROWS = "session = (SELECT sid FROM session WHERE session_id = '{id}')"


_DAMAGE = {
    "head": "UPDATE session SET heads = 'not json', document = '[' WHERE session_id = '{id}'",
    "lineage": f"UPDATE branch SET lineage = 'not json' WHERE {_ITS_ROWS}",
    "branches": f"DELETE FROM branch WHERE {_ITS_ROWS}",
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", _DAMAGE)
@pytest.mark.parametrize("other", ["stranger", "fork", "child"])
async def test_delete_works_while_another_sessions_rows_are_damaged(harness: Harness, damage: str, other: str) -> None:
    """The damaged one may be a stranger, a child or a fork; it keeps what it has, and a store-wide gc may fail."""
    store = await harness.open()
    key, _ = await a_session(store, None, *"abc")
    broken = a_key()
    if other == "fork":
        await store.fork(key, broken)
        await store.commit(a_save(broken, "d"))
    else:
        profile = Profile(parent=key.session_id) if other == "child" else Profile()
        await a_session(store, None, *"xyz", key=broken, profile=profile)
    store = await damaged(harness, store, _DAMAGE[damage].format(id=broken.session_id))
    rows = [row for row in (await store.dump())["entry"] if row["session"] == _sid(await store.dump(), broken)]
    with suppress(UpkeepFailed):  # it may not guess what a damaged session reaches
        await store.upkeep.gc(grace=0)
    report = await store.delete(key)
    assert report.sessions == 1
    assert not await store.exists(key)
    assert await store.load(key) is None
    dump = await store.dump()
    assert [row for row in dump["entry"] if row["session"] == _sid(dump, broken)] == rows or damage == "branches"
    assert (await store.delete(key)).sessions == 0
