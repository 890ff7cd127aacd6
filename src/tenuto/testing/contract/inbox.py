"""The inbox: input is durable before it is acknowledged, idempotent by key, in order, and consumed exactly once."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import (
    ClaimLost,
    InvalidInput,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionNotFound,
    StatusRefused,
)
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, Reset, TakeRun
from tenuto.model.input import Boundary, Cancelled, Consume, Enqueued, Input, InputKind, InputStatus, NewInput, Nothing
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.store.host import this_process
from tenuto.store.store import Store
from tenuto.testing.checks import damaged, not_refused, outcomes, rows, unchanged
from tenuto.testing.clock import FakeClock
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_id, an_owner
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements

AFTER, BEFORE = Boundary.AFTER_STEP, Boundary.BEFORE_COMPLETION
LATER = datetime(2031, 5, 6, 7, 8, 9, 123, tzinfo=UTC)


def _message(text: str, **parts: Any) -> NewInput:
    return NewInput(kind=InputKind.MESSAGE, body={"text": text}, **parts)


def _command(name: str, **parts: Any) -> NewInput:
    return NewInput(kind=InputKind.COMMAND, body={"action": name}, **parts)


async def _send(store: Store, key: SessionKey, *new: NewInput) -> list[Input]:
    return [(await store.inbox.enqueue(key, each)).input for each in new]


async def _live_run(store: Store, key: SessionKey, **parts: Any) -> tuple[Lane, RunRef]:
    """Take the lane and begin a run under it."""
    lane = await store.lanes.acquire(key, an_owner())
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    await store.commit(a_commit(key, generation=lane.generation, run=begin, **parts))
    return lane, run


def _ending(key: SessionKey, lane: Lane, run: RunRef, status: RunStatus = RunStatus.COMPLETED, **parts: Any) -> Commit:
    return a_commit(key, generation=lane.generation, run=run, end=EndRun(status=status), **parts)


async def _found(store: Store, input_id: str) -> Input:
    found = await store.inbox.get(input_id)
    assert found is not None
    return found


def _ids(inputs: Any) -> list[str]:
    return [each.input_id for each in inputs]


async def test_an_enqueued_input_reads_back_equal_after_reopen(harness: Harness) -> None:
    """What was acknowledged is stored, with the event number it took as its place."""
    store = await harness.open()
    key, _ = await a_session(store)
    head = await store.head(key)
    assert head is not None
    sent = await store.inbox.enqueue(key, _message("hi", key="k-1", due_at=LATER))
    found = sent.input
    assert (found.kind, found.body, found.input_key, found.due_at) == (InputKind.MESSAGE, {"text": "hi"}, "k-1", LATER)
    assert (found.key, found.life, found.seq, found.status) == (key, head.life, head.event_seq + 1, InputStatus.OPEN)
    assert (found.has_body, found.run_id, found.boundary, found.settled_at) == (True, None, None, None)
    assert (sent.lane.state, sent.replayed) == ("free", False)
    reopened = await harness.open()
    assert await reopened.inbox.get(found.input_id) == found
    assert await reopened.inbox.find(key, "k-1") == found
    assert await reopened.inbox.list(key) == (found,)


async def test_an_enqueue_writes_one_event_and_moves_neither_version_nor_commit_number(store: Store) -> None:
    """The stream tells that input waits; the session's numbers are those of its commits."""
    key, _ = await a_session(store)
    before = await store.head(key)
    (first, second) = await _send(store, key, _message("a"), _command("clear"))
    after = await store.head(key)
    assert before is not None
    assert after is not None
    assert (after.version, after.commit_number) == (before.version, before.commit_number)
    page = await store.events.read(key, after=before.event_seq)
    assert [(e.seq, e.type, e.data) for e in page.events] == [
        (first.seq, "input_queued", {"input_id": first.input_id, "kind": "message"}),
        (second.seq, "input_queued", {"input_id": second.input_id, "kind": "command"}),
    ]


async def test_an_enqueue_wakes_a_subscriber(store: Store) -> None:
    """An enqueue is a transaction of its own, not a commit, and wakes all the same."""
    key, _ = await a_session(store)
    pages = store.events.subscribe(key)
    (sent,) = await _send(store, key, _message("a"))
    async with asyncio.timeout(10):
        page = await anext(pages)
        later = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0)
        await _send(store, key, _message("b"))
        assert (await later).events[0].type == "input_queued"
    assert page.events[0].data["input_id"] == sent.input_id


async def test_input_needs_a_live_and_active_session(store: Store) -> None:
    """Unknown and deleted ids are not found, any other status is refused; nothing changes."""
    key, _ = await a_session(store)
    gone, _ = await a_session(store)
    await store.delete(gone)
    headless = a_key()
    await store.commit(a_commit(headless, run=BeginRun(run_id=new_id(), invocation_id=new_id())))
    async with unchanged(store):
        for absent in (gone, headless, a_key()):
            with pytest.raises(SessionNotFound):
                await store.inbox.enqueue(absent, _message("a"))
    for status in (SessionStatus.SUSPENDED, SessionStatus.COMPLETED, SessionStatus.FAILED):
        await store.commit(a_commit(key, status=status))
        async with unchanged(store):
            with pytest.raises(StatusRefused) as refusal:
                await store.inbox.enqueue(key, _message("a"))
        assert refusal.value.found == status


@needs(Capability.PROBES)
@pytest.mark.parametrize(
    "new",
    [
        NewInput(kind="shout", body=1),  # type: ignore[arg-type]
        _message("a", key=""),
        _message("a", boundary="sometime"),
        _message("a", run_id="r"),
        _command("a", boundary=AFTER),
        _message("a", delay=-1.0),
        _message("a", delay=float("nan")),
        _message("a", delay=1.0, due_at=LATER),
        _message("a", due_at=datetime(2030, 1, 1)),
        _message("a", log="messages", item=0),
        NewInput(kind=InputKind.WAKE, body=object()),
    ],
)
async def test_malformed_input_is_refused_before_any_statement(store: Store, new: NewInput) -> None:
    key, _ = await a_session(store)
    with statements(store) as seen, pytest.raises(InvalidInput):
        await store.inbox.enqueue(key, new)
    assert seen == []


async def test_input_over_the_budget_is_refused(harness: Harness) -> None:
    store = await harness.open()
    key, _ = await a_session(store)
    with pytest.raises(InvalidInput, match="budget"):
        await store.inbox.enqueue(key, _message("x" * store.budget.max_bytes))
    assert await store.inbox.list(key) == ()


async def test_ids_minted_at_once_in_two_stores_differ(harness: Harness) -> None:
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await asyncio.gather(*(stores[n % 2].inbox.enqueue(key, _message(str(n))) for n in range(20)))
    assert len({each.input.input_id for each in sent}) == 20
    assert len({each.input.seq for each in sent}) == 20


@pytest.mark.parametrize("kind", list(InputKind))
async def test_the_same_key_and_content_gives_the_first_row_whatever_became_of_it(
    store: Store, kind: InputKind
) -> None:
    """Open, consumed with its body gone, or cancelled; also when the session takes no input any more."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    new = [NewInput(kind=kind, body={"n": n}, key=f"k-{n}", boundary=None) for n in range(3)]
    sent = await _send(store, key, *new)
    await store.commit(a_turn(key, lane, "m", consume=(Consume(input_id=sent[1].input_id, log="messages", item=0),)))
    await store.inbox.cancel(key, [sent[2].input_id])
    await store.commit(a_commit(key, status=SessionStatus.SUSPENDED))
    async with unchanged(store):
        again = [await store.inbox.enqueue(key, each) for each in new]
    assert all(each.replayed for each in again)
    assert _ids(each.input for each in again) == _ids(sent)
    assert [each.input.status for each in again] == ["open", "consumed", "cancelled"]
    assert [each.input.has_body for each in again] == [True, False, False]
    assert (again[1].input.log, again[1].input.position) == ("messages", 0)


async def test_the_same_key_with_other_content_is_a_conflict(store: Store) -> None:
    """Another body or another kind, also after the body is gone; another session may use the key."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    (sent,) = await _send(store, key, _message("a", key="k"))
    await store.inbox.cancel(key, [sent.input_id])
    async with unchanged(store):
        for new in (_message("b", key="k"), NewInput(kind=InputKind.WAKE, body={"text": "a"}, key="k")):
            with pytest.raises(OperationConflict) as refusal:
                await store.inbox.enqueue(key, new)
            assert refusal.value.details()["input_id"] == sent.input_id
    assert not (await store.inbox.enqueue(other, _message("b", key="k"))).replayed


async def test_many_senders_of_one_key_queue_it_once(harness: Harness) -> None:
    """The senders use two stores at once."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await asyncio.gather(*(stores[n % 2].inbox.enqueue(key, _message("a", key="k")) for n in range(10)))
    assert sorted(each.replayed for each in sent) == [False, *[True] * 9]
    assert len({each.input.input_id for each in sent}) == 1
    assert len(await stores[0].inbox.list(key)) == 1


async def test_a_key_is_free_again_in_the_ids_next_life(store: Store) -> None:
    """Delete removes the inbox; the old input is unknown from then on."""
    key, _ = await a_session(store)
    (old,) = await _send(store, key, _message("a", key="k"))
    assert (await store.delete(key)).inputs == 1
    assert await store.inbox.get(old.input_id) is None
    await a_session(store, key=key)
    assert await store.inbox.list(key) == ()
    assert not (await store.inbox.enqueue(key, _message("b", key="k"))).replayed
    assert await store.inbox.cancel(key, [old.input_id]) == {old.input_id: Cancelled.UNKNOWN}
    life = await store.life(key)
    with pytest.raises(ClaimLost):
        await store.commit(a_commit(key, life=life, consume=(Consume(input_id=old.input_id),)))


async def test_the_listing_shows_open_rows_of_this_session_in_order_of_arrival(store: Store) -> None:
    """Whatever kind, boundary or due time; consumed and cancelled ones do not shift the others."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await _live_run(store, key)
    new = (_message("a"), _command("b"), _message("c", due_at=LATER), _message("d", boundary=BEFORE), _message("e"))
    sent = await _send(store, key, *new)
    await _send(store, other, _message("z"))
    assert _ids(await store.inbox.list(key)) == _ids(sent)
    assert _ids(await store.inbox.list(key, limit=2)) == _ids(sent[:2])
    assert _ids(await store.inbox.list(key, after=sent[1].seq, limit=2)) == _ids(sent[2:4])
    await store.inbox.cancel(key, [sent[1].input_id])
    assert _ids(await store.inbox.list(key)) == _ids([sent[0], *sent[2:]])
    assert await store.inbox.list(a_key()) == ()


async def test_cancelling_tells_for_each_id_what_became_of_it(store: Store) -> None:
    """Open ones are cancelled, a consumed one stays consumed, the rest is named."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    opened, consumed, cancelled = await _send(store, key, _message("a"), _message("b"), _message("c"))
    (theirs,) = await _send(store, other, _message("d"))
    await store.commit(a_turn(key, lane, consume=(Consume(input_id=consumed.input_id),)))
    await store.inbox.cancel(key, [cancelled.input_id])
    before = await _found(store, consumed.input_id)
    ids = [opened.input_id, consumed.input_id, cancelled.input_id, theirs.input_id, "nobody", opened.input_id]
    assert await store.inbox.cancel(key, ids) == {
        opened.input_id: Cancelled.CANCELLED,
        consumed.input_id: Cancelled.CONSUMED,
        cancelled.input_id: Cancelled.ALREADY,
        theirs.input_id: Cancelled.UNKNOWN,
        "nobody": Cancelled.UNKNOWN,
    }
    gone = await _found(store, opened.input_id)
    assert (gone.status, gone.has_body, gone.settled_at is not None) == (InputStatus.CANCELLED, False, True)
    assert await _found(store, consumed.input_id) == before
    assert (await _found(store, theirs.input_id)).status == InputStatus.OPEN
    async with unchanged(store):
        assert set((await store.inbox.cancel(key, ids)).values()) == {
            Cancelled.ALREADY,
            Cancelled.CONSUMED,
            Cancelled.UNKNOWN,
        }


async def test_consumed_input_names_its_run_and_its_entry(harness: Harness) -> None:
    """By position in the log, whichever item of an append or a reset it is; also after gc and reopen."""
    store = await harness.open()
    key, _ = await a_session(store, None, "x", "y")
    lane = await store.lanes.acquire(key, an_owner())
    one, two, three = await _send(store, key, _message("1"), _message("2"), _message("3"))
    commit = a_turn(
        key,
        lane,
        "system",
        "1",
        "2",
        consume=(
            Consume(input_id=one.input_id, log="messages", item=1),
            Consume(input_id=two.input_id, log="messages", item=2),
        ),
    )
    await store.commit(commit)
    assert (await store.commit(commit)).replayed
    reset = {"messages": Reset(items=("kept", "3"))}
    last = a_commit(
        key,
        generation=lane.generation,
        save=True,
        logs=reset,
        consume=(Consume(input_id=three.input_id, log="messages", item=1),),
    )
    await store.commit(last)
    await store.upkeep.gc(grace=0)
    assert commit.run is not None
    reopened = await harness.open()
    found = [await _found(reopened, each.input_id) for each in (one, two, three)]
    assert [(each.run_id, each.log, each.position) for each in found] == [
        (commit.run.run_id, "messages", 3),
        (commit.run.run_id, "messages", 4),
        (None, "messages", 1),
    ]
    assert all(each.status == InputStatus.CONSUMED and each.settled_at for each in found)


async def test_the_entry_of_input_consumed_on_a_runs_own_branch_keeps_its_position(store: Store) -> None:
    """A checkpoint writes there first, and the save takes it onto the head at the same place."""
    key, _ = await a_session(store, None, "x")
    lane, run = await _live_run(store, key)
    (sent,) = await _send(store, key, _message("steer", boundary=AFTER))
    claim = Consume(input_id=sent.input_id, log="messages", item=1)
    logs = {"messages": Append(items=("step", "steer"))}
    await store.commit(a_commit(key, generation=lane.generation, run=run, logs=logs, consume=(claim,)))
    await store.commit(replace(_ending(key, lane, run), save=True))
    found = await _found(store, sent.input_id)
    assert found.position == 2
    entries = await store.logs.read(key, "messages")
    assert entries[found.position].value == "steer"


async def test_a_claim_that_is_not_open_refuses_the_whole_commit(store: Store) -> None:
    """Cancelled, consumed, of another session, unknown, or named twice; nothing changes."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    opened, cancelled, consumed = await _send(store, key, _message("a"), _message("b"), _message("c"))
    (theirs,) = await _send(store, other, _message("d"))
    await store.inbox.cancel(key, [cancelled.input_id])
    await store.commit(a_turn(key, lane, consume=(Consume(input_id=consumed.input_id),)))
    states = {
        cancelled.input_id: "cancelled",
        consumed.input_id: "consumed",
        theirs.input_id: "unknown in this session",
        "nobody": "unknown in this session",
        opened.input_id: "named twice in this commit",
    }
    async with unchanged(store):
        for input_id, state in states.items():
            claims = (Consume(input_id=opened.input_id), Consume(input_id=input_id))
            with pytest.raises(ClaimLost) as refusal:
                await store.commit(a_turn(key, lane, "m", consume=claims))
            assert (refusal.value.input_id, refusal.value.found) == (input_id, state)
            assert refusal.value.category == "store_commit_failed"
    receipt = await store.commit(a_turn(key, lane, "m", consume=(Consume(input_id=opened.input_id),)))
    assert (await _found(store, opened.input_id)).status == InputStatus.CONSUMED
    assert receipt.input_ids == ()


async def test_the_generation_is_checked_before_the_claims(harness: Harness) -> None:
    """A displaced runner claims nothing, even before his successor touched the row; the successor can."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    (sent,) = await _send(store, key, _message("a", boundary=AFTER))
    claim = (Consume(input_id=sent.input_id),)
    clock.advance(60)
    lapsed = a_commit(key, generation=lane.generation, run=run, events=())
    await store.commit(lapsed)  # nobody displaced him: he may still write
    taken = await store.lanes.acquire(key, an_owner("worker-2"))
    async with unchanged(store):
        with pytest.raises(LaneLost):
            await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claim))
    take = TakeRun(run_id=run.run_id, attempt=run.attempt)
    await store.commit(a_commit(key, generation=taken.generation, run=take, consume=claim))
    found = await _found(store, sent.input_id)
    assert (found.status, found.run_id) == (InputStatus.CONSUMED, run.run_id)


async def test_of_many_claims_of_one_row_one_gets_it(harness: Harness) -> None:
    """They come from two stores, without a lane to order them."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    (sent,) = await _send(stores[0], key, _message("a"))
    claim = (Consume(input_id=sent.input_id, log="messages", item=0),)
    landed, lost = await outcomes(*(stores[n % 2].commit(a_save(key, n, consume=claim)) for n in range(6)))
    assert len(landed) == 1
    assert all(isinstance(error, ClaimLost) for error in lost)
    assert len(await stores[0].logs.read(key, "messages")) == 1


async def test_a_cancel_against_a_claim_ends_in_exactly_one_of_the_two(harness: Harness) -> None:
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await _send(stores[0], key, *(_message(str(n)) for n in range(8)))

    async def claim(input_id: str) -> bool:
        try:
            await stores[0].commit(a_save(key, input_id, consume=(Consume(input_id=input_id),)))
        except ClaimLost:
            return False
        return True

    for each in sent:
        claimed, told = await asyncio.gather(claim(each.input_id), stores[1].inbox.cancel(key, [each.input_id]))
        assert told[each.input_id] is (Cancelled.CONSUMED if claimed else Cancelled.CANCELLED)
        wanted = InputStatus.CONSUMED if claimed else InputStatus.CANCELLED
        assert (await _found(stores[0], each.input_id)).status == wanted


async def test_an_idle_send_is_stored_already_consumed(store: Store) -> None:
    """One commit begins the run, appends the message and has its row; a repeat returns the same id."""
    key, _ = await a_session(store, None, "x")
    lane = await store.lanes.acquire(key, an_owner())
    new = _message("hi", key="k", log="messages", item=0)
    begin = BeginRun(run_id=an_id("run"), invocation_id=new_id())
    commit = a_save(key, "hi", generation=lane.generation, run=begin, inputs=(new, _message("unkeyed")))
    receipt = await store.commit(commit)
    assert len(set(receipt.input_ids)) == 2
    assert await store.commit(commit) == replace(receipt, replayed=True)
    assert await store.receipt(key, commit.operation_id) == replace(receipt, replayed=True)
    found = await _found(store, receipt.input_ids[0])
    assert (found.status, found.run_id, found.log, found.position) == ("consumed", begin.run_id, "messages", 1)
    assert (found.input_key, found.body, found.settled_at) == ("k", {"text": "hi"}, receipt.committed_at)
    assert await store.inbox.list(key) == ()
    again = await store.inbox.enqueue(key, replace(new, log=None, item=None))
    assert (again.replayed, again.input) == (True, found)
    await store.commit(_ending(key, lane, RunRef(run_id=begin.run_id)))
    assert not (await _found(store, receipt.input_ids[0])).has_body


async def test_an_idle_send_whose_key_is_known_is_refused_and_names_the_first(store: Store) -> None:
    """Queued before, or sent before; with other content it is a conflict. Also when the commit needed no look."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    (queued,) = await _send(store, key, _message("a", key="queued"))
    first = await store.commit(a_turn(key, lane, inputs=(_message("a", key="sent"),)))
    async with unchanged(store):
        for name, known in (("queued", queued.input_id), ("sent", first.input_ids[0])):
            with pytest.raises(ClaimLost) as refusal:
                await store.commit(a_turn(key, lane, "m", inputs=(_message("a", key=name),)))
            assert refusal.value.input_id == known
            with pytest.raises(OperationConflict):
                await store.commit(a_turn(key, lane, "m", inputs=(_message("b", key=name),)))


async def test_a_commit_with_other_input_under_its_operation_id_is_a_conflict(store: Store) -> None:
    """Input is part of what a commit means."""
    key, _ = await a_session(store)
    one, two = await _send(store, key, _message("1"), _message("2"))
    claims = a_save(key, "m", "n", consume=(Consume(input_id=one.input_id, log="messages", item=0),))
    brings = a_save(key, "m", inputs=(_message("a", key="k"),))
    for commit in (claims, brings):
        await store.commit(commit)
    others = {
        "another row": replace(claims, consume=(Consume(input_id=two.input_id, log="messages", item=0),)),
        "another entry": replace(claims, consume=(Consume(input_id=one.input_id, log="messages", item=1),)),
        "no row": replace(claims, consume=()),
        "another body": replace(brings, inputs=(_message("b", key="k"),)),
        "another key": replace(brings, inputs=(_message("a", key="l"),)),
        "rolls back": replace(claims, rolls_back="run"),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in others.items()}
    async with unchanged(store):
        assert await not_refused(OperationConflict, calls) == {}


@needs(Capability.PROBES)
async def test_inbox_parts_that_make_no_sense_are_refused_before_any_statement(store: Store) -> None:
    key, _ = await a_session(store)
    commits = {
        "entry without item": a_save(key, "m", consume=(Consume(input_id="i", log="messages"),)),
        "item without log": a_save(key, "m", consume=(Consume(input_id="i", item=0),)),
        "item beyond": a_save(key, "m", consume=(Consume(input_id="i", log="messages", item=1),)),
        "log not written": a_save(key, "m", inputs=(_message("a", log="notes", item=0),)),
        "negative item": a_save(key, "m", inputs=(_message("a", log="messages", item=-1),)),
        "boundary": a_save(key, "m", inputs=(_message("a", boundary=AFTER),)),
        "due": a_save(key, "m", inputs=(_message("a", due_at=LATER),)),
        "empty id": a_save(key, "m", consume=(Consume(input_id=""),)),
        "empty run": a_save(key, "m", rolls_back=""),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in commits.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []


async def test_the_end_of_a_run_leaves_what_was_meant_for_it_to_the_next_turn_and_drops_bodies(store: Store) -> None:
    """In the same commit, whatever the end; other rows, and cancelled ones, stay as they are."""
    key, _ = await a_session(store)
    for status in (RunStatus.COMPLETED, RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.SUSPENDED):
        lane, run = await _live_run(store, key)
        steered, left, cancelled, later = await _send(
            store,
            key,
            _message("1", boundary=AFTER),
            _message("2", boundary=BEFORE),
            _message("3", boundary=AFTER),
            _message("4"),
        )
        await store.inbox.cancel(key, [cancelled.input_id])
        before = [await _found(store, each.input_id) for each in (cancelled, later)]
        claim = (Consume(input_id=steered.input_id),)
        await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claim))
        assert (await _found(store, steered.input_id)).body == {"text": "1"}
        assert (await store.inbox.next(key)).inputs[0].input_id == later.input_id
        await store.commit(_ending(key, lane, run, status, disarm=True))
        settled, moved = await _found(store, steered.input_id), await _found(store, left.input_id)
        assert (settled.run_id, settled.boundary, settled.has_body) == (run.run_id, AFTER, False)
        assert (moved.status, moved.run_id, moved.boundary) == (InputStatus.OPEN, None, None)
        assert (moved.body, moved.seq) == ({"text": "2"}, left.seq)
        assert [await _found(store, each.input_id) for each in (cancelled, later)] == before
        assert (await store.inbox.next(key)).inputs[0].input_id == left.input_id
        await store.inbox.cancel(key, [left.input_id, later.input_id])


async def test_input_consumed_by_the_commit_that_ends_the_run_is_settled_once(store: Store) -> None:
    """One row is claimed in the very commit whose end looks after the others."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    last, left = await _send(store, key, _message("1", boundary=BEFORE), _message("2", boundary=BEFORE))
    await store.commit(_ending(key, lane, run, consume=(Consume(input_id=last.input_id),)))
    found, moved = await _found(store, last.input_id), await _found(store, left.input_id)
    assert (found.status, found.run_id, found.has_body) == (InputStatus.CONSUMED, run.run_id, False)
    assert (moved.status, moved.run_id, moved.boundary, moved.has_body) == (InputStatus.OPEN, None, None, True)


async def test_a_takeover_keeps_the_runs_input(harness: Harness) -> None:
    """It is still for the same run, and moves on when that is given up."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    (sent,) = await _send(store, key, _message("1", boundary=AFTER))
    clock.advance(60)
    lane = await store.lanes.acquire(key, an_owner("worker-2"))
    await store.commit(a_commit(key, generation=lane.generation, run=TakeRun(run_id=run.run_id, attempt=1)))
    assert _ids((await store.inbox.next(key, boundary=AFTER)).inputs) == [sent.input_id]
    again = RunRef(run_id=run.run_id, attempt=2)
    await store.commit(_ending(key, lane, again, RunStatus.FAILED))
    assert (await store.inbox.next(key)).inputs[0].input_id == sent.input_id


async def test_input_for_a_boundary_is_bound_to_the_live_run_or_else_for_the_next_turn(store: Store) -> None:
    """Without a live run, or once it has ended, it is for the next turn. A run of another session is refused."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    (early,) = await _send(store, key, _message("0", boundary=AFTER))
    assert (early.run_id, early.boundary) == (None, None)
    lane, run = await _live_run(store, key)
    _, theirs = await _live_run(store, other)
    bound, named = await _send(
        store, key, _message("1", boundary=AFTER), _message("2", boundary=BEFORE, run_id=run.run_id)
    )
    assert [(each.run_id, each.boundary) for each in (bound, named)] == [(run.run_id, AFTER), (run.run_id, BEFORE)]
    async with unchanged(store):
        for unknown in (theirs.run_id, "nobody"):
            with pytest.raises(RunNotLive):
                await store.inbox.enqueue(key, _message("3", boundary=AFTER, run_id=unknown))
    await store.commit(_ending(key, lane, run))
    late = await _send(store, key, _message("4", boundary=AFTER), _message("5", boundary=AFTER, run_id=run.run_id))
    assert [(each.run_id, each.boundary) for each in late] == [(None, None)] * 2


async def test_an_end_that_races_with_input_for_the_run_strands_none(harness: Harness) -> None:
    """Whichever comes first, no open row is left behind for a run that has ended."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    for _ in range(10):
        lane, run = await _live_run(stores[0], key)
        new = _message("s", boundary=AFTER)
        sent, _ = await asyncio.gather(
            stores[1].inbox.enqueue(key, new), stores[0].commit(_ending(key, lane, run, disarm=True))
        )
        found = await _found(stores[0], sent.input.input_id)
        assert (found.status, found.run_id, found.boundary) == (InputStatus.OPEN, None, None)


async def test_between_turns_the_oldest_due_input_is_taken_one_at_a_time(store: Store) -> None:
    """Commands are never skipped and never pass older messages."""
    key, _ = await a_session(store)
    sent = await _send(store, key, _message("a"), _command("b"), _command("c"), _message("d"))
    taken = []
    for _ in sent:
        may = await store.inbox.next(key)
        assert may.reason is None
        (each,) = may.inputs
        taken.append(each.input_id)
        await store.commit(a_commit(key, consume=(Consume(input_id=each.input_id),)))
    assert taken == _ids(sent)
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY


@needs(Capability.DAMAGE_SQL)
async def test_at_equal_age_a_command_goes_before_a_message(harness: Harness) -> None:
    """The order of the listing and of what is taken is the same."""
    store = await harness.open()
    key, _ = await a_session(store)
    _, command = await _send(store, key, _message("a"), _command("b"))
    store = await damaged(harness, store, "UPDATE input SET seq = 1")
    assert (await store.inbox.list(key))[0].input_id == command.input_id
    assert (await store.inbox.next(key)).inputs[0].input_id == command.input_id


async def test_a_boundary_takes_what_is_meant_for_it_and_nothing_else(store: Store) -> None:
    """Input for another boundary or the next turn holds nothing back, and both ways of asking agree."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    turn, completing, step, second = await _send(
        store,
        key,
        _message("turn"),
        _message("completing", boundary=BEFORE),
        _message("step", boundary=AFTER),
        NewInput(kind=InputKind.WAKE, body=None, boundary=AFTER),
    )
    assert _ids((await store.inbox.next(key, boundary=AFTER)).inputs) == _ids([step, second])
    assert _ids((await store.inbox.next(key, boundary=AFTER, limit=1)).inputs) == _ids([step])
    assert _ids((await store.inbox.next(key, boundary=BEFORE)).inputs) == _ids([completing])
    assert _ids((await store.inbox.next(key, boundary=AFTER, run_id=run.run_id)).inputs) == _ids([step, second])
    assert (await store.inbox.next(key, boundary=AFTER, run_id="another")).reason is Nothing.NOT_HERE
    assert _ids((await store.inbox.next(key)).inputs) == [turn.input_id]
    claims = tuple(Consume(input_id=each.input_id) for each in (step, second))
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    assert (await store.inbox.next(key, boundary=AFTER)).reason is Nothing.NOT_HERE


async def test_input_for_one_run_is_not_claimed_by_another(store: Store) -> None:
    """The commit's claim follows the same rule as the question."""
    key, _ = await a_session(store)
    await _live_run(store, key)
    (sent,) = await _send(store, key, _message("a", boundary=AFTER))
    begin = BeginRun(run_id=an_id("run"), invocation_id=new_id())
    async with unchanged(store):
        for run in (None, begin):
            with pytest.raises(ClaimLost, match="meant for run"):
                await store.commit(a_commit(key, run=run, consume=(Consume(input_id=sent.input_id),)))


async def test_a_boundary_takes_nothing_from_behind_an_older_command(store: Store) -> None:
    """The command waits for the turn's end, and what came after it waits with it; the reason names it."""
    key, _ = await a_session(store)
    await _live_run(store, key)
    before, command, _behind = await _send(
        store, key, _message("a", boundary=AFTER), _command("clear"), _message("b", boundary=AFTER)
    )
    assert _ids((await store.inbox.next(key, boundary=AFTER)).inputs) == [before.input_id]
    await store.inbox.cancel(key, [before.input_id])
    may = await store.inbox.next(key, boundary=AFTER)
    assert (may.inputs, may.reason, may.blocked_by) == ((), Nothing.BLOCKED, command.input_id)


async def test_future_input_only_gives_the_next_due_time_and_never_empty(harness: Harness) -> None:
    """By due time or delay, in the database's time; due input passes it meanwhile."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    assert (await store.inbox.next(a_key())).reason is Nothing.EMPTY
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY
    far, near = await _send(store, key, _message("far", due_at=LATER), _message("near", delay=30.0))
    assert near.due_at == near.created_at + timedelta(seconds=30)
    may = await store.inbox.next(key)
    assert (may.inputs, may.reason, may.due_at) == ((), Nothing.NOT_DUE, near.due_at)
    (now,) = await _send(store, key, _message("now"))
    assert _ids((await store.inbox.next(key)).inputs) == [now.input_id]
    await store.inbox.cancel(key, [now.input_id])
    clock.advance(30)
    assert _ids((await store.inbox.next(key)).inputs) == [near.input_id]
    await store.inbox.cancel(key, [near.input_id])
    assert (await store.inbox.next(key)).due_at == far.due_at
    await store.inbox.cancel(key, [far.input_id])
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY


@needs(Capability.PROBES)
async def test_the_stamp_tells_whether_any_input_is_open(harness: Harness) -> None:
    """In its one read; due or not, for a turn or a run, of this session and life only."""
    store = await harness.open()
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await _send(store, other, _message("theirs"))

    async def has_input(asked: SessionKey = key) -> bool:
        with statements(store) as seen:
            stamp = await store.stamp(asked)
        assert seen == ["stamp_by_key"]
        assert stamp is not None
        assert type(stamp.has_input) is bool
        return stamp.has_input

    assert (await has_input(), await has_input(other)) == (False, True)
    (future,) = await _send(store, key, _message("a", due_at=LATER))
    assert await has_input()
    await store.inbox.cancel(key, [future.input_id])
    assert not await has_input()
    lane, run = await _live_run(store, key)
    (bound,) = await _send(store, key, _message("b", boundary=AFTER))
    assert await has_input()
    await store.commit(_ending(key, lane, run, consume=(Consume(input_id=bound.input_id),)))
    assert not await has_input()
    await _send(store, key, _message("c"))
    await store.delete(key)
    assert await store.stamp(key) is None
    await a_session(store, key=key)
    assert not await has_input()


async def test_the_stamp_tells_whether_input_is_for_a_boundary(store: Store) -> None:
    """What waits for the next turn does not count, and what was consumed or left to it counts no more."""
    key, _ = await a_session(store)

    async def steers() -> bool:
        stamp = await store.stamp(key)
        assert stamp is not None
        return stamp.steers

    await _send(store, key, _message("turn"))
    assert await steers() is False
    lane, run = await _live_run(store, key)
    taken, _ = await _send(store, key, _message("step", boundary=AFTER), _message("end", boundary=BEFORE))
    claims = (Consume(input_id=taken.input_id),)
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    assert await steers() is True
    await store.commit(_ending(key, lane, run))
    assert await steers() is False


@needs(Capability.PROBES)
async def test_the_first_input_is_the_one_to_take_between_turns(harness: Harness) -> None:
    """In one read, and never another than `next` gives; None where that has a reason."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    await _live_run(store, key)
    await _send(store, key, _message("step", boundary=AFTER), _message("far", delay=60.0))
    for expected in (None, "near", "far"):
        if expected == "near":
            await _send(store, key, _message("near"), _command("behind"))
        with statements(store) as seen:
            first = await store.inbox.first(key)
        assert seen == ["first_input"]
        assert (first and first.body) == (expected and {"text": expected})
        assert (await store.inbox.next(key)).inputs == ((first,) if first else ())
        clock.advance(60 if expected == "near" else 0)
    assert await store.inbox.first(a_key()) is None


async def test_spent_input_keeps_no_body_while_its_run_is_under_way(store: Store) -> None:
    """Neither what arrives with the commit nor what was queued; beside it, all else keeps its own."""
    key, _ = await a_session(store)
    queued, kept = await _send(store, key, _message("queued"), _message("kept"))
    claims = (Consume(input_id=queued.input_id, spent=True), Consume(input_id=kept.input_id))
    arrived = (_message("arrived", spent=True), _message("arrived and kept"))
    lane, run = await _live_run(store, key)
    commit = a_commit(key, generation=lane.generation, run=run, consume=claims, inputs=arrived)
    receipt = await store.commit(commit)
    ids = (queued.input_id, kept.input_id, *receipt.input_ids)
    assert [(await _found(store, each)).has_body for each in ids] == [False, True, False, True]
    await store.commit(_ending(key, lane, run))
    assert [(await _found(store, each)).has_body for each in ids] == [False] * 4


async def test_a_bounded_scan_is_not_filled_by_what_cannot_be_taken(store: Store) -> None:
    """Consumed, future and bound rows before it do not hide a later one."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    consumed = await _send(store, key, *(_message(str(n), boundary=AFTER) for n in range(5)))
    claims = tuple(Consume(input_id=each.input_id) for each in consumed)
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    await _send(store, key, *(_message("far", due_at=LATER) for _ in range(3)), _message("done", boundary=BEFORE))
    last, step = await _send(store, key, _message("last"), _message("step", boundary=AFTER))
    assert _ids((await store.inbox.next(key, limit=1)).inputs) == [last.input_id]
    assert _ids((await store.inbox.next(key, boundary=AFTER, limit=1)).inputs) == [step.input_id]


@needs(Capability.PROBES)
async def test_looking_into_an_inbox_writes_nothing(store: Store) -> None:
    """Neither with something to take nor without; an unknown session is not created by asking."""
    key, _ = await a_session(store)
    await _send(store, key, _message("a"))
    async with unchanged(store):
        with statements(store) as seen:
            for asked in (key, a_key()):
                await store.inbox.next(asked)
                await store.inbox.next(asked, boundary=AFTER)
                await store.inbox.first(asked)
                await store.inbox.list(asked)
            await store.inbox.due()
    reads = {"first_input", "session_by_key", "inbox_look", "due_inputs", "open_inputs", "due_sessions"}
    assert set(seen) == reads


async def test_due_names_active_sessions_with_due_input_that_nobody_works_on(harness: Harness) -> None:
    """No empty inbox, no future input, no held lane, no closed session; every kind counts, and a dead run's."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    assert await store.inbox.due() == ()
    empty, future, held, closed, message, command, wake, orphan = [(await a_session(store))[0] for _ in range(8)]
    await _send(store, future, _message("f", delay=3600.0))
    await _send(store, closed, _message("c"))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    await _send(store, message, _message("m"))
    await _send(store, command, _command("c"))
    await _send(store, wake, NewInput(kind=InputKind.WAKE, body=None, delay=10.0))
    await _live_run(store, orphan)
    await _send(store, orphan, _message("o", boundary=AFTER))
    clock.advance(20)  # the orphan's lane lapses
    await store.lanes.acquire(held, an_owner())
    await _send(store, held, _message("h"))
    assert set(await store.inbox.due()) == {message, command, wake, orphan}
    clock.advance(3600)
    assert set(await store.inbox.due()) == {future, held, message, command, wake, orphan}
    assert empty not in await store.inbox.due()


async def test_sessions_with_due_input_whose_holder_is_proven_gone_are_stranded(harness: Harness) -> None:
    """Held by a dead process of this host: yes, oldest lane first; by a live one, by nobody, or without due input: no.

    A lane that has lapsed, or lost its dead holder, is named by `due` again. Reads only.
    """
    clock = FakeClock()
    store = await harness.open(clock=clock)
    here = this_process()
    alive = replace(an_owner(), host=here)
    dead = replace(an_owner(), host=replace(here, started=(here.started or 0) - 1))
    second, first, living, unproven, free, idle, later, closed = [(await a_session(store))[0] for _ in range(8)]
    for key, owner, ttl in (
        (second, dead, 9),
        (first, dead, 6),
        (living, alive, 9),
        (unproven, an_owner(), 9),
        (idle, dead, 9),
        (later, dead, 9),
    ):
        await store.lanes.acquire(key, owner, ttl=ttl)
    for key in (second, first, living, unproven, free, closed):
        await _send(store, key, _message("m"))
    await _send(store, later, _message("l", delay=3600.0))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    await store.lanes.acquire(closed, dead)
    async with unchanged(store):
        assert list(await store.inbox.stranded()) == [first, second]
        assert list(await store.inbox.stranded(limit=1)) == [first]
        assert await store.inbox.due() == (free,)
    await store.lanes.acquire(first, alive)
    assert list(await store.inbox.stranded()) == [second]
    clock.advance(10)
    assert list(await store.inbox.stranded()) == []
    assert second in await store.inbox.due()


async def test_the_next_due_time_is_when_due_will_name_a_session(harness: Harness) -> None:
    """The first of all sessions; at that instant `due` names it, and not a microsecond before. Reads only."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    assert await store.inbox.next_due() is None
    far, near, held, closed = [(await a_session(store))[0] for _ in range(4)]
    await _send(store, closed, _message("c"))
    await store.commit(a_commit(closed, status=SessionStatus.COMPLETED))
    assert await store.inbox.next_due() is None
    await _send(store, far, _message("f", delay=3600.0))
    (soon,) = await _send(store, near, _message("n", delay=30.0))
    lane = await store.lanes.acquire(held, an_owner(), ttl=20)
    (waiting,) = await _send(store, held, _message("h"))
    for expected, named in ((lane.expires_at, held), (soon.due_at, near)):
        async with unchanged(store):
            due = await store.inbox.next_due()
        assert due is not None
        assert due == expected
        clock.advance((due - to_datetime(clock.now())).total_seconds() - 0.000001)
        assert await store.inbox.due() == ()
        clock.advance(0.000001)
        assert await store.inbox.due() == (named,)
        for sent in await store.inbox.list(named):
            await store.inbox.cancel(named, [sent.input_id])
    assert waiting.due_at is None
    await store.lanes.disarm(await store.lanes.acquire(near, an_owner(), ttl=600))
    (now,) = await _send(store, near, _message("now"))
    assert await store.inbox.next_due() == now.created_at
    assert await store.inbox.due() == (near,)


async def test_due_comes_in_pages_that_name_each_session_once(store: Store) -> None:
    """A session comes once, however much input it has."""
    keys = [(await a_session(store))[0] for _ in range(5)]
    for key in keys:
        await _send(store, key, *(_message(str(n)) for n in range(3)))
    seen: list[SessionKey] = []
    after = None
    while True:
        page = await store.inbox.due(limit=2, after=after)
        seen += page
        after = page.next
        if after is None:
            break
        assert len(page) == 2
    assert seen == keys
    with pytest.raises(InvalidInput):
        await store.inbox.due(after="soon")


async def test_a_rollback_marks_what_the_run_consumed(store: Store) -> None:
    """The row stays consumed and says that it was taken back; input of other runs does not."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    one, two, opened = await _send(store, key, _message("1"), _message("2"), _message("3"))
    kept = a_turn(key, lane, "1", consume=(Consume(input_id=one.input_id),))
    undone = a_turn(key, lane, "2", consume=(Consume(input_id=two.input_id),), inputs=(_message("2b"),))
    await store.commit(kept)
    receipt = await store.commit(undone)
    assert undone.run is not None
    await store.commit(a_save(key, generation=lane.generation, rolls_back=undone.run.run_id))
    found = [await _found(store, each) for each in (one.input_id, two.input_id, *receipt.input_ids, opened.input_id)]
    assert [each.rolled_back for each in found] == [False, True, True, False]
    runs = {run.run_id: run.rolled_back for run in await store.runs.of_session(key)}
    assert [run_id for run_id, rolled_back in runs.items() if rolled_back] == [undone.run.run_id]
    assert len(runs) > 1
    assert [each.status for each in found] == ["consumed", "consumed", "consumed", "open"]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_the_inbox_leaves_no_trace(store: Store) -> None:
    """Tried on an enqueue for a run, a commit that consumes and ends, and a cancel."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    sent, failed = await fail_at_each_statement(
        store, lambda: store.inbox.enqueue(key, _message("a", key="k", boundary=AFTER))
    )
    assert {"take_number", "insert_events", "insert_inputs", "hold_runs"} <= set(failed)
    (other,) = await _send(store, key, _message("b"))
    _, failed = await fail_at_each_statement(store, lambda: store.inbox.cancel(key, [other.input_id]))
    assert "cancel_inputs" in failed
    ending = _ending(
        key, lane, run, consume=(Consume(input_id=sent.input.input_id),), inputs=(_message("c"),), rolls_back="r"
    )
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(ending))
    assert not receipt.replayed
    assert {"insert_inputs", "consume_inputs", "end_inputs", "roll_back_inputs"} <= set(failed)


async def test_a_fork_takes_no_input_along(store: Store) -> None:
    """Nothing that waits for the source, or was said to it, is the fork's."""
    key, _ = await a_session(store)
    await _send(store, key, _message("a", key="k"))
    fork = a_key()
    await store.fork(key, fork)
    assert await store.inbox.list(fork) == ()
    assert await store.inbox.find(fork, "k") is None


async def test_deleting_a_session_leaves_other_inboxes_equal(store: Store) -> None:
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await _send(store, key, _message("a", key="k"))
    (theirs,) = await _send(store, other, _message("b", key="k"))
    await store.delete(key)
    assert [row["input_id"] for row in await rows(store, "input")] == [theirs.input_id]
    assert await store.inbox.find(other, "k") == theirs


@needs(Capability.PROBES)
async def test_an_interrupt_queues_and_stops_in_one_transaction(store: Store) -> None:
    """Whatever fails, there is the input with the stop of the run under way, or neither."""
    key, _ = await a_session(store)
    _, run = await _live_run(store, key)
    head = await store.head(key)
    assert head is not None
    sent, failed = await fail_at_each_statement(
        store, lambda: store.inbox.enqueue(key, _message("a", key="k"), interrupts="make room")
    )
    assert {"take_number", "insert_events", "insert_inputs", "stop_runs"} <= set(failed)
    assert (sent.stopped, sent.replayed) == (run.run_id, False)
    found = await store.runs.get(run.run_id)
    assert found is not None
    assert found.stop == sent.stop
    assert found.stop is not None
    assert (found.stop.kind, found.stop.reason) == (StopKind.INTERRUPT, "make room")
    told = (await store.events.read(key, after=head.event_seq)).events
    assert [(each.type, each.run_id) for each in told] == [("input_queued", None), ("stop_requested", run.run_id)]
    assert [each.seq for each in told] == [sent.input.seq, sent.input.seq + 1]


async def test_a_repeated_interrupt_makes_sure_of_the_stop_while_its_input_waits(store: Store) -> None:
    """Also of one that was withdrawn, or never asked for; a run that came later, or took it, is not stopped."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    sent = await store.inbox.enqueue(key, _message("a", key="k"))
    assert (sent.stopped, sent.stop) == (None, None)

    async def again() -> Enqueued:
        return await store.inbox.enqueue(key, _message("a", key="k"), interrupts="make room")

    first = await again()
    assert (first.replayed, first.stopped, first.input) == (True, run.run_id, sent.input)
    dumped = await store.dump()
    assert await again() == first
    assert await store.dump() == dumped
    await store.runs.withdraw_stop(run.run_id)
    assert (await again()).stop is not None
    await store.runs.request_stop(run.run_id, StopKind.ABORT)
    assert (kept := (await again()).stop) is not None
    assert kept.kind is StopKind.ABORT
    await store.commit(_ending(key, lane, run, RunStatus.INTERRUPTED, sees_stop=True))
    assert (await again()).stopped is None
    later = a_turn(key, lane, "later", end=None)
    await store.commit(later)
    assert (await again()).stopped is None
    assert isinstance(later.run, BeginRun)
    ref = RunRef(run_id=later.run.run_id)
    claim = Consume(input_id=sent.input.input_id)
    await store.commit(a_commit(key, run=ref, generation=lane.generation, consume=(claim,)))
    assert (await again()).stopped is None
    with pytest.raises(InvalidInput):
        await store.inbox.enqueue(key, _message("b", boundary=AFTER), interrupts="make room")


@needs(Capability.PROBES)
async def test_a_refused_input_is_settled_once_with_its_reason(harness: Harness) -> None:
    """It keeps its place, its key and why; nothing takes it any more, and whoever was quicker wins."""
    store = await harness.open()
    key, _ = await a_session(store)
    bad, behind, gone = await _send(store, key, _message("a", key="k"), _message("b"), _message("c"))
    await store.inbox.cancel(key, [gone.input_id])
    head = await store.head(key)
    assert head is not None
    reason = {"category": "no_good", "message": "It never will be.", "details": {"at": [1, None]}}
    refused, failed = await fail_at_each_statement(store, lambda: store.inbox.refuse(key, bad.input_id, reason))
    assert refused
    assert {"take_number", "insert_events", "refuse_inputs"} <= set(failed)
    dumped = await store.dump()
    assert not await store.inbox.refuse(key, bad.input_id, {"category": "other"})
    assert not await store.inbox.refuse(key, gone.input_id, reason)
    assert not await store.inbox.refuse(key, "unknown", reason)
    assert not await store.inbox.refuse(a_key(), behind.input_id, reason)
    assert await store.dump() == dumped
    (told,) = (await store.events.read(key, after=head.event_seq)).events
    assert (told.type, told.data) == (
        "input_refused",
        {"input_id": bad.input_id, "kind": "message", "error": reason},
    )
    found = await _found(await harness.open(), bad.input_id)
    assert (found.status, found.error, found.body, found.has_body) == (InputStatus.REFUSED, reason, None, False)
    assert (found.seq, found.input_key, found.digest) == (bad.seq, "k", bad.digest)
    assert found.settled_at is not None
    assert _ids(await store.inbox.list(key)) == [behind.input_id]
    assert await store.inbox.cancel(key, [bad.input_id]) == {bad.input_id: Cancelled.REFUSED}
    assert (await store.inbox.enqueue(key, _message("a", key="k"))).input == found
    with pytest.raises(ClaimLost):
        await store.commit(a_save(key, consume=(Consume(input_id=bad.input_id),)))
    await store.upkeep.prune(inputs_older_than=0)
    assert await store.inbox.get(bad.input_id) is None


async def test_input_that_was_meant_for_a_run_can_be_refused(store: Store) -> None:
    """Its end has nothing more to do with it."""
    key, _ = await a_session(store)
    lane, run = await _live_run(store, key)
    (sent,) = await _send(store, key, _message("a", boundary=AFTER))
    assert await store.inbox.refuse(key, sent.input_id, {"category": "no_good"})
    await store.commit(_ending(key, lane, run))
    found = await _found(store, sent.input_id)
    assert (found.status, found.error, found.run_id) == (InputStatus.REFUSED, {"category": "no_good"}, None)
