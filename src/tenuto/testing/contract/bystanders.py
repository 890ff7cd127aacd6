"""One row that cannot be read stops nobody else: it is passed over, named once, an error only for its own session."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto.errors import InvalidInput, StoredDataCorrupt
from tenuto.model.commit import BeginRun, EndRun, OpenWait, Reset
from tenuto.model.effect import EffectKind, StartEffect
from tenuto.model.event import EventType, NewEvent
from tenuto.model.input import InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile
from tenuto.store.store import Store
from tenuto.testing.checks import damaged, not_refused
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs

NOT_A_DATE = 900_000_000_000_000_000
HERE = "(SELECT sid FROM session WHERE session_id = 's-2')"


async def _three(harness: Harness, clock: FakeClock | None = None) -> Store:
    """Three sessions that each have work due, an open wait, a run that is nobody's, and something to collect."""
    store = await harness.open(clock=clock) if clock else await harness.open()
    for name in ("s-1", "s-2", "s-3"):
        key, _ = await a_session(store, name, "a")
        await store.commit(a_commit(key, save=True, logs={"messages": Reset(items=("b",))}))
        lane = await store.lanes.acquire(key, an_owner())
        await store.commit(
            a_commit(
                key,
                generation=lane.generation,
                run=BeginRun(run_id=f"run-{name}", invocation_id=f"inv-{name}"),
                open_waits=(OpenWait(kind="k"),),
                outgoing=(NewOutgoing(kind="wake", target=key),),
            )
        )
        await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=1))
        await store.lanes.disarm(lane)
    return store


def _names(found: Any) -> list[str]:
    return sorted(each.key.session_id for each in found)


async def _pending(store: Store) -> list[str]:
    return _names(await store.outbox.pending())


async def _open_waits(store: Store) -> list[str]:
    return _names(await store.waits.open())


async def _orphans(store: Store) -> list[str]:
    return _names(await store.lanes.orphans())


async def _running(store: Store) -> list[str]:
    return _names(await store.runs.running())


async def _due(store: Store) -> list[str]:
    return sorted(key.session_id for key in await store.inbox.due())


async def _listed(store: Store) -> list[str]:
    return sorted(each.session_id for each in await store.list({"kind": None}))


PASSED_OVER: dict[str, tuple[str, Callable[[Store], Awaitable[list[str]]]]] = {
    "outgoing due at no date": (f"UPDATE outgoing SET due_at = -{NOT_A_DATE} WHERE session = {HERE}", _pending),
    "outgoing body": (f"UPDATE outgoing SET body = '{{' WHERE session = {HERE}", _pending),
    "outgoing target": (f"UPDATE outgoing SET target_kind = 'x' WHERE session = {HERE}", _pending),
    "outgoing target id": (f"UPDATE outgoing SET target_id = 'a/b' WHERE session = {HERE}", _pending),
    "wait deadline": (f"UPDATE wait SET deadline = {NOT_A_DATE} WHERE session = {HERE}", _open_waits),
    "wait metadata": (f"UPDATE wait SET metadata = '[1]' WHERE session = {HERE}", _open_waits),
    "run times": (f"UPDATE run SET started_at = -{NOT_A_DATE} WHERE session = {HERE}", _orphans),
    "run ends": (f"UPDATE run SET ends = '[5]' WHERE session = {HERE}", _orphans),
    "own logs": (f"UPDATE run SET own_logs = '7' WHERE session = {HERE}", _running),
    "kind": ("UPDATE session SET kind = 'zombie' WHERE session_id = 's-2'", _listed),
    "kind of due": ("UPDATE session SET kind = 'zombie' WHERE session_id = 's-2'", _due),
    "kind of waits": ("UPDATE session SET kind = 'zombie' WHERE session_id = 's-2'", _open_waits),
    "kind of orphans": ("UPDATE session SET kind = 'zombie' WHERE session_id = 's-2'", _orphans),
    "id": ("UPDATE session SET session_id = 's-2/' WHERE session_id = 's-2'", _listed),
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", PASSED_OVER)
async def test_what_cannot_be_read_is_passed_over_and_named_once(
    harness: Harness, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are all there, also where the damaged one would come first and the page is short."""
    sql, look = PASSED_OVER[damage]
    store = await damaged(harness, await _three(harness), sql)
    with caplog.at_level(logging.WARNING, "tenuto.store"):
        assert await look(store) == ["s-1", "s-3"]
        first = len(caplog.records)
        await look(store)
    assert len(caplog.records) == first
    assert len(await store.outbox.pending(limit=1)) == 1
    assert len(await store.waits.open(limit=1)) == 1
    assert len(await store.lanes.orphans(1)) == 1
    assert await store.outbox.next_due() is not None
    assert await store.inbox.next_due() is not None


@needs(Capability.DAMAGE_SQL)
async def test_a_list_names_what_it_had_to_leave_out(harness: Harness) -> None:
    """Not even its name can be shown as a key."""
    store = await damaged(harness, await _three(harness), PASSED_OVER["kind"][0])
    page = await store.list({"kind": None}, limit=10)
    assert [each.session_id for each in page] == ["s-3", "s-1"]
    assert len(page.damaged) == 1
    assert "'s-2'" in page.damaged[0]
    assert (await store.list(limit=10)).damaged == ()


@needs(Capability.DAMAGE_SQL)
async def test_a_whole_page_of_damage_hides_no_later_row(harness: Harness) -> None:
    """However many there are, those behind them are found."""
    store = await harness.open()
    key, _ = await a_session(store, "bad")
    for _ in range(12):
        await store.commit(a_commit(key, outgoing=(NewOutgoing(kind="wake", target=key),)))
    good, _ = await a_session(store, "good")
    await store.commit(a_commit(good, outgoing=(NewOutgoing(kind="wake", target=good),)))
    mine = "(SELECT sid FROM session WHERE session_id = 'bad')"
    store = await damaged(harness, store, f"UPDATE outgoing SET body = '{{' WHERE session = {mine}")
    assert _names(await store.outbox.pending(limit=2)) == ["good"]


GC_DAMAGE = {
    "heads": "UPDATE session SET heads = '[1]' WHERE session_id = 's-2'",
    "held": "UPDATE session SET held = '[1]' WHERE session_id = 's-2'",
    "lineage": f"UPDATE branch SET lineage = '5' WHERE session = {HERE}",
    "run ends": f"UPDATE run SET ends = '5' WHERE session = {HERE}",
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", GC_DAMAGE)
async def test_collection_passes_over_a_family_it_cannot_read(harness: Harness, damage: str) -> None:
    """Nothing of that family goes, the others' garbage does, and the report says which it was."""
    store = await damaged(harness, await _three(harness), GC_DAMAGE[damage])
    report = await store.upkeep.gc(grace=0)
    assert report.families == 2
    assert len(report.damaged) == 1
    assert "'s-2'" in report.damaged[0]
    record = await store.load("s-1")
    assert record is not None
    assert record.state["messages"] == ["b"]


@needs(Capability.DAMAGE_SQL)
async def test_expiry_passes_over_what_it_cannot_read(harness: Harness) -> None:
    """The others are deleted; the damaged one is named, whatever could be done about it."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    for name in ("s-1", "s-2", "s-3"):
        await a_session(store, name, "a", profile=Profile(expires_at=await store.moment()))
    sql = "UPDATE session SET kind = 'zombie' WHERE session_id = 's-2'"
    store = await damaged(harness, store, sql, clock=clock)
    clock.advance(10)
    report = await store.upkeep.expire()
    assert [key.session_id for key in report.deleted] == ["s-1", "s-3"]
    assert len(report.damaged) == 1
    assert "'s-2'" in report.damaged[0]


@needs(Capability.DAMAGE_SQL)
async def test_pruning_passes_over_what_it_cannot_read(harness: Harness) -> None:
    """Chunks of the other runs go, and the report says which run stays."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    for name in ("s-1", "s-2"):
        key, _ = await a_session(store, name)
        begin = BeginRun(run_id=f"run-{name}", invocation_id=f"inv-{name}")
        chunks = (NewEvent(type=EventType.CHUNK, data=1), NewEvent(type=EventType.CHUNK, data=2))
        await store.commit(a_commit(key, run=begin, events=chunks, end=EndRun(status=RunStatus.COMPLETED)))
    sql = f"UPDATE event SET body = '[[\"chunk\",' WHERE session = {HERE}"
    store = await damaged(harness, store, sql, clock=clock)
    clock.advance(10)
    report = await store.upkeep.prune(chunks_older_than=1)
    assert report.chunks == 2
    assert len(report.damaged) == 1
    assert "run-s-2" in report.damaged[0]


async def test_pruning_ends_whatever_events_are_called(store: Store) -> None:
    """A page full of runs with an event type that only looks like a chunk is passed, not read again and again."""
    key, _ = await a_session(store)
    for name in ("Chunk", "CHUNK", "chunk"):
        for number in range(101 if name == "Chunk" else 1):
            begin = BeginRun(run_id=f"{name}-{number}", invocation_id=f"{name}-{number}")
            event = NewEvent(type=name, data=number)
            await store.commit(a_commit(key, run=begin, events=(event,), end=EndRun(status=RunStatus.COMPLETED)))
    before = (await store.events.read(key)).events
    assert (await store.upkeep.prune(chunks_older_than=0)).chunks == 1
    after = (await store.events.read(key)).events
    assert [event.type for event in after] == [*[event.type for event in before][:-1], "elided"]


BROKEN_READS = {
    "events are a number": f"UPDATE event SET body = '5' WHERE session = {HERE}",
    "events are not pairs": f"UPDATE event SET body = '[1,2]' WHERE session = {HERE}",
    "a mark without numbers": f"UPDATE event SET body = '[[\"elided\",null]]' WHERE session = {HERE}",
}


@needs(Capability.DAMAGE_SQL)
@pytest.mark.parametrize("damage", BROKEN_READS)
async def test_a_stream_that_cannot_be_read_is_a_typed_error(harness: Harness, damage: str) -> None:
    """Whatever the row holds; the other streams can be read."""
    store = await damaged(harness, await _three(harness), BROKEN_READS[damage])
    with pytest.raises(StoredDataCorrupt):
        await store.events.read("s-2")
    assert (await store.events.read("s-1")).events


@needs(Capability.DAMAGE_SQL)
async def test_a_damaged_holder_is_a_typed_error_for_its_session_alone(harness: Harness) -> None:
    """Not a `KeyError` or `TypeError` from within."""
    store = await _three(harness)
    await store.lanes.acquire("s-2", an_owner())
    store = await damaged(harness, store, "UPDATE session SET holder = '{\"host\": 5}' WHERE session_id = 's-2'")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "inspect": lambda: store.lanes.inspect("s-2"),
        "enqueue": lambda: store.inbox.enqueue("s-2", NewInput(kind=InputKind.MESSAGE, body=1)),
        "acquire": lambda: store.lanes.acquire("s-2", an_owner("other")),
    }
    assert await not_refused(StoredDataCorrupt, calls) == {}
    assert list(await store.inbox.stranded()) == []


async def test_the_stores_own_event_type_is_refused(store: Store) -> None:
    """A mark somebody else wrote would make the stream unreadable."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    mark = NewEvent(type="elided", data={"from": 1})
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "append": lambda: store.events.append(lane, [mark]),
        "commit": lambda: store.commit(a_commit(key, events=(mark,))),
        "create": lambda: store.create(a_key(), events=[mark]),
    }
    assert await not_refused(InvalidInput, calls) == {}


async def test_effects_and_outgoing_items_can_be_read_page_by_page(store: Store) -> None:
    """Every one of them once, in order; also those started at one instant."""
    key, _ = await a_session(store)
    begin = BeginRun(run_id="r", invocation_id="i")
    effects = tuple(StartEffect(key=f"k{n}", step=n % 3, kind=EffectKind.TOOL, request=n) for n in range(25))
    sent = tuple(NewOutgoing(kind=f"o{n}", target=key) for n in range(25))
    await store.commit(a_save(key, run=begin, effects=effects, outgoing=sent))
    whole = await store.effects.list(key)
    pages: list[Any] = []
    last = None
    while page := await store.effects.list(key, limit=4, after=last):
        pages += page
        last = page[-1]
    assert pages == list(whole)
    assert len(pages) == 25
    items = await store.outbox.of_session(key)
    parts: list[Any] = []
    behind = None
    while part := await store.outbox.of_session(key, limit=4, after=behind):
        parts += part
        behind = part[-1]
    assert parts == items
    assert len(parts) == 25
