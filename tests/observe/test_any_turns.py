"""Whatever turns do, and however they are cut off: every span ends, once, below the right one."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from tenuto import SessionRuntime, Turn, open_store, program
from tenuto.errors import StatusRefused, TenutoError
from tenuto.observe.otel import INVOCATION
from tenuto.testing import FakeClock
from tests.observe.graphs import line
from tests.observe.trees import Spans
from tests.runtime.runtimes import PAST_TTL, opened
from tests.servers import MEMORY

DEEDS = (
    "model",
    "tool",
    "fails",
    "fails for good",
    "both",
    "graph",
    "waits",
    "asks",
    "holds",
    "holds a tool",
    "raises",
)
CUTS = ("cancelled", "stopped", "lost")


class Started(SpanProcessor):
    """Counts what has begun and ended."""

    def __init__(self) -> None:
        self.begun, self.ended = Counter[int](), Counter[int]()

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        """Count a begin."""
        self.begun[_id(span)] += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Count an end."""
        self.ended[_id(span)] += 1


def _id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


class World:
    """A session whose turns do some deeds in order; where one holds, its turn is cut off, and does not hold again."""

    def __init__(self, deeds: Sequence[str]) -> None:
        self.deeds, self.held = deeds, asyncio.Event()
        self.holds, self.raises = True, True
        self.spans, self.started = Spans(), Started()
        self.spans.provider.add_span_processor(self.started)

    async def fine(self) -> str:
        """Make a call that takes a while."""
        await asyncio.sleep(0)
        return "fine"

    async def bad(self) -> str:
        """Make a call that fails."""
        raise LookupError("bad")

    async def hold(self) -> str:
        """Wait until the turn is cut off, the first time."""
        if self.holds:
            self.held.set()
            await asyncio.Event().wait()
        return "held"

    async def inner(self) -> str:
        """Run a graph that is no program."""
        await line("a", "b").run(observers=[self.spans.observer])
        return "ran"

    async def do(self, turn: Turn, number: int, deed: str) -> None:
        """Do one deed."""
        key = f"{number}"
        match deed:
            case "model":
                await turn.effect(key, self.fine, kind="model")
            case "tool":
                await turn.effect(key, self.fine)
            case "fails":
                with suppress(LookupError):
                    await turn.effect(key, self.bad, idempotent=True)
            case "fails for good":
                if self.raises:
                    self.raises = False
                    await turn.effect(key, self.bad, idempotent=True)
            case "both":
                calls = (turn.effect(f"{key}{each}", self.fine, idempotent=True) for each in "ab")
                await asyncio.gather(*calls)
            case "graph":
                await turn.effect(key, self.inner, idempotent=True)
            case "waits":
                await turn.wait(key)
            case "asks":
                await turn.child("child", "hi", name=key)
            case "holds":
                await self.hold()
            case "holds a tool":
                await turn.effect(key, self.hold, idempotent=True)
            case _:
                if self.raises:
                    self.raises = False
                    raise ZeroDivisionError

    def programs(self) -> list[Any]:
        """Return the programs: one that does the deeds, and one that is asked."""

        @program
        async def doing(turn: Turn) -> str:
            for number, deed in enumerate(self.deeds):
                await self.do(turn, number, deed)
            return "done"

        @program
        async def child(turn: Turn) -> str:
            return "heard"

        return [doing, child]


async def play(deeds: Sequence[str], cut: str, folder: Path) -> World:
    """Let a session do its deeds until they are done, whatever happens on the way."""
    world, clock = World(deeds), FakeClock()
    async with AsyncExitStack() as stack:

        async def another() -> SessionRuntime:
            store = await stack.enter_async_context(
                open_store(f"sqlite:///{folder}/s.db", clock=clock, synchronous="OFF")
            )
            return await opened(store, world.programs(), listeners=[world.spans.observer])

        runtime = await another()
        session = await runtime.create("doing", session_id="s")
        sending = asyncio.create_task(session.send("go", key="k"))
        holding = asyncio.create_task(world.held.wait())
        await asyncio.wait([sending, holding], return_when=asyncio.FIRST_COMPLETED)
        holding.cancel()
        if world.held.is_set():
            if cut == "stopped":
                await session.stop("abort")
            elif cut == "lost":
                await runtime.store.aclose()
            if cut != "stopped":
                sending.cancel()
        with suppress(TenutoError, asyncio.CancelledError):
            await sending
        if world.held.is_set() and cut == "lost":
            clock.advance(PAST_TTL)
            runtime = await another()
        world.holds = False
        for _ in range(4 * len(deeds) + 4):
            if await _is_done(runtime):
                break
    return world


async def _is_done(runtime: SessionRuntime) -> bool:
    """Do what the session needs next; return whether it has completed."""
    session = runtime.session("s")
    run = (await session.runs())[0]
    if run.status in ("failed", "interrupted"):
        with suppress(StatusRefused):
            await session.resume()
    for wait in await session.waits():
        if wait.kind == "signal":
            await runtime.answer(wait)
    await runtime.drain()
    return (await session.runs())[0].status == "completed"


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(DEEDS), min_size=1, max_size=5), st.sampled_from(CUTS))
async def test_every_span_ends_once_below_the_right_one(deeds: list[str], cut: str) -> None:
    before = get_current()
    with TemporaryDirectory(dir=MEMORY) as folder:
        async with asyncio.timeout(30):
            world = await play(deeds, cut, Path(folder))
    assert get_current() == before
    check(world, aborted=cut == "stopped")


def check(world: World, *, aborted: bool) -> None:
    """Check the spans that a world has left."""
    spans = world.spans.finished
    assert world.started.begun == world.started.ended == Counter(map(_id, spans))
    assert world.spans.observer.open_count == 0
    by_id = {_id(span): span for span in spans}
    for span in spans:
        above = None if span.parent is None else by_id[span.parent.span_id]
        operation = attribute(span, "gen_ai.operation.name")
        if operation == "invoke_agent":
            asked = attribute(span, "gen_ai.agent.name") == "child"
            assert (above is not None) is asked
            assert attribute(span, "tenuto.status") is not None
        elif span.name == INVOCATION:
            assert above is not None
            assert above.name.startswith("execute_tool")
        elif operation is not None:
            assert above is not None
            assert attribute(above, "gen_ai.operation.name") == "invoke_agent"
            for name in ("tenuto.run_id", "tenuto.attempt", "openarmature.session_id"):
                assert attribute(above, name) == attribute(span, name)
        if above is not None and attribute(above, "gen_ai.agent.name") == "doing" and operation != "invoke_agent":
            assert (above.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (above.end_time or 0)
    mine = [span for span in spans if attribute(span, "gen_ai.agent.name") == "doing"]
    mine.sort(key=lambda span: span.start_time or 0)
    for at, span in enumerate(mine):
        links = [link.context.span_id for link in span.links]
        assert len(links) == (at > 0)
        assert set(links) <= {_id(each) for each in mine[:at]}
    assert aborted or attribute(mine[-1], "tenuto.status") == "completed"
