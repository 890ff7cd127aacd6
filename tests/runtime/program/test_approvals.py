"""An approved tool runs when its own answer comes; the turn goes on when all are there."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tenuto import Turn, program, run_tools, tool
from tenuto.errors import AnswerMismatch, AnswerRefused, LateAnswer
from tenuto.messages import text_of
from tenuto.model.run import RunStatus
from tenuto.model.wait import Wait
from tenuto.runtime.program.program import Program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.agent import Request, Script, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, contents, counting, in_memory, results

ASKED = calls(("c1", "pay", {"n": 1}), ("c2", "locate", {}), ("c3", "pay", {"n": 3}))


def shop(paid: list[Any], **options: Any) -> Any:
    """Return an agent that asks for two approvals and the customer's place in one step."""
    tools = [Tool(name="pay", run=counting(paid, "paid"), needs_approval=True), Tool(name="locate")]
    return agent(ASKED, "done", tools=tools, **options)


def looping(script: Script, tools: Sequence[Tool]) -> Program[Any]:
    """Return an agent that knows nothing of open calls: it repeats its step from the top."""

    @program(name="agent")
    async def loop(turn: Turn) -> None:
        async for _ in turn.steps():

            async def ask() -> Any:
                return script(Request(model=None, system_prompt=None, messages=turn.context))

            reply = await turn.effect("model", ask, kind="model")
            turn.append(reply)
            if not reply.get("tool_calls"):
                return
            await run_tools(turn, tools)

    return loop


async def begun(database: Database, made: Any, **options: Any) -> tuple[SessionRuntime, dict[str, Wait]]:
    """Return a runtime in which the step waits, and its waits by call."""
    runtime = await database.runtime(made, **options)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    return runtime, {str(wait.metadata["call_id"]): wait for wait in outcome.waits}


async def said(runtime: SessionRuntime) -> Mapping[str, Any]:
    """Return the results that are on record."""
    return results((await runtime.get("s")).messages)


@pytest.mark.parametrize("loops", [False, True], ids=["reads its open calls", "repeats its step"])
async def test_an_approved_tool_runs_at_once_and_the_turn_goes_on_when_all_have(
    harness: OurHarness, loops: bool
) -> None:
    paid: list[Any] = []
    script = Script(ASKED, "done")
    pay = Tool(name="pay", run=counting(paid, "paid"), needs_approval=True)
    made = looping(script, [pay, Tool(name="locate")]) if loops else shop(paid)
    database = Database(harness)
    runtime, waits = await begun(database, made)
    first = await runtime.answer(waits["c3"], True)
    assert (first.continues, paid) == ("here", [{"n": 3}])
    assert first.outcome is not None
    assert first.outcome.suspended
    assert {wait.wait_id for wait in first.outcome.waits} == {waits["c1"].wait_id, waits["c2"].wait_id}
    assert {wait.wait_id for wait in first.open_waits} == {waits["c1"].wait_id, waits["c2"].wait_id}
    elsewhere = await database.runtime(made)
    assert await said(elsewhere) == {"c3": "paid"}
    assert contents((await elsewhere.get("s")).messages, "assistant") == [""]
    second = await elsewhere.answer(waits["c2"], [48.2, 16.4])  # in another process
    assert (second.continues, second.outcome, len(paid)) == ("waiting", None, 1)
    third = await runtime.answer(waits["c1"], True)
    assert third.outcome is not None
    assert (third.outcome.text, paid) == ("done", [{"n": 3}, {"n": 1}])
    assert await said(elsewhere) == {"c1": "paid", "c2": "[48.2,16.4]", "c3": "paid"}
    runs = await runtime.session("s").runs()
    assert [run.status for run in runs] == [RunStatus.COMPLETED, RunStatus.SUSPENDED, RunStatus.SUSPENDED]
    assert [run.run.partial for run in runs] == [False, True, False]
    assert len({run.run.invocation_id for run in runs}) == 1
    if loops:
        assert len(script.requests) == 2


async def test_an_answer_that_has_an_outcome_names_the_waits_that_are_open_then(harness: OurHarness) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    answers: dict[str, Any] = {"c1": True, "c3": True, "c2": [48.2, 16.4]}
    given = await asyncio.gather(*[runtime.answer(waits[call], value) for call, value in answers.items()])
    known = [each for each in given if each.outcome is not None]
    assert known
    for each in known:
        assert each.outcome is not None
        assert each.open_waits == each.outcome.waits
    assert len(paid) == 2


async def test_a_worker_runs_what_was_approved_with_run_false(harness: OurHarness) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    given = await runtime.answer(waits["c1"].wait_id, True, run=False)
    assert (given.continues, given.outcome, paid) == ("worker", None, [])
    await runtime.drain()
    assert (paid, await said(runtime)) == ([{"n": 1}], {"c1": "paid"})
    assert {wait.wait_id for wait in await runtime.session("s").waits()} == {waits["c2"].wait_id, waits["c3"].wait_id}


@in_memory
async def test_a_refusal_and_a_client_leave_the_turn_waiting(harness: OurHarness) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    for answer in (
        await runtime.answer(waits["c1"], {"approved": False, "reason": "too dear"}),
        await runtime.answer(waits["c2"], "here"),
    ):
        assert (answer.continues, answer.outcome) == ("waiting", None)
    await runtime.drain()
    assert len(await runtime.session("s").runs()) == 1
    assert await said(runtime) == {}
    last = await runtime.answer(waits["c3"], True)
    assert last.outcome is not None
    assert last.outcome.text == "done"
    assert await said(runtime) == {"c1": "Not executed: too dear.", "c2": "here", "c3": "paid"}


@in_memory
async def test_what_was_answered_before_is_on_record_once_a_tool_runs(harness: OurHarness) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    await runtime.answer(waits["c2"], "here")
    await runtime.answer(waits["c1"], True)
    assert await said(runtime) == {"c1": "paid", "c2": "here"}
    assert [wait.wait_id for wait in await runtime.session("s").waits()] == [waits["c3"].wait_id]


@in_memory
async def test_the_same_answer_again_calls_nothing_again(harness: OurHarness) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    await runtime.answer(waits["c1"], True)
    try:
        again = await runtime.answer(waits["c1"], True)
    except AnswerRefused:
        pass
    else:
        assert again.wait_id == waits["c1"].wait_id
    await runtime.drain()
    assert paid == [{"n": 1}]
    assert len(await runtime.session("s").runs()) == 2


@in_memory
async def test_a_wait_that_was_handed_on_is_still_bound_to_its_invocation(harness: OurHarness) -> None:
    database = Database(harness)
    runtime, waits = await begun(database, shop([]))
    other = await runtime.create("agent")
    (theirs, *_) = (await other.send("go")).waits
    await runtime.answer(waits["c1"], True)
    kept = {wait.wait_id: wait for wait in await runtime.session("s").waits()}
    moved = kept[waits["c2"].wait_id]
    assert moved.run_id != waits["c2"].run_id
    with pytest.raises(AnswerMismatch):
        await runtime.answer(replace(moved, run_id=theirs.run_id), "there")
    assert (await runtime.answer(waits["c2"], "here")).run_id == moved.run_id


async def test_an_approval_that_comes_while_another_tool_runs_is_acted_on_after_it(harness: OurHarness) -> None:
    gate, paid = Gate(), list[Any]()

    async def pay(_: Any, arguments: Mapping[str, Any]) -> str:
        paid.append(arguments["n"])
        await gate()
        return f"receipt {arguments['n']}"

    made = agent(ASKED, "done", tools=[Tool(name="pay", run=pay, needs_approval=True), Tool(name="locate")])
    database = Database(harness)
    runtime, waits = await begun(database, made)
    first = asyncio.create_task(runtime.answer(waits["c1"], True))
    await gate.reached.wait()
    second = await (await database.runtime(made)).answer(waits["c3"], True)
    assert (second.continues, paid) == ("worker", [1])
    gate.open.set()
    answered = await first
    assert answered.outcome is not None
    assert (answered.outcome.suspended, paid) == (True, [1, 3])
    assert await said(runtime) == {"c1": "receipt 1", "c3": "receipt 3"}
    assert [wait.wait_id for wait in await runtime.session("s").waits()] == [waits["c2"].wait_id]
    await (await database.runtime(made)).drain()  # both wakes are there, and find nothing to do
    assert (paid, len(await runtime.session("s").runs())) == ([1, 3], 3)


async def test_a_runner_lost_in_an_approved_tool_leaves_that_call_in_doubt_and_the_others_open(
    harness: OurHarness,
) -> None:
    gate, paid = Gate(), list[int]()

    async def pay(_: Any, arguments: Mapping[str, Any]) -> str:
        paid.append(arguments["n"])
        await gate()
        return f"receipt {len(paid)}"

    made = agent(ASKED, "done", tools=[Tool(name="pay", run=pay, needs_approval=True), Tool(name="locate")])
    database = Database(harness)
    first, waits = await begun(database, made)
    task = asyncio.create_task(first.answer(waits["c1"], True))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    second = await database.runtime(made)
    await second.drain()
    open_waits = {(wait.kind, str(wait.metadata["call_id"])): wait for wait in await second.session("s").waits()}
    assert set(open_waits) == {("in_doubt", "c1"), ("tool_result", "c2"), ("approval", "c3")}
    assert paid == [1]
    again = await second.answer(open_waits["in_doubt", "c1"], {"outcome": "retry"})
    assert again.outcome is not None
    assert (again.outcome.suspended, paid) == (True, [1, 1])
    assert await said(second) == {"c1": "receipt 2"}
    await second.answer(waits["c3"], True)
    last = await second.answer(waits["c2"], "here")
    assert last.outcome is not None
    assert last.outcome.text == "done"
    assert await said(second) == {"c1": "receipt 2", "c2": "here", "c3": "receipt 3"}


async def test_a_stop_while_an_approved_tool_runs_lets_it_finish_and_abandons_the_rest(harness: OurHarness) -> None:
    gate = Gate()

    async def pay(_: Any, __: Any) -> str:
        await gate()
        return "paid"

    made = agent(ASKED, "done", tools=[Tool(name="pay", run=pay, needs_approval=True), Tool(name="locate")])
    runtime, waits = await begun(Database(harness), made)
    task = asyncio.create_task(runtime.answer(waits["c1"], True))
    await gate.reached.wait()
    await runtime.session("s").stop("interrupt", reason="enough")
    gate.open.set()
    answered = await task
    assert answered.outcome is not None
    assert answered.outcome.status == "interrupted"
    assert await said(runtime) == {
        "c1": "paid",
        "c2": "Not executed: the run was stopped.",
        "c3": "Not executed: the run was stopped.",
    }
    assert await runtime.session("s").waits() == []
    with pytest.raises(LateAnswer):
        await runtime.answer(waits["c3"], True)


@in_memory
@pytest.mark.parametrize("when_busy", ["reject", "rollback"])
async def test_a_new_message_abandons_what_is_still_open(harness: OurHarness, when_busy: Any) -> None:
    paid: list[Any] = []
    runtime, waits = await begun(Database(harness), shop(paid))
    await runtime.answer(waits["c1"], True)
    outcome = await runtime.send("s", "something else", when_busy=when_busy)
    if when_busy == "reject":
        assert outcome.text == "done"
        assert await said(runtime) == {
            "c1": "paid",
            "c2": "Not executed: it was abandoned for a new message.",
            "c3": "Not executed: it was abandoned for a new message.",
        }
    for call in ("c2", "c3"):
        with pytest.raises(LateAnswer):
            await runtime.answer(waits[call].wait_id, True)
    assert [text_of(each) for each in (await runtime.get("s")).messages if each["role"] == "user"][-1] == (
        "something else"
    )
    assert paid == [{"n": 1}]


async def test_a_wait_keeps_its_deadline_while_others_are_acted_on(harness: OurHarness) -> None:
    paid: list[Any] = []
    tools = [
        Tool(name="pay", run=counting(paid, "paid"), needs_approval=True, timeout=60),
        Tool(name="locate", timeout=30),
    ]
    database = Database(harness)
    runtime, waits = await begun(database, agent(ASKED, "done", tools=tools))
    await runtime.answer(waits["c1"], True)
    kept = await runtime.session("s").waits()
    assert [wait.deadline for wait in kept] == [waits["c2"].deadline, waits["c3"].deadline]
    database.clock.advance(31)
    await runtime.answer(waits["c3"], True)
    assert (paid, await said(runtime)) == (
        [{"n": 1}, {"n": 3}],
        {"c1": "paid", "c2": "Not executed: no answer came in time.", "c3": "paid"},
    )
    assert (await runtime.session("s").runs())[0].status is RunStatus.COMPLETED


@in_memory
async def test_a_tool_of_the_signature_is_approved_like_any_other(harness: OurHarness) -> None:
    paid: list[int] = []

    @tool(needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    @tool(client=True)
    async def locate() -> str:
        """Find the customer."""
        raise NotImplementedError

    runtime, waits = await begun(Database(harness), looping(Script(ASKED, "done"), [pay, locate]))
    await runtime.answer(waits["c3"], True)
    assert (paid, await said(runtime)) == ([3], {"c3": "paid 3"})
