"""Suspending and resuming in a plain line of nodes: what is told, what is written, who may answer."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, InvocationSuspended, LateAnswer, NotJson, StoreUnavailable
from tenuto.graph import END, GraphBuilder, SignalDescriptor, suspend
from tenuto.graph.engine.scope import current_correlation_id, current_invocation_id, current_session_id
from tenuto.graph.engine.suspend import callback_for
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.middleware import FailureIsolation, Retry
from tenuto.graph.signal import Callback
from tenuto.model.wait import WaitStatus
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness
from tests.graph.conftest import FaultyStore
from tests.graph.talking import Ran, Talk, ended, fails, gate, held, line, nothing, resumed, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])
INVALID = "failed: suspension_record_invalid"


async def test_the_outcome_says_where_it_stands_and_what_it_waits_for(store: Store) -> None:
    graph = line(says("asked"), gate("approval"), says("end"), store=store)
    out = await graph.run({"messages": ["hi"]}, session_id="s", correlation_id="c")
    assert (out.status, out.suspended, out.completed, out.error) == ("suspended", True, False, None)
    assert out.descriptor == SignalDescriptor("approval", {"asks": "approval"})
    assert (out.node_name, out.namespace) == ("n1", ("n1",))
    assert (out.session_id, out.session_existed, out.correlation_id) == ("s", False, "c")
    assert out.state is not None
    assert out.entry_state is not None
    assert (out.entry_state.messages, out.state.messages) == (["hi"], ["hi", "asked"])
    (wait,) = await graph.waiting()
    assert out.wait == wait
    assert (wait.signal_id, wait.metadata, wait.deadline) == ("approval", {"asks": "approval"}, None)
    with pytest.raises(InvocationSuspended, match=wait.wait_id) as raised:
        out.result()
    assert raised.value.outcome is out
    with pytest.raises(InvocationSuspended) as raised:
        await graph.invoke(session_id="t")
    assert raised.value.outcome.suspended


@CHECKPOINTS
@pytest.mark.parametrize("session_id", [None, "s"])
async def test_a_resume_goes_on_after_the_node_under_the_same_ids(
    store: Store, checkpoints: bool, session_id: str | None
) -> None:
    seen: list[Any] = []

    async def look(state: Any) -> Mapping[str, Any]:
        seen.append((current_invocation_id(), current_correlation_id(), current_session_id()))
        return {"messages": [f"{state.mood} and {state.scratch}"]}

    ran = Ran()
    keep = store if checkpoints else None
    graph = line(ran.node("n0", says("asked", scratch="scribble")), gate(), look, store=store, checkpoints=keep)
    paused = await graph.run(session_id=session_id)
    out = await resumed(graph, paused, mood="glad")
    assert (ended(out), ran.nodes, out.invocation_id) == ("completed", ["n0"], paused.invocation_id)
    assert seen == [(paused.invocation_id, paused.correlation_id, session_id)]
    assert out.state is not None
    assert out.state.messages == ["asked", "glad and scribble"]
    runs = await store.runs.of_invocation(paused.invocation_id)
    assert [run.status for run in runs] == ["suspended", "completed"]
    if session_id:
        assert (await held(store))["messages"] == out.state.messages


async def test_a_payload_replaces_a_log_past_its_reducer(store: Store) -> None:
    graph = line(says("a", "b"), gate(), says("end"), store=store)
    out = await resumed(graph, await graph.run(session_id="s"), messages=["only"])
    assert out.state is not None
    assert out.state.messages == (await held(store))["messages"] == ["only", "end"]


async def test_the_edge_after_the_gate_sees_the_payload(store: Store) -> None:
    ran = Ran()
    graph = (
        GraphBuilder(Talk)
        .add_node("gate", gate())
        .add_node("yes", ran.node("yes"))
        .add_node("no", ran.node("no"))
        .add_conditional_edge("gate", lambda state: "yes" if state.mood == "glad" else "no")
        .add_edge("yes", END)
        .add_edge("no", END)
        .set_entry("gate")
        .with_session_store(store)
        .compile()
    )
    await resumed(graph, await graph.run(session_id="s"), mood="glad")
    await resumed(graph, await graph.run(session_id="t"))
    assert ran.nodes == ["yes", "no"]


@CHECKPOINTS
async def test_a_node_that_is_not_completed_runs_again_and_sees_the_payload(store: Store, checkpoints: bool) -> None:
    ran = Ran()

    async def ask(state: Any) -> Mapping[str, Any]:
        if state.mood == "calm":
            await suspend(SignalDescriptor("mood"), mark_node_completed=False)
        return {"messages": [f"you are {state.mood}"]}

    keep = store if checkpoints else None
    graph = line(ran.node("n0"), ran.node("n1", ask), store=store, checkpoints=keep)
    paused = await graph.run(session_id="s")
    again = await resumed(graph, paused)
    assert again.suspended
    out = await resumed(graph, again, mood="glad")
    assert (ended(out), ran.nodes) == ("completed", ["n0", "n1", "n1", "n1"])
    assert (await held(store))["messages"] == ["you are glad"]


@CHECKPOINTS
async def test_an_invocation_may_suspend_again_and_keeps_its_steps_and_entries(store: Store, checkpoints: bool) -> None:
    events: list[NodeEvent] = []

    async def observe(event: Any) -> None:
        if isinstance(event, NodeEvent):
            events.append(event)

    keep = store if checkpoints else None
    graph = line(says("a"), gate("one"), says("b"), gate("two"), says("c"), store=store, checkpoints=keep)
    graph.attach_observer(observe)
    first = await graph.run(session_id="s")
    second = await resumed(graph, first)
    assert (second.descriptor and second.descriptor.signal_id, second.node_name) == ("two", "n3")
    assert ended(await resumed(graph, second)) == "completed"
    await graph.drain()
    assert (await held(store))["messages"] == ["a", "b", "c"]
    told = [(event.step, event.node_name, str(event.phase)) for event in events]
    assert told == [
        (0, "n0", "started"),
        (0, "n0", "completed"),
        (1, "n1", "started"),
        (1, "n1", "suspended"),
        (2, "n2", "started"),
        (2, "n2", "completed"),
        (3, "n3", "started"),
        (3, "n3", "suspended"),
        (4, "n4", "started"),
        (4, "n4", "completed"),
    ]
    (suspended, _) = [event for event in events if event.phase == "suspended"]
    assert (suspended.descriptor, suspended.post_state, suspended.error) == (first.descriptor, None, None)


async def test_a_suspension_in_a_loop_goes_on_with_the_loop(store: Store) -> None:
    graph = (
        GraphBuilder(Talk)
        .add_node("gate", gate())
        .add_node("count", _counts)
        .add_edge("gate", "count")
        .add_conditional_edge("count", lambda state: END if state.count == 3 else "gate")
        .set_entry("gate")
        .with_session_store(store)
        .compile()
    )
    out = await graph.run(session_id="s")
    for number in range(3):
        assert out.suspended
        out = await resumed(graph, out, mood=f"m{number}")
    assert ended(out) == "completed"
    assert (await held(store))["messages"] == ["m0", "m1", "m2"]


async def _counts(state: Any) -> Mapping[str, Any]:
    return {"count": state.count + 1, "messages": [state.mood]}


async def test_retries_and_failure_isolation_do_not_take_a_suspension_for_a_failure(store: Store) -> None:
    tries: list[str] = []

    async def ask(_: Any) -> Mapping[str, Any]:
        tries.append("try")
        await suspend(SignalDescriptor("go"))

    isolation = FailureIsolation({"messages": ["degraded"]}, "isolated")
    again = Retry(max_attempts=3, classifier=lambda *_: True, backoff=lambda _: 0.0)
    graph = (
        GraphBuilder(Talk)
        .add_node("ask", ask, middleware=[isolation, again])
        .add_edge("ask", END)
        .set_entry("ask")
        .with_session_store(store)
        .compile()
    )
    out = await graph.run(session_id="s")
    assert (ended(out), tries) == ("suspended", ["try"])


async def test_a_second_attempt_may_suspend_and_each_attempt_has_one_ending(store: Store) -> None:
    events: list[Any] = []

    async def observe(event: Any) -> None:
        if isinstance(event, NodeEvent):
            events.append((event.attempt_index, str(event.phase)))

    tries: list[str] = []

    async def ask(_: Any) -> Mapping[str, Any]:
        tries.append("try")
        if len(tries) == 1:
            raise ValueError
        await suspend(SignalDescriptor("go"))

    graph = (
        GraphBuilder(Talk)
        .add_node("ask", ask, middleware=[Retry(classifier=lambda *_: True, backoff=lambda _: 0.0)])
        .add_edge("ask", END)
        .set_entry("ask")
        .with_session_store(store)
        .compile()
    )
    assert (await graph.run(session_id="s", observers=[observe])).suspended
    await graph.drain()
    assert events == [(0, "started"), (0, "completed"), (1, "started"), (1, "suspended")]


async def test_a_node_can_read_what_the_outside_needs_to_answer(store: Store) -> None:
    seen: list[Any] = []

    async def ask(_: Any) -> Mapping[str, Any]:
        seen.append((current_invocation_id(), callback_for("go")))
        await suspend(SignalDescriptor("go"))

    def made(invocation_id: str, signal_id: str) -> Callback:
        return Callback(url=f"https://door/{invocation_id}/{signal_id}", token="secret")

    graph = line(ask, store=store)
    out = await graph.run(session_id="s", callbacks=made)
    bare = await graph.run(session_id="t")
    door = Callback(url=f"https://door/{out.invocation_id}/go", token="secret")
    assert seen == [(out.invocation_id, door), (bare.invocation_id, None)]
    assert callback_for("go") is None
    assert "secret" not in str(await store.dump())


@pytest.mark.parametrize("limit", [60.0, timedelta(minutes=1)])
async def test_an_answer_after_the_deadline_is_refused_and_one_before_it_is_taken(
    harness: OurHarness, limit: float | timedelta
) -> None:
    clock = FakeClock()
    store = await harness.open(clock=clock)
    ran = Ran()
    graph = line(gate(timeout=limit), ran.node("end"), store=store)
    late, early = await graph.run(session_id="s"), await graph.run(session_id="t")
    assert await graph.waiting() == (late.wait, early.wait)
    assert late.wait is not None
    assert late.wait.deadline == late.wait.created_at + timedelta(seconds=60)
    clock.advance(59.0)
    assert ended(await resumed(graph, early)) == "completed"
    clock.advance(1.0)
    assert await graph.waiting() == ()
    refused = await resumed(graph, late)
    assert (ended(refused), ran.nodes) == (INVALID, ["end"])
    assert f"until {late.wait.deadline:%Y-%m-%d %H:%M:%S} UTC, and is over" in str(refused.error)
    with pytest.raises(LateAnswer, match="and is over"):
        await graph.resume(late.wait, {})
    stored = await store.waits.get(late.wait.wait_id)
    assert stored is not None
    assert stored.status is WaitStatus.EXPIRED
    assert ended(await line(says("next"), store=store, concurrency="exclusive", lane_wait=0.0).run(session_id="s")) == (
        "completed"
    )


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_timeout_that_makes_no_sense_is_refused_at_the_call(store: Store, seconds: float) -> None:
    out = await line(gate(timeout=seconds), store=store).run(session_id="s")
    assert ended(out) == "failed: node_exception"
    assert isinstance(out.error.__cause__ if out.error else None, InvalidInput)


@pytest.mark.parametrize("seconds", [3600.0, 30 * 86400.0])
async def test_an_answer_may_take_days(store: Store, seconds: float) -> None:
    graph = line(gate(timeout=seconds), store=store)
    assert ended(await graph.run(session_id="s")) == "suspended"
    (wait,) = await graph.waiting()
    assert wait.deadline is not None
    assert (wait.deadline - wait.created_at).total_seconds() == seconds


async def test_a_descriptor_is_plain_data_with_an_id() -> None:
    with pytest.raises(InvalidInput):
        SignalDescriptor("")
    with pytest.raises((NotJson, ValueError)):
        SignalDescriptor("go", {"what": object()})


async def test_a_cancelled_pause_cannot_be_resumed_or_cancelled_again(store: Store) -> None:
    graph = line(gate(), nothing, store=store)
    paused = await graph.run(session_id="s")
    await graph.cancel(paused.invocation_id)
    assert await graph.waiting() == ()
    assert ended(await resumed(graph, paused)) == INVALID
    for unknown in (paused.invocation_id, "never"):
        with pytest.raises(Exception, match=unknown) as raised:
            await graph.cancel(unknown)
        assert getattr(raised.value, "category", "") == "suspension_record_invalid"


async def test_what_waits_is_listed_by_tenant_in_order_and_in_pages(store: Store) -> None:
    graph = line(gate("one"), store=store)
    mine = graph.bind(store, tenant="a")
    waits = [(await mine.run(session_id=f"s{n}")).wait for n in range(3)]
    await graph.bind(store, tenant="b").run(session_id="s")
    assert await mine.waiting() == tuple(waits)
    page = await mine.waiting(limit=2)
    rest = await mine.waiting(limit=2, after=page.next)
    assert [*page, *rest] == waits
    with pytest.raises(InvalidInput):
        await line(nothing).waiting()


async def test_only_an_invocation_that_is_suspended_now_can_be_answered(store: Store) -> None:
    ran = Ran()
    graph = line(gate(), ran.node("end"), store=store)
    done = await line(says("hi"), store=store).run(session_id="s")
    failed = await line(fails, store=store).run(session_id="s")
    mine = graph.bind(store, tenant="a")
    paused = await mine.run(session_id="t")
    for invocation_id in (done.invocation_id, failed.invocation_id, "never", paused.invocation_id):
        assert ended(await graph.run(resume_invocation=invocation_id, signal_payload={})) == INVALID
    assert ran.nodes == []
    once = await mine.run(resume_invocation=paused.invocation_id, signal_payload={})
    assert ended(once) == "completed"
    twice = await mine.run(resume_invocation=paused.invocation_id, signal_payload={})
    assert (ended(twice), ran.nodes) == (INVALID, ["end"])


@pytest.mark.parametrize("payload", [{"count": "many"}, {"count": object()}, {"messages": ("a",)}])
async def test_an_invalid_payload_changes_nothing_and_a_good_one_works_afterwards(store: Store, payload: Any) -> None:
    graph = line(gate(), says("end"), store=store)
    paused = await graph.run(session_id="s")
    before = await store.dump()
    out = await resumed(graph, paused, **payload)
    assert ended(out) == "failed: suspension_resume_payload_invalid"
    assert await store.dump() == before
    assert ended(await resumed(graph, paused, count=3)) == "completed"
    assert (await held(store))["count"] == 3


async def test_a_checkpoint_resume_of_a_suspended_invocation_fails_and_leaves_it(store: Store) -> None:
    graph = line(says("a"), gate(), says("end"), store=store, checkpoints=store)
    paused = await graph.run(session_id="s")
    assert ended(await graph.run(resume_invocation=paused.invocation_id)) == "failed: checkpoint_not_found"
    assert ended(await resumed(graph, paused)) == "completed"


async def test_options_that_do_not_go_together_are_refused(store: Store) -> None:
    graph = line(gate(), nothing, store=store)
    paused = await graph.run(session_id="s")
    resume: dict[str, Any] = {"resume_invocation": paused.invocation_id}
    refused: list[dict[str, Any]] = [{"signal_payload": {}}, {"on_moved": "rebase"}, {**resume, "signal_payload": None}]
    for options in refused:
        with pytest.raises(InvalidInput):
            await graph.run(**options)
    with pytest.raises(InvalidInput, match="on_moved"):
        await graph.run(**resume, signal_payload={}, on_moved="guess")  # type: ignore[arg-type]
    other = await graph.run(**resume, signal_payload={}, session_id="other")
    assert ended(other) == "failed: invalid_input"
    assert ended(await graph.run(**resume, signal_payload={}, session_id="s")) == "completed"


async def test_without_a_store_a_suspension_fails() -> None:
    assert ended(await line(gate()).run()) == "failed: suspension_persistence_failed"
    assert ended(await line(gate()).run(session_id="s")) == "failed: suspension_persistence_failed"


@CHECKPOINTS
async def test_a_pause_that_cannot_be_written_leaves_nothing_to_resume(faulty: FaultyStore, checkpoints: bool) -> None:
    async def ask(_: Any) -> Mapping[str, Any]:
        faulty.faults.fail_call()
        await suspend(SignalDescriptor("go"))

    graph = line(says("a"), ask, store=faulty, checkpoints=faulty if checkpoints else None)
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: suspension_persistence_failed"
    assert isinstance(out.error.__cause__ if out.error else None, StoreUnavailable)
    assert (await graph.waiting(), await faulty.load("s")) == ((), None)
    (run,) = await faulty.runs.of_invocation(out.invocation_id)
    assert run.status == "failed"
    assert ended(await graph.run(resume_invocation=out.invocation_id, signal_payload={})) == INVALID


async def test_a_pause_whose_reply_was_lost_is_a_pause(faulty: FaultyStore) -> None:
    async def ask(_: Any) -> Mapping[str, Any]:
        faulty.faults.lose_reply()
        await suspend(SignalDescriptor("go"))

    graph = line(says("a"), ask, says("end"), store=faulty)
    out = await graph.run(session_id="s")
    assert (ended(out), await graph.waiting()) == ("suspended", (out.wait,))
    assert ended(await resumed(graph, out)) == "completed"
    assert (await held(faulty))["messages"] == ["a", "end"]


async def test_a_claim_whose_reply_was_lost_is_taken_up_by_the_same_answer(faulty: FaultyStore) -> None:
    ran = Ran()
    graph = line(gate(), ran.node("end", says("end")), store=faulty)
    paused = await graph.run(session_id="s")
    faulty.faults.lose_reply(2)  # after the lane
    out = await resumed(graph, paused, mood="glad")
    assert (ended(out), ran.nodes) == ("failed: store_unavailable", [])
    assert ended(await resumed(graph, paused, mood="other")) == INVALID
    assert (ended(await resumed(graph, paused, mood="glad")), ran.nodes) == ("completed", ["end"])
    assert (await held(faulty))["mood"] == "glad"
