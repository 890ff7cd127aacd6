"""Taking input: each is consumed exactly once, by the run and at the boundary it is meant for."""

import asyncio
from dataclasses import replace

import pytest

from tenuto.errors import ClaimLost, InvalidInput, LaneLost, RunNotLive
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Reset, TakeRun
from tenuto.model.input import Consume, InputKind, InputStatus, NewInput, Nothing
from tenuto.model.run import RunRef, RunStatus
from tenuto.store.store import Store
from tenuto.testing.checks import damaged, not_refused, outcomes, unchanged
from tenuto.testing.factories import a_commit, a_save, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements
from tenuto.testing.scenes.inbox_scene import (
    AFTER,
    BEFORE,
    LATER,
    a_command,
    a_live_run,
    a_message,
    an_ending,
    ids_of,
    input_of,
    send,
)


async def test_consumed_input_names_its_run_and_its_entry(harness: Harness) -> None:
    """By position in the log, whichever item of an append or a reset it is; also after gc and reopen."""
    store = await harness.open()
    key, _ = await a_session(store, None, "x", "y")
    lane = await store.lanes.acquire(key, an_owner())
    one, two, three = await send(store, key, a_message("1"), a_message("2"), a_message("3"))
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
    found = [await input_of(reopened, each.input_id) for each in (one, two, three)]
    assert [(each.run_id, each.log, each.position) for each in found] == [
        (commit.run.run_id, "messages", 3),
        (commit.run.run_id, "messages", 4),
        (None, "messages", 1),
    ]
    assert all(each.status == InputStatus.CONSUMED and each.settled_at for each in found)


async def test_the_entry_of_input_consumed_on_a_runs_own_branch_keeps_its_position(store: Store) -> None:
    """A checkpoint writes there first, and the save takes it onto the head at the same place."""
    key, _ = await a_session(store, None, "x")
    lane, run = await a_live_run(store, key)
    (sent,) = await send(store, key, a_message("steer", boundary=AFTER))
    claim = Consume(input_id=sent.input_id, log="messages", item=1)
    logs = {"messages": Append(items=("step", "steer"))}
    await store.commit(a_commit(key, generation=lane.generation, run=run, logs=logs, consume=(claim,)))
    await store.commit(replace(an_ending(key, lane, run), save=True))
    found = await input_of(store, sent.input_id)
    assert found.position == 2
    entries = await store.logs.read(key, "messages")
    assert entries[found.position].value == "steer"


async def test_a_claim_that_is_not_open_refuses_the_whole_commit(store: Store) -> None:
    """Cancelled, consumed, of another session, unknown, or named twice; nothing changes."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    opened, cancelled, consumed = await send(store, key, a_message("a"), a_message("b"), a_message("c"))
    (theirs,) = await send(store, other, a_message("d"))
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
    assert (await input_of(store, opened.input_id)).status == InputStatus.CONSUMED
    assert receipt.input_ids == ()


async def test_the_generation_is_checked_before_the_claims(harness: Harness) -> None:
    """A displaced runner claims nothing, even before his successor touched the row; the successor can."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    (sent,) = await send(store, key, a_message("a", boundary=AFTER))
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
    found = await input_of(store, sent.input_id)
    assert (found.status, found.run_id) == (InputStatus.CONSUMED, run.run_id)


async def test_of_many_claims_of_one_row_one_gets_it(harness: Harness) -> None:
    """They come from two stores, without a lane to order them."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    (sent,) = await send(stores[0], key, a_message("a"))
    claim = (Consume(input_id=sent.input_id, log="messages", item=0),)
    landed, lost = await outcomes(*(stores[n % 2].commit(a_save(key, n, consume=claim)) for n in range(6)))
    assert len(landed) == 1
    assert all(isinstance(error, ClaimLost) for error in lost)
    assert len(await stores[0].logs.read(key, "messages")) == 1


@needs(Capability.PROBES)
async def test_inbox_parts_that_make_no_sense_are_refused_before_any_statement(store: Store) -> None:
    key, _ = await a_session(store)
    commits = {
        "entry without item": a_save(key, "m", consume=(Consume(input_id="i", log="messages"),)),
        "item without log": a_save(key, "m", consume=(Consume(input_id="i", item=0),)),
        "item beyond": a_save(key, "m", consume=(Consume(input_id="i", log="messages", item=1),)),
        "log not written": a_save(key, "m", inputs=(a_message("a", log="notes", item=0),)),
        "negative item": a_save(key, "m", inputs=(a_message("a", log="messages", item=-1),)),
        "boundary": a_save(key, "m", inputs=(a_message("a", boundary=AFTER),)),
        "due": a_save(key, "m", inputs=(a_message("a", due_at=LATER),)),
        "empty id": a_save(key, "m", consume=(Consume(input_id=""),)),
        "empty run": a_save(key, "m", rolls_back=""),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in commits.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []


async def test_the_end_of_a_run_leaves_what_was_meant_for_it_to_the_next_turn_and_drops_bodies(store: Store) -> None:
    """In the same commit, whatever the end; other rows, and cancelled ones, do not change."""
    key, _ = await a_session(store)
    for status in (RunStatus.COMPLETED, RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.SUSPENDED):
        lane, run = await a_live_run(store, key)
        steered, left, cancelled, later = await send(
            store,
            key,
            a_message("1", boundary=AFTER),
            a_message("2", boundary=BEFORE),
            a_message("3", boundary=AFTER),
            a_message("4"),
        )
        await store.inbox.cancel(key, [cancelled.input_id])
        before = [await input_of(store, each.input_id) for each in (cancelled, later)]
        claim = (Consume(input_id=steered.input_id),)
        await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claim))
        assert (await input_of(store, steered.input_id)).body == {"text": "1"}
        assert (await store.inbox.next(key)).inputs[0].input_id == later.input_id
        await store.commit(an_ending(key, lane, run, status, disarm=True))
        settled, moved = await input_of(store, steered.input_id), await input_of(store, left.input_id)
        assert (settled.run_id, settled.boundary, settled.has_body) == (run.run_id, AFTER, False)
        assert (moved.status, moved.run_id, moved.boundary) == (InputStatus.OPEN, None, None)
        assert (moved.body, moved.seq) == ({"text": "2"}, left.seq)
        assert [await input_of(store, each.input_id) for each in (cancelled, later)] == before
        assert (await store.inbox.next(key)).inputs[0].input_id == left.input_id
        await store.inbox.cancel(key, [left.input_id, later.input_id])


async def test_input_consumed_by_the_commit_that_ends_the_run_is_settled_once(store: Store) -> None:
    """One row is claimed in the very commit whose end looks after the others."""
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    last, left = await send(store, key, a_message("1", boundary=BEFORE), a_message("2", boundary=BEFORE))
    await store.commit(an_ending(key, lane, run, consume=(Consume(input_id=last.input_id),)))
    found, moved = await input_of(store, last.input_id), await input_of(store, left.input_id)
    assert (found.status, found.run_id, found.has_body) == (InputStatus.CONSUMED, run.run_id, False)
    assert (moved.status, moved.run_id, moved.boundary, moved.has_body) == (InputStatus.OPEN, None, None, True)


async def test_a_takeover_keeps_the_runs_input(harness: Harness) -> None:
    """It is still meant for the same run, and goes to the next one when that run is abandoned."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    _, run = await a_live_run(store, key)
    (sent,) = await send(store, key, a_message("1", boundary=AFTER))
    clock.advance(60)
    lane = await store.lanes.acquire(key, an_owner("worker-2"))
    await store.commit(a_commit(key, generation=lane.generation, run=TakeRun(run_id=run.run_id, attempt=1)))
    assert ids_of((await store.inbox.next(key, boundary=AFTER)).inputs) == [sent.input_id]
    again = RunRef(run_id=run.run_id, attempt=2)
    await store.commit(an_ending(key, lane, again, RunStatus.FAILED))
    assert (await store.inbox.next(key)).inputs[0].input_id == sent.input_id


async def test_input_for_a_boundary_is_bound_to_the_live_run_or_else_for_the_next_turn(store: Store) -> None:
    """Without a live run, or once it has ended, it is for the next turn. A run of another session is refused."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    (early,) = await send(store, key, a_message("0", boundary=AFTER))
    assert (early.run_id, early.boundary) == (None, None)
    lane, run = await a_live_run(store, key)
    _, theirs = await a_live_run(store, other)
    bound, named = await send(
        store, key, a_message("1", boundary=AFTER), a_message("2", boundary=BEFORE, run_id=run.run_id)
    )
    assert [(each.run_id, each.boundary) for each in (bound, named)] == [(run.run_id, AFTER), (run.run_id, BEFORE)]
    async with unchanged(store):
        for unknown in (theirs.run_id, "nobody"):
            with pytest.raises(RunNotLive):
                await store.inbox.enqueue(key, a_message("3", boundary=AFTER, run_id=unknown))
    await store.commit(an_ending(key, lane, run))
    late = await send(store, key, a_message("4", boundary=AFTER), a_message("5", boundary=AFTER, run_id=run.run_id))
    assert [(each.run_id, each.boundary) for each in late] == [(None, None)] * 2


async def test_an_end_that_races_with_input_for_the_run_strands_none(harness: Harness) -> None:
    """Whichever comes first, no open row is left behind for a run that has ended."""
    stores = [await harness.open(), await harness.open()]
    key, _ = await a_session(stores[0])
    for _ in range(10):
        lane, run = await a_live_run(stores[0], key)
        new = a_message("s", boundary=AFTER)
        sent, _ = await asyncio.gather(
            stores[1].inbox.enqueue(key, new), stores[0].commit(an_ending(key, lane, run, disarm=True))
        )
        found = await input_of(stores[0], sent.input.input_id)
        assert (found.status, found.run_id, found.boundary) == (InputStatus.OPEN, None, None)


async def test_between_turns_the_oldest_due_input_is_taken_one_at_a_time(store: Store) -> None:
    """Commands are never skipped and never pass older messages."""
    key, _ = await a_session(store)
    sent = await send(store, key, a_message("a"), a_command("b"), a_command("c"), a_message("d"))
    taken = []
    for _ in sent:
        may = await store.inbox.next(key)
        assert may.reason is None
        (each,) = may.inputs
        taken.append(each.input_id)
        await store.commit(a_commit(key, consume=(Consume(input_id=each.input_id),)))
    assert taken == ids_of(sent)
    assert (await store.inbox.next(key)).reason is Nothing.EMPTY


@needs(Capability.DAMAGE_SQL)
async def test_at_equal_age_a_command_goes_before_a_message(harness: Harness) -> None:
    """The order of the listing and of what is taken is the same."""
    store = await harness.open()
    key, _ = await a_session(store)
    _, command = await send(store, key, a_message("a"), a_command("b"))
    store = await damaged(harness, store, "UPDATE input SET seq = 1")
    assert (await store.inbox.list(key))[0].input_id == command.input_id
    assert (await store.inbox.next(key)).inputs[0].input_id == command.input_id


async def test_a_boundary_takes_what_is_meant_for_it_and_nothing_else(store: Store) -> None:
    """Input for another boundary or the next turn holds nothing back, and both ways of asking agree."""
    key, _ = await a_session(store)
    lane, run = await a_live_run(store, key)
    turn, completing, step, second = await send(
        store,
        key,
        a_message("turn"),
        a_message("completing", boundary=BEFORE),
        a_message("step", boundary=AFTER),
        NewInput(kind=InputKind.WAKE, body=None, boundary=AFTER),
    )
    assert ids_of((await store.inbox.next(key, boundary=AFTER)).inputs) == ids_of([step, second])
    assert ids_of((await store.inbox.next(key, boundary=AFTER, limit=1)).inputs) == ids_of([step])
    assert ids_of((await store.inbox.next(key, boundary=BEFORE)).inputs) == ids_of([completing])
    assert ids_of((await store.inbox.next(key, boundary=AFTER, run_id=run.run_id)).inputs) == ids_of([step, second])
    assert (await store.inbox.next(key, boundary=AFTER, run_id="another")).reason is Nothing.NOT_HERE
    assert ids_of((await store.inbox.next(key)).inputs) == [turn.input_id]
    claims = tuple(Consume(input_id=each.input_id) for each in (step, second))
    await store.commit(a_commit(key, generation=lane.generation, run=run, consume=claims))
    assert (await store.inbox.next(key, boundary=AFTER)).reason is Nothing.NOT_HERE


async def test_input_for_one_run_is_not_claimed_by_another(store: Store) -> None:
    """The commit's claim follows the same rule as the question."""
    key, _ = await a_session(store)
    await a_live_run(store, key)
    (sent,) = await send(store, key, a_message("a", boundary=AFTER))
    begin = BeginRun(run_id=an_id("run"), invocation_id=new_id())
    async with unchanged(store):
        for run in (None, begin):
            with pytest.raises(ClaimLost, match="meant for run"):
                await store.commit(a_commit(key, run=run, consume=(Consume(input_id=sent.input_id),)))


async def test_a_boundary_takes_nothing_from_behind_an_older_command(store: Store) -> None:
    """The command waits for the turn's end, and what came after it waits with it; the reason names it."""
    key, _ = await a_session(store)
    await a_live_run(store, key)
    before, command, _behind = await send(
        store, key, a_message("a", boundary=AFTER), a_command("clear"), a_message("b", boundary=AFTER)
    )
    assert ids_of((await store.inbox.next(key, boundary=AFTER)).inputs) == [before.input_id]
    await store.inbox.cancel(key, [before.input_id])
    may = await store.inbox.next(key, boundary=AFTER)
    assert (may.inputs, may.reason, may.blocked_by) == ((), Nothing.BLOCKED, command.input_id)


async def test_spent_input_keeps_no_body_while_its_run_is_under_way(store: Store) -> None:
    """Neither what arrives with the commit nor what was queued; beside it, all else keeps its own."""
    key, _ = await a_session(store)
    queued, kept = await send(store, key, a_message("queued"), a_message("kept"))
    claims = (Consume(input_id=queued.input_id, spent=True), Consume(input_id=kept.input_id))
    arrived = (a_message("arrived", spent=True), a_message("arrived and kept"))
    lane, run = await a_live_run(store, key)
    commit = a_commit(key, generation=lane.generation, run=run, consume=claims, inputs=arrived)
    receipt = await store.commit(commit)
    ids = (queued.input_id, kept.input_id, *receipt.input_ids)
    assert [(await input_of(store, each)).has_body for each in ids] == [False, True, False, True]
    await store.commit(an_ending(key, lane, run))
    assert [(await input_of(store, each)).has_body for each in ids] == [False] * 4


async def test_an_input_that_leads_is_the_next_turns_first(harness: Harness) -> None:
    """It arrives with a commit, which does not consume it; older input, commands too, come after it."""
    store = await harness.open()
    key, _ = await a_session(store)
    old, command = await send(store, key, a_message("old"), a_command("c"))
    lane, run = await a_live_run(store, key)
    leading = a_message("follow", leads=True)
    commit = an_ending(key, lane, run, inputs=(leading,))
    receipt = await store.commit(commit)
    (input_id,) = receipt.input_ids
    assert (await store.commit(commit)).input_ids == (input_id,)
    found = await input_of(store, input_id)
    assert (found.status, found.run_id, found.body, found.seq) == (InputStatus.OPEN, None, leading.body, 0)
    assert ids_of(await store.inbox.list(key)) == [input_id, old.input_id, command.input_id]
    assert ids_of(await store.inbox.list(key, after=0)) == [old.input_id, command.input_id]
    assert ids_of((await store.inbox.next(key)).inputs) == [input_id]
    assert (await store.inbox.first(key)) == found
    wrong = (a_message("x", leads=True, spent=True), a_message("x", leads=True, log="messages", item=0))
    async with unchanged(store):
        for each in wrong:
            with pytest.raises(InvalidInput):
                await store.commit(a_save(key, "a", inputs=(each,)))
        with pytest.raises(InvalidInput):
            await store.inbox.enqueue(key, leading)
