"""Input that is cancelled, refused or rolled back: settled once, and by whoever was quicker."""

import asyncio

import pytest

from tenuto.errors import ClaimLost
from tenuto.model.input import Cancelled, Consume, InputStatus
from tenuto.store.store import Store
from tenuto.testing.checks import unchanged
from tenuto.testing.factories import a_key, a_save, a_session, a_turn, an_owner
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement
from tenuto.testing.scenes.inbox_scene import AFTER, a_live_run, a_message, an_ending, ids_of, input_of, send


async def test_cancelling_tells_for_each_id_what_became_of_it(store: Store) -> None:
    """Open ones are cancelled, a consumed one stays consumed, the rest is named."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    opened, consumed, cancelled = await send(store, key, a_message("a"), a_message("b"), a_message("c"))
    (theirs,) = await send(store, other, a_message("d"))
    await store.commit(a_turn(key, lane, consume=(Consume(input_id=consumed.input_id),)))
    await store.inbox.cancel(key, [cancelled.input_id])
    before = await input_of(store, consumed.input_id)
    ids = [opened.input_id, consumed.input_id, cancelled.input_id, theirs.input_id, "nobody", opened.input_id]
    assert await store.inbox.cancel(key, ids) == {
        opened.input_id: Cancelled.CANCELLED,
        consumed.input_id: Cancelled.CONSUMED,
        cancelled.input_id: Cancelled.ALREADY,
        theirs.input_id: Cancelled.UNKNOWN,
        "nobody": Cancelled.UNKNOWN,
    }
    gone = await input_of(store, opened.input_id)
    assert (gone.status, gone.has_body, gone.settled_at is not None) == (InputStatus.CANCELLED, False, True)
    assert await input_of(store, consumed.input_id) == before
    assert (await input_of(store, theirs.input_id)).status == InputStatus.OPEN
    async with unchanged(store):
        assert set((await store.inbox.cancel(key, ids)).values()) == {
            Cancelled.ALREADY,
            Cancelled.CONSUMED,
            Cancelled.UNKNOWN,
        }


async def test_a_cancel_against_a_claim_ends_in_exactly_one_of_the_two(harness: Harness) -> None:
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    sent = await send(stores[0], key, *(a_message(str(n)) for n in range(8)))

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
        assert (await input_of(stores[0], each.input_id)).status == wanted


async def test_a_rollback_marks_what_the_run_consumed(store: Store) -> None:
    """The row stays consumed and says that it was taken back; input of other runs does not."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    one, two, opened = await send(store, key, a_message("1"), a_message("2"), a_message("3"))
    kept = a_turn(key, lane, "1", consume=(Consume(input_id=one.input_id),))
    undone = a_turn(key, lane, "2", consume=(Consume(input_id=two.input_id),), inputs=(a_message("2b"),))
    await store.commit(kept)
    receipt = await store.commit(undone)
    assert undone.run is not None
    await store.commit(a_save(key, generation=lane.generation, rolls_back=undone.run.run_id))
    found = [await input_of(store, each) for each in (one.input_id, two.input_id, *receipt.input_ids, opened.input_id)]
    assert [each.rolled_back for each in found] == [False, True, True, False]
    runs = {run.run_id: run.rolled_back for run in await store.runs.of_session(key)}
    assert [run_id for run_id, rolled_back in runs.items() if rolled_back] == [undone.run.run_id]
    assert len(runs) > 1
    assert [each.status for each in found] == ["consumed", "consumed", "consumed", "open"]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_the_inbox_leaves_no_trace(store: Store) -> None:
    """Tried on an enqueue for a run, a commit that consumes and ends, and a cancel."""
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    sent, failed = await fail_at_each_statement(
        store, lambda: store.inbox.enqueue(key, a_message("a", key="k", boundary=AFTER))
    )
    assert {"take_number", "insert_events", "insert_inputs", "hold_runs"} <= set(failed)
    (other,) = await send(store, key, a_message("b"))
    _, failed = await fail_at_each_statement(store, lambda: store.inbox.cancel(key, [other.input_id]))
    assert "cancel_inputs" in failed
    ending = an_ending(
        key, lane, run, consume=(Consume(input_id=sent.input.input_id),), inputs=(a_message("c"),), rolls_back="r"
    )
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(ending))
    assert not receipt.replayed
    assert {"insert_inputs", "consume_inputs", "end_inputs", "roll_back_inputs"} <= set(failed)


@needs(Capability.PROBES)
async def test_a_refused_input_is_settled_once_with_its_reason(harness: Harness) -> None:
    """It keeps its place, its key and the reason; nothing can take it, and whoever was quicker wins."""
    store = await harness.open()
    key, _ = await a_session(store)
    bad, behind, gone = await send(store, key, a_message("a", key="k"), a_message("b"), a_message("c"))
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
    assert (told.type, told.data) == ("input_refused", {"input_id": bad.input_id, "kind": "message", "error": reason})
    found = await input_of(await harness.open(), bad.input_id)
    assert (found.status, found.error, found.body, found.has_body) == (InputStatus.REFUSED, reason, None, False)
    assert (found.seq, found.input_key, found.digest) == (bad.seq, "k", bad.digest)
    assert found.settled_at is not None
    assert ids_of(await store.inbox.list(key)) == [behind.input_id]
    assert await store.inbox.cancel(key, [bad.input_id]) == {bad.input_id: Cancelled.REFUSED}
    assert (await store.inbox.enqueue(key, a_message("a", key="k"))).input == found
    with pytest.raises(ClaimLost):
        await store.commit(a_save(key, consume=(Consume(input_id=bad.input_id),)))
    await store.upkeep.prune(inputs_older_than=0)
    assert await store.inbox.get(bad.input_id) is None


async def test_input_that_was_meant_for_a_run_can_be_refused(store: Store) -> None:
    """Its end has nothing more to do with it."""
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    (sent,) = await send(store, key, a_message("a", boundary=AFTER))
    assert await store.inbox.refuse(key, sent.input_id, {"category": "no_good"})
    await store.commit(an_ending(key, lane, run))
    found = await input_of(store, sent.input_id)
    assert (found.status, found.error, found.run_id) == (InputStatus.REFUSED, {"category": "no_good"}, None)
