"""What turns leave behind: a valid history, errors that read back the same, a budget, a trace and a bill."""

import gc
from functools import partial
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput
from tenuto.model.session import SessionRecord
from tenuto.runtime.calls.steps import finish_step
from tenuto.runtime.conversation.history import History
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.invocation_waits import WaitRequest
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.runtime.runtimes import in_memory, opened
from tests.runtime.seams import advance
from tests.runtime.talking import said, streamed


async def failing(turn: Turn, arguments: Any) -> Any:
    raise LookupError("the shelf is empty")


async def looking(turn: Turn, arguments: Any) -> Any:
    return {"found": arguments.get("what")}


TOOLS = [
    Tool(name="fail", run=failing),
    Tool(name="look", run=looking),
    Tool(name="pay", run=looking, needs_approval=True),
    Tool(name="ask"),
]


async def talking(store: Store, *replies: Any, **options: Any) -> tuple[SessionRuntime, Script]:
    model = Script(*replies)
    runtime = await opened(store, [ScriptedAgent(model=model, tools=TOOLS)], **options)
    await runtime.create("agent", session_id="s")
    return runtime, model


def results(messages: Any) -> dict[str, Any]:
    return {each["tool_call_id"]: each for each in messages if each["role"] == "tool"}


async def test_errors_of_tools_read_back_the_same_any_number_of_times(store: Store) -> None:
    step = calls(("a", "fail", {}), ("b", "unheard", {}), ("c", "pay", {}), ("d", "look", {"what": "x"}))
    runtime, _ = await talking(store, step, "sorry")
    waiting = await runtime.send("s", "go")
    (wait,) = waiting.waits
    answered = await runtime.answer(wait.wait_id, {"approved": False, "reason": "too dear"})
    assert answered.outcome is not None
    assert answered.outcome.completed

    async def found() -> Any:
        record = await store.load("s")
        assert record is not None
        return record.state, record.logs

    first, logs = await found()
    told = results(first["messages"])
    assert told["a"]["metadata"]["error"] == {"category": "LookupError", "message": "the shelf is empty"}
    assert told["b"]["metadata"]["error"]["category"] == "unknown_tool"
    assert told["c"]["metadata"]["not_executed"] == "too dear"
    assert told["d"]["content"] == '{"found":"x"}'
    for _ in range(3):
        state, _ = await found()
        assert state == first
        await store.save("s", SessionRecord(session_id="s", state=state, logs=logs, schema_version=""))
        assert dict((await runtime.get("s")).logs)["messages"] == first["messages"]
    assert (await runtime.send("s", "again")).completed


async def test_the_session_stays_active_after_a_turn_and_each_turn_has_its_own_budget(store: Store) -> None:
    look = calls(("a", "look", {}))
    runtime, model = await talking(store, look, "one", look, "two", look, "three", steps=2)
    for number in (1, 2, 3):
        outcome = await runtime.send("s", f"go {number}")
        assert outcome.completed, outcome.error
        assert (await runtime.session("s").info()).status == "active"
        run = (await runtime.session("s").runs())[0]
        assert (run.run.steps, run.budget, run.run.number) == (2, 2, number)
    for request in model.requests:
        assert not History().judged(request.messages).open
    assert said(await runtime.get("s"))[-1] == "three"


async def test_a_turn_without_a_limit_is_bounded_by_fifty_steps(store: Store) -> None:
    seen = []

    @program
    async def restless(turn: Turn) -> None:
        async for step in turn.steps():
            seen.append(step)
            if turn.input == {"role": "user", "content": "rest"}:
                return

    runtime = await opened(store, [restless])
    await runtime.create("restless", session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.status, outcome.error["category"], outcome.error["details"]) == (
        "failed",
        "step_budget_exceeded",
        {"limit": 50},
    )
    assert seen == list(range(1, 51))
    assert (await runtime.session("s").runs())[0].run.steps == 50
    assert (await runtime.send("s", "rest")).completed
    assert seen[50:] == [1]


async def test_call_ids_a_provider_repeats_are_unique_wherever_they_stand(store: Store) -> None:
    both = calls(("call_0", "look", {"what": "x"}), ("call_0", "ask", {}))
    runtime, model = await talking(store, both, "one", both, "two")
    for text, ids in (("go", ("call_0", "call_0_2")), ("more", ("call_0_3", "call_0_4"))):
        waiting = await runtime.send("s", text)
        (wait,) = waiting.waits
        assert wait.metadata["call_id"] == wait.signal_id == ids[1]
        effects = await store.effects.list("s", limit=100)
        assert ids[0] in {each.call_id for each in effects}
        await runtime.answer(wait.wait_id, "42")
        messages = (await runtime.get("s")).messages
        (made,) = [each for each in messages if {call["id"] for call in each.get("tool_calls", ())} == set(ids)]
        assert [call["id"] for call in made["tool_calls"]] == list(ids)
        assert set(ids) <= set(results(messages))
    assert len(results(model.requests[-1].messages)) == 4


async def test_results_come_before_a_new_message_in_one_commit_with_it(store: Store) -> None:
    step = calls(("a", "look", {"what": "x"}), ("b", "ask", {}), ("c", "pay", {}))
    runtime, model = await talking(store, step, "well")
    assert (await runtime.send("s", "go")).suspended
    assert (await runtime.send("s", "never mind")).completed
    entries = await store.logs.read("s", "messages")
    told = [(each.value.get("tool_call_id") or each.value["role"], each.commit_number) for each in entries]
    assert [name for name, _ in told] == ["user", "assistant", "a", "b", "c", "user", "assistant"]
    commits = dict(told[2:5])
    assert commits["b"] == commits["c"] == entries[5].commit_number > commits["a"]
    assert entries[5].value["content"] == "never mind"
    assert not History().judged(model.requests[-1].messages).open
    assert list(await runtime.session("s").waits()) == []


@pytest.mark.parametrize("passing", ["user", "assistant"])
async def test_nothing_passes_a_call_that_is_waited_for(store: Store, passing: str) -> None:
    asked: Any = calls(("a", "ask", {}))
    meanwhile: Any = {"role": passing, "content": "meanwhile"}

    @program
    async def hasty(turn: Turn) -> None:
        turn.append(asked)
        wanted = WaitRequest(signal_id="a", kind="tool_result", metadata={"call_id": "a"})
        await context_of(turn).open_waits([wanted.opening(turn.step)])
        turn.append(meanwhile)
        await turn.save()

    runtime = await opened(store, [hasty])
    await runtime.create("hasty", session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.status, outcome.error["category"]) == ("failed", "history_invalid")
    messages = (await runtime.get("s")).messages
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert messages[-1]["metadata"] == {"not_executed": "the run failed"}
    assert list(await runtime.session("s").waits()) == []
    assert not History().judged(messages).open


async def test_what_is_no_message_fails_the_turn_that_appends_it(store: Store) -> None:
    bad: list[Any] = [7, {"role": "robot"}, {"role": "assistant", "tool_calls": [{}]}, {"role": "user", "x": {1}}]

    @program
    async def careless(turn: Turn) -> None:
        turn.state.update(mood="sour")
        turn.append(bad[int(turn.text)])

    runtime = await opened(store, [careless])
    await runtime.create("careless", session_id="s")
    for number, category in enumerate(("history_invalid", "history_invalid", "history_invalid", "value_not_json")):
        outcome = await runtime.send("s", str(number))
        assert (outcome.status, outcome.error["category"]) == ("failed", category)
    session = await runtime.get("s")
    assert (said(session), dict(session.document)) == (["0", "1", "2", "3"], {})


async def test_one_trace_runs_through_all_turns_of_a_session(store: Store) -> None:
    traces = []

    @program
    async def tracing(turn: Turn) -> None:
        traces.append(turn.trace_id)

    runtime = await opened(store, [tracing])
    created = await runtime.create("tracing", session_id="s")
    await runtime.create("tracing", session_id="other")
    await runtime.send("s", "one")
    await (await opened(store, [tracing])).send("s", "two")
    trace = (await created.info()).profile.trace
    assert traces == [trace["trace_id"]] * 2
    assert {run.trace_id for run in await runtime.session("s").runs()} == set(traces)
    assert (await runtime.session("other").info()).profile.trace != trace


async def test_a_step_that_is_replayed_counts_its_usage_once(store: Store) -> None:
    step = {**calls(("a", "ask", {}), ("b", "look", {})), "usage": {"input": 10, "output": 2, "reasoning": 1}}
    last = {"role": "assistant", "content": "done", "usage": {"input": 20, "output": 3}}
    runtime, model = await talking(store, step, last)
    waiting = await runtime.send("s", "go")
    fresh = await opened(store, [ScriptedAgent(model=model, tools=TOOLS)])
    await fresh.answer(waiting.waits[0].wait_id, "42")
    assert len(model.requests) == 2
    total = (await fresh.session("s").usage()).total
    assert (total.calls, total.input, total.output, total.reasoning) == (2, 30, 5, 1)
    by_run = [(run.usage.total.calls, run.usage.total.input) for run in await fresh.session("s").runs()]
    assert by_run == [(1, 20), (1, 10)]


async def test_the_reply_of_a_failed_turn_is_in_no_later_turns_memory(store: Store) -> None:
    seen = []

    @program
    async def moody(turn: Turn) -> None:
        seen.append((turn.state.get("mood"), len(turn.messages), len(turn.log("notes"))))
        turn.state.update(mood="sour")
        turn.add("notes", "n")
        turn.append({"role": "assistant", "content": "never said"})
        if turn.input != {"role": "user", "content": "calmly"}:
            raise ValueError("no luck")

    runtime = await opened(store, [moody])
    await runtime.create("moody", session_id="s")
    for text in ("one", "two", "calmly", "three"):
        await runtime.send("s", text)
    assert seen == [(None, 1, 0), (None, 2, 0), (None, 3, 0), ("sour", 5, 1)]
    assert [type_ for type_, _ in await streamed(store, "s")].count("run_ended") == 4


@in_memory
async def test_a_turn_that_is_over_is_gone_from_memory_at_once(store: Store) -> None:
    """What waits for Python's garbage collector is memory that every later turn has to do without."""

    @program
    async def replies(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "yes"})

    async def turns(count: int) -> None:
        for _ in range(count):
            await runtime.send("s", "sent")
        for _ in range(count):
            await runtime.session("s").enqueue("queued")
        await advance(runtime, "s")

    runtime = await opened(store, [replies])
    await runtime.create("replies", session_id="s")
    await turns(3)
    gc.collect()
    gc.disable()
    try:
        await turns(20)
        assert gc.collect() < 20  # nothing of each turn
    finally:
        gc.enable()


async def test_nothing_can_be_written_in_a_turn_that_is_over(store: Store) -> None:
    kept: list[Turn] = []

    @program
    async def keeps(turn: Turn) -> None:
        kept.append(turn)
        turn.append({"role": "assistant", "content": "yes"})

    runtime = await opened(store, [keeps])
    await runtime.create("keeps", session_id="s")
    await runtime.send("s", "one")
    context = context_of(kept[0])
    for late in (kept[0].save, context.commit, partial(finish_step, context)):
        with pytest.raises(InvalidInput, match="is over"):
            await late()
