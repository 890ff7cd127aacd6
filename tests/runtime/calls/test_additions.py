"""What a program adds to its logs is added once, however often the step that adds it runs."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto import Tool, Turn, program, run_tools
from tenuto.errors import RunFailed
from tenuto.messages import Message, text_of
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import Program
from tenuto.runtime.turn.step_additions import StepAdditions
from tenuto.testing import memory_runtime
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, contents, counting, results
from tests.runtime.seams import advance


def asks_for(*names: str, content: str = "") -> Message:
    """Return a message that calls tools, each with the id that a careless provider repeats."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": f"call_{n}", "name": name, "arguments": {}} for n, name in enumerate(names)],
    }


def looping(replies: Sequence[Message], tools: Sequence[Tool]) -> Program[None]:
    """Return the shortest agent: it asks, appends, and runs tools, and looks at nothing else."""

    @program
    async def loop(turn: Turn) -> None:
        async for step in turn.steps():

            async def ask(step: int = step) -> Message:
                return replies[step - 1]

            reply = await turn.effect("model", ask, kind="model")
            turn.append(reply)
            if not reply.get("tool_calls"):
                return
            await run_tools(turn, tools)

    return loop


async def test_what_was_said_before_a_wait_is_not_said_again_after_it(harness: OurHarness) -> None:
    @program
    async def clerk(turn: Turn) -> Any:
        turn.append("One moment.", {"role": "assistant", "content": "Or two."})
        turn.add("audit", "asked", {"n": 1})
        size = await turn.wait("size")
        turn.add("audit", "answered")
        turn.append(f"Size {size}.")
        color = await turn.wait("color")
        turn.append(f"Color {color}.")
        return len(turn.messages)

    database = Database(harness)
    runtime = await database.runtime(clerk)
    session = await runtime.create(clerk, session_id="s", logs=["audit"])
    outcome = await session.send("hi")
    for said in ("L", "red"):
        other = await database.runtime(clerk)
        outcome = (await other.answer(outcome.waits[0].wait_id, said)).outcome or outcome
    assert outcome.output == 5
    view = await session.get()
    assert contents(view.messages, "assistant") == ["One moment.", "Or two.", "Size L.", "Color red."]
    assert list(view.logs["audit"]) == ["asked", {"n": 1}, "answered"]


async def test_the_shortest_agent_adds_each_reply_once_and_carries_out_each_call_once(harness: OurHarness) -> None:
    calls: list[Any] = []
    tools = [
        Tool(name="pay", run=counting(calls, "paid"), needs_approval=True),
        Tool(name="look", run=counting(calls, "seen")),
        Tool(name="locate"),
    ]
    replies = [
        asks_for("look", "pay", "locate", content="Let me see."),
        asks_for("look"),
        {"role": "assistant", "content": "Done."},
    ]
    database = Database(harness)
    agent = looping(replies, tools)  # type: ignore[arg-type]
    runtime = await database.runtime(agent)
    session = await runtime.create(agent, session_id="s")
    outcome = await session.send("go")
    for wait in outcome.waits:
        other = await database.runtime(agent)
        answer = True if wait.kind == "approval" else [48.2, 16.4]
        outcome = (await other.session("s", agent).answer(wait, answer)).outcome or outcome
    assert (outcome.status, outcome.text) == ("completed", "Done.")
    messages = (await session.get()).messages
    assert [each["role"] for each in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert len(results(messages)) == 4
    assert len(calls) == 3


async def test_a_runner_that_is_lost_in_a_step_leaves_nothing_to_be_said_twice(harness: OurHarness) -> None:
    gate = Gate()

    @program
    async def teller(turn: Turn) -> None:
        for line in range(3):
            turn.append(f"line {line}")
            turn.add("lines", line)
            await turn.save()
            if line == 1 and turn.attempt == 1:
                turn.append("never written")
                await gate()

    database = Database(harness)
    lost, runtime = await database.runtime(teller), await database.runtime(teller)
    session = await lost.create(teller, session_id="s", logs=["lines"])
    sending = asyncio.create_task(session.send("tell"))
    await gate.reached.wait()
    await database.lose(lost, sending)
    await advance(runtime, "s")
    view = await runtime.get("s")
    assert contents(view.messages, "assistant") == ["line 0", "line 1", "line 2"]
    assert list(view.logs["lines"]) == [0, 1, 2]


async def test_a_program_that_says_something_else_when_it_runs_again_fails_and_says_nothing_twice(
    harness: OurHarness,
) -> None:
    told = itertools.count()

    @program
    async def fickle(turn: Turn) -> None:
        turn.append(f"secret {next(told)}")
        await turn.wait("go on")

    database = Database(harness)
    runtime = await database.runtime(fickle)
    session = await runtime.create(fickle, session_id="s")
    outcome = await session.send("hi")
    answered = await session.answer(outcome.waits[0])
    assert answered.outcome is not None
    with pytest.raises(RunFailed) as failed:
        answered.outcome.result()
    error: Any = failed.value.error
    assert error["category"] == "replay_mismatch"
    assert error["details"] == {"log": "messages", "entry": 1}
    assert "content" in error["message"]
    assert "secret" not in error["message"]
    assert contents((await session.get()).messages, "assistant") == ["secret 0"]
    assert (await session.send("again")).suspended


async def test_a_refused_addition_counts_nothing_as_repeated(harness: OurHarness) -> None:
    seen: list[str] = []

    @program
    async def tries(turn: Turn) -> None:
        if turn.resumed:
            for wrong in ("other", object(), {"role": "assistant", "content": "", "choices": []}):
                try:
                    turn.append("first", wrong)  # type: ignore[arg-type]
                except Exception as error:
                    seen.append(type(error).__name__)
        turn.append("first", "second")
        await turn.wait("go on")

    runtime = await Database(harness).runtime(tries)
    session = await runtime.create(tries, session_id="s")
    outcome = await session.send("hi")
    answered = await session.answer(outcome.waits[0])
    assert answered.outcome is not None
    assert answered.outcome.completed, answered.outcome.error
    assert seen == ["ReplayMismatch", "NotJson", "ReplayMismatch"]
    assert contents((await session.get()).messages, "assistant") == ["first", "second"]


async def test_a_program_that_reads_its_open_calls_continues_from_them(harness: OurHarness) -> None:
    @program
    async def looks(turn: Turn) -> None:
        async for _ in turn.steps():
            if not turn.open_calls:
                turn.append("Let me see.", asks_for("locate"))
            await run_tools(turn, [Tool(name="locate")])
            turn.append("There you are.")
            return

    runtime = await Database(harness).runtime(looks)
    session = await runtime.create(looks, session_id="s")
    outcome = await session.send("where?")
    assert (await session.answer(outcome.waits[0], "here")).outcome
    said = contents((await session.get()).messages, "assistant")
    assert said[:2] == ["Let me see.", ""]
    assert said.count("There you are.") <= 1


async def test_a_frame_is_begun_once(harness: OurHarness) -> None:
    @program
    async def brief(turn: Turn) -> Any:
        turn.append("noted")
        turn.frame(summary="so far", keep=1)
        await turn.wait("go on")
        turn.append("bye")
        return len(turn.context)

    runtime = await Database(harness).runtime(brief)
    session = await runtime.create(brief, session_id="s")
    outcome = await session.send("hi")
    answered = await session.answer(outcome.waits[0])
    assert answered.outcome is not None
    assert answered.outcome.output == 3
    assert [each["role"] for each in (await session.get()).messages] == ["user", "assistant", "frame", "assistant"]


async def test_additions_with_a_name_may_change_their_place(harness: OurHarness) -> None:
    @program
    async def named(turn: Turn) -> None:
        if not turn.resumed:
            turn.append("hello", once="greeting")
        turn.append("plain")
        await turn.wait("go on")
        turn.append("hello", once="greeting")

    runtime = await Database(harness).runtime(named)
    session = await runtime.create(named, session_id="s")
    outcome = await session.send("hi")
    assert (await session.answer(outcome.waits[0])).outcome
    assert contents((await session.get()).messages, "assistant") == ["hello", "plain"]


async def test_the_row_of_a_run_names_additions_only_while_their_step_is_open(harness: OurHarness) -> None:
    @program
    async def stepper(turn: Turn) -> None:
        async for step in turn.steps():
            turn.append(f"step {step}", f"more {step}")
            await turn.wait("next")
            if step == 2:
                return

    runtime = await Database(harness).runtime(stepper)
    session = await runtime.create(stepper, session_id="s")
    outcome = await session.send("hi")
    records = []
    for _ in range(2):
        run = await runtime.store.runs.current(SessionKey("s"))
        assert run is not None
        records.append(dict(run.additions))
        outcome = (await session.answer(outcome.waits[0])).outcome or outcome
    run = await runtime.store.runs.current(SessionKey("s"))
    assert run is not None
    assert records == [{"messages": [1, 2]}, {"messages": [3, 4]}]
    assert run.additions == {}
    assert contents((await session.get()).messages, "assistant") == ["step 1", "more 1", "step 2", "more 2"]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "save", "wait", "step"]), st.integers(0, 2)), max_size=12))
@settings(max_examples=60, deadline=None)
async def test_any_order_of_additions_saves_waits_and_steps_adds_each_once(deeds: list[tuple[str, int]]) -> None:
    wanted: list[str] = []
    other: list[int] = []
    for at, (deed, value) in enumerate(deeds):
        if deed == "a":
            wanted.append(f"{at}: {value}")
        elif deed == "b":
            other.append(value)

    @program
    async def does(turn: Turn) -> None:
        stretches: list[list[tuple[int, str, int]]] = [[]]
        for at, (deed, value) in enumerate(deeds):
            stretches[-1].append((at, deed, value))
            if deed == "step":
                stretches.append([])
        async for step in turn.steps():
            for at, deed, value in stretches[step - 1]:
                match deed:
                    case "a":
                        turn.append(f"{at}: {value}")
                    case "b":
                        turn.add("other", value)
                    case "save":
                        await turn.save()
                    case "wait":
                        await turn.wait("go")
            if step == len(stretches):
                return

    async with memory_runtime(does) as runtime:
        session = await runtime.create(does, logs=["other"])
        outcome = await session.send("hi")
        while outcome.suspended:
            outcome = (await session.answer(outcome.waits[0])).outcome or outcome
        assert outcome.completed, outcome.error
        view = await session.get()
    assert [text_of(each) for each in view.messages][1:] == wanted
    assert list(view.logs.get("other", ())) == other


@given(st.lists(st.integers(0, 40), unique=True).map(sorted), st.integers(0, 40))
def test_positions_are_the_same_when_they_are_read_back(places: list[int], written: int) -> None:
    additions = StepAdditions()
    for place in places:
        additions.add("log", place)
    record = additions.unwritten(step_over=False) or {}
    again = StepAdditions.of(record, is_stored=True)
    assert list(again.left("log")) == places
    assert again.unwritten(step_over=False) is None
    again.discard(lambda _: written)
    assert list(again.left("log")) == [place for place in places if place < written]


def test_a_step_that_is_over_clears_what_the_row_says() -> None:
    record: Mapping[str, Any] = {"messages": [3, 5, 9, 9]}
    additions = StepAdditions.of(record, is_stored=True)
    assert list(additions.left("messages")) == [3, 4, 5, 9]
    assert additions.unwritten(step_over=True) == {}
    additions.clear()
    assert additions.unwritten(step_over=False) == {}
    additions.landed({})
    assert additions.unwritten(step_over=False) is None
