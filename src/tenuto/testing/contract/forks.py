"""Forks and rewinds: a session goes back, or goes two ways, and no entry is copied."""

from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import (
    CommitRefused,
    ForkPointNotRetained,
    InvalidInput,
    OperationConflict,
    SessionExists,
    SessionNotFound,
    StoredDataCorrupt,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, OpenWait, Reset, TakeRun
from tenuto.model.event import NewEvent
from tenuto.model.input import InputKind, NewInput
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Profile, SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import messages_of, rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements


@pytest.mark.parametrize("how", ["reset", "rewind", "last write wins", "whole record"])
async def test_what_leaves_the_head_reads_whole_until_gc(store: Store, how: str) -> None:
    """No commit removes anything; gc with no grace then takes what nobody reaches."""
    key, created = await a_session(store, None, "a", "b", "c")
    old = created.ends["messages"]
    before = await rows(store, "entry")
    match how:
        case "reset":
            await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("z",))}))
        case "rewind":
            keep = old._replace(position=1)
            await store.commit(a_commit(key, save=True, logs={"messages": Reset(keep=keep)}))
        case "last write wins":
            base = old._replace(position=1)
            await store.commit(a_commit(key, save=True, logs={"messages": Append(items=("z",), base=base)}))
        case _:
            record = await store.load(key)
            assert record is not None
            await store.save(key, replace(record, state={"messages": ["a", "z"]}))
    kept = {"reset": ["z"], "rewind": ["a"], "last write wins": ["a", "z"], "whole record": ["a", "z"]}[how]
    after = await rows(store, "entry")
    assert [row for row in before if row not in after] == []
    assert await messages_of(store, key) == kept
    assert await messages_of(store, key, old) == ["a", "b", "c"]
    report = await store.upkeep.gc(grace=0)
    assert report.entries == {"reset": 3, "rewind": 2, "last write wins": 2, "whole record": 3}[how]
    assert await messages_of(store, key) == kept
    with pytest.raises(StoredDataCorrupt):
        await messages_of(store, key, old)


async def test_a_rewind_copies_no_entry_and_raises_the_version(store: Store) -> None:
    """Go back to each earlier commit and append to it; positions continue from there."""
    key, created = await a_session(store, None, "a", "b")
    grown = await store.commit(a_save(key, "c", "d"))
    count = len(await rows(store, "entry"))
    back = await store.commit(a_commit(key, save=True, logs={"messages": Reset(keep=created.ends["messages"])}))
    assert len(await rows(store, "entry")) == count
    assert (back.version, back.ends["messages"].position) == (3, 2)
    assert await messages_of(store, key) == ["a", "b"]
    await store.commit(a_save(key, "e"))
    assert [(e.position, e.value) for e in await store.logs.read(key, "messages")] == [(0, "a"), (1, "b"), (2, "e")]
    forth = Reset(keep=grown.ends["messages"], items=("f",))
    await store.commit(a_commit(key, save=True, logs={"messages": forth}))
    assert await messages_of(store, key) == ["a", "b", "c", "d", "f"]
    assert len(await rows(store, "entry")) == count + 2
    empty = Reset(keep=grown.ends["messages"]._replace(position=0))
    await store.commit(a_commit(key, save=True, logs={"messages": empty}))
    assert await messages_of(store, key) == []


async def test_a_fork_copies_no_entry_and_goes_its_own_way(store: Store) -> None:
    """One branch per log, whatever the history's length; neither side sees the other's later entries."""
    source, _ = await a_session(store, None, *range(200), state={"notes": ["n"], "x": 1}, logs={"notes"})
    fork, second = a_key(), a_key()
    before = await store.dump()
    receipt = await store.fork(source, fork)
    after = await store.dump()
    assert after["entry"] == before["entry"]
    assert len(after["branch"]) == len(before["branch"]) + 2
    assert (receipt.version, receipt.commit_number, receipt.life) == (1, 1, 1)
    await store.commit(a_save(fork, "fork"))
    await store.commit(a_save(source, "source"))
    await store.fork(fork, second)
    await store.commit(a_save(second, "second"))
    assert (await messages_of(store, source))[199:] == [199, "source"]
    assert (await messages_of(store, fork))[199:] == [199, "fork"]
    assert (await messages_of(store, second))[199:] == [199, "fork", "second"]
    assert len(await rows(store, "entry")) == len(before["entry"]) + 3
    record = await store.load(second)
    assert record is not None
    assert (record.state["notes"], record.state["x"]) == (["n"], 1)


async def test_a_fork_rewinds_into_its_sources_part_of_the_history(store: Store) -> None:
    """The kept place lies on the source's branch, and still nothing is copied."""
    source, _ = await a_session(store, None, "a", "b", "c")
    fork = a_key()
    receipt = await store.fork(source, fork)
    await store.commit(a_save(fork, "d"))
    count = len(await rows(store, "entry"))
    keep = receipt.ends["messages"]._replace(position=1)
    await store.commit(a_commit(fork, save=True, logs={"messages": Reset(keep=keep)}))
    assert len(await rows(store, "entry")) == count
    assert (await messages_of(store, fork), await messages_of(store, source)) == (["a"], ["a", "b", "c"])


@needs(Capability.PROBES)
async def test_the_cost_of_fork_and_rewind_does_not_grow_with_history(store: Store) -> None:
    """The same statements for three entries and for three thousand, and for a fork of forks."""
    ran: list[list[str]] = []
    for count in (3, 3000):
        source, created = await a_session(store, None, *range(count))
        with statements(store) as names:
            await store.fork(source, a_key())
            keep = Reset(keep=created.ends["messages"]._replace(position=2))
            await store.commit(a_commit(source, save=True, logs={"messages": keep}))
        ran.append(list(names))
    assert ran[0] == ran[1]
    key, _ = await a_session(store, None, 0)
    for depth in range(1, 12):
        fork = a_key()
        await store.fork(key, fork)
        await store.commit(a_save(fork, depth))
        key = fork
    with statements(store) as names:
        assert await messages_of(store, key) == list(range(12))
    assert len(names) <= 4


async def test_a_fork_takes_nothing_along_that_changes(store: Store) -> None:
    """No run, wait, event, lane or receipt; status active; the profile is the source's with changes over it."""
    source, _ = await a_session(store, None, "a", profile=Profile(agent="A", title="T", tags=("t",), parent="p"))
    lane = await store.lanes.acquire(source, an_owner())
    run_id = new_id()
    turn = a_turn(source, lane, "b", run_id=run_id, status=SessionStatus.SUSPENDED)
    waiting = replace(turn, end=EndRun(status=RunStatus.SUSPENDED), open_waits=(OpenWait(kind="signal"),))
    await store.commit(replace(waiting, events=(NewEvent(type="e"),)))
    fork = a_key()
    await store.fork(source, fork, profile=Profile(title="U"))
    head = await store.head(fork)
    assert head is not None
    assert (head.status, head.version, head.generation, head.event_seq) == (SessionStatus.ACTIVE, 1, 0, 0)
    assert (head.current_run, head.resume_count) == (None, 0)
    assert (head.profile.agent, head.profile.title, head.profile.tags) == ("A", "U", ("t",))
    assert (head.profile.parent, head.profile.root) == (None, None)
    assert await store.runs.of_session(fork) == []
    assert await store.waits.of_session(fork) == []
    assert await store.checkpoints.latest(fork) is None
    assert await messages_of(store, fork) == ["a", "b"]


async def test_a_fork_at_a_checkpoint_has_its_document_and_logs(store: Store) -> None:
    """The state as the checkpoint had it, whatever the head is now; a missing one names those near."""
    key, _ = await a_session(store, None, "a", state={"x": 0}, schema_version="v1")
    begin = BeginRun(run_id="r-1", invocation_id="inv-1")
    big = "b" * 3000
    document = {"x": 1, "big": big, "inner/scratch": 5}
    point = NewCheckpoint(step=1, cursor={"at": "n"}, document=document, schema_version="v2")
    first = await store.commit(a_commit(key, run=begin, logs={"messages": Append(items=("b",))}, checkpoint=point))
    await store.commit(a_turn(key, None, "c"))
    await store.commit(a_save(key, document={"x": 9}))
    fork = a_key()
    await store.fork(key, fork, at=first.commit_number)
    record = await store.load(fork)
    assert record is not None
    assert record.head is not None
    assert record.state == {"messages": ["a", "b"], "x": 1, "big": big}
    assert record.schema_version == "v2"
    forked = record.head.profile.forked_from
    assert forked is not None
    assert (forked.session_id, forked.commit_number) == (key.session_id, first.commit_number)
    async with unchanged(store):
        for at in (1, first.commit_number + 1, 99):
            with pytest.raises(ForkPointNotRetained) as refused:
                await store.fork(key, a_key(), at=at)
            assert refused.value.nearest == [first.commit_number]


@pytest.mark.parametrize("how", ["begins", "begins saving", "continues", "continues saving", "resets", "has no run"])
async def test_a_fork_at_a_checkpoint_from_before_its_commit_lacks_what_the_commit_wrote(
    store: Store, how: str
) -> None:
    """It has the run's logs from before the commit, or the head's where the run begins; collection keeps them."""
    key, _ = await a_session(store, None, "a", "b", state={"x": 0}, schema_version="v1")
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    if how.startswith("continues"):
        await store.commit(a_commit(key, run=begin, logs={"messages": Append(items=("own",))}))
    write = Reset(items=("new",)) if how == "resets" else Append(items=("new",))
    asked = a_commit(
        key,
        run=None if how == "has no run" else RunRef(run_id=begin.run_id) if how.startswith("continues") else begin,
        save=how not in {"begins", "continues"},
        logs={"messages": write, "notes": Append(items=("n",))},
        checkpoint=NewCheckpoint(step=0, document={"x": 7}, schema_version="v1", before=True),
    )
    done = await store.commit(asked)
    before = ["a", "b", "own"] if how.startswith("continues") else ["a", "b"]
    after = ["new"] if how == "resets" else [*before, "new"]
    assert await messages_of(store, key, done.ends["messages"]) == after
    if asked.run is not None:
        await store.commit(a_commit(key, run=RunRef(run_id=begin.run_id), end=EndRun(status=RunStatus.COMPLETED)))
    await store.commit(a_save(key, "later"))
    await store.upkeep.gc(grace=0)
    fork = a_key()
    await store.fork(key, fork, at=done.commit_number)
    record = await store.load(fork)
    assert record is not None
    assert record.state == {"messages": before, "x": 7}
    await store.commit(a_save(fork, "otherwise"))
    assert await messages_of(store, fork) == [*before, "otherwise"]
    assert (await messages_of(store, key))[-1] == "later"


async def test_a_checkpoint_from_before_the_first_commit_forks_into_an_empty_session(store: Store) -> None:
    """There was no such log yet."""
    key = a_key()
    point = NewCheckpoint(step=0, before=True)
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"))
    done = await store.commit(
        a_commit(key, save=True, run=begin, logs={"messages": Append(items=("a",))}, checkpoint=point)
    )
    fork = a_key()
    await store.fork(key, fork, at=done.commit_number)
    record = await store.load(fork)
    assert record is not None
    assert record.state == {}


@needs(Capability.PROBES)
async def test_a_checkpoint_from_before_has_the_heads_document_and_sends_none_of_it(store: Store) -> None:
    """Under its schema version, big values by their hash, and still whole once the head has let them go."""
    big = "x" * 5000
    key, _ = await a_session(store, None, "a", state={"small": 1, "big": big}, schema_version="v1")
    lane = await store.lanes.acquire(key, an_owner())
    change: dict[str, Any] = {"document": {"small": 2}, "removed": frozenset({"big"}), "schema_version": "v2"}
    with statements(store) as seen:
        done = await store.commit(a_turn(key, lane, "b", checkpoint=NewCheckpoint(step=0, before=True), **change))
    assert not {"hold_contents", "touch_contents", "insert_holdings"} & set(seen)
    await store.upkeep.gc(grace=0)
    point = await store.checkpoints.get(key, done.commit_number)
    assert point is not None
    assert (dict(point.document), point.schema_version) == ({"small": 1, "big": big}, "v1")
    fork = a_key()
    await store.fork(key, fork, at=done.commit_number)
    record = await store.load(fork)
    assert record is not None
    assert (record.state, record.schema_version) == ({"messages": ["a"], "small": 1, "big": big}, "v1")


async def test_a_checkpoint_from_before_is_the_same_where_the_commit_needed_no_look(store: Store) -> None:
    """Under a lane, turn after turn, each begin leaves the session as the turn before it left it."""
    key, _ = await a_session(store, None, "a")
    lane = await store.lanes.acquire(key, an_owner())
    seen: list[list[object]] = []
    for turn in range(3):
        commit = a_turn(key, lane, f"turn-{turn}", checkpoint=NewCheckpoint(step=turn, before=True))
        done = await store.commit(commit)
        point = await store.checkpoints.get(key, done.commit_number)
        assert point is not None
        seen.append(await messages_of(store, key, point.ends["messages"]))
    assert seen == [["a"], ["a", "turn-0"], ["a", "turn-0", "turn-1"]]


async def test_a_run_taken_over_elsewhere_leaves_its_former_place_in_a_checkpoint_from_before(harness: Harness) -> None:
    """It has what the run had written, although the run continues at a head that has moved."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, "a")
    begin = BeginRun(run_id=an_id("run"), invocation_id=an_id("inv"), ttl=5)
    await store.commit(a_commit(key, run=begin, logs={"messages": Append(items=("own",))}))
    moved = await store.commit(a_save(key, "theirs"))
    clock.advance(6)
    take = TakeRun(run_id=begin.run_id, attempt=1, ends=moved.ends, base_ends=moved.ends, base_version=moved.version)
    done = await store.commit(
        a_commit(
            key, run=take, logs={"messages": Append(items=("again",))}, checkpoint=NewCheckpoint(step=1, before=True)
        )
    )
    point = await store.checkpoints.get(key, done.commit_number)
    assert point is not None
    assert await messages_of(store, key, point.ends["messages"]) == ["a", "own"]
    assert await messages_of(store, key, done.ends["messages"]) == ["a", "theirs", "again"]


async def test_a_fork_of_nothing_and_onto_a_live_id_are_refused(store: Store) -> None:
    """The refusal is typed, and nothing is created."""
    source, _ = await a_session(store, None, "a")
    target, _ = await a_session(store, None, "b")
    async with unchanged(store):
        with pytest.raises(SessionNotFound):
            await store.fork("unknown", a_key())
        with pytest.raises(SessionExists) as refused:
            await store.fork(source, target)
        with pytest.raises(SessionExists):
            await store.fork(source, source)
    assert refused.value.found_version == 1


async def test_a_branch_of_a_former_life_cannot_be_brought_back(store: Store) -> None:
    """A fork may keep its entries alive, but the id's next life does not reach them."""
    key, created = await a_session(store, None, "old secret")
    fork = a_key()
    await store.fork(key, fork)
    await store.delete(key)
    await store.create(key, state={"messages": ["new"]}, logs={"messages"})
    keep = Reset(keep=created.ends["messages"])
    async with unchanged(store):
        with pytest.raises(CommitRefused):
            await store.commit(a_commit(key, life=2, save=True, logs={"messages": keep}))
    assert await messages_of(store, fork) == ["old secret"]


async def test_a_fork_brings_its_first_input_in_its_own_transaction(store: Store) -> None:
    """It is queued as by an enqueue, its id is in the receipt, and a repeat has both."""
    source, _ = await a_session(store, None, "a")
    key, new = a_key(), NewInput(kind=InputKind.MESSAGE, body={"say": "hello"}, key="k")
    receipt = await store.fork(source, key, first=new, operation_id="op")
    (queued,) = await store.inbox.list(key)
    assert (queued.input_id, queued.body, queued.input_key) == (receipt.input_ids[0], {"say": "hello"}, "k")
    assert (queued.seq, receipt.event_seq) == (1, 1)
    page = await store.events.read(key)
    assert [(event.type, event.seq) for event in page.events] == [("input_queued", 1)]
    async with unchanged(store):
        again = await store.fork(source, key, first=new, operation_id="op")
        assert (again.replayed, again.input_ids) == (True, receipt.input_ids)
        assert (await store.inbox.enqueue(key, new)).input.input_id == queued.input_id
        with pytest.raises(OperationConflict):
            await store.fork(source, key, first=replace(new, body="other"), operation_id="op")
    assert await store.inbox.due() == (key,)


async def test_a_fork_expects_its_source_at_a_commit(store: Store) -> None:
    """A source that has moved is refused and nothing is written; a repeat does not check where the source is."""
    source, created = await a_session(store, None, "a")
    moved = await store.commit(a_save(source, "b"))
    async with unchanged(store):
        with pytest.raises(VersionConflict) as refused:
            await store.fork(source, a_key(), expected_commit=created.commit_number)
        assert refused.value.details()["counted"] == "commits"
    key = a_key()
    await store.fork(source, key, expected_commit=moved.commit_number, operation_id="op")
    await store.commit(a_save(source, "c"))
    assert (await store.fork(source, key, expected_commit=moved.commit_number, operation_id="op")).replayed
    assert await messages_of(store, key) == ["a", "b"]


async def test_a_fork_stays_within_its_tenant(store: Store) -> None:
    """It shares entries with its source."""
    source, _ = await a_session(store, None, "a")
    async with unchanged(store):
        with pytest.raises(InvalidInput):
            await store.fork(source, a_key(tenant="other"))


async def test_a_sessions_own_points_are_read_from_either_side(store: Store) -> None:
    """Those that a run left for itself are not among them."""
    key, _ = await a_session(store, None, "a")
    own = []
    for each in range(4):
        before = NewCheckpoint(step=0, cursor={"n": each}, before=True)
        own.append((await store.commit(replace(a_save(key, str(each)), checkpoint=before))).commit_number)
        run = BeginRun(run_id=new_id(), invocation_id=new_id())
        end = EndRun(status=RunStatus.COMPLETED)
        await store.commit(a_commit(key, run=run, checkpoint=NewCheckpoint(step=1), end=end))

    async def found(**where: int) -> list[int]:
        return [point.commit_number for point in await store.checkpoints.points(key, **where)]

    assert await found() == own[::-1]
    assert await found(before=own[2]) == own[1::-1]
    assert await found(after=own[1]) == own[2:]
    assert await found(after=own[0], limit=1) == own[1:2]
    assert await found(before=own[3], limit=2) == [own[2], own[1]]
