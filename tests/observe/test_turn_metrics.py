"""What is counted and timed of turns."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from tenuto import Turn, program
from tenuto.observe.otel import OTelObserver
from tenuto.testing import FakeClock, memory_runtime
from tests.conftest import OurHarness
from tests.observe.test_turn_spans import agent
from tests.observe.trees import Spans
from tests.runtime.runtimes import Database, Gate, in_memory


def metrics(spans: Spans) -> dict[str, list[Any]]:
    """Return the points of every instrument that has any."""
    data = spans.reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def counted(points: list[Any], *names: str) -> dict[tuple[Any, ...], Any]:
    """Return the sum or, of a histogram, the number of values by these attributes."""
    found: dict[tuple[Any, ...], Any] = {}
    for point in points:
        key = tuple(point.attributes.get(name) for name in names)
        found[key] = found.get(key, 0) + (point.count if hasattr(point, "count") else point.value)
    return found


def sums(points: list[Any], *names: str) -> dict[tuple[Any, ...], Any]:
    return {tuple(point.attributes.get(name) for name in names): point.sum for point in points}


STATUS = ("gen_ai.agent.name", "tenuto.status", "error.type")


async def test_turns_are_counted_and_timed_by_program_status_and_error() -> None:
    spans = Spans()

    @program
    async def moody(turn: Turn) -> None:
        if turn.text == "fail":
            raise ZeroDivisionError
        if turn.text == "wait":
            await turn.wait("go")

    async with memory_runtime([moody], listeners=[spans.observer]) as runtime:
        session = await runtime.create(moody, session_id="s")
        for text in ("go", "go", "fail", "wait"):
            await session.send(text)
        found = metrics(spans)
    by_status = {
        ("moody", "completed", None): 2,
        ("moody", "failed", "ZeroDivisionError"): 1,
        ("moody", "suspended", None): 1,
    }
    assert counted(found["tenuto.turns"], *STATUS) == by_status
    assert counted(found["tenuto.turn.duration"], *STATUS) == by_status
    assert counted(found["tenuto.turns.active"], "gen_ai.agent.name") == {("moody",): 0}
    assert "tenuto.turn.queue_time" not in found, "nothing was queued"


async def test_a_turn_that_runs_is_active_and_one_that_is_cancelled_is_over() -> None:
    spans, gate = Spans(), Gate()

    @program
    async def holds(turn: Turn) -> None:
        await turn.effect("slow", gate)

    async with memory_runtime(holds, listeners=[spans.observer]) as runtime:
        session = await runtime.create(holds, session_id="s")
        sending = asyncio.create_task(session.send("hi"))
        await gate.reached.wait()
        assert counted(metrics(spans)["tenuto.turns.active"], "gen_ai.agent.name") == {("holds",): 1}
        sending.cancel()
        await asyncio.wait([sending])
        found = metrics(spans)
    assert counted(found["tenuto.turns.active"], "gen_ai.agent.name") == {("holds",): 0}
    assert counted(found["tenuto.turns"], "tenuto.status") == {("cancelled",): 1}
    assert counted(found["tenuto.calls"], "tenuto.call.outcome") == {("cancelled",): 1}


async def test_calls_are_counted_by_kind_tool_and_outcome_and_tokens_by_model() -> None:
    spans = Spans()
    async with memory_runtime(agent, listeners=[spans.observer]) as runtime:
        await (await runtime.create(agent, session_id="s")).send("hi")
    found = metrics(spans)
    names = ("tenuto.call.kind", "gen_ai.tool.name", "tenuto.call.outcome", "error.type")
    by_outcome = {
        ("model", None, "done", None): 2,
        ("tool", "weather", "done", None): 1,
        ("tool", "broken", "failed", "LookupError"): 1,
    }
    assert counted(found["tenuto.calls"], *names) == by_outcome
    assert counted(found["tenuto.call.duration"], *names) == by_outcome
    models = ("gen_ai.operation.name", "gen_ai.request.model")
    assert counted(found["gen_ai.client.operation.duration"], *models) == {("chat", "m"): 2}
    of_tokens = (*models, "gen_ai.response.model", "gen_ai.token.type")
    assert sums(found["gen_ai.client.token.usage"], *of_tokens) == {
        ("chat", "m", "m-2024", "input"): 22,
        ("chat", "m", "m-2024", "output"): 10,
    }
    (durations,) = found["gen_ai.client.operation.duration"]
    assert durations.explicit_bounds[:3] == (0.01, 0.02, 0.04)


async def test_a_replay_is_counted_as_one_and_not_timed_and_repeats_are_counted() -> None:
    spans, left = Spans(), [2]

    async def flaky() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError("busy")
        return "ok"

    @program
    async def asks(turn: Turn) -> None:
        await turn.model(flaky, retries=3, backoff=0)
        await turn.wait("go")

    async with memory_runtime(asks, listeners=[spans.observer]) as runtime:
        outcome = await (await runtime.create(asks, session_id="s")).send("hi")
        await runtime.answer(outcome.waits[0])
    found = metrics(spans)
    assert counted(found["tenuto.calls"], "tenuto.call.kind", "tenuto.call.outcome") == {
        ("model", "done"): 1,
        ("model", "replayed"): 1,
    }
    assert counted(found["tenuto.call.duration"], "tenuto.call.outcome") == {("done",): 1}
    assert counted(found["tenuto.call.repeats"], "tenuto.call.kind") == {("model",): 2}


@pytest.mark.parametrize("answered", [True, False])
async def test_waits_are_counted_when_they_open_and_timed_when_they_are_settled(answered: bool) -> None:
    spans, clock = Spans(), FakeClock()

    @program
    async def asks(turn: Turn) -> None:
        await turn.wait("go", kind="approval", timeout=60)

    async with memory_runtime(asks, listeners=[spans.observer], clock=clock) as runtime:
        outcome = await (await runtime.create(asks, session_id="s")).send("hi")
        assert "tenuto.wait.duration" not in metrics(spans)
        clock.advance(45 if answered else 75)
        if answered:
            await runtime.answer(outcome.waits[0], {"approved": True})
        else:
            await runtime.drain()
        found = metrics(spans)
    assert counted(found["tenuto.waits.opened"], "tenuto.wait.kind") == {("approval",): 1}
    assert sums(found["tenuto.wait.duration"], "tenuto.wait.kind", "tenuto.wait.status") == (
        {("approval", "answered"): 45.0} if answered else {("approval", "expired"): 75.0}
    )


@in_memory
async def test_takeovers_and_the_time_in_the_queue_are_counted(harness: OurHarness) -> None:
    database, gate, spans, held = Database(harness), Gate(), Spans(), [True]

    @program
    async def holds(turn: Turn) -> None:
        if held:
            await gate()

    mine = await database.runtime(holds)
    session = await mine.create(holds, session_id="s")
    task = asyncio.create_task(session.send("hi"))
    await gate.reached.wait()
    await session.enqueue("later")
    await database.lose(mine, task)
    held.clear()
    await (await database.runtime(holds, listeners=[spans.observer])).drain()
    found = metrics(spans)
    assert counted(found["tenuto.takeovers"], "gen_ai.agent.name") == {("holds",): 1}
    assert sums(found["tenuto.turn.queue_time"], "gen_ai.agent.name") == {("holds",): pytest.approx(60.0)}
    assert counted(found["tenuto.turns"], "tenuto.status") == {("completed",): 2}


@in_memory
async def test_a_run_with_which_too_many_runners_were_lost_is_counted_as_failed(harness: OurHarness) -> None:
    database, gate, spans = Database(harness), Gate(), Spans()

    @program
    async def kills(turn: Turn) -> None:
        await gate()

    mine = await database.runtime(kills)
    task: asyncio.Task[Any] = asyncio.create_task((await mine.create(kills, session_id="s")).send("hi"))
    for runners in (2, 3):
        await gate.reached.wait()
        await database.lose(mine, task)
        gate.reached.clear()
        mine = await database.runtime(kills, listeners=[spans.observer] if runners == 3 else [])
        task = asyncio.create_task(mine.drain())
    await gate.reached.wait()
    await database.lose(mine, task)
    last = Spans()
    await (await database.runtime(kills, listeners=[last.observer])).drain()
    assert counted(metrics(last)["tenuto.turns"], *STATUS) == {(None, "failed", "run_abandoned"): 1}
    assert counted(metrics(spans)["tenuto.turns"], "tenuto.status") == {("cancelled",): 1}


async def test_no_attribute_of_a_metric_is_an_id() -> None:
    spans = Spans()
    async with memory_runtime(agent, listeners=[spans.observer]) as runtime:
        session = await runtime.create(agent, session_id="s-1")
        outcome = await session.send("hi")
    for points in metrics(spans).values():
        for point in points:
            assert not {"s-1", outcome.run_id, outcome.input_id, "c-1"} & set(map(str, point.attributes.values()))


async def test_without_a_reader_nothing_is_kept() -> None:
    observer = OTelObserver(meter_provider=MeterProvider())
    async with memory_runtime(agent, listeners=[observer]) as runtime:
        assert (await (await runtime.create(agent, session_id="s")).send("hi")).completed
