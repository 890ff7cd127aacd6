"""The spans of turns and of the calls they make."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, get_current_span

from tenuto import Definition, SessionRuntime, Turn, program, run_tools, tool
from tenuto.graph import END, GraphBuilder, SessionState, State, append, current_turn
from tenuto.messages import ToolCall
from tenuto.testing import memory_runtime
from tests.observe.graphs import line, up
from tests.observe.trees import Branch, Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()


class Memory(SessionState):
    log: Annotated[list[str], append] = []


class Kept(State):
    n: int = 0
    log: Annotated[list[str], append] = []


@tool
async def weather(city: str) -> str:
    """Say what the weather is."""
    return f"rain in {city}"


@tool
async def broken(city: str) -> str:
    """Fail."""
    raise LookupError(f"no {city}")


def asks(*calls: ToolCall) -> Any:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


@program(version="3")
async def agent(turn: Turn) -> str:
    """Ask a model, call two tools, and ask again."""

    async def ask() -> Any:
        turn.record_usage("m-2024", input=11, output=5, cache_read=7)
        if turn.step == 1:
            calls: list[ToolCall] = [
                {"id": "c-1", "name": "weather", "arguments": {"city": "Bern"}},
                {"id": "c-2", "name": "broken", "arguments": {"city": "Rome"}},
            ]
            return asks(*calls)
        return {"role": "assistant", "content": "rain"}

    async for _ in turn.steps():
        reply = await turn.effect("model", ask, {"model": "m"}, kind="model")
        turn.append(reply)
        if not turn.open_calls:
            return "done"
        await run_tools(turn, [weather, broken])
    return "never"


@asynccontextmanager
async def observed(spans: Spans, *programs: Any, **options: Any) -> AsyncIterator[SessionRuntime]:
    async with memory_runtime(programs, listeners=[spans.observer], **options) as runtime:
        yield runtime
    assert spans.observer.open_count == 0


def attributes(branch: Branch) -> dict[str, Any]:
    return dict(branch.span.attributes or {})


async def test_a_turn_has_a_span_and_its_calls_have_theirs_below_it(spans: Spans) -> None:
    async with observed(spans, agent) as runtime:
        await runtime.for_tenant("acme").create(agent, session_id="s-1")
        outcome = await runtime.for_tenant("acme").send("s-1", "what is the weather?")
    root = spans.root()
    assert str(root) == "invoke_agent agent(chat m execute_tool weather execute_tool broken chat m)"
    said = attributes(root)
    assert said == said | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "agent",
        "gen_ai.agent.version": "3",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.input_tokens": 22,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 14,
        "openarmature.session_id": "s-1",
        "openarmature.implementation.name": "tenuto",
        "tenuto.tenant": "acme",
        "tenuto.run_id": outcome.run_id,
        "tenuto.input_id": outcome.input_id,
        "tenuto.program": "agent@3",
        "tenuto.attempt": 1,
        "tenuto.resumed": False,
        "tenuto.status": "completed",
    }
    assert said["tenuto.origin_id"] == said["openarmature.invocation_id"] == said["openarmature.correlation_id"]
    assert (root.status, root.span.kind) == ("OK", SpanKind.INTERNAL)


async def test_calls_are_described_by_the_conventions_for_generative_ai(spans: Spans) -> None:
    async with observed(spans, agent) as runtime:
        await (await runtime.create(agent, session_id="s-1")).send("hi")
    first, rain, failed, _ = spans.root().below
    assert attributes(first) == attributes(first) | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2024",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.conversation.id": "s-1",
        "tenuto.call.kind": "model",
        "tenuto.call.key": "model",
        "tenuto.step": 1,
    }
    assert (first.span.kind, first.status) == (SpanKind.CLIENT, "OK")
    assert attributes(rain) == attributes(rain) | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c-1",
        "gen_ai.tool.type": "function",
        "tenuto.call.kind": "tool",
    }
    assert (rain.span.kind, rain.status, rain.exceptions) == (SpanKind.INTERNAL, "OK", [])
    assert (failed.status, failed.exceptions) == ("ERROR", ["no Rome"])
    assert attributes(failed)["error.type"] == "LookupError"
    assert "Bern" not in repr([attributes(each) for each in spans.root()]), "what is said is not on spans"


async def test_spans_that_are_made_in_a_program_or_a_tool_are_below_its_span(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("client")

    @tool
    def in_thread() -> str:
        with tracer.start_as_current_span("http"):
            return "found"

    @program
    async def looks(turn: Turn) -> None:
        with tracer.start_as_current_span("mine"):
            turn.append(asks({"id": "c", "name": "in_thread", "arguments": {}}))
        await run_tools(turn, [in_thread])

    with tracer.start_as_current_span("request"):
        async with observed(spans, looks) as runtime:
            await (await runtime.create(looks, session_id="s")).send("hi")
        assert str(getattr(get_current_span(), "name", None)) == "request"
    assert str(spans.root()) == "request(invoke_agent looks(mine execute_tool in_thread(http)))"


async def test_what_a_turn_raises_is_on_its_span(spans: Spans) -> None:
    @program
    async def fails(turn: Turn) -> None:
        raise ZeroDivisionError("by nothing")

    async with observed(spans, fails) as runtime:
        await (await runtime.create(fails, session_id="s")).send("hi")
    root = spans.root()
    assert (root.status, root.exceptions) == ("ERROR", ["by nothing"])
    assert attributes(root)["tenuto.status"] == "failed"
    assert attributes(root)["error.type"] == root.said("error.category") == root.span.status.description


async def test_a_call_whose_result_is_known_is_an_event_of_the_turn_and_no_span(spans: Spans) -> None:
    async def price() -> int:
        return 7

    async def gone() -> int:
        raise LookupError("gone")

    @program
    async def twice(turn: Turn) -> Any:
        found = await turn.effect("price", price, "a request", idempotent=True)
        with pytest.raises(Exception, match="gone"):
            await turn.effect("gone", gone)
        await turn.wait("sure")
        return found

    async with observed(spans, twice) as runtime:
        session = await runtime.create(twice, session_id="s")
        first = await session.send("hi")
        answered = await runtime.answer(first.waits[0])
        assert answered.outcome is not None
        assert answered.outcome.output == 7
    suspended, resumed = spans.roots()
    assert str(suspended) == "invoke_agent twice(execute_tool price execute_tool gone)"
    assert (suspended.status, suspended.said("outcome")) == ("OK", "suspended")
    assert str(resumed) == "invoke_agent twice"
    assert attributes(resumed)["tenuto.resumed"] is True
    assert attributes(resumed)["tenuto.resumes"] == first.run_id
    replayed = [dict(e.attributes or {}) for e in resumed.span.events if e.name == "tenuto.call.replayed"]
    assert [(each["tenuto.call.key"], each["tenuto.call.failed"]) for each in replayed] == [
        ("price", False),
        ("gone", True),
    ]


async def test_a_graph_that_is_a_program_has_its_tree_below_the_turn_and_calls_below_their_node(spans: Spans) -> None:
    async def look() -> int:
        return 1

    async def asking(state: Kept) -> dict[str, Any]:
        turn = current_turn()
        assert turn is not None
        return {"n": await turn.effect("look", look)}

    builder = GraphBuilder(Kept, "orders").with_session_state(Memory).add_node("a", up).add_node("b", asking)
    graph = builder.add_edge("a", "b").add_edge("b", END).set_entry("a").compile()
    orders = graph.as_program(input="log", entry=lambda _: "said")
    graph.attach_observer(spans.observer)  # given twice, it makes its spans once
    async with observed(spans, orders) as runtime:
        await (await runtime.create(orders, session_id="s")).send("hi")
    assert str(spans.root()) == "invoke_agent orders(*(a b(execute_tool look)))"


@pytest.mark.parametrize("known", [True, False])
async def test_a_model_that_the_request_does_not_name_is_the_definitions_or_the_one_that_was_counted(
    spans: Spans, known: bool
) -> None:
    @program
    async def plain(turn: Turn) -> None:
        async def ask() -> str:
            turn.record_usage("counted", input=1)
            return "hello"

        await turn.effect("ask", ask, kind="model")

    async with observed(spans, plain) as runtime:
        wanted = Definition(name="plain", version=plain.version, model="declared") if known else plain
        await (await runtime.create(wanted, session_id="s")).send("hi")
    (call,) = spans.root().below
    assert call.span.name == ("chat declared" if known else "chat counted")
    assert attributes(call)["gen_ai.request.model"] == ("declared" if known else "counted")


async def test_spans_that_are_not_sampled_cost_nothing_and_break_nothing() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    async with observed(spans, agent) as runtime:
        outcome = await (await runtime.create(agent, session_id="s")).send("hi")
    assert outcome.completed
    assert spans.finished == []


class Nasty(Exception):
    """An exception that cannot be told, and whose category is not one."""

    category = 7

    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize("error", [Nasty(), ValueError("half a character: \ud83d")], ids=["silent", "surrogate"])
async def test_an_exception_that_cannot_be_told_ends_its_spans_and_can_be_sent(spans: Spans, error: Exception) -> None:
    async def call() -> None:
        raise error

    @program
    async def fails(turn: Turn) -> None:
        await turn.effect("call", call)

    async def node(state: Any) -> dict[str, Any]:
        raise error

    async with observed(spans, fails) as runtime:
        await (await runtime.create(fails, session_id="s")).send("hi")
    await line("a", body=node).run(observers=[spans.observer])
    turn, graph = spans.roots()
    assert [each.status for root in (turn, graph) for each in root] == ["ERROR"] * 4
    for span in spans.finished:
        (event,) = [each for each in span.events if each.name == "exception"]
        texts = [str(value) for value in (*(event.attributes or {}).values(), span.status.description)]
        assert [text for text in texts if text.encode() and text] == texts
        assert "Traceback" in (event.attributes or {})["exception.stacktrace"]  # type: ignore[operator]
