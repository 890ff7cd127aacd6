"""Which spans of turns are in one trace, and which link to each other."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from tenuto import SessionRuntime, Turn, program, run_tools
from tenuto.errors import InvalidInput, StoreClosed
from tenuto.model.session import SessionKey
from tenuto.observe.otel import OTelObserver
from tenuto.runtime.turn.invocation import start_point
from tenuto.testing import FakeClock, memory_runtime
from tests.conftest import OurHarness
from tests.observe.trees import Branch, Spans
from tests.runtime.runtimes import Database, Gate, on_disk


@program
async def waits(turn: Turn) -> Any:
    return await turn.wait("go", kind="approval")


@program
async def answers(turn: Turn) -> str:
    turn.append(f"I hear {turn.text}")
    return f"heard {turn.text}"


@program
async def delegates(turn: Turn) -> Any:
    if not turn.open_calls:
        turn.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "name": "answers", "arguments": {"message": "you"}}],
            }
        )
    await run_tools(turn, [answers.as_tool()])
    return "done"


def events(branch: Branch, name: str) -> list[dict[str, Any]]:
    return [dict(event.attributes or {}) for event in branch.span.events if event.name == f"tenuto.{name}"]


def id_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def linked(branch: Branch) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in branch.span.links]


def named(roots: Sequence[Branch], name: str) -> list[Branch]:
    return [each for root in roots for each in root if each.span.name == name]


async def test_a_turn_that_resumes_another_has_its_own_trace_and_links_to_it() -> None:
    spans, clock = Spans(), FakeClock()
    async with memory_runtime(waits, listeners=[spans.observer], clock=clock) as runtime:
        outcome = await (await runtime.create(waits, session_id="s")).send("hi")
        clock.advance(90)
        await runtime.answer(outcome.waits[0], {"approved": True})
    first, second = spans.roots()
    assert id_of(first.span)[0] != id_of(second.span)[0]
    assert (linked(first), linked(second)) == ([], [id_of(first.span)])
    wait_id = outcome.waits[0].wait_id
    about = {"tenuto.wait.id": wait_id, "tenuto.wait.kind": "approval", "tenuto.wait.signal_id": "go"}
    assert events(first, "wait.opened") == [about]
    settled = {**about, "tenuto.wait.status": "answered", "tenuto.wait.open_seconds": 90.0}
    assert (events(first, "wait.settled"), events(second, "wait.settled")) == ([], [settled])


async def test_a_wait_that_expires_is_settled_on_the_turn_that_goes_on() -> None:
    spans, clock = Spans(), FakeClock()

    @program
    async def impatient(turn: Turn) -> str:
        await turn.sleep(30)
        return "slept"

    async with memory_runtime(impatient, listeners=[spans.observer], clock=clock) as runtime:
        await (await runtime.create(impatient, session_id="s")).send("hi")
        clock.advance(31)
        await runtime.drain()
    _, second = spans.roots()
    (settled,) = events(second, "wait.settled")
    assert (settled["tenuto.wait.kind"], settled["tenuto.wait.status"]) == ("time", "expired")
    assert settled["tenuto.wait.open_seconds"] == 31.0


@on_disk
async def test_a_turn_that_is_taken_over_says_so_and_links_to_the_run_of_the_lost_runner(harness: OurHarness) -> None:
    database, gate, spans, others = Database(harness), Gate(), Spans(), Spans()
    held = [True]

    @program
    async def holds(turn: Turn) -> str:
        if held:
            await gate()
        return "done"

    mine = await database.runtime(holds, listeners=[spans.observer])
    session = await mine.create(holds, session_id="s")
    task = asyncio.create_task(session.send("hi", key="k"))
    await gate.reached.wait()
    await database.lose(mine, task)
    (lost,) = spans.roots()
    held.clear()
    other = await database.runtime(holds, listeners=[others.observer])
    await other.drain()
    (taken,) = others.roots()
    said = dict(taken.span.attributes or {})
    assert (said["tenuto.attempt"], said["tenuto.resumed"], said["tenuto.status"]) == (2, True, "completed")
    assert events(taken, "takeover") == [{"tenuto.attempt": 2}]
    assert linked(taken) == [id_of(lost.span)]
    assert said["tenuto.run_id"] == dict(lost.span.attributes or {})["tenuto.run_id"]
    assert (lost.status, lost.said("outcome")) == ("UNSET", "cancelled")
    assert spans.observer.open_count == others.observer.open_count == 0


async def test_a_child_is_below_the_turn_that_asked_it() -> None:
    spans = Spans()
    async with memory_runtime([delegates, answers], listeners=[spans.observer]) as runtime:
        await (await runtime.create(delegates, session_id="s")).send("hi")
        await runtime.drain()
    first, second = spans.roots()
    assert str(first) == "invoke_agent delegates(invoke_agent answers)"
    assert str(second) == "invoke_agent delegates"
    assert linked(second) == [id_of(first.span)]


async def test_by_option_all_turns_of_a_session_and_of_those_it_asks_are_in_one_trace() -> None:
    spans, seen = Spans(traces="session"), []

    @program(name="delegates")
    async def traced(turn: Turn) -> Any:
        seen.append(str(turn.trace_id))
        return await delegates.run(turn)

    tracer = spans.provider.get_tracer("caller")
    async with memory_runtime([traced, answers], listeners=[spans.observer]) as runtime:
        session = await runtime.create(traced, session_id="s")
        with tracer.start_as_current_span("request") as request:
            await session.send("hi")
        await runtime.drain()
        await session.send("again")
        await runtime.drain()
        await (await runtime.create(answers, session_id="other")).send("hi")
    traces = spans.traces()
    mine = traces.pop(int(seen[0], 16))
    assert sorted(each.span.name for root in mine for each in root) == [
        *["invoke_agent answers"] * 2,
        *["invoke_agent delegates"] * 4,
    ]
    assert len({root.span.parent.span_id for root in mine if root.span.parent}) == 1, "below one that stands for it"
    context = request.get_span_context()
    assert (context.trace_id, context.span_id) in linked(mine[0])
    others = [root.span.name for roots in traces.values() for root in roots]
    assert others == ["request", "invoke_agent answers"]


async def test_a_turn_that_begins_with_the_end_of_another_is_not_below_it() -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("caller")
    async with memory_runtime(answers, listeners=[spans.observer]) as runtime:
        session = await runtime.create(answers, session_id="s")
        for text in ("first", "second", "third"):
            await session.enqueue(text)
        with tracer.start_as_current_span("request"):
            await runtime.drain()
        runs = await session.runs()
    below = " ".join(["invoke_agent answers"] * 3)
    assert [str(root) for root in spans.roots()] == [f"request({below})"]
    assert all("tenuto.queue_time" in (each.span.attributes or {}) for each in spans.root().below)
    assert {dict(each.span.attributes or {})["tenuto.run_id"] for each in spans.root().below} == {
        each.run.run_id for each in runs
    }


async def test_a_word_that_is_no_way_of_tracing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="traces"):
        OTelObserver(traces="all")  # type: ignore[arg-type]


async def test_a_trace_is_stored_with_a_turn_only_if_somebody_traces_it() -> None:
    stored = []
    for listeners in ([], [Spans().observer]):
        async with memory_runtime(answers, listeners=listeners) as runtime:
            await (await runtime.create(answers, session_id="s")).send("hi")
            run = await runtime.store.runs.current(SessionKey("s"))
            assert run is not None
            point = await start_point(runtime.store, run)
            assert point is not None
            stored.append(point.cursor)
    assert stored[0] is None
    assert isinstance(stored[1], dict)
    assert list(stored[1]) == ["trace"]


def test_a_blocking_call_is_below_the_span_of_its_thread() -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("caller")
    runtime = SessionRuntime("memory://", answers, listeners=[spans.observer])
    with runtime.blocking() as blocking:
        session = blocking.create(answers, session_id="s")
        with tracer.start_as_current_span("request"):
            session.send("hi")
    assert str(spans.root()) == "request(invoke_agent answers)"


async def test_a_turn_that_is_started_is_below_the_span_of_whoever_started_it() -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("caller")
    async with memory_runtime(answers, listeners=[spans.observer]) as runtime:
        session = await runtime.create(answers, session_id="s")
        with tracer.start_as_current_span("request"):
            handle = await session.start("hi")
        await handle.wait()
    assert str(spans.root()) == "request(invoke_agent answers)"


async def test_a_turn_that_loses_its_store_is_lost_and_says_why() -> None:
    spans, gate = Spans(), Gate()

    @program
    async def holds(turn: Turn) -> None:
        await gate()
        raise LookupError("after all")

    async with memory_runtime(holds, listeners=[spans.observer]) as runtime:
        session = await runtime.create(holds, session_id="s")
        sending = asyncio.create_task(session.send("hi"))
        await gate.reached.wait()
        await runtime.store.aclose()
        gate.open.set()
        with pytest.raises(StoreClosed):
            await sending
    root = spans.root()
    assert (root.span.attributes or {})["tenuto.status"] == "lost"
    assert (root.status, root.said("outcome"), len(root.exceptions)) == ("UNSET", "cancelled", 1)


async def test_a_turn_that_a_tool_runs_is_below_the_tool_and_turns_side_by_side_are_apart() -> None:
    spans = Spans()

    @program
    async def sends(turn: Turn) -> Any:
        async def send() -> Any:
            return (await runtime.send(f"of {turn.session_id}", "hi")).output

        return await turn.effect("send", send)

    runtime = memory_runtime([sends, answers], listeners=[spans.observer])
    async with runtime:
        for name in ("one", "two"):
            await runtime.create(sends, session_id=name)
            await runtime.create(answers, session_id=f"of {name}")
        await runtime.create(answers, session_id="alone")
        await asyncio.gather(*(runtime.send(name, "hi") for name in ("one", "two", "alone")))
    trees = sorted(str(root) for root in spans.roots())
    nested = "invoke_agent sends(execute_tool send(invoke_agent answers))"
    assert trees == ["invoke_agent answers", nested, nested]
    assert len({id_of(root.span)[0] for root in spans.roots()}) == 3
