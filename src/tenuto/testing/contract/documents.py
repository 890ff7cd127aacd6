"""Documents and big values: what is held by hash, what a commit may weigh, and what reads back."""

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import CommitTooLarge
from tenuto.model.commit import Append, BeginRun, Budget, Held, NewCheckpoint, OpenWait, Reset
from tenuto.model.event import NewEvent
from tenuto.model.session import Profile, SessionRecord
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements

ELSEWHERE = """
import asyncio, json, sys
from tenuto import open_store
from tenuto.testing.factories import a_save

async def main(address, options, key, document):
    async with open_store(address, **options) as store:
        if document:
            await store.commit(a_save(key, document=document))
        record = await store.load(key)
        receipt = await store.receipt(key, "first")
        print(json.dumps([record.state, record.version, receipt.commit_number]))

asyncio.run(main(*json.loads(sys.argv[1])))
"""


async def _elsewhere(harness: Harness, store: Store, key: str, document: dict[str, Any]) -> Any:
    """Commit a document in another process and return what it loads; where there is none, in another store."""
    if harness.address is None:
        other = await harness.open()
        if document:
            await other.commit(a_save(key, document=document))
        record, receipt = await other.load(key), await other.receipt(key, "first")
        assert record is not None
        assert receipt is not None
        return [record.state, record.version, receipt.commit_number]
    given = json.dumps([harness.address, harness.options, key, document])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ELSEWHERE, given, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


def _text(size: int, letter: str = "x") -> str:
    """Return a text whose JSON has exactly `size` bytes."""
    return letter * (size - 2)


async def test_big_values_pass_through_processes_that_do_not_know_them(harness: Harness) -> None:
    """A second process commits without touching them, a third reads them all, and the first receipt."""
    store = await harness.open()
    big = {"known": _text(5000), "@plugin.unknown": {"deep": [_text(2000, "é")]}, "small": 1}
    await store.create("s", state=big | {"m": ["a"]}, logs={"m"}, operation_id="first")
    before = await rows(store, "content")
    assert await _elsewhere(harness, store, "s", {"small": 2}) == [big | {"small": 2, "m": ["a"]}, 2, 1]
    assert await rows(store, "content") == before
    assert await _elsewhere(harness, store, "s", {}) == [big | {"small": 2, "m": ["a"]}, 2, 1]


async def test_values_are_held_by_hash_from_1_kib_on(store: Store) -> None:
    """1,023 bytes of JSON are stored in the document, 1,024 in a separate row; bytes count, not characters."""
    state = {"below": _text(1023), "at": _text(1024), "wide": "é" * 510, "wider": "é" * 511}
    await store.create("s", state=state)
    assert [len(row["body"].encode()) for row in await rows(store, "content")] == [1024, 1024]
    (row,) = await rows(store, "session")
    assert set(json.loads(row["document"])) == {"below", "wide"}
    assert set(json.loads(row["held"])) == {"at", "wider"}
    record = await store.load("s")
    assert record is not None
    assert record.state == state


@needs(Capability.PROBES)
async def test_an_unchanged_big_field_writes_nothing_and_a_changed_one_gets_a_new_hash(store: Store) -> None:
    """The body is neither written again nor touched; a removed field is gone."""
    await store.create("s", state={"big": _text(3000), "other": _text(2000, "o"), "small": 0})
    before = await rows(store, "content", "hash", "body")
    with statements(store) as ran:
        await store.commit(a_save("s", document={"small": 1}))
    assert not {"hold_contents", "touch_contents", "insert_holdings"} & set(ran)
    assert await rows(store, "content", "hash", "body") == before
    await store.commit(a_save("s", document={"big": _text(3000, "y")}, removed=frozenset({"other", "small"})))
    record = await store.load("s")
    assert record is not None
    assert record.state == {"big": _text(3000, "y")}
    after = await rows(store, "content", "hash", "body")
    assert len(set(after) - set(before)) == 1


async def test_a_field_moves_between_small_and_big_and_back(store: Store) -> None:
    """It is in one place at a time, also in a commit that names a held value or removes one."""
    await store.create("s", state={"a": 1, "b": _text(2000)})
    (held,) = [row["hash"] for row in await rows(store, "content")]
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": _text(2000, "a")}, {"a": _text(2000, "a"), "b": _text(2000)}),
        ({"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": Held(hash=held)}, {"a": _text(2000), "b": 3}),
        ({"a": 4}, {"a": 4, "b": 3}),
        ({"b": _text(1500)}, {"a": 4, "b": _text(1500)}),
    ]
    for document, state in steps:
        await store.commit(a_save("s", document=document))
        record = await store.load("s")
        assert record is not None
        assert record.state == state
    await store.commit(a_save("s", removed=frozenset({"a", "b", "never there"})))
    record = await store.load("s")
    assert record is not None
    assert record.state == {}


async def test_equal_values_share_one_body(store: Store) -> None:
    """Two fields, two sessions, a checkpoint and a fork; one more letter is another body."""
    big = _text(4000)
    await store.create("one", state={"a": big, "b": big})
    await store.create("two", state={"c": big})
    begin = BeginRun(run_id="r", invocation_id="i")
    await store.commit(a_commit("two", run=begin, checkpoint=NewCheckpoint(step=1, document={"d": big})))
    await store.fork("one", "three")
    assert len(await rows(store, "content")) == 1
    await store.create("four", state={"a": _text(4001)})
    assert len(await rows(store, "content")) == 2
    for key, state in {"one": {"a": big, "b": big}, "two": {"c": big}, "three": {"a": big, "b": big}}.items():
        record = await store.load(key)
        assert record is not None
        assert record.state == state
    point = await store.checkpoints.latest("two")
    assert point is not None
    assert point.document == {"d": big}


async def test_a_body_stays_while_any_session_or_checkpoint_reaches_it(store: Store) -> None:
    """Changing the field in one session leaves the other's, and a checkpoint's, readable after gc."""
    big = _text(4000)
    await store.create("one", state={"a": big})
    await store.create("two", state={"a": big})
    begin = BeginRun(run_id="r", invocation_id="i")
    point = NewCheckpoint(step=1, document={"d": _text(2000, "d")})
    await store.commit(a_save("one", document={"a": 1}, run=begin, checkpoint=point))
    await store.upkeep.gc(grace=0)
    two, latest = await store.load("two"), await store.checkpoints.latest("one")
    assert two is not None
    assert latest is not None
    assert (two.state, latest.document) == ({"a": big}, {"d": _text(2000, "d")})


@needs(Capability.PROBES)
async def test_a_commit_at_its_byte_budget_passes_and_one_byte_over_does_not(harness: Harness) -> None:
    """Names of fields and logs, items, document, checkpoint, waits, events and profile all count; refused before
    the transaction.
    """
    store = await harness.open(budget=Budget(max_bytes=3000, max_rows=1000))
    key, _ = await a_session(store, state={"held": _text(2900)})
    begin = BeginRun(run_id="r", invocation_id="i")
    parts: dict[str, Any] = {
        "item": lambda n: {"save": True, "logs": {"messages": Append(items=(_text(n - 8),))}},
        "items": lambda n: {"save": True, "logs": {"messages": Reset(items=(_text(1000), _text(n - 1008)))}},
        "wide item": lambda n: {"save": True, "logs": {"messages": Append(items=("é" * 1000 + _text(n - 2008),))}},
        "document": lambda n: {"save": True, "document": {"a": _text(1000), "b": _text(n - 1002, "b")}},
        "document and log": lambda n: {
            "save": True,
            "document": {"a": _text(1000)},
            "logs": {"messages": Append(items=(_text(n - 1009),))},
        },
        "checkpoint": lambda n: {"run": begin, "checkpoint": NewCheckpoint(step=1, document={"c": _text(n - 1)})},
        "cursor": lambda n: {"run": begin, "checkpoint": NewCheckpoint(step=1, cursor=_text(n))},
        "wait": lambda n: {"run": begin, "open_waits": (OpenWait(kind="k", schema=_text(n)),)},
        "profile": lambda n: {"profile": {"definition": _text(n)}},
    }
    for name, part in parts.items():
        async with unchanged(store):
            with statements(store) as ran, pytest.raises(CommitTooLarge) as refused:
                await store.commit(a_commit(key, **part(3001)))
        assert ran == [], name
        assert (refused.value.measure, refused.value.size, refused.value.budget) == ("bytes", 3001, 3000), name
        assert not refused.value.retryable
    await store.commit(a_commit(key, **parts["document and log"](3000)))
    await store.commit(a_commit(key, **parts["checkpoint"](3000)))
    with pytest.raises(CommitTooLarge):
        await store.commit(a_commit(key, events=(NewEvent(type="e", data=_text(3001)),)))


async def test_an_unchanged_big_value_counts_no_bytes(harness: Harness) -> None:
    """Left out or named by its hash, it fits any budget."""
    store = await harness.open(budget=Budget(max_bytes=3000))
    key, _ = await a_session(store, state={"held": _text(2900)})
    (held,) = [row["hash"] for row in await rows(store, "content")]
    tight = await harness.open(budget=Budget(max_bytes=10))
    await tight.commit(a_save(key, document={"x": 1}))
    await tight.commit(a_save(key, document={"copy": Held(hash=held)}))
    with pytest.raises(CommitTooLarge):
        await tight.commit(a_save(key, document={"x": _text(11)}))


async def test_a_commit_at_its_row_budget_passes_and_one_row_over_does_not(harness: Harness) -> None:
    """Entries, bodies, waits and events each count as rows."""
    store = await harness.open(budget=Budget(max_rows=6))
    key, _ = await a_session(store)
    begin = BeginRun(run_id="r", invocation_id="i")
    commit = a_commit(
        key,
        save=True,
        run=begin,
        logs={"messages": Append(items=(1, 2)), "notes": Append(items=(3,))},
        document={"big": _text(2000)},
        open_waits=(OpenWait(kind="k"),),
        events=(NewEvent(type="e"),),
    )
    async with unchanged(store):
        with pytest.raises(CommitTooLarge) as refused:
            await store.commit(replace(commit, events=commit.events * 2))
    assert (refused.value.measure, refused.value.size, refused.value.budget) == ("rows", 7, 6)
    await store.commit(commit)


async def test_create_and_save_keep_to_the_budget_too(harness: Harness) -> None:
    """State, logs and schema version of a create, and a whole record."""
    store = await harness.open(budget=Budget(max_bytes=3000, max_rows=5))
    key = a_key()
    async with unchanged(store):
        with pytest.raises(CommitTooLarge):
            await store.create(key, state={"a": _text(3001)})
        with pytest.raises(CommitTooLarge):
            await store.create(key, state={"m": [1] * 6}, logs={"m"})
        with pytest.raises(CommitTooLarge):
            await store.save(key, SessionRecord(session_id=key.session_id, state={"a": _text(3001)}))
    assert (await store.create(key, state={"a": _text(2500), "m": [1] * 4}, logs={"m"})).version == 1


async def test_the_profile_of_a_create_counts_towards_its_budget(harness: Harness) -> None:
    """A definition or metadata over the budget is refused as in a commit."""
    store = await harness.open(budget=Budget(max_bytes=3000))
    async with unchanged(store):
        for profile in (
            Profile(definition=_text(3001)),
            Profile(metadata={"a": _text(3001)}),
            Profile(title="t" * 3001),
        ):
            with pytest.raises(CommitTooLarge):
                await store.create(a_key(), profile=profile)


async def test_a_document_of_100_mb_is_refused(store: Store) -> None:
    """A typed refusal under the default budget; the store still works."""
    key, _ = await a_session(store)
    async with unchanged(store):
        with pytest.raises(CommitTooLarge) as refused:
            await store.commit(a_save(key, document={"huge": _text(100_000_000)}))
    assert (refused.value.size, refused.value.budget) == (100_000_004, Budget().max_bytes)
    assert refused.value.category == "commit_budget_exceeded"
    assert (await store.commit(a_save(key, document={"huge": _text(1_000_000)}))).version == 2


async def test_the_names_and_the_number_of_fields_count_in_a_commits_budget(harness: Harness) -> None:
    """A commit of names alone can be as big as one of values."""
    store = await harness.open(budget=Budget(max_bytes=10_000, max_rows=100))
    key, _ = await a_session(store)
    big = [f"{n:03}{'n' * 200}" for n in range(60)]
    parts: dict[str, dict[str, Any]] = {
        "document": {"document": dict.fromkeys(big, 1)},
        "logs": {"logs": {name: Append() for name in big}},
        "removed": {"removed": frozenset(big)},
    }
    async with unchanged(store):
        for name, part in parts.items():
            with pytest.raises(CommitTooLarge) as refused:
                await store.commit(a_commit(key, save=True, **part))
            assert refused.value.measure == "bytes", name
        many = {f"f{n}": 1 for n in range(101)}
        for part in ({"document": many}, {"logs": {name: Append() for name in many}}):
            with pytest.raises(CommitTooLarge) as refused:
                await store.commit(a_commit(key, save=True, **part))
            assert (refused.value.measure, refused.value.size) == ("fields", 101)
        with pytest.raises(CommitTooLarge):
            await store.commit(a_commit(key, checkpoint=NewCheckpoint(step=1, document=many)))
    await store.commit(a_save(key, document=dict(list(many.items())[:100])))
