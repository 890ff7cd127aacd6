"""Enqueueing input: durable before it is acknowledged, idempotent by key, and in order."""

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from tenuto.errors import ClaimLost, InvalidInput, OperationConflict, SessionNotFound, StatusRefused
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun
from tenuto.model.input import Boundary, Cancelled, Consume, Enqueued, InputKind, InputStatus, NewInput
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import SessionStatus
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_id, an_owner
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements
from tenuto.testing.scenes.inbox_scene import LATER, a_command, a_live_run, a_message, an_ending, ids_of, input_of, send


async def test_an_enqueued_input_reads_back_equal_after_reopen(harness: Harness) -> None:
    """What was acknowledged is stored, with the event number it took as its place."""
    store = await harness.open()
    key, _ = await a_session(store)
    head = await store.head(key)
    assert head is not None
    sent = await store.inbox.enqueue(key, a_message("hi", key="k-1", due_at=LATER))
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
    """The stream says that input waits; the session's numbers are those of its commits."""
    key, _ = await a_session(store)
    before = await store.head(key)
    (first, second) = await send(store, key, a_message("a"), a_command("clear"))
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
    """An enqueue is its own transaction, not a commit, and still wakes readers."""
    key, _ = await a_session(store)
    pages = store.events.subscribe(key)
    (sent,) = await send(store, key, a_message("a"))
    async with asyncio.timeout(10):
        page = await anext(pages)
        later = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0)
        await send(store, key, a_message("b"))
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
                await store.inbox.enqueue(absent, a_message("a"))
    for status in (SessionStatus.SUSPENDED, SessionStatus.COMPLETED, SessionStatus.FAILED):
        await store.commit(a_commit(key, status=status))
        async with unchanged(store):
            with pytest.raises(StatusRefused) as refusal:
                await store.inbox.enqueue(key, a_message("a"))
        assert refusal.value.found == status


@needs(Capability.PROBES)
@pytest.mark.parametrize(
    "new",
    [
        NewInput(kind="shout", body=1),  # type: ignore[arg-type]
        a_message("a", key=""),
        a_message("a", boundary="sometime"),
        a_message("a", run_id="r"),
        a_command("a", boundary=Boundary.AFTER_STEP),
        a_message("a", delay=-1.0),
        a_message("a", delay=float("nan")),
        a_message("a", delay=1.0, due_at=LATER),
        a_message("a", due_at=datetime(2030, 1, 1)),
        a_message("a", log="messages", item=0),
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
        await store.inbox.enqueue(key, a_message("x" * store.budget.max_bytes))
    assert await store.inbox.list(key) == ()


async def test_ids_minted_at_once_in_two_stores_differ(harness: Harness) -> None:
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await asyncio.gather(*(stores[n % 2].inbox.enqueue(key, a_message(str(n))) for n in range(20)))
    assert len({each.input.input_id for each in sent}) == 20
    assert len({each.input.seq for each in sent}) == 20


@pytest.mark.parametrize("kind", list(InputKind))
async def test_the_same_key_and_content_gives_the_first_row_whatever_became_of_it(
    store: Store, kind: InputKind
) -> None:
    """Open, consumed with its body gone, or cancelled; even when the session has stopped taking input."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    new = [NewInput(kind=kind, body={"n": n}, key=f"k-{n}", boundary=None) for n in range(3)]
    sent = await send(store, key, *new)
    await store.commit(a_turn(key, lane, "m", consume=(Consume(input_id=sent[1].input_id, log="messages", item=0),)))
    await store.inbox.cancel(key, [sent[2].input_id])
    await store.commit(a_commit(key, status=SessionStatus.SUSPENDED))
    async with unchanged(store):
        again = [await store.inbox.enqueue(key, each) for each in new]
    assert all(each.replayed for each in again)
    assert ids_of(each.input for each in again) == ids_of(sent)
    assert [each.input.status for each in again] == ["open", "consumed", "cancelled"]
    assert [each.input.has_body for each in again] == [True, False, False]
    assert (again[1].input.log, again[1].input.position) == ("messages", 0)


async def test_the_same_key_with_other_content_is_a_conflict(store: Store) -> None:
    """Another body or another kind, also after the body is gone; another session may use the key."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    (sent,) = await send(store, key, a_message("a", key="k"))
    await store.inbox.cancel(key, [sent.input_id])
    async with unchanged(store):
        for new in (a_message("b", key="k"), NewInput(kind=InputKind.WAKE, body={"text": "a"}, key="k")):
            with pytest.raises(OperationConflict) as refusal:
                await store.inbox.enqueue(key, new)
            assert refusal.value.details()["input_id"] == sent.input_id
    assert not (await store.inbox.enqueue(other, a_message("b", key="k"))).replayed


async def test_many_senders_of_one_key_queue_it_once(harness: Harness) -> None:
    """The senders use two stores at once."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await asyncio.gather(*(stores[n % 2].inbox.enqueue(key, a_message("a", key="k")) for n in range(10)))
    assert sorted(each.replayed for each in sent) == [False, *[True] * 9]
    assert len({each.input.input_id for each in sent}) == 1
    assert len(await stores[0].inbox.list(key)) == 1


async def test_a_key_is_free_again_in_the_ids_next_life(store: Store) -> None:
    """Delete removes the inbox; the old input is unknown from then on."""
    key, _ = await a_session(store)
    (old,) = await send(store, key, a_message("a", key="k"))
    assert (await store.delete(key)).inputs == 1
    assert await store.inbox.get(old.input_id) is None
    await a_session(store, key=key)
    assert await store.inbox.list(key) == ()
    assert not (await store.inbox.enqueue(key, a_message("b", key="k"))).replayed
    assert await store.inbox.cancel(key, [old.input_id]) == {old.input_id: Cancelled.UNKNOWN}
    life = await store.life(key)
    with pytest.raises(ClaimLost):
        await store.commit(a_commit(key, life=life, consume=(Consume(input_id=old.input_id),)))


async def test_the_listing_shows_open_rows_of_this_session_in_order_of_arrival(store: Store) -> None:
    """Whatever kind, boundary or due time; consumed and cancelled ones do not shift the others."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await a_live_run(store, key)
    new = (
        a_message("a"),
        a_command("b"),
        a_message("c", due_at=LATER),
        a_message("d", boundary=Boundary.BEFORE_COMPLETION),
        a_message("e"),
    )
    sent = await send(store, key, *new)
    await send(store, other, a_message("z"))
    assert ids_of(await store.inbox.list(key)) == ids_of(sent)
    assert ids_of(await store.inbox.list(key, limit=2)) == ids_of(sent[:2])
    assert ids_of(await store.inbox.list(key, after=sent[1].seq, limit=2)) == ids_of(sent[2:4])
    await store.inbox.cancel(key, [sent[1].input_id])
    assert ids_of(await store.inbox.list(key)) == ids_of([sent[0], *sent[2:]])
    assert await store.inbox.list(a_key()) == ()


async def test_an_idle_send_is_stored_already_consumed(store: Store) -> None:
    """One commit begins the run, appends the message and has its row; a repeat returns the same id."""
    key, _ = await a_session(store, None, "x")
    lane = await store.lanes.acquire(key, an_owner())
    new = a_message("hi", key="k", log="messages", item=0)
    begin = BeginRun(run_id=an_id("run"), invocation_id=new_id())
    commit = a_save(key, "hi", generation=lane.generation, run=begin, inputs=(new, a_message("unkeyed")))
    receipt = await store.commit(commit)
    assert len(set(receipt.input_ids)) == 2
    assert await store.commit(commit) == replace(receipt, replayed=True)
    assert await store.receipt(key, commit.operation_id) == replace(receipt, replayed=True)
    found = await input_of(store, receipt.input_ids[0])
    assert (found.status, found.run_id, found.log, found.position) == ("consumed", begin.run_id, "messages", 1)
    assert (found.input_key, found.body, found.settled_at) == ("k", {"text": "hi"}, receipt.committed_at)
    assert await store.inbox.list(key) == ()
    again = await store.inbox.enqueue(key, replace(new, log=None, item=None))
    assert (again.replayed, again.input) == (True, found)
    await store.commit(an_ending(key, lane, RunRef(run_id=begin.run_id)))
    assert not (await input_of(store, receipt.input_ids[0])).has_body


async def test_an_idle_send_whose_key_is_known_is_refused_and_names_the_first(store: Store) -> None:
    """Queued before, or sent before; with other content it is a conflict. Also when the commit needed no look."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    (queued,) = await send(store, key, a_message("a", key="queued"))
    first = await store.commit(a_turn(key, lane, inputs=(a_message("a", key="sent"),)))
    async with unchanged(store):
        for name, known in (("queued", queued.input_id), ("sent", first.input_ids[0])):
            with pytest.raises(ClaimLost) as refusal:
                await store.commit(a_turn(key, lane, "m", inputs=(a_message("a", key=name),)))
            assert refusal.value.input_id == known
            with pytest.raises(OperationConflict):
                await store.commit(a_turn(key, lane, "m", inputs=(a_message("b", key=name),)))


async def test_a_commit_with_other_input_under_its_operation_id_is_a_conflict(store: Store) -> None:
    """Input is part of what a commit means."""
    key, _ = await a_session(store)
    one, two = await send(store, key, a_message("1"), a_message("2"))
    claims = a_save(key, "m", "n", consume=(Consume(input_id=one.input_id, log="messages", item=0),))
    brings = a_save(key, "m", inputs=(a_message("a", key="k"),))
    for commit in (claims, brings):
        await store.commit(commit)
    others = {
        "another row": replace(claims, consume=(Consume(input_id=two.input_id, log="messages", item=0),)),
        "another entry": replace(claims, consume=(Consume(input_id=one.input_id, log="messages", item=1),)),
        "no row": replace(claims, consume=()),
        "another body": replace(brings, inputs=(a_message("b", key="k"),)),
        "another key": replace(brings, inputs=(a_message("a", key="l"),)),
        "rolls back": replace(claims, rolls_back="run"),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in others.items()}
    async with unchanged(store):
        assert await not_refused(OperationConflict, calls) == {}


async def test_a_fork_takes_no_input_along(store: Store) -> None:
    """Nothing that waits for the source, or was said to it, is the fork's."""
    key, _ = await a_session(store)
    await send(store, key, a_message("a", key="k"))
    fork = a_key()
    await store.fork(key, fork)
    assert await store.inbox.list(fork) == ()
    assert await store.inbox.find(fork, "k") is None


async def test_deleting_a_session_leaves_other_inboxes_equal(store: Store) -> None:
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await send(store, key, a_message("a", key="k"))
    (theirs,) = await send(store, other, a_message("b", key="k"))
    await store.delete(key)
    assert [row["input_id"] for row in await rows(store, "input")] == [theirs.input_id]
    assert await store.inbox.find(other, "k") == theirs


@needs(Capability.PROBES)
async def test_an_interrupt_queues_and_stops_in_one_transaction(store: Store) -> None:
    """Whatever fails, there is the input with the stop of the run under way, or neither."""
    key, _ = await a_session(store)
    _, run = await a_live_run(store, key)
    head = await store.head(key)
    assert head is not None
    sent, failed = await fail_at_each_statement(
        store, lambda: store.inbox.enqueue(key, a_message("a", key="k"), interrupts="make room")
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
    lane, run = await a_live_run(store, key)
    sent = await store.inbox.enqueue(key, a_message("a", key="k"))
    assert (sent.stopped, sent.stop) == (None, None)

    async def again() -> Enqueued:
        return await store.inbox.enqueue(key, a_message("a", key="k"), interrupts="make room")

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
    await store.commit(an_ending(key, lane, run, RunStatus.INTERRUPTED, sees_stop=True))
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
        await store.inbox.enqueue(key, a_message("b", boundary=Boundary.AFTER_STEP), interrupts="make room")
