"""Answers: bound to wait, kind and run, stored once, each refusal with its own name."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    AnswerMismatch,
    AnswerRefused,
    LateAnswer,
    StoreUnavailable,
    WaitUnknown,
)
from tenuto.model.run import RunStatus
from tenuto.model.wait import Wait, WaitStatus
from tenuto.runtime.calls.wait_for import WaitFor
from tenuto.runtime.handle import Session
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.stream.notices import Notice, WaitSettled
from tenuto.runtime.tree.answer import Answered
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, contents, counting, in_memory, results, waiting


@program
async def asks(turn: Turn) -> Any:
    return await turn.wait("question", timeout=30)


async def notices(runtime: SessionRuntime, session_id: str = "s") -> list[str]:
    """Return what the model was told of answers that came too late."""
    return contents((await runtime.get(session_id)).messages, "system")


async def test_every_answer_that_does_not_fit_has_its_own_refusal_and_changes_nothing(harness: OurHarness) -> None:
    tools = [Tool(name="browser"), Tool(name="pay", needs_approval=True, run=counting([]))]
    made = agent(calls(("c1", "browser", {}), ("c2", "pay", {})), tools=tools)
    runtime = await Database(harness).runtime(made, asks)
    await runtime.create("agent", session_id="s")
    await runtime.create("asks", session_id="other")
    foreign = (await runtime.send("other", "hi")).waits[0]
    outcome = await runtime.send("s", "go")
    result, approval = waiting(outcome, "tool_result"), waiting(outcome, "approval")
    before = await runtime.store.dump()

    for unknown in ("nobody", "", approval.run_id):
        with pytest.raises(WaitUnknown) as refusal:
            await runtime.answer(unknown, True)
        assert refusal.value.details() == {"wait_id": unknown}
    session = runtime.session("s")
    refused: list[tuple[Session, Wait | str, str, str]] = [
        (session, replace(result, kind="approval"), "tool_result", "approval"),
        (session, replace(result, run_id=foreign.run_id), result.run_id, foreign.run_id),
        (runtime.session("other"), result.wait_id, "s", "other"),
        (runtime.session("other"), result, "s", "other"),
        (runtime.session("nowhere"), result.wait_id, "s", "nowhere"),
    ]
    for by, wait, expected, given in refused:
        with pytest.raises(AnswerMismatch) as mismatch:
            await by.answer(wait, True)
        assert (mismatch.value.details()["expected"], mismatch.value.details()["given"]) == (expected, given)
    elsewhere = runtime.for_tenant("t")
    for foreigner in (elsewhere, elsewhere.session("s")):
        for named in (result.wait_id, result):
            with pytest.raises(WaitUnknown) as refusal:
                await foreigner.answer(named, True)
            assert refusal.value.details() == {"wait_id": result.wait_id}
    for not_an_approval in ("yes", None, 1, {"result": "paid"}, {"approved": "yes"}):
        with pytest.raises(AnswerInvalid):
            await runtime.answer(approval.wait_id, not_an_approval)
    with pytest.raises(AnswerInvalid):
        await runtime.answer(approval.wait_id, error="broken")
    assert await runtime.store.dump() == before
    right = await session.answer(result, "clicked")
    assert [wait.wait_id for wait in right.open_waits] == [approval.wait_id]


async def test_the_output_of_a_gated_tool_comes_from_the_tool_alone(harness: OurHarness) -> None:
    paid: list[Any] = []
    made = agent(
        calls(("c1", "pay", {"amount": 3})),
        "done",
        tools=[Tool(name="pay", needs_approval=True, run=counting(paid, "receipt 1"))],
    )
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    wait = waiting(await runtime.send("s", "go"), "approval")
    assert paid == []
    with pytest.raises(AnswerMismatch):
        await runtime.answer(replace(wait, kind="tool_result"), "forged")
    with pytest.raises(AnswerInvalid):
        await runtime.answer(wait.wait_id, {"approved": True, "result": "forged"})
    await runtime.answer(wait.wait_id, {"approved": True})
    assert results((await runtime.get("s")).messages) == {"c1": "receipt 1"}
    assert paid == [{"amount": 3}]


async def test_another_answer_is_refused_also_after_a_restart_and_the_first_stands(harness: OurHarness) -> None:
    database = Database(harness)
    first = await database.runtime(asks)
    await first.create("asks", session_id="s")
    wait = (await first.send("s", "hi")).waits[0]
    await first.answer(wait.wait_id, "one", run=False)
    with pytest.raises(AlreadyAnswered):
        await first.answer(wait.wait_id, "two")
    await first.store.aclose()
    second = await database.runtime(asks)
    with pytest.raises(AlreadyAnswered) as refusal:
        await second.answer(wait.wait_id, "three")
    assert refusal.value.details() == {"wait_id": wait.wait_id}
    await second.drain()
    with pytest.raises(AlreadyAnswered):
        await second.answer(wait.wait_id, "four")
    stored = await second.store.waits.get(wait.wait_id)
    assert stored is not None
    assert (stored.answer, stored.status) == ("one", WaitStatus.ANSWERED)
    assert (await second.session("s").runs())[0].run.outcome == {"output": "one"}
    assert await notices(second) == []


async def test_the_same_answer_again_is_the_same_success(harness: OurHarness) -> None:
    """An equal value, or the same key whatever the value; before the session went on, meanwhile, and after."""
    database = Database(harness)
    runtime = await database.runtime(asks)
    session = await runtime.create("asks", session_id="s")
    (wait,) = (await session.send("hi")).waits
    value: Any = {"a": [1, True], "b": None}
    first = await session.answer(wait, value, key="k", run=False)
    before = await runtime.store.dump()
    for again in (
        await session.answer(wait, {"b": None, "a": [1, True]}, run=False),
        await session.answer(wait, value, key="other", run=False),
        await session.answer(wait, "another value", key="k", run=False),
    ):
        assert again == replace(first, replayed=True)
    for another in ({"a": [1, 1], "b": None}, {"a": [1, True]}, None):
        for key in (None, "other"):
            with pytest.raises(AlreadyAnswered):
                await session.answer(wait, another, key=key)
    assert await runtime.store.dump() == before
    went_on = await session.answer(wait, value, key="k")
    assert (went_on.replayed, went_on.continues) == (True, "here")
    assert went_on.outcome is not None
    assert went_on.outcome.output == value
    elsewhere = await database.runtime()
    for again in (await elsewhere.answer(wait.wait_id, value), await elsewhere.answer(wait, 0, key="k")):
        assert (again.replayed, again.continues, again.outcome) == (True, "here", went_on.outcome)
    assert len(await session.runs()) == 2


async def test_the_same_answer_from_two_clients_at_once_is_two_successes_and_one_turn(harness: OurHarness) -> None:
    database = Database(harness)
    one, two = await database.runtime(asks), await database.runtime(asks)
    for name, keys in (("s0", (None, None)), ("s1", ("k", "k")), ("s2", ("a", "b"))):
        await one.create("asks", session_id=name)
        (wait,) = (await one.send(name, "hi")).waits
        ends = await asyncio.gather(
            *(each.answer(wait.wait_id, "yes", key=key) for each, key in zip((one, two), keys, strict=True))
        )
        assert sorted(end.replayed for end in ends) == [False, True]
        await two.drain()
        assert [run.status for run in await one.session(name).runs()] == ["completed", "suspended"]


async def test_an_answer_to_one_of_several_waits_may_be_repeated_while_the_other_is_open(harness: OurHarness) -> None:
    @program
    async def asks_two(turn: Turn) -> Any:
        return list(await turn.wait_all(WaitFor("a"), WaitFor("b")))

    runtime = await Database(harness).runtime(asks_two)
    session = await runtime.create(asks_two, session_id="s")
    one, two = (await session.send("hi")).waits
    for replayed in (False, True):
        answered = await session.answer(one, 1)
        assert (answered.replayed, answered.continues, answered.open_waits) == (replayed, "waiting", (two,))
    assert (await session.answer(two, 2)).outcome is not None
    again = await session.answer(one, 1)
    assert again.outcome is not None
    assert again.outcome.output == [1, 2]


async def test_two_clients_answer_at_once_and_the_turn_goes_on_once(harness: OurHarness) -> None:
    ran: list[Any] = []

    @program
    async def asks_once(turn: Turn) -> Any:
        said = await turn.wait("question")
        ran.append(said)
        return said

    database = Database(harness)
    one, two = await database.runtime(asks_once), await database.runtime(asks_once)
    for name in ("s0", "s1", "s2"):
        ran.clear()
        await one.create("asks_once", session_id=name)
        wait = (await one.send(name, "hi")).waits[0]
        ends = await asyncio.gather(
            one.answer(wait.wait_id, "one"), two.answer(wait.wait_id, "two"), return_exceptions=True
        )
        (taken,) = [end for end in ends if isinstance(end, Answered)]
        (refused,) = [end for end in ends if isinstance(end, BaseException)]
        assert isinstance(refused, AlreadyAnswered)
        assert taken.continues != "waiting"
        await two.drain()
        stored = await one.store.waits.get(wait.wait_id)
        assert stored is not None
        assert ran == [stored.answer]
        assert [run.status for run in await one.session(name).runs()] == [RunStatus.COMPLETED, RunStatus.SUSPENDED]


async def test_two_clients_answer_two_waits_at_once_and_the_turn_goes_on_once(harness: OurHarness) -> None:
    tools = [Tool(name="browser")]
    made = agent(calls(("c1", "browser", {}), ("c2", "browser", {})), "done", tools=tools)
    database = Database(harness)
    one, two = await database.runtime(made), await database.runtime(made)
    for name in ("s0", "s1", "s2"):
        await one.create("agent", session_id=name)
        waits = (await one.send(name, "hi")).waits
        await asyncio.gather(one.answer(waits[0].wait_id, "left"), two.answer(waits[1].wait_id, "right"))
        await asyncio.gather(one.drain(), two.drain())
        session = await one.get(name)
        assert results(session.messages) == {"c1": "left", "c2": "right"}
        assert contents(session.messages, "assistant") == ["", "done"]
        assert len(await one.session(name).runs()) == 2


async def test_an_answer_after_the_deadline_wins_as_long_as_no_commit_consumed_it(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    database.clock.advance(31)
    answered = await runtime.answer(wait.wait_id, "just in time")
    assert answered.outcome is not None
    assert answered.outcome.output == "just in time"
    await runtime.drain()
    assert len(await runtime.session("s").runs()) == 2
    assert await notices(runtime) == []


async def test_an_answer_after_the_consumed_deadline_is_late_and_the_model_is_told_exactly_once(
    harness: OurHarness,
) -> None:
    script = Script(calls(("c1", "browser", {})), "I gave up.", "Thanks.")
    database = Database(harness)
    runtime = await database.runtime(ScriptedAgent(model=script, tools=[Tool(name="browser", timeout=30)]))
    await runtime.create("agent", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    database.clock.advance(31)
    await runtime.drain()
    assert results((await runtime.get("s")).messages) == {"c1": "Not executed: no answer came in time."}
    for value in ("clicked", "clicked", "clicked again"):
        with pytest.raises(LateAnswer) as late:
            await runtime.answer(wait.wait_id, value)
        assert late.value.details() == {"wait_id": wait.wait_id, "found": "expired"}
    await runtime.drain()
    with pytest.raises(LateAnswer):
        await runtime.answer(wait.wait_id, "once more")
    assert (await runtime.send("s", "and now?")).text == "Thanks."
    (told,) = await notices(runtime)
    assert told == f"An answer to 'c1' (wait {wait.wait_id}) came too late and was not used: its wait is expired."
    (message,) = [each for each in (await runtime.get("s")).messages if each["role"] == "system"]
    assert message["metadata"] == {"notice": {"wait_id": wait.wait_id}, "data": "clicked"}
    roles = [message["role"] for message in script.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "system", "user"]


async def test_a_late_answer_to_a_session_that_waits_again_is_not_lost(harness: OurHarness) -> None:
    made = agent(calls(("c1", "browser", {})), calls(("c2", "browser", {})), "done", tools=[Tool(name="browser")])
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    first = (await runtime.send("s", "one")).waits[0]
    second = (await runtime.send("s", "two")).waits[0]
    with pytest.raises(LateAnswer):
        await runtime.answer(first.wait_id, "too late")
    await runtime.drain()
    assert len(await runtime.session("s").waits()) == 1
    await runtime.answer(second.wait_id, "fine")
    await runtime.drain()
    session = await runtime.get("s")
    assert results(session.messages)["c2"] == "fine"
    assert len(await notices(runtime)) == 1


async def test_an_answer_is_unknown_until_its_wait_is_committed_and_after_its_session_is_deleted(
    harness: OurHarness,
) -> None:
    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    await runtime.session("s").delete()
    with pytest.raises(WaitUnknown):
        await runtime.answer(wait.wait_id, "gone")
    await runtime.create("asks", session_id="s")
    with pytest.raises(WaitUnknown):
        await runtime.answer(wait.wait_id, "another life")
    fresh = (await runtime.send("s", "hi")).waits[0]
    assert fresh.wait_id != wait.wait_id
    answered = await runtime.answer(fresh.wait_id, "here")
    assert answered.outcome is not None
    assert answered.outcome.output == "here"


async def test_an_answer_that_comes_between_a_new_message_and_its_commit_makes_neither_fail(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message gives up what it found open; if that was answered meanwhile it looks again."""
    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "one")).waits[0]
    commit, raced = runtime.store.commit, list[bool]()

    async def racing(given: Any) -> Any:
        if given.run is not None and not raced:
            raced.append(True)
            await runtime.answer(wait.wait_id, "first", run=False)
        return await commit(given)

    monkeypatch.setattr(runtime.store, "commit", racing)
    outcome = await runtime.send("s", "two")
    assert raced == [True]
    assert outcome.suspended
    stored = await runtime.store.waits.get(wait.wait_id)
    assert stored is not None
    assert (stored.status, stored.answer) == (WaitStatus.ANSWERED, "first")
    assert contents((await runtime.get("s")).messages, "user") == ["one", "two"]


async def test_an_answer_that_comes_while_its_deadline_is_consumed_makes_the_turn_look_again(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "one")).waits[0]
    database.clock.advance(31)
    commit, raced = runtime.store.commit, list[bool]()

    async def racing(given: Any) -> Any:
        if given.run is not None and not raced:
            raced.append(True)
            await runtime.answer(wait.wait_id, "at the last moment", run=False)
        return await commit(given)

    monkeypatch.setattr(runtime.store, "commit", racing)
    await runtime.drain()
    assert raced == [True]
    assert (await runtime.session("s").runs())[0].run.outcome == {"output": "at the last moment"}
    assert len(await runtime.session("s").runs()) == 2


async def test_where_the_program_is_not_registered_the_answer_is_kept_for_a_worker_that_has_it(
    harness: OurHarness,
) -> None:
    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    door = await database.runtime()
    answered = await door.answer(wait.wait_id, "kept")
    assert (answered.continues, answered.outcome) == ("worker", None)
    assert (await runtime.session("s").runs())[0].status is RunStatus.SUSPENDED
    await runtime.drain()
    assert (await runtime.session("s").runs())[0].run.outcome == {"output": "kept"}


async def test_a_settled_wait_is_told_to_listeners_and_stands_in_the_stream(harness: OurHarness) -> None:
    heard: list[Notice] = []
    runtime = await Database(harness).runtime(asks, listeners=[heard.append])
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    await runtime.answer(wait.wait_id, 1, run=False)
    (notice,) = [each for each in heard if isinstance(each, WaitSettled)]
    assert (notice.wait_id, notice.kind, notice.status) == (wait.wait_id, "signal", "answered")
    events = [event for event in (await runtime.store.events.read("s")).events if event.type == WaitSettled.type]
    assert [event.data for event in events] == [notice.data()]


@in_memory
async def test_a_refusal_is_an_answer_refused_whatever_its_reason(harness: OurHarness) -> None:
    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    with pytest.raises(AnswerRefused):
        await runtime.answer("unknown")
    with pytest.raises(AnswerRefused):
        await runtime.answer(replace(wait, kind="approval"))
    await runtime.answer(wait.wait_id, 1)
    with pytest.raises(AnswerRefused):
        await runtime.answer(wait.wait_id, 2)


async def test_an_answer_to_a_run_that_ended_is_late_with_one_notice(harness: OurHarness) -> None:
    gate = Gate()

    async def slow(_: Any, __: Any) -> str:
        await gate()
        return "slow"

    tools = [Tool(name="slow", run=slow), Tool(name="browser")]
    made = agent(calls(("c1", "slow", {}), ("c2", "browser", {})), "done", tools=tools)
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await gate.reached.wait()
    (wait,) = await runtime.session("s").waits()
    await runtime.session("s").stop(kind="abort")
    assert (await task).status == "failed"
    with pytest.raises(LateAnswer) as late:
        await runtime.answer(wait.wait_id, "clicked")
    assert late.value.details()["found"] == "abandoned"
    await runtime.drain()
    assert len(await notices(runtime)) == 1


async def test_an_answer_whose_reply_was_lost_is_not_taken_for_a_repeat(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    wait = (await runtime.send("s", "hi")).waits[0]
    commit, lost = runtime.store.commit, list[str]()

    async def losing(given: Any) -> Any:
        receipt = await commit(given)
        if given.settle_waits and not lost:
            lost.append(given.operation_id)
            raise StoreUnavailable("The reply was lost.")
        return receipt

    monkeypatch.setattr(runtime.store, "commit", losing)
    answered = await runtime.answer(wait.wait_id, "mine")
    assert len(lost) == 1
    assert answered.outcome is not None
    assert answered.outcome.output == "mine"
