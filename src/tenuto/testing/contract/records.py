"""Identity and records: what a key names, how a session begins, and what reads back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import InvalidId, LaneBusy, OperationConflict, SessionExists, SessionNotFound, VersionConflict
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.session import ForkPoint, Kind, Profile, SessionKey, SessionRecord, SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import outcomes, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements

BAD_IDS: dict[str, Any] = {
    "empty": "",
    "256 bytes": "x" * 256,
    "256 bytes in 128 characters": "é" * 128,
    "newline": "a\nb",
    "NUL": "a\0b",
    "delete character": "a\x7fb",
    "C1 control character": "a\x85b",
    "slash": "a/b",
    "backslash": "a\\b",
    "leading space": " a",
    "trailing space": "a ",
    "only a space": " ",
    "dot": ".",
    "two dots": "..",
    "lone surrogate": "a\ud800",
    "a number": 7,
    "bytes": b"a",
    "None": None,
}

PROFILE = Profile(
    agent="support",
    title="Order 7",
    preview="where is it?",
    user_id="u-9",
    tags=("vip", "é"),
    metadata={"n": 1, "empty": {}},
    definition={"model": "m-1", "tools": []},
    policy={},
    mode="chat",
    workspace="w-3",
    parent="p-1",
    root="r-1",
    failure_reason="none yet",
    trace={"id": "t-5"},
    expires_at=datetime(2040, 5, 6, 7, 8, 9, 123457, tzinfo=UTC),
)


@needs(Capability.PROBES)
async def test_an_id_that_breaks_a_rule_is_refused_before_any_statement(store: Store) -> None:
    """Each breach of the id rules, by every verb that takes a key, and in a tenant."""
    verbs: tuple[Callable[[Any], Awaitable[Any]], ...] = (
        store.create,
        store.load,
        store.head,
        store.exists,
        store.life,
        store.delete,
        lambda bad: store.save(bad, SessionRecord(session_id=bad, state={})),
        lambda bad: store.fork("fine", bad),
        lambda bad: store.fork(bad, "fine"),
        lambda bad: store.lanes.acquire(bad, an_owner()),
        lambda bad: store.create(SessionKey("fine", tenant=bad or " ")),
    )
    with statements(store) as ran:
        for bad in BAD_IDS.values():
            for verb in verbs:
                with pytest.raises(InvalidId):
                    await verb(bad)
    assert ran == []


async def test_an_invocation_id_follows_the_same_rules(store: Store) -> None:
    """The rules for ids hold for `invocation_id` too."""
    key, _ = await a_session(store)
    async with unchanged(store):
        for bad in BAD_IDS.values():
            with pytest.raises(InvalidId):
                await store.commit(a_commit(key, run=BeginRun(run_id=new_id(), invocation_id=bad)))


async def test_an_id_within_the_rules_names_its_own_session(store: Store) -> None:
    """What the rules allow works, up to 255 bytes, and reads back to the letter."""
    good = ["x", "X", "x" * 255, "é" * 127, "a b", "...", "a.b:c|d", "日本", "Ünï", "a'b\"c;--%_", "%", "_"]
    for name in good:
        await store.create(name, state={"name": name})
    for name in good:
        record = await store.load(name)
        assert record is not None
        assert (record.session_id, record.state) == (name, {"name": name})
    assert len(await store.list()) == len(good)


async def test_create_repeated_with_its_operation_id_returns_the_first_receipt(store: Store) -> None:
    """The same create twice is one create."""
    key = a_key()
    first = await store.create(key, state={"a": 1}, profile=PROFILE, operation_id="op-1")
    await store.commit(a_save(key, document={"a": 2}))
    async with unchanged(store):
        again = await store.create(key, state={"a": 1}, profile=PROFILE, operation_id="op-1")
    assert not first.replayed
    assert again == replace(first, replayed=True)


async def test_a_create_may_have_a_status_and_events_which_are_part_of_what_it_means(store: Store) -> None:
    """A create that closes what it creates, and writes events about it, is one commit."""
    key, told = a_key(), NewEvent(type="born", data={"by": "u"})
    first = await store.create(key, status=SessionStatus.COMPLETED, events=[told], operation_id="op-1")
    head, page = await store.head(key), await store.events.read(key)
    assert head is not None
    assert (head.status, head.version, head.commit_number) == ("completed", 1, first.commit_number)
    assert [(event.seq, event.type, event.data) for event in page.events] == [(1, "born", {"by": "u"})]
    async with unchanged(store):
        again = await store.create(key, status=SessionStatus.COMPLETED, events=[told], operation_id="op-1")
        with pytest.raises(OperationConflict):
            await store.create(key, events=[told], operation_id="op-1")
        with pytest.raises(OperationConflict):
            await store.create(key, status=SessionStatus.COMPLETED, operation_id="op-1")
    assert again.replayed


async def test_create_on_a_live_id_is_refused_with_the_version_found(store: Store) -> None:
    """Another operation id on a live id changes nothing and says what was found."""
    key, _ = await a_session(store, None, message("first"), profile=PROFILE)
    await store.commit(a_save(key, message("second")))
    async with unchanged(store):
        with pytest.raises(SessionExists) as refused:
            await store.create(key, state={"other": 1}, profile=Profile(parent="p-2"))
    assert refused.value.found_version == 2
    assert refused.value.details()["key"] == key


async def test_no_later_write_touches_parent_root_and_fork_point(store: Store) -> None:
    """Parent, root and forked_from stay those of the first create."""
    source, receipt = await a_session(store, None, message("x"))
    key = a_key()
    await store.fork(source, key, profile=Profile(parent="p-1", root="r-1"))
    await store.commit(a_save(key, document={"a": 1}, profile={"title": "new title"}))
    await store.save(key, SessionRecord(session_id=key.session_id, state={"a": 3}))
    head = await store.head(key)
    assert head is not None
    point = ForkPoint(session_id=source.session_id, commit_number=receipt.commit_number, version=1)
    assert (head.profile.parent, head.profile.root, head.profile.forked_from) == ("p-1", "r-1", point)
    assert (head.profile.title, head.version) == ("new title", 3)


async def test_asking_for_an_unknown_key_gives_nothing_and_creates_nothing(store: Store) -> None:
    """Load and head give None, exists False, and no row appears."""
    await a_session(store)
    key = a_key()
    async with unchanged(store):
        assert await store.load(key) is None
        assert await store.head(key) is None
        assert await store.exists(key) is False
        assert await store.life(key) == 1
        assert await store.receipt(key, "op") is None
        assert await store.lanes.inspect(key) is None
        assert await store.runs.of_session(key) == []
        assert await store.checkpoints.latest(key) is None
        assert await store.waits.of_session(key) == []
        assert (await store.events.read(key)).events == ()
        with pytest.raises(SessionNotFound):
            await store.logs.read(key, "messages")
        with pytest.raises(SessionNotFound):
            await store.logs.count(key, "messages")


async def test_a_session_without_a_head_is_not_shown(store: Store) -> None:
    """A row that only has a run is absent for load, head, exists, list and create."""
    key = a_key()
    begin = BeginRun(run_id="r-1", invocation_id=an_id("inv"))
    await store.commit(a_commit(key, run=begin, checkpoint=NewCheckpoint(step=1, cursor="c")))
    assert await store.load(key) is None
    assert await store.head(key) is None
    assert await store.exists(key) is False
    assert await store.list() == ()
    assert (await store.create(key, state={"a": 1})).version == 1
    run = await store.runs.get("r-1")
    assert run is not None
    assert run.key == key


async def test_root_child_and_fork_records_read_back_equal_after_reopen(harness: Harness) -> None:
    """Parent, root and forked_from with its point are there in a store that is opened again."""
    store = await harness.open()
    root, child, fork = a_key("the-root"), a_key("the-child"), a_key("the-fork")
    await store.create(root, state={"messages": [message("hi")], "a": 1}, logs={"messages"}, schema_version="v1")
    await store.commit(a_save(root, message("more")))
    await store.create(child, state={"b": 2}, profile=Profile(parent="the-root", root="the-root"))
    await store.fork(root, fork)
    before = [await store.load(key) for key in (root, child, fork)]
    await store.aclose()
    again = await harness.open()
    after = [await again.load(key) for key in (root, child, fork)]
    assert after == before
    assert after[1] is not None
    assert after[1].head is not None
    assert (after[1].head.profile.parent, after[1].head.profile.root) == ("the-root", "the-root")
    assert after[2] is not None
    assert after[2].head is not None
    assert after[2].head.profile.forked_from == ForkPoint(session_id="the-root", commit_number=2, version=2)
    assert after[2].state == {"messages": [message("hi"), message("more")], "a": 1}


async def test_a_read_by_key_gives_that_session_only(store: Store) -> None:
    """Among 1,000 others, and beside the same id under another tenant and another kind."""
    keys = [SessionKey("x"), SessionKey("x", tenant="t2"), SessionKey("x", kind=Kind.INVOCATION)]
    await asyncio.gather(*(store.create(f"other-{n}", state={"n": n}) for n in range(1000)))
    for number, key in enumerate(keys):
        await a_session(store, None, f"m{number}", key=key, state={"n": -number - 1})
        begin = BeginRun(run_id=f"run-{number}", invocation_id=f"inv-{number}")
        await store.commit(
            a_commit(
                key, run=begin, checkpoint=NewCheckpoint(step=number + 5), open_waits=(OpenWait(kind=f"k{number}"),)
            )
        )
    for number, key in enumerate(keys):
        record = await store.load(key)
        assert record is not None
        assert record.head is not None
        assert record.head.key == key
        assert record.state == {"messages": [f"m{number}"], "n": -number - 1}
        assert [entry.value for entry in await store.logs.read(key, "messages")] == [f"m{number}"]
        assert [run.run_id for run in await store.runs.of_session(key)] == [f"run-{number}"]
        assert [wait.kind for wait in await store.waits.of_session(key)] == [f"k{number}"]
        assert [point.step for point in await store.checkpoints.of_session(key)] == [number + 5]
    for n in (0, 500, 999):
        record = await store.load(f"other-{n}")
        assert record is not None
        assert record.state == {"n": n}


async def test_of_concurrent_creates_exactly_one_wins(harness: Harness) -> None:
    """Each loser gets `SessionExists`, and the stored session is the winner's."""
    first, second = await harness.open(), await harness.open()
    key = a_key()
    won, lost = await outcomes(
        *((first, second)[n % 2].create(key, state={"n": n}, operation_id=f"op-{n}") for n in range(20))
    )
    assert len(won) == 1
    assert [type(error) for error in lost] == [SessionExists] * 19
    assert {getattr(error, "found_version", None) for error in lost} == {1}
    record = await first.load(key)
    assert record is not None
    assert won[0].operation_id == f"op-{record.state['n']}"
    assert (won[0].version, won[0].commit_number) == (1, 1)


async def test_of_concurrent_creates_with_one_operation_id_all_get_the_receipt(store: Store) -> None:
    """The same create sent twenty times at once is one create and twenty equal answers."""
    key = a_key()
    receipts = await asyncio.gather(*(store.create(key, state={"a": 1}, operation_id="op") for _ in range(20)))
    assert sum(not receipt.replayed for receipt in receipts) == 1
    assert all(replace(receipt, replayed=False) == replace(receipts[0], replayed=False) for receipt in receipts)


async def test_a_new_session_is_at_version_1_and_loads_as_itself(store: Store) -> None:
    """Id and version of the receipt, the head and the record agree."""
    key = a_key()
    receipt = await store.create(key, state={"a": 1})
    record, head = await store.load(key), await store.head(key)
    assert record is not None
    assert head is not None
    assert (receipt.version, receipt.commit_number, receipt.life) == (1, 1, 1)
    assert (record.session_id, record.version, head.version) == (key.session_id, 1, 1)
    assert (head.key, head.status, head.life, head.commit_number) == (key, SessionStatus.ACTIVE, 1, 1)
    assert record.head == head


async def test_a_reused_id_continues_its_old_numbers(store: Store) -> None:
    """Version, commit number and generation continue those of the deleted session."""
    key, _ = await a_session(store, None, "old")
    lane = await store.lanes.acquire(key, an_owner())
    await store.commit(a_save(key, "more", generation=lane.generation, disarm=True))
    old = await store.head(key)
    assert old is not None
    await store.delete(key)
    receipt = await store.create(key, state={"fresh": True})
    assert receipt.version == old.version + 1 == 3
    assert receipt.commit_number > old.commit_number
    assert receipt.generation > old.generation
    assert receipt.life == old.life + 1
    record = await store.load(key)
    assert record is not None
    assert record.state == {"fresh": True}


async def test_save_of_an_absent_id_creates_it_unless_a_version_is_expected(store: Store) -> None:
    """With an expected version it is a write conflict that found none."""
    key = a_key()
    record = SessionRecord(session_id=key.session_id, state={"m": ["a"], "n": 1}, logs=frozenset({"m"}))
    async with unchanged(store):
        with pytest.raises(VersionConflict) as refused:
            await store.save(key, record, expected_version=3)
    assert (refused.value.category, refused.value.expected, refused.value.found) == ("session_write_conflict", 3, None)
    assert (await store.save(key, record)).version == 1
    loaded = await store.load(key)
    assert loaded is not None
    assert loaded.state == {"m": ["a"], "n": 1}
    assert loaded.logs == {"m"}
    other = a_key()
    expecting_none = replace(record, session_id=other.session_id)
    assert (await store.save(other, expecting_none, expected_version=0)).version == 1
    with pytest.raises(VersionConflict):
        await store.save(other, expecting_none, expected_version=0)


async def test_save_while_a_runner_holds_the_lane_is_busy(store: Store) -> None:
    """So is one onto an id that was never saved; create and fork onto it are busy as well."""
    key, source = a_key(), a_key()
    await store.create(source, state={"a": 1})
    await store.lanes.acquire(key, an_owner("holder"))
    async with unchanged(store):
        with pytest.raises(LaneBusy) as refused:
            await store.save(key, SessionRecord(session_id=key.session_id, state={}))
        with pytest.raises(LaneBusy):
            await store.create(key)
        with pytest.raises(LaneBusy):
            await store.fork(source, key)
    assert refused.value.owner == "holder"


async def test_times_are_the_given_ones_and_never_go_back(harness: Harness) -> None:
    """The session's `created_at` is set once; `updated_at` follows the clock forward only."""
    clock = FakeClock(datetime(2031, 2, 3, 4, 5, 6, 700001, tzinfo=UTC))
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    start = datetime(2031, 2, 3, 4, 5, 6, 700001, tzinfo=UTC)
    clock.advance(1.5)
    await store.commit(a_save(key, "a"))
    head = await store.head(key)
    assert head is not None
    assert (head.created_at, head.updated_at) == (start, start + timedelta(seconds=1.5))
    clock.advance(-3600)
    receipt = await store.commit(a_save(key, "b"))
    head = await store.head(key)
    assert head is not None
    assert (head.created_at, head.updated_at) == (start, start + timedelta(seconds=1.5))
    assert receipt.version == 3


async def test_without_a_given_time_the_database_clock_decides(store: Store) -> None:
    """Both `created_at` and `updated_at` lie at the present, and `updated_at` moves with a write."""
    key, receipt = await a_session(store)
    first = await store.head(key)
    await store.commit(a_save(key, "a"))
    second = await store.head(key)
    assert first is not None
    assert second is not None
    assert abs(first.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert first.created_at == receipt.committed_at == second.created_at
    assert first.created_at <= first.updated_at <= second.updated_at


async def test_exists_follows_create_and_delete(store: Store) -> None:
    """It is false, true, and false again; load after delete is None."""
    key = a_key()
    assert await store.exists(key) is False
    await store.create(key)
    assert await store.exists(key) is True
    await store.delete(key)
    assert await store.exists(key) is False
    assert await store.load(key) is None
    assert await store.head(key) is None


async def test_records_read_back_equal_through_json_text(harness: Harness) -> None:
    """Every kind of value, empty ones as themselves, times to the microsecond."""
    clock = FakeClock(datetime(2031, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    store = await harness.open(clock=clock)
    state: dict[str, Any] = {
        "empty": {},
        "nothing": [],
        "null": None,
        "text": "a\u0000b\u2028 é 日本 \U0001f600 \\ \" ' \n",
        "numbers": [0, -1, 2**53, -(2**63), 2**70, 1.5, -0.25, 1e300, 5e-324, 1.0],
        "flags": [True, False],
        "deep": {"a": [{"b": [[], {}, ""]}], "": 1, "\u0000": 2},
        "big": "é" * 2000,
    }
    key, _ = await a_session(store, None, {}, [], None, "", 0, False, 1.0, state=state, profile=PROFILE)
    record = await store.load(key)
    assert record is not None
    assert record.head is not None
    assert record.state == state | {"messages": [{}, [], None, "", 0, False, 1.0]}
    assert [type(item) for item in record.state["messages"]] == [dict, list, type(None), str, int, bool, float]
    assert type(record.state["numbers"][-1]) is float
    assert record.head.profile == PROFILE
    assert record.head.created_at == datetime(2031, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    (summary,) = await store.list()
    assert summary.expires_at == PROFILE.expires_at
    assert (summary.tags, summary.counts) == (("vip", "é"), {"messages": 7})
    assert (summary.created_at, summary.updated_at) == (record.head.created_at, record.head.updated_at)


async def test_records_with_absent_parts_read_back_as_absent(store: Store) -> None:
    """No end time, no error, no cursor, no deadline: None, not a stand-in."""
    key, _ = await a_session(store)
    begin = BeginRun(run_id="r-1", invocation_id="inv-1")
    point = NewCheckpoint(step=0)
    receipt = await store.commit(a_commit(key, run=begin, checkpoint=point, open_waits=(OpenWait(kind="signal"),)))
    run, (wait,) = await store.runs.get("r-1"), await store.waits.of_session(key)
    latest, head = await store.checkpoints.latest(key), await store.head(key)
    assert run is not None
    assert latest is not None
    assert head is not None
    assert (run.ended_at, run.error, run.outcome, run.worker, run.generation) == (None,) * 5
    assert (run.origin_id, run.correlation_id, run.own_logs) == ("inv-1", "inv-1", frozenset())
    assert (wait.deadline, wait.schema, wait.metadata, wait.answer, wait.settled_at) == (None, None, {}, None, None)
    assert (wait.wait_id, wait.signal_id) == (receipt.wait_ids[0], None)
    assert (latest.cursor, latest.document, latest.schema_version) == (None, {}, "")
    assert head.profile == Profile()
