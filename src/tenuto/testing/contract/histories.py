"""Histories: appends, run branches, re-keying at a save, and reads along the lineage."""

from typing import Any

import pytest

from tenuto.errors import SessionNotFound, StoredDataCorrupt, TenutoError, VersionConflict
from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, Receipt, Reset
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Key, SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import messages_of, rows, unchanged, values
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn

COMPLETED = EndRun(status=RunStatus.COMPLETED)


FAILED = EndRun(status=RunStatus.FAILED, error={"category": "node_exception"})


async def _run(store: Store, key: Key, run_id: str, *items: Any, **parts: Any) -> Receipt:
    """Begin a run whose first commit is a checkpoint with these items on its own branch."""
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    logs = {"messages": Append(items=items)}
    return await store.commit(a_commit(key, run=begin, logs=logs, checkpoint=NewCheckpoint(step=1), **parts))


async def _step(store: Store, key: Key, run_id: str, *items: Any, **parts: Any) -> Receipt:
    """Continue a run: with a checkpoint, unless `save` or an end says otherwise."""
    logs = {"messages": Append(items=items)} if items else {}
    fixed = {"checkpoint": NewCheckpoint(step=2)} | parts
    return await store.commit(a_commit(key, run=RunRef(run_id=run_id), logs=logs, **fixed))


async def _at(store: Store, key: Key, commit_number: int) -> list[Any]:
    """Return `messages` as the checkpoint of a commit has it."""
    point = await store.checkpoints.get(key, commit_number)
    assert point is not None
    return await messages_of(store, key, point.ends["messages"])


async def _places(store: Store, key: Key) -> list[tuple[int, int, str]]:
    """Return branch, position and body of every entry of a session."""
    head = await store.head(key)
    assert head is not None
    sid = head.ends["messages"].session
    return sorted(
        (b, p, body)
        for s, b, p, body in await rows(store, "entry", "session", "branch", "position", "body")
        if s == sid
    )


async def test_a_turn_with_no_earlier_write_appends_to_the_heads_branch(store: Store) -> None:
    """One branch however many turns, and nothing becomes unreachable."""
    key, created = await a_session(store, None, "a")
    for item in ("b", "c"):
        receipt = await store.commit(a_turn(key, None, item))
        assert receipt.ends["messages"][:2] == created.ends["messages"][:2]
    assert len(await rows(store, "branch")) == 1
    report = await store.upkeep.gc(grace=0)
    assert (report.entries, report.branches, report.contents) == (0, 0, 0)
    assert await messages_of(store, key) == ["a", "b", "c"]


async def test_reads_by_range_last_n_and_all(store: Store) -> None:
    """Positions, commit numbers and order; a range past the end is what there is."""
    key, _ = await a_session(store, None, 0, 1)
    await store.commit(a_save(key, 2, 3, 4, schema_version="v2"))
    read, tail = store.logs.read, store.logs.tail
    entries = await read(key, "messages")
    assert [(e.position, e.commit_number, e.schema_version, e.value) for e in entries] == [
        (0, 1, "", 0),
        (1, 1, "", 1),
        (2, 2, "v2", 2),
        (3, 2, "v2", 3),
        (4, 2, "v2", 4),
    ]
    assert values(await read(key, "messages", start=1, stop=3)) == [1, 2]
    assert values(await read(key, "messages", start=3)) == [3, 4]
    assert values(await read(key, "messages", stop=1)) == [0]
    assert values(await read(key, "messages", start=4, stop=99)) == [4]
    assert await read(key, "messages", start=5) == await read(key, "messages", start=3, stop=3) == []
    assert await read(key, "messages", start=3, stop=1) == []
    assert values(await tail(key, "messages", 2)) == [3, 4]
    assert [entry.position for entry in await tail(key, "messages", 2)] == [3, 4]
    assert values(await tail(key, "messages", 99)) == [0, 1, 2, 3, 4]
    assert await tail(key, "messages", 0) == []
    assert await read(key, "unknown") == await tail(key, "unknown", 3) == []
    with pytest.raises(SessionNotFound):
        await tail("unknown", "messages", 1)


async def test_reads_cross_branches_in_order(store: Store) -> None:
    """A range, the last few and the whole of a history that lies on four branches of two sessions."""
    source, _ = await a_session(store, None, 0, 1, 2, 3)
    fork = a_key()
    await store.fork(source, fork)
    grown = await store.commit(a_save(fork, 4, 5, 6))
    keep = grown.ends["messages"]._replace(position=6)
    await store.commit(a_commit(fork, save=True, logs={"messages": Reset(keep=keep, items=("6b", "7b"))}))
    await _run(store, fork, "r-1", "8b")
    run = await store.runs.get("r-1")
    assert run is not None
    end = run.ends["messages"]
    whole = [0, 1, 2, 3, 4, 5, "6b", "7b", "8b"]
    assert await messages_of(store, fork, end) == whole
    assert await messages_of(store, fork) == whole[:8]
    for start in range(10):
        for stop in range(start, 10):
            found = await store.logs.read(fork, "messages", start=start, stop=stop, end=end)
            assert values(found) == whole[start:stop]
            assert [entry.position for entry in found] == list(range(start, min(stop, 9)))
    for count in range(10):
        assert values(await store.logs.tail(fork, "messages", count)) == whole[:8][-count or 8 :]
    assert await messages_of(store, source) == [0, 1, 2, 3]


async def test_a_read_up_to_an_end_of_another_session_is_refused(store: Store) -> None:
    """A read by key gives that session only, whatever place it names."""
    mine, _ = await a_session(store, None, "mine")
    theirs, receipt = await a_session(store, None, "secret", key=SessionKey("theirs", tenant="t2"))
    with pytest.raises(TenutoError):
        await store.logs.read(mine, "messages", end=receipt.ends["messages"])
    with pytest.raises(TenutoError):
        await store.logs.tail(mine, "messages", 5, end=receipt.ends["messages"])
    assert await messages_of(store, theirs, receipt.ends["messages"]) == ["secret"]


async def test_a_run_that_writes_before_its_end_writes_on_a_branch_of_its_own(store: Store) -> None:
    """The head does not see it before the save."""
    key, created = await a_session(store, None, "a")
    receipt = await _run(store, key, "r-1", "b")
    run, head = await store.runs.get("r-1"), await store.head(key)
    assert run is not None
    assert head is not None
    assert (head.version, head.ends) == (1, created.ends)
    assert receipt.ends["messages"] == run.ends["messages"]
    assert run.ends["messages"].branch != head.ends["messages"].branch
    assert run.own_logs == {"messages"}
    assert (run.base_ends, run.base_version) == (created.ends, 1)
    assert await messages_of(store, key) == ["a"]
    assert await messages_of(store, key, run.ends["messages"]) == ["a", "b"]


async def test_a_save_moves_the_runs_entries_onto_the_heads_branch_keeping_positions(store: Store) -> None:
    """Afterwards one branch holds all, and the run's checkpoints still read what they read."""
    key, created = await a_session(store, None, "a")
    first = await _run(store, key, "r-1", "b")
    second = await _step(store, key, "r-1", "c")
    saved = await _step(store, key, "r-1", "d", save=True, end=COMPLETED)
    home = created.ends["messages"].branch
    assert saved.ends["messages"] == created.ends["messages"]._replace(position=4)
    assert await _places(store, key) == [(home, 0, '"a"'), (home, 1, '"b"'), (home, 2, '"c"'), (home, 3, '"d"')]
    assert await _at(store, key, first.commit_number) == ["a", "b"]
    assert await _at(store, key, second.commit_number) == ["a", "b", "c"]
    assert await _at(store, key, saved.commit_number) == ["a", "b", "c", "d"]
    entries = await store.logs.read(key, "messages")
    assert [entry.commit_number for entry in entries] == [1, 2, 3, 4]
    await store.commit(a_turn(key, None, "e"))
    assert await _at(store, key, first.commit_number) == ["a", "b"]
    assert await messages_of(store, key) == ["a", "b", "c", "d", "e"]


async def test_a_run_continues_after_its_save(store: Store) -> None:
    """Save, checkpoint, save: each save leaves the head at the run's end, and every checkpoint reads on."""
    key, _ = await a_session(store, None, "a")
    points = [(await _run(store, key, "r-1", "b"), ["a", "b"])]
    points.append((await _step(store, key, "r-1", save=True), ["a", "b"]))
    points.append((await _step(store, key, "r-1", "c"), ["a", "b", "c"]))
    points.append((await _step(store, key, "r-1", "d", save=True), ["a", "b", "c", "d"]))
    points.append((await _step(store, key, "r-1", "e", save=True, end=COMPLETED), ["a", "b", "c", "d", "e"]))
    for receipt, expected in points:
        assert await _at(store, key, receipt.commit_number) == expected
    assert len({branch for branch, _, _ in await _places(store, key)}) == 1
    assert await messages_of(store, key) == ["a", "b", "c", "d", "e"]


async def test_the_first_save_of_a_headless_id_makes_the_runs_branch_the_heads(store: Store) -> None:
    """A run that began before its session was ever saved."""
    key = a_key()
    first = await _run(store, key, "r-1", "a")
    assert await store.head(key) is None
    saved = await _step(store, key, "r-1", "b", save=True, end=COMPLETED)
    assert (saved.version, await messages_of(store, key)) == (1, ["a", "b"])
    assert await _at(store, key, first.commit_number) == ["a"]


async def test_a_run_branch_that_a_fork_shares_is_not_moved(store: Store) -> None:
    """The head goes to the run's branch instead, and the fork reads what it was forked from."""
    key, created = await a_session(store, None, "a")
    first = await _run(store, key, "r-1", "b", "c")
    fork = a_key()
    await store.fork(key, fork, at=first.commit_number)
    before = await _places(store, key)
    saved = await _step(store, key, "r-1", "d", save=True, end=COMPLETED)
    branch = first.ends["messages"].branch
    assert saved.ends["messages"].branch == branch != created.ends["messages"].branch
    assert await _places(store, key) == sorted([*before, (branch, 3, '"d"')])
    assert await messages_of(store, key) == ["a", "b", "c", "d"]
    assert await messages_of(store, fork) == ["a", "b", "c"]
    await store.commit(a_save(fork, "x"))
    await store.commit(a_save(key, "y"))
    assert await messages_of(store, fork) == ["a", "b", "c", "x"]
    assert await messages_of(store, key) == ["a", "b", "c", "d", "y"]
    assert await _at(store, key, first.commit_number) == ["a", "b", "c"]


@pytest.mark.parametrize(("count", "moved"), [(1000, True), (1001, False)])
async def test_a_run_branch_of_more_than_1000_rows_is_not_moved(store: Store, count: int, moved: bool) -> None:
    """The head goes to it; either way everything reads on."""
    key, created = await a_session(store, None, "a")
    first = await _run(store, key, "r-1", *range(count - 1))
    saved = await _step(store, key, "r-1", count - 1, save=True, end=COMPLETED)
    home = created.ends["messages"].branch
    assert (saved.ends["messages"].branch == home) is moved
    branches = [branch for branch, _, _ in await _places(store, key)]
    assert branches.count(home) == (count + 1 if moved else 1)
    assert await messages_of(store, key) == ["a", *range(count)]
    assert await _at(store, key, first.commit_number) == ["a", *range(count - 1)]


async def test_a_log_with_a_slash_lives_on_the_run_only(store: Store) -> None:
    """It never reaches a head, is not folded, and a fork does not take it along."""
    key, _ = await a_session(store, None, "a")
    begin = BeginRun(run_id="r-1", invocation_id="inv-1")
    logs = {"messages": Append(items=("b",)), "inner/steps": Append(items=("s1",))}
    first = await store.commit(a_commit(key, run=begin, logs=logs, checkpoint=NewCheckpoint(step=1)))
    more = {"inner/steps": Append(items=("s2",))}
    saved = await store.commit(
        a_commit(key, run=RunRef(run_id="r-1"), save=True, logs=more, checkpoint=NewCheckpoint(step=2))
    )
    record, run = await store.load(key), await store.runs.get("r-1")
    assert record is not None
    assert run is not None
    assert record.state == {"messages": ["a", "b"]}
    assert set(run.ends) == {"messages", "inner/steps"}
    read = store.logs.read
    assert values(await read(key, "inner/steps", end=run.ends["inner/steps"])) == ["s1", "s2"]
    assert values(await read(key, "inner/steps", end=first.ends["inner/steps"])) == ["s1"]
    fork = a_key()
    await store.fork(key, fork, at=saved.commit_number)
    forked = await store.load(fork)
    assert forked is not None
    assert forked.state == {"messages": ["a", "b"]}


async def test_a_checkpoint_of_a_failed_run_reads_its_entries_after_other_turns_have_gone_on(store: Store) -> None:
    """That holds after a collection too, and the failed run's entries are on no head."""
    key, _ = await a_session(store, None, "a")
    first = await _run(store, key, "r-1", "b")
    await _step(store, key, "r-1", end=FAILED, checkpoint=None)
    await store.commit(a_turn(key, None, "c"))
    await _run(store, key, "r-2", "d")
    await _step(store, key, "r-2", save=True, end=COMPLETED)
    await store.upkeep.gc(grace=0)
    assert await _at(store, key, first.commit_number) == ["a", "b"]
    assert await messages_of(store, key) == ["a", "c", "d"]
    run = await store.runs.get("r-1")
    assert run is not None
    assert await messages_of(store, key, run.ends["messages"]) == ["a", "b"]


async def test_a_run_resumed_from_a_failed_ones_checkpoint_builds_on_its_entries(store: Store) -> None:
    """The new run's save leaves the head after the old run's entries; the old checkpoint reads as before."""
    key, created = await a_session(store, None, "a")
    first = await _run(store, key, "r-1", "b")
    await _step(store, key, "r-1", end=FAILED, checkpoint=None)
    begin = BeginRun(
        run_id="r-2", invocation_id="inv-r-1", fresh=False, ends=first.ends, base_ends=created.ends, base_version=1
    )
    logs = {"messages": Append(items=("c",))}
    await store.commit(a_commit(key, run=begin, logs=logs, checkpoint=NewCheckpoint(step=2)))
    await _step(store, key, "r-2", "d", save=True, end=COMPLETED)
    assert await messages_of(store, key) == ["a", "b", "c", "d"]
    assert await _at(store, key, first.commit_number) == ["a", "b"]
    assert [run.run_id for run in await store.runs.of_invocation("inv-r-1")] == ["r-1", "r-2"]


async def test_of_two_last_write_wins_runs_the_last_is_the_head_and_the_other_stays_until_gc(store: Store) -> None:
    """No mixture; the overwritten entries read whole, then go."""
    key, _ = await a_session(store, None, "a", state={"who": "nobody"})
    pinned = await _run(store, key, "r-1", "one-1")
    await _run(store, key, "r-2", "two-1")
    first = await _step(store, key, "r-1", "one-2", save=True, end=COMPLETED, checkpoint=None, document={"who": "one"})
    second = await _step(store, key, "r-2", "two-2", save=True, end=COMPLETED, checkpoint=None, document={"who": "two"})
    record = await store.load(key)
    assert record is not None
    assert record.state == {"messages": ["a", "two-1", "two-2"], "who": "two"}
    assert (first.version, second.version) == (2, 3)
    assert await messages_of(store, key, first.ends["messages"]) == ["a", "one-1", "one-2"]
    await store.commit(a_turn(key, None, "next"))
    assert await messages_of(store, key, first.ends["messages"]) == ["a", "one-1", "one-2"]
    assert (await store.upkeep.gc(grace=0)).entries == 1
    assert await _at(store, key, pinned.commit_number) == ["a", "one-1"]
    with pytest.raises(StoredDataCorrupt):
        await messages_of(store, key, first.ends["messages"])
    assert await messages_of(store, key) == ["a", "two-1", "two-2", "next"]


async def test_a_run_that_expects_its_base_is_refused_when_the_head_moved_on(store: Store) -> None:
    """With an expected version it is a write conflict; the run's own entries stay for a resume."""
    key, _ = await a_session(store, None, "a")
    await _run(store, key, "r-1", "b")
    await store.commit(a_turn(key, None, "other"))
    async with unchanged(store):
        with pytest.raises(VersionConflict) as refused:
            await _step(store, key, "r-1", save=True, expected_version=1, end=COMPLETED)
    assert (refused.value.expected, refused.value.found) == (1, 2)
    run = await store.runs.get("r-1")
    assert run is not None
    assert await messages_of(store, key, run.ends["messages"]) == ["a", "b"]


async def test_an_append_with_a_base_goes_after_that_base(store: Store) -> None:
    """At the head's end it is a plain append; elsewhere it branches there, and the rest stays until gc."""
    key, created = await a_session(store, None, "a")
    base = created.ends["messages"]
    first = await store.commit(a_commit(key, save=True, logs={"messages": Append(items=("b",), base=base)}))
    assert first.ends["messages"][:2] == base[:2]
    second = await store.commit(a_commit(key, save=True, logs={"messages": Append(items=("c",), base=base)}))
    assert second.ends["messages"].branch != base.branch
    assert await messages_of(store, key) == ["a", "c"]
    assert await messages_of(store, key, first.ends["messages"]) == ["a", "b"]
