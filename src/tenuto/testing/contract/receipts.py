"""Receipts: what a repeat gets, what makes it another operation, and how long it is known."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import InvalidInput, LaneLost, OperationConflict, SessionExists, StoreContended, VersionConflict
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Held, NewCheckpoint, OpenWait, Receipt, Reset
from tenuto.model.event import NewEvent
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile, SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged, values
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness


def _once(receipt: Receipt) -> Receipt:
    return replace(receipt, replayed=False)


async def test_a_repeat_returns_the_first_receipt_and_writes_nothing(store: Store) -> None:
    """No second entry, event, run, checkpoint or wait."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    commit = replace(
        a_turn(key, lane, "a", run_id=new_id()),
        end=EndRun(status=RunStatus.SUSPENDED),
        events=(NewEvent(type="one"), NewEvent(type="two")),
        open_waits=(OpenWait(kind="signal"), OpenWait(kind="approval")),
        checkpoint=NewCheckpoint(step=1),
    )
    first = await store.commit(commit)
    async with unchanged(store):
        again = await store.commit(commit)
        assert await store.receipt(key, commit.operation_id) == again
    assert not first.replayed
    assert again.replayed
    assert _once(again) == first
    assert len(first.wait_ids) == 2


async def test_a_changed_guard_or_clock_is_still_the_same_operation(harness: Harness) -> None:
    """Whatever version, generation or time the repeat names, it gets its receipt."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    commit = a_save(key, "a", document={"x": 1}, generation=lane.generation, expected_version=1)
    first = await store.commit(commit)
    guards: tuple[dict[str, Any], ...] = (
        {},
        {"expected_version": 77},
        {"expected_version": None},
        {"expected_commit": 77},
        {"generation": 77},
        {"statuses": frozenset({SessionStatus.FAILED})},
    )
    clock.advance(1000)
    async with unchanged(store):
        for guard in guards:
            again = await store.commit(replace(commit, **guard))
            assert again.replayed
            assert _once(again) == first


async def _full(store: Store) -> Commit:
    key, _ = await a_session(store, None, "m", state={"x": 0, "y": 0, "big": "z" * 2000})
    (held,) = [row["hash"] for row in await rows(store, "content")]
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    return a_commit(
        key,
        save=True,
        run=begin,
        document={"x": 1, "copy": Held(hash=held)},
        removed=frozenset({"y"}),
        logs={"messages": Append(items=("a", "b"))},
        schema_version="v1",
        status=SessionStatus.SUSPENDED,
        profile={"title": "T"},
        steps=2,
        end=EndRun(status=RunStatus.SUSPENDED),
        checkpoint=NewCheckpoint(step=1, cursor=[1], document={"s": 1}),
        open_waits=(OpenWait(kind="signal", signal_id="s", metadata={"a": 1}),),
        events=(NewEvent(type="e", data=1),),
    )


OTHER_CONTENT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "items": lambda _: {"logs": {"messages": Append(items=("a", "c"))}},
    "fewer items": lambda _: {"logs": {"messages": Append(items=("a",))}},
    "split items": lambda _: {"logs": {"messages": Append(items=("a,b",))}},
    "another log": lambda _: {"logs": {"notes": Append(items=("a", "b"))}},
    "reset": lambda _: {"logs": {"messages": Reset(items=("a", "b"))}},
    "no log": lambda _: {"logs": {}},
    "document value": lambda c: {"document": {**c.document, "x": 2}},
    "document type": lambda c: {"document": {**c.document, "x": 1.0}},
    "document flag": lambda c: {"document": {**c.document, "x": True}},
    "document field": lambda c: {"document": {"z": 1, "copy": c.document["copy"]}},
    "document held": lambda _: {"document": {"x": 1, "copy": 1}},
    "removed": lambda _: {"removed": frozenset()},
    "schema version": lambda _: {"schema_version": "v2"},
    "status": lambda _: {"status": SessionStatus.FAILED},
    "profile": lambda _: {"profile": {"title": "U"}},
    "steps": lambda _: {"steps": 3},
    "run": lambda c: {"run": replace(c.run, run_id="another")},
    "invocation": lambda c: {"run": replace(c.run, invocation_id="another")},
    "end": lambda _: {"end": EndRun(status=RunStatus.FAILED)},
    "outcome": lambda c: {"end": replace(c.end, outcome={})},
    "checkpoint step": lambda c: {"checkpoint": replace(c.checkpoint, step=2)},
    "checkpoint cursor": lambda c: {"checkpoint": replace(c.checkpoint, cursor=[2])},
    "checkpoint document": lambda c: {"checkpoint": replace(c.checkpoint, document={"s": 2})},
    "checkpoint schema": lambda c: {"checkpoint": replace(c.checkpoint, schema_version="v9")},
    "checkpoint before": lambda c: {"checkpoint": replace(c.checkpoint, before=True)},
    "no checkpoint": lambda _: {"checkpoint": None},
    "wait kind": lambda c: {"open_waits": (replace(c.open_waits[0], kind="approval"),)},
    "wait signal": lambda c: {"open_waits": (replace(c.open_waits[0], signal_id="t"),)},
    "wait metadata": lambda c: {"open_waits": (replace(c.open_waits[0], metadata={"a": 2}),)},
    "wait deadline": lambda c: {"open_waits": (replace(c.open_waits[0], deadline=datetime(2040, 1, 1, tzinfo=UTC)),)},
    "event type": lambda _: {"events": (NewEvent(type="f", data=1),)},
    "event data": lambda _: {"events": (NewEvent(type="e", data=2),)},
    "count_resume": lambda _: {"count_resume": True},
}


async def test_the_same_operation_id_with_other_content_is_a_conflict(store: Store) -> None:
    """One rule for every part of a commit; the store computes the hash itself; nothing changes."""
    commit = await _full(store)
    first = await store.commit(commit)
    async with unchanged(store):
        for name, other in OTHER_CONTENT.items():
            with pytest.raises(OperationConflict) as refused:
                await store.commit(replace(commit, **other(commit)))
            assert refused.value.operation_id == commit.operation_id, name
        assert _once(await store.commit(commit)) == first


async def test_an_operation_id_belongs_to_its_session(store: Store) -> None:
    """The same operation id in two sessions is two operations."""
    one, _ = await a_session(store, operation_id="op")
    two, _ = await a_session(store, operation_id="op")
    first = await store.commit(a_save(one, "a", operation_id="op-2"))
    second = await store.commit(a_save(two, "b", operation_id="op-2"))
    assert (first.replayed, second.replayed) == (False, False)


async def test_a_create_or_fork_with_other_content_under_its_operation_id_is_a_conflict(store: Store) -> None:
    """Other state, logs, profile, source or point under the first call's operation id."""
    source, _ = await a_session(store, None, "a")
    other, _ = await a_session(store, None, "b")
    key, fork = a_key(), a_key()
    state = {"a": 1, "m": ["x"]}
    await store.create(key, state=state, logs={"m"}, profile=Profile(title="T"), operation_id="op")
    receipt = await store.fork(source, fork, profile=Profile(title="T"), operation_id="op")
    changed: list[Callable[[], Awaitable[Receipt]]] = [
        lambda: store.create(
            key, state={"a": 2, "m": ["x"]}, logs={"m"}, profile=Profile(title="T"), operation_id="op"
        ),
        lambda: store.create(key, state=state, profile=Profile(title="T"), operation_id="op"),
        lambda: store.create(key, state=state, logs={"m"}, profile=Profile(title="U"), operation_id="op"),
        lambda: store.create(key, state=state, logs={"m"}, operation_id="op"),
        lambda: store.fork(other, fork, profile=Profile(title="T"), operation_id="op"),
        lambda: store.fork(source, fork, at=1, profile=Profile(title="T"), operation_id="op"),
        lambda: store.fork(source, fork, profile=Profile(title="U"), operation_id="op"),
        lambda: store.commit(a_save(fork, "x", operation_id="op")),
    ]
    async with unchanged(store):
        for call in changed:
            with pytest.raises(OperationConflict):
                await call()
        again = await store.fork(source, fork, profile=Profile(title="T"), operation_id="op")
    assert _once(again) == receipt
    with pytest.raises(SessionExists):
        await store.fork(source, fork)


@pytest.mark.parametrize("later", ["save", "rewind", "reset", "status", "delete of another"])
async def test_a_landed_commit_keeps_its_receipt_whatever_came_later(store: Store, later: str) -> None:
    """It does so even when its entries have left the head."""
    key, created = await a_session(store, None, "a")
    another, _ = await a_session(store)
    commit = a_save(key, "b", expected_version=1)
    first = await store.commit(commit)
    match later:
        case "save":
            await store.commit(a_save(key, "c"))
        case "rewind":
            keep = Reset(keep=created.ends["messages"])
            await store.commit(a_commit(key, save=True, logs={"messages": keep}))
        case "reset":
            await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("z",))}))
            await store.upkeep.gc(grace=0)
        case "status":
            await store.commit(a_commit(key, status=SessionStatus.COMPLETED))
        case _:
            await store.delete(another)
    async with unchanged(store):
        again = await store.commit(commit)
    assert again.replayed
    assert _once(again) == first


async def test_a_displaced_holder_still_gets_the_receipt_of_what_had_landed(harness: Harness) -> None:
    """Receipt before generation; its next write is refused, and the successor's lane is untouched."""
    clock = FakeClock()
    store, successor = await harness.open(clock=clock), await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("one"), ttl=15)
    commit = a_turn(key, lane, "reply", disarm=True)
    first = await store.commit(replace(commit, disarm=True))
    clock.advance(20)
    taken = await successor.lanes.acquire(key, an_owner("two"), ttl=15)
    await successor.commit(a_turn(key, taken, "next"))
    async with unchanged(store):
        again = await store.commit(commit)
        with pytest.raises(LaneLost) as refused:
            await store.commit(a_turn(key, lane, "late"))
    assert _once(again) == first
    assert (refused.value.expected, refused.value.found) == (lane.generation, taken.generation)
    assert values(await store.logs.read(key, "messages")) == ["reply", "next"]
    await successor.lanes.disarm(taken)


async def test_the_same_commit_sent_many_times_at_once_applies_once(harness: Harness) -> None:
    """One applies, the others get its receipt, and the entry exists once."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    commit = a_save(key, "once", document={"x": 1}, events=(NewEvent(type="e"),))
    receipts = await asyncio.gather(*(stores[n % 2].commit(commit) for n in range(20)))
    assert sum(not receipt.replayed for receipt in receipts) == 1
    assert all(_once(receipt) == _once(receipts[0]) for receipt in receipts)
    assert values(await stores[0].logs.read(key, "messages")) == ["once"]
    assert (await stores[0].events.read(key)).tail == 1


async def test_a_lost_reply_is_resolved_by_repeating(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit landed, its reply did not; the repeat reports landed, whatever version it expects."""
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store)
    commit = a_save(key, "once", expected_version=1)
    transact = store.backend.transact

    async def deaf(*args: Any, **options: Any) -> Any:
        await transact(*args, **options)
        raise StoreContended("the reply was lost")

    with monkeypatch.context() as patched:
        patched.setattr(store.backend, "transact", deaf)
        with pytest.raises(StoreContended):
            await store.commit(commit)
    landed = await other.receipt(key, commit.operation_id)
    await other.commit(a_save(key, "after"))
    again = await store.commit(replace(commit, expected_version=3))
    assert again == landed
    assert again.replayed
    assert values(await store.logs.read(key, "messages")) == ["once", "after"]


@pytest.mark.parametrize("laned", [False, True])
async def test_a_driver_that_sends_a_commit_twice_adds_nothing_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, laned: bool
) -> None:
    """Create, three commits and a fork, each transaction run twice by the layer below."""
    transact = store.backend.transact

    async def twice(*args: Any, **options: Any) -> Any:
        await transact(*args, **options)
        return await transact(*args, **options)

    key, fork = a_key(), a_key()
    lane = await store.lanes.acquire(key, an_owner()) if laned else None
    if lane:
        await store.lanes.disarm(lane)
    await store.create(key, logs={"messages"})
    lane = await store.lanes.acquire(key, an_owner()) if laned else None
    monkeypatch.setattr(store.backend, "transact", twice)
    for number in range(3):
        receipt = await store.commit(a_turn(key, lane, f"m{number}", events=(NewEvent(type="e"),)))
        assert (receipt.version, receipt.commit_number) == (number + 2, number + 2)
        assert receipt.replayed
    await store.fork(key, fork)
    assert values(await store.logs.read(key, "messages")) == ["m0", "m1", "m2"]
    assert values(await store.logs.read(fork, "messages")) == ["m0", "m1", "m2"]
    assert [event.seq for event in (await store.events.read(key)).events] == [1, 2, 3]
    assert len(await store.runs.of_session(key)) == 3


async def test_a_receipt_goes_with_the_commit_that_has_heard_of_it(harness: Harness) -> None:
    """Only what may still be repeated is kept; the commit that says so can itself be repeated."""
    store = await harness.open()
    key, _ = await a_session(store, operation_id="create")
    await store.commit(a_save(key, "a", operation_id="op-1"))
    second = a_save(key, "b", operation_id="op-2", heard="op-1")
    landed = await store.commit(second)
    other = await harness.open()
    for reader in (store, other):
        assert await reader.receipt(key, "op-1") is None
        assert await reader.receipt(key, "op-2") == replace(landed, replayed=True)
        assert await reader.receipt(key, "create") is not None
        assert await reader.commit(second) == replace(landed, replayed=True)
        assert await reader.commit(replace(second, heard=None)) == replace(landed, replayed=True)
    assert values(await store.logs.read(key, "messages")) == ["a", "b"]
    await store.commit(a_save(key, "c", operation_id="op-3", heard="never was"))
    assert [row["operation_id"] for row in await rows(store, "receipt")] == ["create", "op-2", "op-3"]


async def test_a_refused_commit_lets_no_receipt_go(store: Store) -> None:
    """A refusal changes nothing, and a commit cannot acknowledge itself."""
    key, _ = await a_session(store)
    first = await store.commit(a_save(key, "a", operation_id="op-1"))
    with pytest.raises(VersionConflict):
        await store.commit(a_save(key, "b", operation_id="op-2", heard="op-1", expected_version=99))
    with pytest.raises(InvalidInput, match="heard"):
        await store.commit(a_save(key, "b", operation_id="op-2", heard="op-2"))
    assert await store.receipt(key, "op-1") == replace(first, replayed=True)


async def test_the_receipt_of_another_session_is_not_let_go(store: Store) -> None:
    """An operation id belongs to its session."""
    one, _ = await a_session(store)
    other, _ = await a_session(store)
    await store.commit(a_save(one, "a", operation_id="op-1"))
    await store.commit(a_save(other, "b", operation_id="op-2", heard="op-1"))
    assert await store.receipt(one, "op-1") is not None


async def test_receipts_are_there_after_reopen_until_pruned_by_age(harness: Harness) -> None:
    """An older one goes, a younger one stays."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, operation_id="create")
    first = await store.commit(a_save(key, "a", operation_id="op-1"))
    clock.advance(100)
    second = await store.commit(a_save(key, "b", operation_id="op-2"))
    await store.aclose()
    again = await harness.open(clock=clock)
    assert await again.receipt(key, "op-1") == replace(first, replayed=True)
    clock.advance(10)
    assert (await again.upkeep.prune(receipts_older_than=110)).receipts == 0
    assert (await again.upkeep.prune(receipts_older_than=50)).receipts == 2
    assert await again.receipt(key, "op-1") is None
    assert await again.receipt(key, "create") is None
    assert await again.receipt(key, "op-2") == replace(second, replayed=True)
    assert values(await again.logs.read(key, "messages")) == ["a", "b"]
