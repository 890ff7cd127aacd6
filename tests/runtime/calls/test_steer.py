"""Steering: input for the turn under way, taken at a safe boundary of it, or else by the next turn."""

import asyncio
from typing import Any

import pytest

from tenuto import Store, words
from tenuto.errors import InvalidInput
from tenuto.model.input import Boundary, InputStatus
from tenuto.model.run import RunStatus
from tenuto.runtime.change.action import WriteMetadata
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.agent import Request, ScriptedAgent, calls
from tests.runtime.gates import said, talk_of
from tests.runtime.runtimes import opened

AFTER_STEP: words.Boundary = "after_step"
BEFORE_COMPLETION: words.Boundary = "before_completion"


class Steps:
    """An agent of so many steps; each waits until it is let go, and tells the messages its model was shown."""

    def __init__(self, steps: int) -> None:
        self.shown: list[list[str]] = []
        self.fails = False
        self._steps = steps
        self._entered: asyncio.Queue[int] = asyncio.Queue()
        self._go: asyncio.Queue[None] = asyncio.Queue()
        self.agent = ScriptedAgent(self.model, [Tool(name="look", run=self.look)])

    async def model(self, request: Request) -> Any:
        self.shown.append([said(each) for each in request.messages if each["role"] == "user"])
        self._entered.put_nowait(len(self.shown))
        await self._go.get()
        if self.fails:
            raise ConnectionError("no model")
        if len(self.shown) < self._steps:
            return calls((f"c{len(self.shown)}", "look", {}))
        return {"role": "assistant", "content": f"reply {len(self.shown)}"}

    async def look(self, _: Turn, __: Any) -> str:
        return "seen"

    async def in_step(self, number: int) -> None:
        """Wait until the model is asked for the so many'th time."""
        async with asyncio.timeout(20):
            assert await self._entered.get() == number

    def go_on(self) -> None:
        """Let the model answer once."""
        self._go.put_nowait(None)


async def started(store: Store, steps: Steps, budget: int = 50) -> tuple[SessionRuntime, Any]:
    runtime = await opened(store, [steps.agent], steps=budget)
    await runtime.create("agent", session_id="s")
    handle = await runtime.session("s").start("go")
    await steps.in_step(1)
    return runtime, handle


async def test_input_for_after_the_step_is_shown_to_the_next_step(store: Store) -> None:
    steps = Steps(3)
    runtime, handle = await started(store, steps)
    ids = [await runtime.session("s").enqueue(text, boundary="after_step") for text in ("first", "second")]
    steps.go_on()
    await steps.in_step(2)
    third = await runtime.session("s").enqueue("third", boundary=AFTER_STEP)
    steps.go_on()
    await steps.in_step(3)
    steps.go_on()
    assert (await handle.wait()).completed
    assert steps.shown == [["go"], ["go", "first", "second"], ["go", "first", "second", "third"]]
    messages = (await runtime.get("s")).messages
    for input_id, text in zip([*ids, third], ["first", "second", "third"], strict=True):
        row = await store.inbox.get(input_id)
        assert row is not None
        assert (row.status, row.run_id) == (InputStatus.CONSUMED, handle.run_id)
        assert row.position is not None
        assert said(messages[row.position]) == text
        assert (await runtime.outcome(input_id)).run_id == handle.run_id
    assert len(await runtime.session("s").runs()) == 1


async def test_each_boundary_takes_its_own_input_and_holds_nothing_back(store: Store) -> None:
    steps = Steps(2)
    runtime, handle = await started(store, steps)
    await runtime.session("s").enqueue("at the end", boundary=BEFORE_COMPLETION)
    await runtime.session("s").enqueue("next turn")
    await runtime.session("s").enqueue("after step", boundary=AFTER_STEP)
    steps.go_on()
    await steps.in_step(2)
    steps.go_on()
    await steps.in_step(3)
    steps.go_on()
    assert (await handle.wait()).completed
    assert steps.shown == [["go"], ["go", "after step"], ["go", "after step", "at the end"]]
    steps.go_on()
    await runtime.drain()
    assert steps.shown[-1] == ["go", "after step", "at the end", "next turn"]
    assert [each.run.steps for each in await runtime.session("s").runs()] == [1, 3]


@pytest.mark.parametrize("how", ["interrupt", "abort", "fail", "complete"])
async def test_what_was_not_delivered_goes_to_the_next_turn_with_the_run_that_ends(store: Store, how: Any) -> None:
    steps = Steps(1 if how == "complete" else 2)
    runtime, handle = await started(store, steps)
    boundary = AFTER_STEP if how == "complete" else BEFORE_COMPLETION
    moved = await runtime.session("s").enqueue("undelivered", boundary=boundary)
    gone = await runtime.session("s").enqueue("cancelled", boundary=boundary)
    await runtime.session("s").cancel(gone)
    before = await store.inbox.get(moved)
    assert before is not None
    assert (before.run_id, before.boundary) == (handle.run_id, boundary)
    if how in ("interrupt", "abort"):
        await runtime.session("s").stop(kind=how)
    elif how == "fail":
        steps.fails = True
        steps.go_on()
    else:
        steps.go_on()
    outcome = await handle.wait()
    assert outcome.status == {"interrupt": "interrupted", "complete": "completed"}.get(how, "failed")
    row = await store.inbox.get(moved)
    assert row is not None
    assert (row.status, row.run_id, row.boundary, row.seq) == (InputStatus.OPEN, None, None, before.seq)
    assert [each.input_id for each in await store.inbox.list("s")] == [moved]
    assert await runtime.session("s").cancel(moved) == {moved: "cancelled"}


async def test_input_for_a_boundary_of_an_idle_session_is_the_next_turn(store: Store) -> None:
    steps = Steps(1)
    runtime = await opened(store, [steps.agent])
    await runtime.create("agent", session_id="s")
    for text, boundary in (("one", AFTER_STEP), ("two", BEFORE_COMPLETION)):
        await runtime.session("s").enqueue(text, boundary=boundary)
        steps.go_on()
    await runtime.drain()
    assert await talk_of(runtime, "s") == ["one", "reply 1", "two", "reply 2"]


async def test_an_older_command_goes_first_and_is_never_shown_to_the_model(store: Store) -> None:
    steps = Steps(2)
    runtime, handle = await started(store, steps)
    command = await runtime.session("s").enqueue(WriteMetadata({"colour": "green"}))
    message = await runtime.session("s").enqueue("behind it", boundary=AFTER_STEP)
    look = await store.inbox.next("s", boundary=Boundary.AFTER_STEP)
    assert (look.inputs, str(look.reason), look.blocked_by) == ((), "blocked", command)
    steps.go_on()
    await steps.in_step(2)
    assert (await runtime.outcome(command)).status == "queued"
    steps.go_on()
    assert (await handle.wait()).completed
    assert steps.shown == [["go"], ["go"]]
    steps.go_on()
    await runtime.drain()
    assert (await runtime.outcome(command)).status == "executed"
    assert (await runtime.outcome(message)).completed
    assert steps.shown[-1] == ["go", "behind it"]
    assert (await runtime.get("s")).metadata == {"colour": "green"}


async def test_many_rows_for_later_do_not_hide_one_for_now(store: Store) -> None:
    steps = Steps(2)
    runtime, handle = await started(store, steps)
    for number in range(130):
        await runtime.session("s").enqueue(f"later {number}", delay=3600)
        if number % 2:
            await runtime.session("s").enqueue(f"end {number}", boundary=BEFORE_COMPLETION, delay=3600)
    await runtime.session("s").enqueue("now", boundary=AFTER_STEP)
    steps.go_on()
    await steps.in_step(2)
    assert steps.shown[-1] == ["go", "now"]
    steps.go_on()
    assert (await handle.wait()).completed


async def test_a_look_that_finds_nothing_writes_nothing(store: Store) -> None:
    steps = Steps(2)
    runtime, handle = await started(store, steps)
    await runtime.session("s").enqueue("later", boundary=AFTER_STEP, delay=3600)
    writes = 0
    transact = store.backend.transact

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal writes
        writes += 1
        return await transact(*arguments, **options)

    store.backend.transact = counted  # type: ignore[method-assign]
    try:
        for boundary in (None, *Boundary):
            assert (await store.inbox.next("s", boundary=boundary)).inputs == ()
            assert (await store.inbox.next("unknown", boundary=boundary)).inputs == ()
        assert writes == 0
    finally:
        store.backend.transact = transact  # type: ignore[method-assign]
    steps.go_on()
    await steps.in_step(2)
    steps.go_on()
    await handle.wait()


async def test_a_turn_without_a_step_left_leaves_it_to_the_next_one(store: Store) -> None:
    steps = Steps(1)
    runtime, handle = await started(store, steps, budget=1)
    moved = await runtime.session("s").enqueue("too late", boundary=BEFORE_COMPLETION)
    steps.go_on()
    assert (await handle.wait()).completed
    assert (await runtime.outcome(moved)).status == "queued"
    steps.go_on()
    await runtime.drain()
    assert (await runtime.outcome(moved)).completed
    assert [each.status for each in await runtime.session("s").runs()] == [RunStatus.COMPLETED] * 2


async def test_a_function_runs_again_with_what_came_in_and_repeats_no_call(store: Store) -> None:
    entered, go, called = asyncio.Event(), asyncio.Event(), list[str]()

    @program
    async def echo(turn: Turn) -> str:
        text = said(turn.input)

        async def call() -> str:
            called.append(text)
            return f"re: {text}"

        turn.append({"role": "assistant", "content": await turn.effect("tool", call, {"text": text})})
        if text == "first":
            entered.set()
            await go.wait()
        return text

    runtime = await opened(store, [echo])
    await runtime.create("echo", session_id="s")
    handle = await runtime.session("s").start("first")
    await entered.wait()
    await runtime.session("s").enqueue("second", boundary=BEFORE_COMPLETION)
    go.set()
    outcome = await handle.wait()
    assert (outcome.completed, outcome.output) == (True, "second")
    assert called == ["first", "second"]
    assert await talk_of(runtime, "s") == ["first", "re: first", "second", "re: second"]
    assert len(await runtime.session("s").runs()) == 1


async def test_an_unknown_boundary_and_a_command_with_one_are_refused(store: Store) -> None:
    steps = Steps(1)
    runtime = await opened(store, [steps.agent])
    await runtime.create("agent", session_id="s")
    steps.go_on()
    await runtime.send("s", "one")
    before = await store.dump()
    whenever: Any = "whenever"
    gently: Any = "gently"
    with pytest.raises(InvalidInput):
        await runtime.session("s").enqueue("hello", boundary=whenever)
    with pytest.raises(InvalidInput):
        await runtime.session("s").enqueue(WriteMetadata({}), boundary=AFTER_STEP)
    with pytest.raises(InvalidInput):
        await runtime.session("s").stop(kind=gently)
    assert await store.dump() == before
