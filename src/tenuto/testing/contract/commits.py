"""Commits: what they write, the numbers they get, and compare-and-set."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import InvalidInput, OperationConflict, SessionDeleted, StatusRefused, VersionConflict
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, MetadataChange, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile, SessionRecord, SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import outcomes, rows, unchanged, values
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner, message
from tenuto.testing.harness import Harness


async def test_a_save_raises_both_numbers_and_reads_back_equal(store: Store) -> None:
    """Document, components, logs and definition come back as written."""
    key, created = await a_session(store, None, message("a"), state={"old": 1, "gone": 2})
    receipt = await store.commit(
        a_commit(
            key,
            save=True,
            document={"old": {"deep": [1]}, "@plugin.memory": {"k": "v"}, "new": "x" * 4000},
            removed=frozenset({"gone"}),
            logs={"messages": Append(items=(message("b"), message("c"))), "notes": Append(items=("n",))},
            schema_version="v2",
            profile={"definition": {"model": "m-2"}, "title": "T"},
        )
    )
    record = await store.load(key)
    assert record is not None
    assert record.head is not None
    assert (receipt.version, receipt.commit_number) == (created.version + 1, created.commit_number + 1) == (2, 2)
    assert record.state == {
        "old": {"deep": [1]},
        "@plugin.memory": {"k": "v"},
        "new": "x" * 4000,
        "messages": [message("a"), message("b"), message("c")],
        "notes": ["n"],
    }
    assert (record.schema_version, record.logs) == ("v2", frozenset({"messages", "notes"}))
    assert (record.head.profile.definition, record.head.profile.title) == ({"model": "m-2"}, "T")
    assert record.head.ends == receipt.ends
    assert (record.head.version, record.head.commit_number) == (2, 2)
    entries = await store.logs.read(key, "messages")
    assert [(entry.position, entry.commit_number) for entry in entries] == [(0, 1), (1, 2), (2, 2)]
    assert [entry.schema_version for entry in entries] == ["", "v2", "v2"]


async def test_a_commit_that_does_not_move_the_head_raises_only_the_commit_number(store: Store) -> None:
    """Profile, status, run, checkpoint, wait and event commits do not change the version."""
    key, _ = await a_session(store, None, "a", state={"x": 1})
    before = await store.load(key)
    begin = BeginRun(run_id="r-1", invocation_id="inv-1")
    run = RunRef(run_id="r-1")
    commits = [
        a_commit(key, profile={"title": "T"}),
        a_commit(key, profile={"definition": {"v": 2}}),
        a_commit(key, status=SessionStatus.SUSPENDED),
        a_commit(key, run=begin),
        a_commit(key, run=run, logs={"messages": Append(items=("own",))}, checkpoint=NewCheckpoint(step=1)),
        a_commit(key, run=run, open_waits=(OpenWait(kind="signal"),)),
        a_commit(key, events=(NewEvent(type="e"),)),
        a_commit(key, run=run, end=EndRun(status=RunStatus.FAILED)),
    ]
    receipts = [await store.commit(commit) for commit in commits]
    assert [receipt.commit_number for receipt in receipts] == list(range(2, 10))
    assert {receipt.version for receipt in receipts} == {1}
    after = await store.load(key)
    assert before is not None
    assert after is not None
    assert after.head is not None
    assert (after.version, after.state, after.head.commit_number) == (1, before.state, 9)


async def test_save_with_the_current_version_lands_and_with_an_older_one_does_not(store: Store) -> None:
    """Version + 1, or a write conflict with expected and found; without one the last write wins."""
    key, _ = await a_session(store, None, "a", state={"x": 0})
    record = await store.load(key)
    assert record is not None
    first = await store.save(key, replace(record, state={"messages": ["a", "b"], "x": 1}), expected_version=1)
    assert first.version == 2
    async with unchanged(store):
        with pytest.raises(VersionConflict) as refused:
            await store.save(key, replace(record, state={"messages": ["z"], "x": 9}), expected_version=1)
    assert (refused.value.expected, refused.value.found, refused.value.retryable) == (1, 2, True)
    assert refused.value.category == "session_write_conflict"
    last = await store.save(key, replace(record, state={"messages": ["z"], "x": 9}))
    loaded = await store.load(key)
    assert loaded is not None
    assert (last.version, loaded.state) == (3, {"messages": ["z"], "x": 9})


async def test_changes_of_metadata_are_merged_key_by_key_whoever_holds_the_lane(harness: Harness) -> None:
    """Two writers that saw the same metadata both keep their keys; a value is replaced whole, a removed key is gone."""
    store, other = await harness.open(), await harness.open()
    first = Profile(title="t", metadata={"a": {"x": 1, "y": 2}, "b": 1, "c": None})
    key, _ = await a_session(store, None, "a", profile=first)
    lane = await store.lanes.acquire(key, an_owner(), nonce="n", ttl=60)
    changes = [
        MetadataChange(values={"a": {"x": True}, "new": [1]}, removed=frozenset({"c", "never"})),
        MetadataChange(values={"b": None}),
        MetadataChange(removed=frozenset({"new"})),
    ]
    await store.commit(a_commit(key, metadata=changes[0]))
    await asyncio.gather(
        other.commit(a_commit(key, metadata=changes[1])),
        store.commit(a_commit(key, generation=lane.generation, metadata=changes[2])),
    )
    head = await other.head(key)
    assert head is not None
    assert (head.profile.title, head.profile.metadata) == ("t", {"a": {"x": True}, "b": None})
    assert (head.version, head.commit_number) == (1, 4)


async def test_a_change_of_metadata_is_one_operation_and_its_result_has_to_fit(harness: Harness) -> None:
    """Repeated it changes nothing; the same operation with another change is refused; so is too much in all."""
    store = await harness.open()
    key, _ = await a_session(store, None, "a", profile=Profile(metadata={"a": "x" * 40_000}))
    commit = a_commit(key, metadata=MetadataChange(values={"b": 1}))
    once = await store.commit(commit)
    await store.commit(a_commit(key, metadata=MetadataChange(values={"b": 2})))
    assert (await store.commit(commit)).commit_number == once.commit_number
    for other in (MetadataChange(values={"b": True}), MetadataChange(values={"b": 1}, removed=frozenset({"a"}))):
        with pytest.raises(OperationConflict):
            await store.commit(replace(commit, metadata=other))
    before = await store.dump()
    too_much = MetadataChange(values={"c": "y" * 40_000})
    with pytest.raises(InvalidInput):
        await store.commit(a_commit(key, metadata=too_much))
    with pytest.raises(StatusRefused):
        await store.commit(a_commit(a_key(), metadata=MetadataChange(values={"c": 1})))
    assert await store.dump() == before
    head = await store.head(key)
    assert head is not None
    assert head.profile.metadata == {"a": "x" * 40_000, "b": 2}


async def test_a_preview_is_part_of_the_sessions_row_and_goes_with_it(harness: Harness) -> None:
    """It changes without the profile's row, is in heads and lists, goes into forks of the current state, and not on."""
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store, None, "a", profile=Profile(title="t", preview="one", metadata={"m": 1}))
    profiles = (await store.dump())["profile"]
    point = await store.commit(a_commit(key, checkpoint=NewCheckpoint(step=1)))
    commit = a_commit(key, profile={"preview": "two"})
    await store.commit(commit)
    with pytest.raises(OperationConflict):
        await store.commit(replace(commit, profile={"preview": "three"}))
    assert (await store.dump())["profile"] == profiles
    now, then = a_key(), a_key()
    await store.fork(key, now)
    await store.fork(key, then, at=point.commit_number)
    shown = {each.key: (each.title, each.preview) for each in await other.list()}
    assert shown == {key: ("t", "two"), now: ("t", "two"), then: ("t", None)}
    head = await other.head(key)
    assert head is not None
    assert (head.profile.preview, head.profile.metadata) == ("two", {"m": 1})
    await store.commit(a_commit(key, profile={"preview": None, "title": "u"}))
    assert {each.key: (each.title, each.preview) for each in await other.list()}[key] == ("u", None)
    await store.delete(now)
    rows = {row["session_id"]: row["preview"] for row in (await store.dump())["session"]}
    assert rows[now.session_id] is None
    await store.create(now)
    assert {each.key: each.preview for each in await other.list()}[now] is None


async def test_a_save_with_the_current_version_survives_a_commit_that_moves_no_head(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title set between the save's look and its write does not change the version it expects."""
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store, None, "a")
    transact = store.backend.transact
    titles = iter(["T"])

    async def late(*args: Any, **options: Any) -> Any:
        for title in titles:
            await other.commit(a_commit(key, profile={"title": title}))
        return await transact(*args, **options)

    monkeypatch.setattr(store.backend, "transact", late)
    record = SessionRecord(session_id=key.session_id, state={"messages": ["a", "b"]})
    receipt = await store.save(key, record, expected_version=1)
    assert (receipt.version, receipt.commit_number) == (2, 3)


async def test_a_save_without_a_version_wins_over_what_came_between(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's entries between look and write are not mixed into the saved record."""
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store, None, "a")
    transact = store.backend.transact
    items = iter(["theirs-1", "theirs-2"])

    async def late(*args: Any, **options: Any) -> Any:
        if (item := next(items, None)) is not None:
            await other.commit(a_save(key, item))
        return await transact(*args, **options)

    monkeypatch.setattr(store.backend, "transact", late)
    await store.save(key, SessionRecord(session_id=key.session_id, state={"messages": ["a", "mine"]}))
    loaded = await store.load(key)
    assert loaded is not None
    assert (loaded.state, loaded.version) == ({"messages": ["a", "mine"]}, 4)


async def test_saving_a_whole_record_appends_what_grew_and_resets_what_changed(store: Store) -> None:
    """A grown log adds its new entries only; any other change gives it a new branch; a missing field goes."""
    key, created = await a_session(store, None, "a", "b", state={"notes": ["n"], "x": 1, "y": 2}, logs={"notes"})
    record = SessionRecord(session_id=key.session_id, state={"messages": ["a", "b", "c"], "notes": ["other"], "x": 5})
    receipt = await store.save(key, record)
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state == record.state
    assert loaded.logs == {"messages", "notes"}
    assert receipt.ends["messages"][:2] == created.ends["messages"][:2]
    assert receipt.ends["notes"].branch != created.ends["notes"].branch
    assert len(await rows(store, "entry")) == 5


@pytest.mark.parametrize("moving", ["save", "profile"])
async def test_of_two_commits_on_one_version_one_lands(store: Store, moving: str) -> None:
    """The other is a write conflict, and the stored state is one writer's, no mixture."""
    key, _ = await a_session(store, None, "m")
    number = {"save": {"expected_version": 1}, "profile": {"expected_commit": 1}}[moving]

    def commit(name: str) -> Commit:
        if moving == "profile":
            return a_commit(key, profile={"title": name, "preview": name}, **number)
        logs = {"messages": Append(items=(name, name)), "notes": Append(items=(name,))}
        return a_commit(key, save=True, document={"a": name, "b": name}, logs=logs, **number)

    won, lost = await outcomes(store.commit(commit("one")), store.commit(commit("two")))
    assert (len(won), [isinstance(error, VersionConflict) for error in lost]) == (1, [True])
    record = await store.load(key)
    assert record is not None
    assert record.head is not None
    if moving == "save":
        winner = record.state["a"]
        assert record.state == {"a": winner, "b": winner, "messages": ["m", winner, winner], "notes": [winner]}
    else:
        assert record.head.profile.title == record.head.profile.preview


async def test_of_twenty_compare_and_sets_exactly_one_wins(harness: Harness) -> None:
    """Twenty tasks over two open stores; each loser learns what it expected and what it found."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    tasks = (stores[n % 2].commit(a_save(key, f"m{n}", document={"n": n}, expected_version=1)) for n in range(20))
    won, lost = await outcomes(*tasks)
    assert (len(won), {type(error) for error in lost}) == (1, {VersionConflict})
    assert {(getattr(error, "expected", 0), getattr(error, "found", 0)) for error in lost} == {(1, 2)}
    record = await stores[0].load(key)
    assert record is not None
    assert record.state["messages"] == [f"m{record.state['n']}"]
    assert record.version == 2


async def test_concurrent_commits_and_event_batches_get_distinct_consecutive_numbers(harness: Harness) -> None:
    """Over two open stores; a refused commit leaves no hole in either sequence."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    lane = await stores[0].lanes.acquire(key, an_owner())
    generation = lane.generation
    events = (NewEvent(type="a"), NewEvent(type="b"))
    commits = [a_save(key, n, events=events, generation=generation) for n in range(15)]
    refused = [a_save(key, -1, events=events, generation=generation, expected_version=99) for _ in range(5)]
    batches = [stores[n % 2].events.append(lane, (NewEvent(type="c", data=n),) * 3) for n in range(10)]
    jobs = [stores[n % 2].commit(commit) for n, commit in enumerate(commits + refused)]
    (landed, lost), (tails, failed) = await asyncio.gather(outcomes(*jobs), outcomes(*batches))
    assert ({type(error) for error in lost}, len(lost), failed) == ({VersionConflict}, 5, [])
    assert sorted(receipt.commit_number for receipt in landed) == list(range(2, 17))
    assert sorted(receipt.version for receipt in landed) == list(range(2, 17))
    page = await stores[0].events.read(key)
    assert [event.seq for event in page.events] == list(range(1, 61))
    assert len({receipt.event_seq for receipt in landed} | set(tails)) == 25
    assert sorted(values(await stores[1].logs.read(key, "messages"))) == list(range(15))
    head = await stores[1].head(key)
    assert head is not None
    assert (head.version, head.commit_number, head.event_seq) == (16, 16, 60)


async def test_read_modify_commit_with_retry_loses_no_change(harness: Harness) -> None:
    """Eight tasks, five changes each, ends at version 1 + 40 with every change present."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0], state={"count": 0})

    async def work(name: int) -> None:
        store = stores[name % 2]
        for step in range(5):
            while True:
                record = await store.load(key)
                assert record is not None
                change = {"count": record.state["count"] + 1}
                try:
                    await store.commit(a_save(key, [name, step], document=change, expected_version=record.version))
                    break
                except VersionConflict:
                    continue

    await asyncio.gather(*(work(name) for name in range(8)))
    record = await stores[0].load(key)
    assert record is not None
    assert (record.version, record.state["count"]) == (41, 40)
    assert sorted(record.state["messages"]) == [[name, step] for name in range(8) for step in range(5)]


async def test_while_an_id_is_deleted_and_recreated_versions_only_rise(harness: Harness) -> None:
    """Every stale copy is refused; what landed was read from the life it landed in."""
    writer, deleter = await harness.open(), await harness.open()
    key, _ = await a_session(writer, state={"life": 1})
    seen: list[int] = []
    refused = 0

    async def work() -> None:
        nonlocal refused
        while len(seen) < 20:
            record = await writer.load(key)
            if record is None or record.head is None:
                await asyncio.sleep(0)
                continue
            life = record.head.life
            await asyncio.sleep(0)
            commit = a_save(key, "m", life=life, document={"life": life}, expected_version=record.version)
            try:
                seen.append((await writer.commit(commit)).version)
            except (VersionConflict, SessionDeleted):
                refused += 1
            found = await writer.load(key)
            assert found is None or found.head is None or found.state["life"] in {found.head.life, 0}

    async def destroy() -> None:
        while len(seen) < 20:
            await deleter.delete(key)
            seen.append((await deleter.create(key, state={"life": 0})).version)

    await asyncio.gather(work(), destroy())
    stored = await deleter.load(key)
    assert stored is not None
    assert len(set(seen)) == len(seen)
    assert stored.version == max(seen)


async def test_a_stale_copy_of_a_former_life_never_wins(store: Store) -> None:
    """After delete and recreate the old version and life are refused, each by itself."""
    key, _ = await a_session(store, None, "a")
    old = await store.load(key)
    assert old is not None
    assert old.head is not None
    await store.delete(key)
    async with unchanged(store):
        with pytest.raises(SessionDeleted) as deleted:
            await store.commit(a_save(key, "b", life=old.head.life))
    assert (deleted.value.expected_life, deleted.value.found_life) == (1, 2)
    await store.create(key, state={"new": True})
    async with unchanged(store):
        with pytest.raises(SessionDeleted):
            await store.commit(a_save(key, "b", life=old.head.life, expected_version=old.version))
        with pytest.raises(VersionConflict):
            await store.save(key, old, expected_version=old.version)
