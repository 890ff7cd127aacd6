"""An exception below other code (a tool, a node, a child, a thread, a task group) is logged once, by who ran it."""

import asyncio
import json
import logging
from typing import Any

import pytest

from tenuto import JSON, Store, Turn, program, run_tools, tool
from tenuto.errors import EffectFailed, NodeException, RunFailed
from tenuto.graph import END, GraphBuilder, current_turn
from tenuto.graph.middleware import Retry
from tenuto.messages import ToolCall
from tenuto.runtime.stream.notices import Notice
from tests.graph.desk import Desk, Memory, line
from tests.runtime.runtimes import in_memory, opened
from tests.runtime.seams import until_idle
from tests.runtime.turn.test_failure_log import logged

pytestmark = in_memory


class Stuck(Exception):
    """What the innermost code raises."""


def sticks() -> str:
    raise Stuck("the till is stuck")


def traced(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the records whose traceback has the innermost code."""
    return [each for each in logged(caplog) if each.exc_text and "in sticks" in each.exc_text]


def asks(*names: str) -> Any:
    arguments: dict[str, JSON] = {"message": "hi"} if names == ("child",) else {}
    calls: list[ToolCall] = [{"id": f"c-{name}", "name": name, "arguments": arguments} for name in names]
    return {"role": "assistant", "content": "", "tool_calls": calls}


@tool
async def awaited() -> str:
    """Fail on the loop."""
    return sticks()


@tool
def threaded() -> str:
    """Fail in a thread."""
    return sticks()


@tool(idempotent=True, retries=2, backoff=0.0, retry_on=Stuck)
async def retried() -> str:
    """Fail each time."""
    return sticks()


@tool(needs_approval=True)
async def approved() -> str:
    """Fail once it may run."""
    return sticks()


@pytest.mark.parametrize("which", [awaited, threaded, retried], ids=lambda each: each.name)
async def test_a_tool_is_logged_once_however_it_runs_and_whatever_the_turn_does_then(
    store: Store, caplog: pytest.LogCaptureFixture, which: Any
) -> None:
    @program
    async def uses(turn: Turn) -> None:
        if not turn.attempt or not turn.resumed:
            turn.append(asks(which.name))
        await run_tools(turn, [which])
        await turn.wait("go")

    runtime = await opened(store, [uses])
    await runtime.create(uses, session_id="s")
    suspended = await runtime.send("s", "hi")
    assert (await runtime.answer(suspended.waits[0])).outcome is not None
    (record,) = logged(caplog)
    assert traced(caplog) == [record]
    said = record.__dict__
    assert (said["tool"], said["effect"], said["session_id"]) == (which.name, f"c-{which.name}", "s")
    assert said["run_id"] == suspended.run_id


async def test_a_tool_that_fails_after_its_approval_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    @program
    async def uses(turn: Turn) -> str:
        if not turn.resumed:
            turn.append(asks("approved", "awaited"))
        await run_tools(turn, [approved, awaited])
        return "went on"

    runtime = await opened(store, [uses])
    await runtime.create(uses, session_id="s")
    suspended = await runtime.send("s", "hi")
    assert [each.__dict__["tool"] for each in logged(caplog)] == ["awaited"]
    done = (await runtime.answer(suspended.waits[0], {"approved": True})).outcome
    assert done is not None
    assert done.output == "went on"
    assert [each.__dict__["tool"] for each in traced(caplog)] == ["awaited", "approved"]
    assert len(logged(caplog)) == 2


async def test_a_call_in_a_node_of_a_child_is_logged_once_with_the_childs_ids(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def pays() -> str:
        return sticks()

    async def node(state: Any) -> dict[str, Any]:
        turn = current_turn()
        assert turn is not None
        return {"scratch": [await turn.effect("pay", pays)]}

    child = line(node, store=store).as_program(name="child")
    answers: list[Any] = []

    @program
    async def parent(turn: Turn) -> str:
        if not turn.resumed:
            turn.append(asks("child"))
        await run_tools(turn, [child.as_tool(description="Ask the child.")])
        answers.append(dict(turn.messages[-1])["content"])
        return "went on"

    heard: list[Notice] = []
    runtime = await opened(store, [parent, child], listeners=[heard.append])
    await runtime.create(parent, session_id="s")
    await runtime.send("s", "hi")
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].status == "completed"
    (record,) = logged(caplog)
    assert traced(caplog) == [record]
    said = record.__dict__
    assert (said["node"], said["effect"], said["program"]) == ("n0", "pay", "child@1")
    assert said["session_id"] != "s"
    assert "till is stuck" in json.dumps(answers)
    shown = json.dumps(answers) + json.dumps([each.data() for each in heard])
    assert __file__ not in shown
    run = await store.runs.get(said["run_id"])
    assert run is not None
    assert run.error["traceback"][-1].endswith(" in sticks")


async def test_a_parent_that_fails_for_its_child_says_so_in_one_line(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    @program
    async def child(turn: Turn) -> str:
        return sticks()

    @program
    async def parent(turn: Turn) -> Any:
        return (await turn.child(child, "hi")).result()

    runtime = await opened(store, [parent, child])
    await runtime.create(parent, session_id="s")
    await runtime.send("s", "hi")
    await runtime.drain()
    first, second = logged(caplog)
    assert traced(caplog) == [first]
    assert (first.__dict__["program"], second.__dict__["program"]) == ("child@1", "parent@1")
    assert second.exc_info is None


async def test_a_node_that_is_tried_again_is_logged_when_its_last_attempt_fails(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    async def node(state: Any) -> dict[str, Any]:
        made.append(1)
        return {"scratch": [sticks()]}

    policy = Retry(max_attempts=3, classifier=lambda *_: True, backoff=lambda _: 0)
    builder = GraphBuilder(Desk, "desk").add_node("n", node, middleware=[policy]).add_edge("n", END)
    graph = builder.with_session_store(store, Memory).set_entry("n").compile()
    runtime = await opened(store, [graph.as_program()])
    await runtime.create("desk", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert len(made) == 3
    (record,) = logged(caplog)
    assert traced(caplog) == [record]
    assert record.__dict__["node"] == "n"
    assert isinstance(outcome.exception, NodeException)
    with pytest.raises(RunFailed) as failed:
        outcome.result()
    assert isinstance(failed.value.__cause__, NodeException)
    assert isinstance(failed.value.__cause__.__cause__, Stuck)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_failure_that_is_replayed_is_not_logged_again_with_its_traceback(
    store: Store, caplog: pytest.LogCaptureFixture, idempotent: bool
) -> None:
    async def pays() -> str:
        return sticks()

    @program
    async def uses(turn: Turn) -> str:
        try:
            await turn.effect("pay", pays, idempotent=idempotent)
        except (EffectFailed, Stuck):
            await turn.wait("go")
            raise
        return ""

    runtime = await opened(store, [uses])
    await runtime.create(uses, session_id="s")
    suspended = await runtime.send("s", "hi")
    assert logged(caplog) == [], "the program caught it"
    done = (await runtime.answer(suspended.waits[0])).outcome
    assert done is not None
    assert isinstance(done.exception, Stuck if idempotent else EffectFailed)
    (record,) = logged(caplog)
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert "till is stuck" in record.getMessage()


async def test_one_of_several_tasks_of_a_program_is_logged_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def part() -> None:
        sticks()

    @program
    async def grouped(turn: Turn) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
            group.create_task(asyncio.sleep(60))

    runtime = await opened(store, [grouped])
    await runtime.create(grouped, session_id="s")
    outcome = await runtime.send("s", "hi")
    assert [each.levelno for each in logged(caplog)] == [logging.ERROR]
    assert len(traced(caplog)) == 1
    assert isinstance(outcome.exception, ExceptionGroup)
    assert outcome.error["traceback"][-1].endswith(" in sticks")


async def test_a_message_that_another_turn_of_the_process_took_has_the_exception_too(store: Store) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @program
    async def second_fails(turn: Turn) -> None:
        turn.append("heard")
        if turn.text == "second":
            sticks()
        begun.set()
        await go.wait()

    runtime = await opened(store, [second_fails])
    session = await runtime.create(second_fails, session_id="s")
    first = asyncio.create_task(session.send("first"))
    await begun.wait()
    handle = await session.start("second", when_busy="queue")
    go.set()
    await first
    outcome = await handle.wait()
    assert outcome.status == "failed"
    assert isinstance(outcome.exception, Stuck)
    with pytest.raises(RunFailed) as failed:
        await handle.result()
    assert failed.value.__cause__ is outcome.exception
    await until_idle(runtime)


async def test_what_a_model_call_raised_is_the_cause_and_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def model() -> str:
        return sticks()

    @program
    async def uses(turn: Turn) -> str:
        return await turn.model(model, retries=1, backoff=0.0, retry_on=Stuck)

    runtime = await opened(store, [uses])
    await runtime.create(uses, session_id="s")
    outcome = await runtime.send("s", "hi")
    (record,) = logged(caplog)
    assert traced(caplog) == [record]
    causes = [outcome.exception, getattr(outcome.exception, "__cause__", None)]
    assert any(isinstance(each, Stuck) for each in causes)
