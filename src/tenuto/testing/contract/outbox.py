"""The outbox: what a commit causes elsewhere is in the commit, delivered after it, and once."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import ClaimLost, DeliveryLost, InvalidInput, OperationConflict
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing, Outgoing, OutgoingStatus
from tenuto.model.session import Kind, SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, outcomes, rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_session
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements

PENDING, DELIVERED = OutgoingStatus.PENDING, OutgoingStatus.DELIVERED
DONE, EXPIRED = OutgoingStatus.DONE, OutgoingStatus.EXPIRED
TARGET = SessionKey("child", kind=Kind.INVOCATION)


def _to(target: Any = TARGET, **parts: Any) -> NewOutgoing:
    fixed: dict[str, Any] = {"kind": "wake", "target": target, "body": {"n": 1}}
    return NewOutgoing(**(fixed | parts))


async def _sent(store: Store, key: SessionKey, *new: NewOutgoing) -> list[str]:
    return list((await store.commit(a_commit(key, outgoing=new))).outgoing_ids)


async def _found(store: Store, outbox_id: str) -> Outgoing:
    found = await store.outbox.get(outbox_id)
    assert found is not None
    return found


async def _deliver(store: Store, item: Outgoing) -> bool:
    new = NewInput(kind=InputKind.WAKE, body=item.body, key=item.outbox_id)
    return not (await store.inbox.enqueue(item.target, new)).replayed


async def test_outgoing_work_reads_back_equal_after_reopen(harness: Harness) -> None:
    """It is in the commit that causes it, pending, with ids that the receipt names in order."""
    store = await harness.open()
    key, _ = await a_session(store)
    due = datetime(2031, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
    new = (_to(), _to(kind="stop", body=None, due_at=due), _to(delay=60.0))
    receipt = await store.commit(a_commit(key, outgoing=new))
    reopened = await harness.open()
    one, two, three = [await _found(reopened, each) for each in receipt.outgoing_ids]
    assert (one.key, one.target, one.kind, one.body) == (key, TARGET, "wake", {"n": 1})
    assert (one.status, one.attempts, one.due_at, one.created_at) == (PENDING, 0, one.created_at, receipt.committed_at)
    assert (two.kind, two.body, two.due_at) == ("stop", None, due)
    assert three.due_at == receipt.committed_at + timedelta(seconds=60)
    assert await reopened.outbox.of_session(key) == sorted((one, two, three), key=lambda each: each.outbox_id)
    assert await reopened.outbox.get("nobody") is None


async def test_a_repeat_returns_the_same_ids_and_sends_nothing_twice(store: Store) -> None:
    """Asking for the receipt gives the same; other work under the operation id is a conflict."""
    key, _ = await a_session(store)
    commit = a_commit(key, outgoing=(_to(), _to()))
    receipt = await store.commit(commit)
    assert len(set(receipt.outgoing_ids)) == 2
    async with unchanged(store):
        assert await store.commit(commit) == replace(receipt, replayed=True)
        assert await store.receipt(key, commit.operation_id) == replace(receipt, replayed=True)
        for other in (_to(body=2), _to(kind="stop"), _to(a_key()), _to(delay=1.0)):
            with pytest.raises(OperationConflict):
                await store.commit(replace(commit, outgoing=(_to(), other)))


async def test_a_refused_commit_sends_nothing(store: Store) -> None:
    key, _ = await a_session(store)
    async with unchanged(store):
        with pytest.raises(ClaimLost):
            await store.commit(a_commit(key, outgoing=(_to(),), consume=(Consume(input_id="nobody"),)))


@needs(Capability.PROBES)
async def test_malformed_outgoing_work_is_refused_before_any_statement(store: Store) -> None:
    key, _ = await a_session(store)
    wrong = {
        "empty kind": _to(kind=""),
        "no key": _to(target="child"),
        "not JSON": _to(body=object()),
        "both times": _to(delay=1.0, due_at=datetime(2031, 1, 1, tzinfo=UTC)),
        "negative delay": _to(delay=-1.0),
    }
    calls = {name: (lambda new=new: store.commit(a_commit(key, outgoing=(new,)))) for name, new in wrong.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []


async def test_pending_gives_what_is_due_of_all_sessions_the_longest_due_first(harness: Harness) -> None:
    """Reads only; nothing that is delivered, done, expired or not due yet."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    keys = [(await a_session(store))[0] for _ in range(2)]
    (later,) = await _sent(store, keys[0], _to(delay=10.0))
    clock.advance(1)
    (now,) = await _sent(store, keys[1], _to())
    for status in (DELIVERED, DONE, EXPIRED):
        (other,) = await _sent(store, keys[1], _to())
        await store.outbox.mark(other, status)
    async with unchanged(store):
        assert [each.outbox_id for each in await store.outbox.pending()] == [now]
    clock.advance(30)
    (newest,) = await _sent(store, keys[0], _to())
    assert [each.outbox_id for each in await store.outbox.pending()] == [now, later, newest]
    assert [each.outbox_id for each in await store.outbox.pending(limit=1)] == [now]


async def test_marking_compares_what_its_deliverer_saw(store: Store) -> None:
    """A stale deliverer cannot mark; what is done or expired stays so."""
    key, _ = await a_session(store)
    (sent,) = await _sent(store, key, _to())
    marked = await store.outbox.mark(sent, DELIVERED)
    assert (marked.status, marked.attempts) == (DELIVERED, 1)
    assert await _found(store, sent) == marked
    async with unchanged(store):
        for call in (
            store.outbox.mark(sent, DELIVERED),
            store.outbox.mark(sent, DONE, expected=DELIVERED, attempts=0),
            store.outbox.mark("nobody", DONE),
        ):
            with pytest.raises(DeliveryLost):
                await call
    await store.outbox.mark(sent, DONE, expected=DELIVERED, attempts=1)
    async with unchanged(store):
        with pytest.raises(DeliveryLost) as refusal:
            await store.outbox.mark(sent, PENDING, expected=DONE)
    assert refusal.value.found == DONE


async def test_a_try_that_failed_is_due_again_later(harness: Harness) -> None:
    """A debt is kept until it is paid or its window ends; the tries are counted."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    (sent,) = await _sent(store, key, _to())
    for attempts in range(3):
        (due,) = await store.outbox.pending()
        assert due.attempts == attempts
        await store.outbox.mark(sent, PENDING, attempts=attempts, retry_in=5.0)
        assert await store.outbox.pending() == []
        clock.advance(5)
    await store.outbox.mark(sent, EXPIRED)
    assert await store.outbox.pending() == []


async def test_of_many_deliverers_one_marks(harness: Harness) -> None:
    """The senders use two stores at once."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    (sent,) = await _sent(stores[0], key, _to())
    marked, lost = await outcomes(*(stores[n % 2].outbox.mark(sent, DELIVERED) for n in range(6)))
    assert len(marked) == 1
    assert all(isinstance(error, DeliveryLost) for error in lost)


async def test_a_delivery_cut_off_before_its_mark_is_one_input_all_the_same(harness: Harness) -> None:
    """The receiver's key is the outbox id, also after the input was consumed; the sender's history is not
    touched.
    """
    stores = [await harness.open(), await harness.open()]
    store = stores[0]
    parent, _ = await a_session(store, None, "m")
    child, _ = await a_session(store)
    (sent,) = await _sent(store, parent, _to(child))
    (item,) = await store.outbox.pending()
    head = await store.head(parent)
    delivered = await asyncio.gather(*(_deliver(stores[n % 2], item) for n in range(4)))
    assert sorted(delivered) == [False, False, False, True]
    (waiting,) = await store.inbox.list(child)
    await store.commit(a_commit(child, consume=(Consume(input_id=waiting.input_id),)))
    (again,) = await store.outbox.pending()
    assert not await _deliver(store, again)
    await store.outbox.mark(sent, DELIVERED, attempts=again.attempts)
    assert (await store.outbox.pending(), await store.inbox.list(child)) == ([], ())
    assert await store.head(parent) == head


async def test_the_next_due_time_is_that_of_the_first_pending_item(harness: Harness) -> None:
    """Of all sessions, past or future; what is delivered or final counts for nothing. Reads only."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    assert await store.outbox.next_due() is None
    keys = [(await a_session(store))[0] for _ in range(2)]
    delivered, done, expired, first = await _sent(store, keys[0], *(_to(delay=float(n)) for n in (1, 2, 3, 40)))
    (second,) = await _sent(store, keys[1], _to(delay=50.0))
    for outbox_id, status in ((delivered, DELIVERED), (done, DONE), (expired, EXPIRED)):
        await store.outbox.mark(outbox_id, status)
    for outbox_id in (first, second):
        async with unchanged(store):
            due = await store.outbox.next_due()
        assert due == (await _found(store, outbox_id)).due_at
        clock.advance((due - to_datetime(clock.now())).total_seconds() - 0.000001)
        assert await store.outbox.pending() == []
        clock.advance(0.000001)
        assert [item.outbox_id for item in await store.outbox.pending()] == [outbox_id]
        assert await store.outbox.next_due() == due
        await store.outbox.mark(outbox_id, DONE)
    assert await store.outbox.next_due() is None


async def test_delete_removes_what_a_session_still_had_to_send(store: Store) -> None:
    """They are counted; what others send stays, and a fork sends nothing of it again."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    await _sent(store, key, _to(), _to())
    (kept,) = await _sent(store, other, _to())
    fork = a_key()
    await store.fork(key, fork)
    assert await store.outbox.of_session(fork) == []
    assert (await store.delete(key)).outgoing == 2
    assert [row["outbox_id"] for row in await rows(store, "outgoing")] == [kept]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_the_outbox_leaves_no_trace(store: Store) -> None:
    key, _ = await a_session(store)
    commit = a_commit(key, outgoing=(_to(),))
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert "insert_outgoing" in failed
    (sent,) = receipt.outgoing_ids
    _, failed = await fail_at_each_statement(store, lambda: store.outbox.mark(sent, DELIVERED))
    assert "mark_outgoing" in failed


async def test_a_refused_item_is_final_keeps_the_reason_and_is_reported_to_its_sender(store: Store) -> None:
    key, _ = await a_session(store)
    refused, left = await _sent(store, key, _to(), _to())
    item = await _found(store, refused)
    done = await store.outbox.refuse(item, {"category": "gone", "message": "nobody is there"})
    reason = {"error": {"category": "gone", "message": "nobody is there"}}
    assert (done.status, done.attempts, done.body) == (OutgoingStatus.REFUSED, 1, reason)
    assert await _found(store, refused) == done
    events = (await store.events.read(key)).events
    told = {"outbox_id": refused, "kind": "wake", "session_id": "child", **reason}
    assert [(each.type, each.data) for each in events] == [("outgoing_refused", told)]
    assert [each.outbox_id for each in await store.outbox.pending()] == [left]
    async with unchanged(store):
        with pytest.raises(DeliveryLost):
            await store.outbox.refuse(item, "again")
        with pytest.raises(DeliveryLost):
            await store.outbox.mark(refused, PENDING, expected=OutgoingStatus.REFUSED)
        with pytest.raises(DeliveryLost):
            await store.outbox.refuse(replace(await _found(store, left), attempts=5), "a stale deliverer")


async def test_of_two_who_settle_an_item_one_wins(harness: Harness) -> None:
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    for outbox_id in await _sent(stores[0], key, *(_to() for _ in range(8))):
        item = await _found(stores[0], outbox_id)
        mark = stores[1].outbox.mark(outbox_id, DONE, attempts=0)
        (won,), (lost,) = await outcomes(stores[0].outbox.refuse(item, "no"), mark)
        assert isinstance(lost, DeliveryLost)
        assert await _found(stores[0], outbox_id) == won


@needs(Capability.PROBES)
async def test_a_refusal_that_fails_halfway_leaves_nothing(store: Store) -> None:
    key, _ = await a_session(store)
    (sent,) = await _sent(store, key, _to())
    item = await _found(store, sent)
    _, failed = await fail_at_each_statement(store, lambda: store.outbox.refuse(item, "no"))
    assert "refuse_outgoing" in failed
