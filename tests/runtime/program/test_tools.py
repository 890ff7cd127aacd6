"""A step's tool calls: side by side, each once, suspended together on what has to come from outside."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store
from tenuto.messages import text_of
from tenuto.messages.tool_result import result_message
from tenuto.model.effect import EffectStatus
from tenuto.model.run import RunStatus
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.conversation.history import History
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.effect_journal import Place
from tenuto.testing.agent import calls
from tests.conftest import OurHarness
from tests.polling import until
from tests.runtime.runtimes import Database, Gate, agent, contents, counting, in_memory, opened, results, waiting


async def history_of(runtime: SessionRuntime, session_id: str = "s") -> list[Any]:
    """Return the conversation, judged from its first message on."""
    messages = list((await runtime.get(session_id)).messages)
    waits = {str(wait.metadata.get("call_id")) for wait in await runtime.session(session_id).waits()}
    History().judged(messages, waits)
    return messages


async def test_tools_of_one_step_run_side_by_side_and_lose_no_write(harness: OurHarness) -> None:
    """Each waits until all have begun, so none can finish before the others write."""
    begun, all_begun = [0], asyncio.Event()

    async def count(turn: Turn, arguments: Mapping[str, Any]) -> Any:
        turn.update(lambda state: {"count": state.get("count", 0) + 1})
        begun[0] += 1
        if begun[0] == 8:
            all_begun.set()
        await all_begun.wait()
        turn.state.update(**{f"field_{arguments['n']}": arguments["n"]})
        turn.update(lambda state: {"seen": [*state.get("seen", []), arguments["n"]]})
        turn.add("notes", f"note {arguments['n']}")
        return arguments["n"]

    wanted = [(f"c{n}", "count", {"n": n}) for n in range(8)]
    database = Database(harness)
    runtime = await database.runtime(agent(calls(*wanted), "done", tools=[Tool(name="count", run=count)]))
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    session = await (await database.runtime()).get("s")
    assert {name: value for name, value in session.document.items() if name.startswith("field")} == {
        f"field_{n}": n for n in range(8)
    }
    assert session.document["count"] == 8
    seen: Any = session.document["seen"]
    assert sorted(seen) == list(range(8))
    assert sorted(str(note) for note in session.logs["notes"]) == [f"note {n}" for n in range(8)]
    assert results(await history_of(runtime)) == {f"c{n}": str(n) for n in range(8)}
    effects = await runtime.store.effects.list("s")
    assert sorted(str(each.call_id) for each in effects if each.call_id) == [f"c{n}" for n in range(8)]


async def test_the_starts_of_a_step_are_on_record_in_one_commit_with_the_message_that_makes_them(
    harness: OurHarness,
) -> None:
    gate = Gate()

    async def slow(_: Any, __: Any) -> str:
        await gate()
        return "slow"

    made = agent(
        calls(("c1", "slow", {}), ("c2", "slow", {}), ("c3", "client", {})),
        "done",
        tools=[Tool(name="slow", run=slow), Tool(name="client")],
    )
    database = Database(harness)
    runtime = await database.runtime(made)
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await gate.reached.wait()
    other = await database.runtime()
    head = await other.session("s").info()
    assert contents((await other.get("s")).messages, "assistant") == [""]
    started = [each for each in await other.store.effects.list("s") if each.status is EffectStatus.STARTED]
    assert [each.call_id for each in started] == ["c1", "c2"]
    (wait,) = await other.session("s").waits()
    assert wait.commit_number == head.commit_number
    gate.open.set()
    assert (await task).suspended


async def test_finished_calls_of_a_partial_step_are_not_carried_out_again(harness: OurHarness) -> None:
    done: list[Any] = []
    made = agent(
        calls(("c1", "count", {"n": 1}), ("c2", "client", {}), ("c3", "count", {"n": 3})),
        "done",
        tools=[Tool(name="count", run=counting(done)), Tool(name="client")],
    )
    database = Database(harness)
    first = await database.runtime(made)
    await first.create("agent", session_id="s")
    outcome = await first.send("s", "go")
    assert sorted(each["n"] for each in done) == [1, 3]
    assert (await first.session("s").runs())[0].run.partial
    await history_of(first)
    second = await database.runtime(made)
    answered = await second.answer(waiting(outcome, "tool_result").wait_id, {"page": 1})
    assert answered.outcome is not None
    assert answered.outcome.text == "done"
    assert len(done) == 2
    assert results(await history_of(second)) == {"c1": "ok", "c2": '{"page":1}', "c3": "ok"}
    assert [run.run.partial for run in await second.session("s").runs()] == [False, True]


async def test_a_step_of_which_nothing_is_done_yet_is_not_partial(harness: OurHarness) -> None:
    made = agent(calls(("c1", "client", {}), ("c2", "client", {})), "done", tools=[Tool(name="client")])
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).suspended
    assert not (await runtime.session("s").runs())[0].run.partial


async def test_a_tool_that_raises_is_unknown_or_declined_gives_the_model_a_result(harness: OurHarness) -> None:
    paid: list[Any] = []

    async def breaks(_: Any, __: Any) -> Any:
        raise ValueError("no such city")

    made = agent(
        calls(("c1", "breaks", {}), ("c2", "nothing", {}), ("c3", "pay", {"n": 1}), ("c4", "pay", {"n": 2})),
        "done",
        tools=[Tool(name="breaks", run=breaks), Tool(name="pay", run=counting(paid), needs_approval=True)],
    )
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    waits = (await runtime.send("s", "go")).waits
    await runtime.answer(waits[0].wait_id, {"approved": False, "reason": "too dear"})
    await runtime.answer(waits[1].wait_id, False)
    messages = await history_of(runtime)
    assert results(messages) == {
        "c1": "Error: no such city",
        "c2": "Error: no tool 'nothing'; the tools are: breaks, pay",
        "c3": "Not executed: too dear.",
        "c4": "Not executed: it was not approved.",
    }
    broken = next(message for message in messages if message.get("tool_call_id") == "c1")
    assert broken["metadata"]["error"] == {"category": "ValueError", "message": "no such city"}
    assert paid == []
    assert (await runtime.session("s").runs())[0].status is RunStatus.COMPLETED


async def test_an_approval_that_nobody_gives_in_time_is_a_no(harness: OurHarness) -> None:
    paid: list[Any] = []
    tools = [Tool(name="pay", run=counting(paid), needs_approval=True, timeout=60)]
    database = Database(harness)
    runtime = await database.runtime(agent(calls(("c1", "pay", {})), "done", tools=tools))
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "go")
    database.clock.advance(61)
    await runtime.drain()
    assert results(await history_of(runtime)) == {"c1": "Not executed: nobody approved it in time."}
    assert paid == []


async def test_approval_can_depend_on_the_arguments(harness: OurHarness) -> None:
    paid: list[Any] = []
    tools = [Tool(name="pay", run=counting(paid), needs_approval=lambda given: bool(given["amount"] > 10))]
    asked = calls(("c1", "pay", {"amount": 5}), ("c2", "pay", {"amount": 50}))
    runtime = await Database(harness).runtime(agent(asked, "done", tools=tools))
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    assert paid == [{"amount": 5}]
    (wait,) = outcome.waits
    assert (wait.metadata["call_id"], wait.metadata["arguments"]) == ("c2", {"amount": 50})
    await runtime.answer(wait.wait_id, True)
    assert paid == [{"amount": 5}, {"amount": 50}]


async def test_call_ids_that_a_provider_repeats_are_unique_everywhere(harness: OurHarness) -> None:
    paid: list[Any] = []
    tools = [
        Tool(name="count", run=counting(paid)),
        Tool(name="client"),
        Tool(name="pay", run=counting(paid), needs_approval=True),
    ]
    same = calls(("call_0", "count", {"n": 1}), ("call_0", "client", {}), ("call_0", "pay", {"n": 2}))
    runtime = await Database(harness).runtime(agent(same, same, "done", tools=tools))
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    for _ in range(2):
        for wait in outcome.waits:
            answered = await runtime.answer(wait.wait_id, True)
        assert answered.outcome is not None
        outcome = answered.outcome
    assert outcome.text == "done"
    messages = await history_of(runtime)
    made = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    assert made == ["call_0", "call_0_2", "call_0_3", "call_0_4", "call_0_5", "call_0_6"]
    assert sorted(results(messages)) == sorted(made)
    effects = [each.call_id for each in await runtime.store.effects.list("s") if each.call_id]
    assert sorted(effects) == ["call_0", "call_0_3", "call_0_4", "call_0_6"]
    waits = await runtime.store.waits.of_session("s", status=None)
    assert [wait.metadata["call_id"] for wait in waits] == ["call_0_2", "call_0_3", "call_0_5", "call_0_6"]
    assert len(paid) == 4


async def test_a_call_id_that_is_a_key_of_the_program_is_another_one(harness: OurHarness) -> None:
    """Both would be one effect: the model's, which is recorded, would stand for the tool's."""
    done: list[Any] = []
    tools = [Tool(name="count", run=counting(done))]
    asked = calls(("model", "count", {"n": 1}), ("model_2", "count", {"n": 2}))
    runtime = await Database(harness).runtime(agent(asked, "done", tools=tools))
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    assert results(await history_of(runtime)) == {"model_2": "ok", "model_2_2": "ok"}
    assert done == [{"n": 1}, {"n": 2}]


async def test_a_tool_whose_runner_died_is_asked_about_once_and_run_again_if_wanted(harness: OurHarness) -> None:
    gate, begun, read = Gate(), list[Any](), list[Any]()

    async def pay(_: Any, arguments: Mapping[str, Any]) -> str:
        begun.append(arguments)
        await gate()
        return f"receipt {len(begun)}"

    made = agent(
        calls(("c1", "pay", {"n": 1}), ("c2", "read", {})),
        "done",
        tools=[Tool(name="pay", run=pay), Tool(name="read", run=counting(read, "page"), idempotent=True)],
    )
    for said, told in (("retry", "receipt 2"), ("done", "receipt by post"), ("failed", "Error: declined")):
        gate.reached.clear()
        gate.open.clear()
        begun.clear()
        read.clear()
        database = Database(harness)
        first = await database.runtime(made)
        session = await first.create("agent")
        task = asyncio.create_task(first.send(session.session_id, "go"))
        await gate.reached.wait()

        async def one_is_answered() -> list[Any]:
            return contents((await first.get(session.session_id)).messages, "tool")  # noqa: B023

        await until(one_is_answered)
        await database.lose(first, task)
        gate.open.set()
        second = await database.runtime(made)
        await second.drain()
        (wait,) = await second.session(session.session_id).waits()
        assert (wait.kind, wait.metadata["call_id"], wait.metadata["tool"]) == ("in_doubt", "c1", "pay")
        assert len(begun) == 1
        answer = {"outcome": said}
        answer |= {"result": told} if said == "done" else {"error": "declined"} if said == "failed" else {}
        answered = await second.answer(wait.wait_id, answer)
        assert answered.outcome is not None
        assert answered.outcome.text == "done"
        assert results(await history_of(second, session.session_id)) == {"c1": told, "c2": "page"}
        assert (len(begun), len(read)) == (2 if said == "retry" else 1, 1)
        assert await second.session(session.session_id).effects_in_doubt() == ()
        assert made.model_calls % 2 == 0


@pytest.mark.parametrize("policy", ["retry", "fail"])
async def test_the_policy_decides_about_a_tool_in_doubt_where_nobody_is_asked(harness: OurHarness, policy: str) -> None:
    gate, begun = Gate(), list[int]()

    async def pay(_: Any, __: Any) -> str:
        begun.append(1)
        await gate()
        return "paid"

    made = agent(calls(("c1", "pay", {})), "done", tools=[Tool(name="pay", run=pay)])
    database = Database(harness)
    first = await database.runtime(made)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    second = await database.runtime(made, in_doubt=policy)
    await second.drain()
    (info,) = await second.session("s").runs()
    if policy == "retry":
        assert (info.status, len(begun)) == (RunStatus.COMPLETED, 2)
        assert results(await history_of(second)) == {"c1": "paid"}
    else:
        error: Any = info.run.error
        assert (info.status, error["category"], len(begun)) == (RunStatus.FAILED, "effect_in_doubt", 1)
        assert results(await history_of(second))["c1"].startswith("Outcome unknown")
        assert [each.call_id for each in await second.session("s").effects_in_doubt()] == ["c1"]


@in_memory
async def test_a_call_in_doubt_stays_in_doubt_if_its_second_start_was_refused(harness: OurHarness) -> None:
    gate, begun, ready = Gate(), list[int](), [True]

    async def pay(_: Any, __: Any) -> str:
        begun.append(1)
        await gate()
        return "paid"

    asked: Any = calls(("c1", "pay", {}))

    @program(name="agent")
    async def pays(turn: Turn) -> None:
        if not turn.open_calls:
            turn.append(asked)
        if not ready[0]:
            turn.state.update(big="x" * (9 * 1024 * 1024), as_big="y" * (9 * 1024 * 1024))
            context, place = context_of(turn), Place("", turn.step, "c1")
            await call_effect(
                context, place, lambda: pay(turn, {}), {}, kind="tool", idempotent=False, call_id="c1", record=None
            )
        await run_tools(turn, [Tool(name="pay", run=pay)])

    database = Database(harness)
    first = await database.runtime(pays)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await gate.reached.wait()
    await database.lose(first, task)
    gate.open.set()
    ready[0] = False
    second = await database.runtime(pays, in_doubt="retry")
    await second.drain()
    assert (await second.session("s").runs())[0].status is RunStatus.FAILED
    assert begun == [1]
    assert results(await history_of(second))["c1"].startswith("Outcome unknown")
    assert [each.call_id for each in await second.session("s").effects_in_doubt()] == ["c1"]


async def test_giving_up_a_tool_in_doubt_tells_the_model_that_nobody_knows(harness: OurHarness) -> None:
    gate, begun = Gate(), list[int]()

    async def pay(_: Any, __: Any) -> str:
        begun.append(1)
        await gate()
        return "paid"

    made = agent(calls(("c1", "pay", {})), "I do not know.", "Good.", tools=[Tool(name="pay", run=pay)])
    database = Database(harness)
    first = await database.runtime(made)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await gate.reached.wait()
    await database.lose(first, task)
    second = await database.runtime(made)
    await second.drain()
    assert (await second.send("s", "and?")).text == "I do not know."
    messages = await history_of(second)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert results(messages)["c1"].startswith("Outcome unknown")
    (doubtful,) = await second.session("s").effects_in_doubt()
    await second.session("s").settle_effect(doubtful, result="paid after all")
    assert (await second.send("s", "any news?")).text == "Good."
    (told,) = contents(await history_of(second), "system")
    assert told == "The call 'c1', whose outcome was unknown, was settled as done."
    assert begun == [1]


async def test_a_soft_stop_lets_running_tools_finish_and_starts_no_other(harness: OurHarness) -> None:
    gate = Gate()

    async def slow(_: Any, arguments: Mapping[str, Any]) -> Any:
        await gate()
        return arguments["n"]

    made = agent(
        calls(("c1", "slow", {"n": 1}), ("c2", "slow", {"n": 2})), "never", tools=[Tool(name="slow", run=slow)]
    )
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await until(lambda: gate.entered == 2, pause=0)
    await runtime.session("s").stop()
    gate.open.set()
    outcome = await task
    assert outcome.status == "interrupted"
    assert results(await history_of(runtime)) == {"c1": "1", "c2": "2"}
    assert await runtime.session("s").effects_in_doubt() == ()
    assert made.model_calls == 1


async def test_an_abort_cuts_every_tool_off_and_waits_until_they_are(harness: OurHarness) -> None:
    gate, ended = Gate(), list[str]()

    async def slow(_: Any, arguments: Mapping[str, Any]) -> Any:
        try:
            await gate()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append(str(arguments["n"]))
            raise

    made = agent(
        calls(("c1", "slow", {"n": 1}), ("c2", "slow", {"n": 2})), "never", tools=[Tool(name="slow", run=slow)]
    )
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    task = asyncio.create_task(runtime.send("s", "go"))
    await until(lambda: gate.entered == 2, pause=0)
    await runtime.session("s").stop(kind="abort")
    assert (await task).status == "failed"
    assert sorted(ended) == ["1", "2"]
    assert sorted(str(each.call_id) for each in await runtime.session("s").effects_in_doubt()) == ["c1", "c2"]
    assert all(told.startswith("Outcome unknown") for told in results(await history_of(runtime)).values())


@in_memory
async def test_a_tool_that_breaks_the_turn_leaves_no_other_tool_running(harness: OurHarness) -> None:
    gate, ended = Gate(), list[bool]()

    async def slow(_: Any, __: Any) -> None:
        try:
            await gate()
        finally:
            ended.append(True)

    async def breaks(turn: Turn, _: Any) -> str:
        await gate.reached.wait()
        turn.state.update(big="x" * (9 * 1024 * 1024), as_big="y" * (9 * 1024 * 1024))
        return "done all the same"

    tools = [Tool(name="slow", run=slow), Tool(name="breaks", run=breaks)]
    runtime = await Database(harness).runtime(agent(calls(("c1", "slow", {}), ("c2", "breaks", {})), tools=tools))
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.status, outcome.error["category"]) == ("failed", "commit_budget_exceeded")
    assert ended == [True]
    assert "big" not in (await runtime.get("s")).document
    told = results(await history_of(runtime))
    assert told["c1"].startswith("Outcome unknown")
    assert told["c2"] == "done all the same"
    assert [each.call_id for each in await runtime.session("s").effects_in_doubt()] == ["c1"]


async def test_a_function_can_run_calls_and_go_on_after_them(harness: OurHarness) -> None:
    asked: list[str] = []
    tools = [Tool(name="client")]

    @program
    async def chat(turn: Turn) -> Any:
        async def model() -> Any:
            asked.append("first")
            return calls(("c1", "client", {"q": 1}))

        async def model_again() -> Any:
            asked.append("second")
            return {"role": "assistant", "content": f"it says {text_of(turn.messages[-1])}"}

        reply = await turn.effect("ask", model, None, kind="model")
        turn.append(reply, once="asked")
        await run_tools(turn, tools)
        turn.append(await turn.effect("ask again", model_again, None, kind="model"), once="told")

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    wait = waiting(await runtime.send("s", "go"), "tool_result")
    answered = await runtime.answer(wait.wait_id, "sunny")
    assert answered.outcome is not None
    assert answered.outcome.text == "it says sunny"
    assert asked == ["first", "second"]
    await history_of(runtime)


def test_a_result_is_text_for_the_model_and_an_error_is_kept_whole() -> None:
    assert result_message("c", "text")["content"] == "text"
    assert result_message("c", {"a": [1]})["content"] == '{"a":[1]}'
    assert result_message("c", None)["content"] == "null"
    error = {"category": "x", "message": "broken", "details": {"n": 1}}
    assert result_message("c", None, error)["metadata"] == {"error": error}
    assert result_message("c", None, "plain")["content"] == "Error: plain"


async def test_tools_side_by_side_have_effects_of_their_own_under_the_same_key(harness: OurHarness) -> None:
    """The first attempt dies between the two effects of each tool; what was recorded is not called again."""
    gate, fetched, stored = Gate(), list[Any](), list[Any]()

    async def copy(turn: Turn, arguments: Mapping[str, Any]) -> Any:
        async def fetch() -> Any:
            fetched.append(arguments["n"])
            return f"page {arguments['n']}"

        async def store() -> Any:
            stored.append(arguments["n"])
            return "ok"

        page = await turn.effect("http", fetch, {"get": arguments["n"]})
        await gate()
        await turn.effect("store", store, {"put": page}, idempotent=True)
        return page

    made = agent(
        calls(("c1", "copy", {"n": 1}), ("c2", "copy", {"n": 2})),
        "done",
        tools=[Tool(name="copy", run=copy, idempotent=True)],
    )
    database = Database(harness)
    first = await database.runtime(made)
    await first.create("agent", session_id="s")
    task = asyncio.create_task(first.send("s", "go"))
    await until(lambda: gate.entered == 2)
    await database.lose(first, task)
    gate.open.set()
    second = await database.runtime(made)
    await second.drain()
    assert results(await history_of(second)) == {"c1": "page 1", "c2": "page 2"}
    assert (sorted(fetched), sorted(stored)) == ([1, 2], [1, 2])
    places = {(each.namespace, each.effect_key) for each in await second.store.effects.list("s")}
    assert {("c1", "http"), ("c2", "http"), ("c1", "store"), ("", "c1")} <= places


@in_memory
async def test_a_tool_cannot_suspend_the_turn_and_says_so(harness: OurHarness) -> None:
    async def asks(turn: Turn, _: Mapping[str, Any]) -> Any:
        return await turn.wait("never")

    async def sleeps(turn: Turn, _: Mapping[str, Any]) -> Any:
        await turn.sleep(1)

    tools = [Tool(name="asks", run=asks), Tool(name="sleeps", run=sleeps)]
    runtime = await Database(harness).runtime(
        agent(calls(("c1", "asks", {}), ("c2", "sleeps", {})), "done", tools=tools)
    )
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    assert all("cannot wait inside its call" in told for told in results(await history_of(runtime)).values())


@in_memory
async def test_a_tool_may_ask_a_model_and_another_session(harness: OurHarness) -> None:
    """The turn of the other session is one of its own: it can suspend, and its effects are its own."""

    @program
    async def other(turn: Turn) -> Any:
        async def look() -> str:
            return "looked"

        found = await turn.effect("look", look, None)
        await turn.wait("more")
        return found

    async def summarise(turn: Turn, _: Mapping[str, Any]) -> Any:
        async def model() -> str:
            return "short"

        outcome = await runtime.send("other", "hello")
        return [await turn.effect("model", model, None, kind="model"), outcome.status]

    made = agent(calls(("c1", "summarise", {})), "done", tools=[Tool(name="summarise", run=summarise)])
    runtime = await Database(harness).runtime(made, other)
    await runtime.create("other", session_id="other")
    await runtime.create("agent", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    assert results(await history_of(runtime)) == {"c1": '["short","suspended"]'}
    assert [each.namespace for each in await runtime.store.effects.list("other")] == [""]


async def test_the_model_is_not_asked_before_every_call_has_its_result(harness: OurHarness) -> None:
    asked: list[int] = []
    made: Any = calls(("c1", "client", {}))

    @program
    async def hasty(turn: Turn) -> Any:
        async def model() -> Any:
            asked.append(1)
            return "too early"

        turn.append(made)
        await turn.effect("model", model, None, kind="model")

    runtime = await Database(harness).runtime(hasty)
    await runtime.create("hasty", session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.error["category"], outcome.error["details"]["call_id"]) == ("history_invalid", "c1")
    assert asked == []
    assert [message["role"] for message in await history_of(runtime)] == ["user"]


async def test_a_program_that_ends_before_an_approved_call_is_made_fails_and_blocks_nothing(store: Store) -> None:
    paid: list[Any] = []

    @program
    async def hasty(turn: Turn) -> str:
        if turn.text == "go" and not turn.resumed:
            message: Any = calls(("c1", "pay", {}))
            turn.append(message)
            await run_tools(turn, [Tool(name="pay", run=counting(paid), needs_approval=True)])
        return "done"

    runtime = await opened(store, [hasty])
    session = await runtime.create(hasty, session_id="s")
    (wait,) = (await session.send("go")).waits
    answered = await session.answer(wait, True)
    assert answered.outcome is not None
    assert (answered.outcome.status, answered.outcome.error["category"]) == ("failed", "history_invalid")
    assert "run_tools" in answered.outcome.error["message"]
    assert (await session.send("next")).completed
    assert results((await session.get()).messages).keys() == {"c1"}
    assert not paid
