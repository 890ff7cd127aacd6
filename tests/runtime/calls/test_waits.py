"""Waits: a turn suspends on them and goes on, on any worker, once all are settled."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto.errors import AlreadyAnswered, AnswerInvalid, InvalidInput, LateAnswer, WaitExpired
from tenuto.model.run import RunStatus
from tenuto.model.wait import WaitStatus
from tenuto.runtime.calls.wait_for import WaitFor
from tenuto.runtime.change.action import ResumeSession, SuspendSession
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.testing.agent import calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, contents, counting, in_memory, results, waiting
from tests.runtime.seams import advance


async def test_a_turn_suspends_on_a_wait_and_goes_on_with_its_answer_in_another_runtime(harness: OurHarness) -> None:
    runs: list[bool] = []

    @program
    async def asks(turn: Turn) -> Any:
        runs.append(turn.resumed)
        turn.append({"role": "assistant", "content": "May I?"}, once="asked")
        said = await turn.wait("consent", metadata={"about": "cookies"})
        again = await turn.wait("consent")
        return [said, again]

    database = Database(harness)
    first = await database.runtime(asks)
    await first.create("asks", session_id="s")
    outcome = await first.send("s", "hi")
    assert outcome.suspended
    (wait,) = outcome.waits
    assert (wait.kind, wait.signal_id, wait.status) == ("signal", "consent", WaitStatus.OPEN)
    assert wait.metadata["about"] == "cookies"
    await first.store.aclose()

    second = await database.runtime(asks)
    kept = await second.answer(wait.wait_id, {"yes": 1}, run=False)
    assert (kept.continues, kept.open_waits, kept.outcome) == ("worker", (), None)
    await second.store.aclose()

    third = await database.runtime(asks)
    await third.drain()
    (other,) = await third.session("s").waits()
    assert other.wait_id != wait.wait_id
    answered = await third.answer(other.wait_id, "second")
    assert answered.outcome is not None
    assert answered.outcome.output == [{"yes": 1}, "second"]
    assert runs == [False, True, True]
    assert contents((await third.get("s")).messages, "assistant") == ["May I?"]
    statuses = [(each.run.number, each.status) for each in await third.session("s").runs()]
    assert statuses == [(3, RunStatus.COMPLETED), (2, RunStatus.SUSPENDED), (1, RunStatus.SUSPENDED)]
    assert (await third.get("s")).resume_count == 2


async def test_a_step_that_runs_again_finds_its_own_waits_and_not_those_of_earlier_steps(harness: OurHarness) -> None:
    @program
    async def interview(turn: Turn) -> Any:
        async for step in turn.steps():
            said = await turn.wait("reply")
            turn.state.update(said=[*turn.state.get("said", []), [step, said]])
            if step == 3:
                break
        return turn.state.get("said")

    database = Database(harness)
    runtime = await database.runtime(interview)
    await runtime.create("interview", session_id="s")
    await runtime.send("s", "begin")
    for word in ("red", "green", "blue"):
        (wait,) = await runtime.session("s").waits()
        answered = await runtime.answer(wait.wait_id, word)
    assert answered.outcome is not None
    assert answered.outcome.output == [[1, "red"], [2, "green"], [3, "blue"]]


async def test_several_waits_are_answered_in_any_order_and_the_turn_goes_on_with_the_last(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        return list(await turn.wait_all(*(WaitFor(name) for name in ("a", "b", "a"))))

    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        database = Database(harness)
        runtime = await database.runtime(asks)
        session = await runtime.create("asks")
        waits = (await session.send("hi")).waits
        assert [wait.signal_id for wait in waits] == ["a", "b", "a"]
        for left, index in zip((2, 1, 0), order, strict=True):
            answered = await runtime.answer(waits[index].wait_id, index)
            assert (answered.continues, len(answered.open_waits)) == ("waiting" if left else "here", left)
        assert answered.outcome is not None
        assert answered.outcome.output == [0, 1, 2]


async def test_waits_of_every_kind_stand_beside_each_other_on_one_run(harness: OurHarness) -> None:
    charged: list[Any] = []
    gate = Gate()
    sent: list[int] = []

    async def mail(_: Any, __: Any) -> str:
        sent.append(1)
        await gate()
        return "sent"

    @program
    async def helper(turn: Turn) -> Any:
        return "helped: " + turn.text

    tools = [
        Tool(name="charge", run=counting(charged, "charged"), needs_approval=True),
        Tool(name="browser", timeout=500),
        Tool(name="ask", child="helper"),
        Tool(name="mail", run=mail),
    ]
    asked = calls(
        ("c1", "charge", {"amount": 3}),
        ("c2", "browser", {"url": "x"}),
        ("c3", "ask", {"message": "hello"}),
        ("c4", "mail", {}),
    )
    made = agent(asked, "done", tools=tools)
    database = Database(harness)
    first = await database.runtime(made, helper)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()

    second = await database.runtime(made, helper)
    await advance(second, "s")
    (info,) = await second.session("s").runs()
    assert (info.status, info.run.attempt, info.run.partial) == (RunStatus.SUSPENDED, 2, True)
    assert sorted(info.wait_kinds) == ["approval", "child", "in_doubt", "tool_result"]
    waits = {wait.kind: wait for wait in await second.session("s").waits()}
    assert waits["tool_result"].deadline is not None

    await second.answer(waits["in_doubt"].wait_id, {"outcome": "done", "result": "sent, says the log"})
    await second.drain()  # the child
    await second.answer(waits["tool_result"].wait_id, error="no such page")
    answered = await second.answer(waits["approval"].wait_id, True)
    assert answered.outcome is not None
    assert answered.outcome.text == "done"
    assert results((await second.get("s")).messages) == {
        "c1": "charged",
        "c2": "Error: no such page",
        "c3": "helped: hello",
        "c4": "sent, says the log",
    }
    assert (sent, charged) == ([1], [{"amount": 3}])


async def test_an_answer_counts_while_the_run_is_still_live(harness: OurHarness) -> None:
    gate = Gate()

    async def slow(_: Any, __: Any) -> str:
        await gate()
        return "slow"

    tools = [Tool(name="slow", run=slow), Tool(name="browser")]
    made = agent(calls(("c1", "slow", {}), ("c2", "browser", {})), "done", tools=tools)
    database = Database(harness)
    runtime = await database.runtime(made)
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await gate.reached.wait()
    other = await database.runtime(made)
    (wait,) = await other.session("s").waits()
    answered = await other.answer(wait.wait_id, "clicked")
    assert (answered.continues, answered.outcome) == ("worker", None)
    await other.drain()  # nothing to do yet: it is live elsewhere
    gate.open.set()
    outcome = await task
    assert (outcome.suspended, outcome.waits) == (True, ())
    await other.drain()
    session = await other.get("s")
    assert results(session.messages) == {"c1": "slow", "c2": "clicked"}
    assert contents(session.messages, "assistant") == ["", "done"]
    assert gate.entered == 1
    assert len(await other.session("s").runs()) == 2


async def test_a_wait_that_is_not_answered_in_time_expires_and_the_program_is_told(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        try:
            return await turn.wait("vote", timeout=30)
        except WaitExpired as expired:
            return [expired.details()["status"], expired.details()["wait_id"]]

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    (wait,) = (await runtime.send("s", "hi")).waits
    database.clock.advance(29)
    await runtime.drain()
    assert len(await runtime.session("s").waits()) == 1
    database.clock.advance(1)
    await runtime.drain()
    last = (await runtime.session("s").runs())[0]
    assert (last.status, last.run.outcome) == (RunStatus.COMPLETED, {"output": ["expired", wait.wait_id]})


async def test_a_wait_until_a_moment_expires_at_that_moment(harness: OurHarness) -> None:
    database = Database(harness)
    deadline = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=30)

    @program
    async def asks(turn: Turn) -> Any:
        try:
            return (await turn.wait_all(WaitFor("vote", deadline=deadline)))[0]
        except WaitExpired:
            return "nobody came"

    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).waits[0].deadline == deadline
    database.clock.advance(29.999)
    await runtime.drain()
    assert len(await runtime.session("s").waits()) == 1
    database.clock.advance(0.001)
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].run.outcome == {"output": "nobody came"}


async def test_a_deadline_alone_does_not_go_on_while_something_else_is_waited_for(harness: OurHarness) -> None:
    tools = [Tool(name="quick", timeout=10), Tool(name="slow")]
    database = Database(harness)
    runtime = await database.runtime(agent(calls(("c1", "quick", {}), ("c2", "slow", {})), "done", tools=tools))
    await runtime.create("agent", session_id="s")
    waits = (await runtime.send("s", "hi")).waits
    database.clock.advance(11)
    await runtime.drain()
    assert [wait.status for wait in await runtime.session("s").waits()] == [WaitStatus.OPEN, WaitStatus.OPEN]
    answered = await runtime.answer(waits[1].wait_id, "late but fine")
    assert answered.continues == "waiting"
    await runtime.drain()
    assert results((await runtime.get("s")).messages) == {
        "c1": "Not executed: no answer came in time.",
        "c2": "late but fine",
    }


@pytest.mark.parametrize("seconds", [0.5, 3600])
async def test_a_sleeping_turn_is_woken_by_a_worker_when_its_time_has_come(harness: OurHarness, seconds: float) -> None:
    @program
    async def sleeper(turn: Turn) -> Any:
        await turn.sleep(seconds)
        await turn.sleep(seconds)
        return "awake"

    database = Database(harness)
    runtime = await database.runtime(sleeper)
    await runtime.create("sleeper", session_id="s")
    (wait,) = (await runtime.send("s", "hi")).waits
    assert wait.kind == "time"
    with pytest.raises(AnswerInvalid, match=r"is still open.*Only the clock wakes"):
        await runtime.answer(wait.wait_id, None)
    database.clock.advance(seconds * 0.9)
    await runtime.drain()
    assert len(await runtime.session("s").runs()) == 1
    database.clock.advance(seconds)
    await runtime.drain()
    database.clock.advance(seconds)
    await runtime.drain()
    assert [run.run.outcome for run in await runtime.session("s").runs()] == [{"output": "awake"}, None, None]
    with pytest.raises(AnswerInvalid, match=r"is expired.*Only the clock wakes"):
        await runtime.answer(wait.wait_id, None)


async def test_a_long_sleep_that_ends_while_the_session_is_closed_goes_on_when_it_is_resumed(
    harness: OurHarness,
) -> None:
    @program
    async def sleeper(turn: Turn) -> Any:
        await turn.sleep(3 * 86_400)
        return "awake"

    database = Database(harness)
    runtime = await database.runtime(sleeper)
    await runtime.create("sleeper", session_id="s")
    await runtime.send("s", "hi")
    await runtime.execute("s", SuspendSession())
    database.clock.advance(3 * 86_400 + 1)
    await runtime.drain()
    assert len(await runtime.session("s").runs()) == 1
    await runtime.execute("s", ResumeSession())
    database.clock.advance(60)
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].run.outcome == {"output": "awake"}


@in_memory
async def test_a_turn_cannot_sleep_backwards_and_no_time_is_no_sleep(harness: OurHarness) -> None:
    @program
    async def sleeper(turn: Turn) -> Any:
        await turn.sleep(0)
        with pytest.raises(InvalidInput, match=r"seconds must be from 0 .* got -1"):
            await turn.sleep(-1)
        return "awake"

    runtime = await Database(harness).runtime(sleeper)
    await runtime.create("sleeper", session_id="s")
    assert (await runtime.send("s", "hi")).output == "awake"


async def test_a_new_message_gives_up_every_open_wait_and_later_waits_work(harness: OurHarness) -> None:
    database = Database(harness)
    tools = [Tool(name="browser"), Tool(name="pay", run=counting([]), needs_approval=True)]
    made = agent(calls(("c1", "browser", {}), ("c2", "pay", {})), calls(("c1", "browser", {})), "done", tools=tools)
    runtime = await database.runtime(made)
    await runtime.create("agent", session_id="s")
    first = await runtime.send("s", "one")
    second = await runtime.send("s", "two")
    assert second.suspended
    for wait in first.waits:
        found = await runtime.store.waits.get(wait.wait_id)
        assert found is not None
        assert found.status is WaitStatus.ABANDONED
        with pytest.raises(LateAnswer):
            await runtime.answer(wait.wait_id, True)
    roles = [message["role"] for message in (await runtime.get("s")).messages]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]
    answered = await runtime.answer(waiting(second, "tool_result").wait_id, "clicked")
    assert answered.outcome is not None
    assert answered.outcome.text == "done"
    messages = (await runtime.get("s")).messages
    told = results(messages)
    assert told["c1"] == told["c2"] == "Not executed: it was abandoned for a new message."
    assert told["c1_2"] == "clicked"


async def test_cancelling_gives_up_every_open_wait_and_the_session_takes_the_next_message(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        return list(await turn.wait_all(WaitFor("a"), WaitFor("b")))

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert await runtime.session("s").abandon_waits() == 0
    first = await runtime.send("s", "one")
    await runtime.answer(first.waits[0].wait_id, 1)
    assert await runtime.session("s").abandon_waits() == 1
    assert await runtime.session("s").abandon_waits() == 0
    assert (await runtime.answer(first.waits[0].wait_id, 1)).replayed
    with pytest.raises(AlreadyAnswered):
        await runtime.answer(first.waits[0].wait_id, 2)
    with pytest.raises(LateAnswer):
        await runtime.answer(first.waits[1].wait_id, 2)
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].status is RunStatus.SUSPENDED
    second = await runtime.send("s", "two")
    for wait in second.waits:
        answered = await runtime.answer(wait.wait_id, wait.signal_id)
    assert answered.outcome is not None
    assert answered.outcome.output == ["a", "b"]


async def test_a_run_that_fails_leaves_no_wait_open_and_keeps_what_was_answered(harness: OurHarness) -> None:
    gate, live = Gate(), list[Turn]()

    async def breaks(turn: Any, _: Any) -> str:
        live.append(turn)
        await gate()
        return "never told"

    tools = [Tool(name="breaks", run=breaks), Tool(name="browser"), Tool(name="pay", needs_approval=True)]
    asked = calls(("c1", "breaks", {}), ("c2", "browser", {}), ("c3", "browser", {}), ("c4", "pay", {}))
    database = Database(harness)
    runtime = await database.runtime(agent(asked, tools=tools))
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await gate.reached.wait()
    first, second, third = await runtime.session("s").waits()
    await runtime.answer(first.wait_id, "clicked")
    await runtime.session("s").stop(kind="abort", reason="enough")
    outcome = await task
    assert (outcome.status, outcome.error["category"]) == ("failed", "run_aborted")
    assert await runtime.session("s").waits() == []
    told = results((await runtime.get("s")).messages)
    assert told["c1"].startswith("Outcome unknown")
    assert told["c2"] == "clicked"
    assert told["c3"] == told["c4"] == "Not executed: the run was stopped."
    assert [each.call_id for each in await runtime.session("s").effects_in_doubt()] == ["c1"]
    for late in (second, third):
        with pytest.raises(LateAnswer):
            await runtime.answer(late.wait_id, True)


async def test_what_waits_in_a_session_that_was_suspended_goes_on_when_that_is_resumed(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        return await turn.wait("a")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "one")
    await runtime.execute("s", SuspendSession())
    answered = await runtime.answer(outcome.waits[0].wait_id, "kept")
    assert answered.outcome is None
    await runtime.drain()
    assert len(await runtime.session("s").runs()) == 1
    await runtime.execute("s", ResumeSession())
    database.clock.advance(120)
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].run.outcome == {"output": "kept"}


async def test_a_message_that_comes_before_the_end_gets_its_own_waits_and_effects(harness: OurHarness) -> None:
    """Taken in at `before_completion`, the program runs again: nothing of its first pass is taken for a repeat."""
    gate, asked = Gate(), list[str]()

    @program
    async def asks(turn: Turn) -> Any:
        async def call() -> str:
            asked.append(turn.text)
            return f"about {turn.text}"

        found = await turn.effect("look", call, None)
        said = await turn.wait("ok")
        if turn.text == "one":
            await gate()
        return [found, said]

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "one")
    task = asyncio.create_task(runtime.answer(outcome.waits[0].wait_id, 1))
    await gate.reached.wait()
    await runtime.session("s").enqueue("two", boundary="before_completion")
    gate.open.set()
    answered = await task
    assert answered.outcome is not None
    (wait,) = answered.outcome.waits
    again = await (await database.runtime(asks)).answer(wait.wait_id, 2)
    assert again.outcome is not None
    assert again.outcome.output == ["about two", 2]
    assert asked == ["one", "two"]
