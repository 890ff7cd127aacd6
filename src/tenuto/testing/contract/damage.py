"""Damage behind the store's back: a typed error that says where, never None and never a shorter history."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto.errors import StoredDataCorrupt
from tenuto.model.commit import BeginRun, NewCheckpoint, OpenWait, Reset
from tenuto.model.session import Profile, SessionFilter
from tenuto.store.store import Store
from tenuto.testing.checks import damaged, not_refused
from tenuto.testing.factories import a_commit, a_save, a_session
from tenuto.testing.harness import Capability, Harness, needs


async def _three(harness: Harness) -> Store:
    """Three sessions with everything in them; `s-2` is the one to be damaged."""
    store = await harness.open()
    for name in ("s-1", "s-2", "s-3"):
        profile = Profile(title=name, tags=("t",), metadata={"m": 1}, definition={"d": 1})
        await a_session(store, name, "a", "b", state={"big": name * 1000, "x": 1}, profile=profile)
        begin = BeginRun(run_id=f"run-{name}", invocation_id=f"inv-{name}")
        point = NewCheckpoint(step=1, cursor=[1], document={"big": name * 1000})
        await store.commit(a_commit(name, run=begin, checkpoint=point, open_waits=(OpenWait(kind="k"),)))
    return store


HERE = "session_id = 's-2'"
MINE = "(SELECT sid FROM session WHERE session_id = 's-2')"

BROKEN_SESSIONS = {
    "document is not JSON": f"UPDATE session SET document = '{{broken' WHERE {HERE}",
    "document is empty": f"UPDATE session SET document = '' WHERE {HERE}",
    "document is a list": f"UPDATE session SET document = '[1]' WHERE {HERE}",
    "document is null": f"UPDATE session SET document = 'null' WHERE {HERE}",
    "held is not JSON": f"UPDATE session SET held = '{{' WHERE {HERE}",
    "held is a list": f"UPDATE session SET held = '[1]' WHERE {HERE}",
    "heads are not JSON": f"UPDATE session SET heads = '{{\"messages\":' WHERE {HERE}",
    "heads are a list": f"UPDATE session SET heads = '[1]' WHERE {HERE}",
    "heads have two parts": f"UPDATE session SET heads = '{{\"messages\": [1, 2]}}' WHERE {HERE}",
    "heads have no numbers": f'UPDATE session SET heads = \'{{"messages": ["a", "b", "c"]}}\' WHERE {HERE}',
    "unknown status": f"UPDATE session SET status = 'zombie' WHERE {HERE}",
    "created_at is not a date": f"UPDATE session SET created_at = 900000000000000000 WHERE {HERE}",
    "updated_at is not a date": f"UPDATE session SET updated_at = 900000000000000000 WHERE {HERE}",
    "tags are not JSON": f"UPDATE profile SET tags = '[\"t' WHERE session = {MINE}",
    "tags are a number": f"UPDATE profile SET tags = '5' WHERE session = {MINE}",
    "metadata is not JSON": f"UPDATE profile SET metadata = 'x' WHERE session = {MINE}",
    "definition is not JSON": f"UPDATE profile SET definition = 'x' WHERE session = {MINE}",
    "fork point is not a point": f"UPDATE profile SET forked_from = '{{\"a\": 1}}' WHERE session = {MINE}",
    "expiry is not a date": f"UPDATE profile SET expires_at = 900000000000000000 WHERE session = {MINE}",
    "profile is gone": f"DELETE FROM profile WHERE session = {MINE}",
    "entry is not JSON": f"UPDATE entry SET body = '{{' WHERE session = {MINE} AND position = 1",
    "entry is two values": f"UPDATE entry SET body = '1,2' WHERE session = {MINE} AND position = 1",
    "entry is empty": f"UPDATE entry SET body = '' WHERE session = {MINE} AND position = 1",
}
SEEN_IN_A_LIST = {
    "heads are not JSON",
    "heads are a list",
    "heads have two parts",
    "heads have no numbers",
    "profile is gone",
    "unknown status",
    "created_at is not a date",
    "updated_at is not a date",
    "tags are not JSON",
    "tags are a number",
    "expiry is not a date",
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", BROKEN_SESSIONS)
async def test_a_damaged_session_is_an_error_at_load_and_hides_no_other(harness: Harness, damage: str) -> None:
    """Load names the session; the list still has all three, and says what it could not read."""
    store = await damaged(harness, await _three(harness), BROKEN_SESSIONS[damage])
    with pytest.raises(StoredDataCorrupt) as refused:
        await store.load("s-2")
    assert "s-2" in refused.value.message
    assert refused.value.bucket == "session_terminating"
    listed = await store.list()
    assert [summary.session_id for summary in listed] == ["s-3", "s-2", "s-1"]
    assert [summary.damage is not None for summary in listed] == [False, damage in SEEN_IN_A_LIST, False]
    assert len(await store.list(SessionFilter(tag="t"), limit=1)) == 1
    for sound in ("s-1", "s-3"):
        record = await store.load(sound)
        assert record is not None
        assert record.state == {"messages": ["a", "b"], "big": sound * 1000, "x": 1}


@needs(Capability.DAMAGE_SQL)
async def test_a_load_names_the_damaged_field(harness: Harness) -> None:
    """Session and field are in the message and in the error's data."""
    store = await damaged(harness, await _three(harness), BROKEN_SESSIONS["document is not JSON"])
    with pytest.raises(StoredDataCorrupt) as refused:
        await store.load("s-2")
    assert "document" in refused.value.message
    assert "document" in str(refused.value.details())


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("time", ["''", "'yesterday'", "1.5"])
async def test_a_malformed_stored_time_is_an_error(harness: Harness, time: str) -> None:
    """The damage is text, nothing or a fraction where a time should be, in a database that lets one in."""
    store = await _three(harness)
    # A strict column type lets only numbers in; there the nearest damage is one that is not a date.
    value = time if Capability.LOOSE_COLUMN_TYPES in harness.capabilities else "900000000000000000"
    store = await damaged(
        harness,
        store,
        f"UPDATE session SET created_at = {value} WHERE {HERE}",
        f"UPDATE run SET started_at = {value} WHERE run_id = 'run-s-2'",
        f"UPDATE checkpoint SET created_at = {value} WHERE run_id = 'run-s-2'",
        f"UPDATE wait SET deadline = {value} WHERE run_id = 'run-s-2'",
    )
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "head": lambda: store.head("s-2"),
        "load": lambda: store.load("s-2"),
        "run": lambda: store.runs.get("run-s-2"),
        "checkpoint": lambda: store.checkpoints.latest("s-2"),
        "wait": lambda: store.waits.of_session("s-2"),
    }
    assert await not_refused(StoredDataCorrupt, calls) == {}


@needs(Capability.DAMAGE_SQL)
async def test_damaged_runs_checkpoints_and_waits_are_errors(harness: Harness) -> None:
    """Broken JSON and unknown words, each where it is read."""
    store = await damaged(
        harness,
        await _three(harness),
        "UPDATE run SET status = 'zombie' WHERE run_id = 'run-s-1'",
        "UPDATE run SET ends = '{' WHERE run_id = 'run-s-2'",
        "UPDATE checkpoint SET cursor = '{' WHERE run_id = 'run-s-1'",
        "UPDATE checkpoint SET document = '[1]' WHERE run_id = 'run-s-2'",
        "UPDATE checkpoint SET ends = '[1]' WHERE run_id = 'run-s-3'",
        "UPDATE wait SET status = 'zombie' WHERE run_id = 'run-s-1'",
        "UPDATE wait SET metadata = '{' WHERE run_id = 'run-s-2'",
    )
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "run status": lambda: store.runs.get("run-s-1"),
        "run ends": lambda: store.runs.get("run-s-2"),
        "checkpoint cursor": lambda: store.checkpoints.latest("s-1"),
        "checkpoint document": lambda: store.checkpoints.latest("s-2"),
        "checkpoint ends": lambda: store.checkpoints.latest("s-3"),
        "wait status": lambda: store.waits.of_session("s-1", status=None),
        "wait metadata": lambda: store.waits.of_session("s-2"),
    }
    assert await not_refused(StoredDataCorrupt, calls) == {}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM content WHERE body LIKE '\"s-2%'",
        "UPDATE content SET encoding = 'zstd' WHERE body LIKE '\"s-2%'",
        "UPDATE content SET body = '{' WHERE body LIKE '\"s-2%'",
    ],
    ids=["no body", "unknown encoding", "broken body"],
)
async def test_a_held_value_that_cannot_be_read_is_an_error(harness: Harness, sql: str) -> None:
    """At load and at the checkpoint that holds it, naming the field; never None."""
    store = await damaged(harness, await _three(harness), sql)
    with pytest.raises(StoredDataCorrupt) as refused:
        await store.load("s-2")
    assert "'big'" in refused.value.message
    assert "s-2" in refused.value.message
    with pytest.raises(StoredDataCorrupt):
        await store.checkpoints.latest("s-2")
    assert await store.load("s-1") is not None
    await store.commit(a_save("s-2", document={"big": 1}))
    record = await store.load("s-2")
    assert record is not None
    assert record.state["big"] == 1


BRANCHES = "(SELECT sid FROM session WHERE session_id = '{}')"
LINEAGE = "UPDATE branch SET lineage = '{}' WHERE session = " + BRANCHES.format("fork")
DAMAGED_LINEAGE = {
    "missing parent branch": f"DELETE FROM branch WHERE session = {BRANCHES.format('source')}",
    "missing own branch": f"DELETE FROM branch WHERE session = {BRANCHES.format('fork')}",
    "gap in the parent": f"DELETE FROM entry WHERE session = {BRANCHES.format('source')} AND position = 2",
    "gap at the start": f"DELETE FROM entry WHERE session = {BRANCHES.format('source')} AND position = 0",
    "gap at the join": f"DELETE FROM entry WHERE session = {BRANCHES.format('source')} AND position = 3",
    "gap in the branch": f"DELETE FROM entry WHERE session = {BRANCHES.format('fork')} AND position = 4",
    "head past the end": "UPDATE session SET heads = replace(heads, ',6]', ',9]') WHERE session_id = 'fork'",
    "cycle": LINEAGE.format("[[2,1,4]]"),
    "cycle over the parent": LINEAGE.format("[[1,1,2],[2,1,3],[1,1,4]]"),
    "lineage out of order": LINEAGE.format("[[1,1,4],[1,1,4]]"),
    "lineage too short": LINEAGE.format("[[1,1,3]]"),
    "lineage too long": LINEAGE.format("[[1,1,5]]"),
    "no lineage": LINEAGE.format("[]"),
    "lineage to nowhere": LINEAGE.format("[[99,1,4]]"),
    "lineage is not JSON": LINEAGE.format("[["),
    "lineage is a number": LINEAGE.format("5"),
    "lineage has short steps": LINEAGE.format("[[1,1]]"),
    "lineage has no numbers": LINEAGE.format('[[1,1,"4"]]'),
    "start moved": f"UPDATE branch SET start = 3 WHERE session = {BRANCHES.format('fork')}",
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", DAMAGED_LINEAGE)
async def test_damaged_lineage_is_an_error_on_every_read_that_meets_it(harness: Harness, damage: str) -> None:
    """On range, last-N and whole reads; never a shorter history."""
    store = await harness.open()
    await a_session(store, "source", *range(4))
    await store.fork("source", "fork")
    await store.commit(a_save("fork", 4, 5))
    store = await damaged(harness, store, DAMAGED_LINEAGE[damage])
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "whole": lambda: store.logs.read("fork", "messages"),
        "range": lambda: store.logs.read("fork", "messages", start=0, stop=5),
        "last": lambda: store.logs.tail("fork", "messages", 6),
        "load": lambda: store.load("fork"),
    }
    if damage == "head past the end":
        calls["range"] = lambda: store.logs.read("fork", "messages", start=5, stop=8)
    assert await not_refused(StoredDataCorrupt, calls) == {}


@needs(Capability.DAMAGE_SQL)
async def test_a_missing_parent_is_an_error_also_for_a_fork_without_entries_of_its_own(harness: Harness) -> None:
    """The fork stands right at the end of its parent."""
    store = await harness.open()
    await a_session(store, "source", *range(4))
    await store.fork("source", "fork")
    store = await damaged(harness, store, DAMAGED_LINEAGE["missing parent branch"])
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "whole": lambda: store.logs.read("fork", "messages"),
        "last": lambda: store.logs.tail("fork", "messages", 2),
        "load": lambda: store.load("fork"),
    }
    assert await not_refused(StoredDataCorrupt, calls) == {}


@needs(Capability.DAMAGE_SQL)
async def test_a_commit_that_builds_on_damaged_lineage_is_refused(harness: Harness) -> None:
    """A fork or a rewind of it does not spread the damage."""
    store = await harness.open()
    await a_session(store, "source", *range(4))
    receipt = await store.fork("source", "fork")
    store = await damaged(harness, store, DAMAGED_LINEAGE["lineage too short"])
    keep = Reset(keep=receipt.ends["messages"]._replace(position=2))
    with pytest.raises(StoredDataCorrupt):
        await store.commit(a_commit("fork", save=True, logs={"messages": keep}))
    with pytest.raises(StoredDataCorrupt):
        await store.fork("fork", "another")
