"""Which statements a warm commit runs on our backends: what the write's own guard decides is not read before."""

from tenuto.model.commit import BeginRun
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.run import RunRef
from tenuto.model.token_usage import NewUsage
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_session, a_turn, an_id, an_owner
from tenuto.testing.probes import statements


async def test_a_turn_that_brings_or_takes_its_input_reads_nothing(store: Store) -> None:
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    first = NewInput(kind=InputKind.MESSAGE, body="a", key="k-1", log="messages", item=0)
    await store.commit(a_turn(key, lane, "a", inputs=(first,)))
    queued = (await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body="b"))).input
    await store.events.append(lane, [NewEvent(type="chunk"), NewEvent(type="chunk")])
    with statements(store) as seen:
        await store.commit(a_turn(key, lane, "b", consume=(Consume(input_id=queued.input_id),)))
    assert seen == ["move_session", "insert_entries", "consume_inputs", "insert_runs", "insert_receipts"]
    usage, events = (NewUsage(model="m", output=1),), (NewEvent(type="e"),)
    brings = (NewInput(kind=InputKind.MESSAGE, body="c", key="k-2", log="messages", item=0),)
    with statements(store) as seen:
        await store.commit(a_turn(key, lane, "c", inputs=brings, usage=usage, events=events))
    parts = ["insert_entries", "insert_events", "insert_inputs", "insert_usage", "insert_runs"]
    assert seen == ["move_session", *parts, "insert_receipts"]


async def test_starting_and_finishing_an_effect_reads_nothing(store: Store) -> None:
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    await store.commit(a_commit(key, generation=lane.generation, run=begin))

    async def write(change: StartEffect | FinishEffect) -> None:
        await store.commit(a_commit(key, generation=lane.generation, run=run, effects=(change,)))

    await write(StartEffect(key="first", kind=EffectKind.TOOL, request=1))
    with statements(store) as seen:
        await write(StartEffect(key="pay", kind=EffectKind.TOOL, request=2))
        await write(FinishEffect(key="pay", result=1))
    rest = "insert_receipts"  # the run's row stays as it is
    assert seen == ["move_session", "insert_effects", rest, "move_session", "finish_effects", rest]
