"""The scripted agent of `tenuto.testing`: a program like a real one, without a model."""

from typing import Any

from tenuto.runtime.program.tool import Tool
from tenuto.runtime.session.definition import Definition
from tenuto.testing.agent import Request, Script, ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, counting, in_memory


@in_memory
async def test_it_says_one_reply_per_turn_and_repeats_the_last(harness: OurHarness) -> None:
    script = Script("one", "two")
    runtime = await Database(harness).runtime(ScriptedAgent(model=script))
    await runtime.create(Definition(name="agent", model="m", system_prompt="Be brief."), session_id="s")
    said = [(await runtime.send("s", text)).text for text in ("a", "b", "c")]
    assert said == ["one", "two", "two"]
    assert [(request.model, request.system_prompt) for request in script.requests] == [("m", "Be brief.")] * 3
    assert [len(request.messages) for request in script.requests] == [1, 3, 5]


@in_memory
async def test_it_carries_out_calls_until_the_model_makes_none(harness: OurHarness) -> None:
    done: list[Any] = []
    script = Script(calls(("c", "t", {"n": 1}), content="first"), calls(("c", "t", {"n": 2})), "done")
    made = ScriptedAgent(model=script, tools=[Tool(name="t", run=counting(done))], name="loop", version="7")
    runtime = await Database(harness).runtime(made)
    await runtime.create("loop", session_id="s")
    assert (await runtime.send("s", "go")).text == "done"
    assert done == [{"n": 1}, {"n": 2}]
    assert made.model_calls == 3
    (info,) = await runtime.session("s").runs()
    assert info.run.steps == 3
    assert (await runtime.session("s").info()).profile.definition["version"] == "7"


@in_memory
async def test_it_streams_its_words_and_counts_the_usage_its_model_names(harness: OurHarness) -> None:
    async def model(request: Request) -> dict[str, Any]:
        text = f"you said {request.messages[-1]['content']}"
        return {"role": "assistant", "content": text, "usage": {"input": 11, "output": 3, "reasoning": 2}}

    runtime = await Database(harness).runtime(ScriptedAgent(model=model, stream=True))
    await runtime.create(Definition(name="agent", model="m-1"), session_id="s")
    outcome = await runtime.send("s", "hello")
    assert outcome.reply == {"role": "assistant", "content": "you said hello"}
    chunks = [frame.data async for frame in runtime.session("s").events(live=False) if frame.type == "chunk"]
    assert chunks == ["you", "said", "hello"]
    report = await runtime.session("s").usage()
    assert list(report.by_model) == ["m-1"]
    assert (report.total.calls, report.total.input, report.total.output, report.total.reasoning) == (1, 11, 3, 2)


@in_memory
async def test_answered_calls_alone_lead_to_the_next_question(harness: OurHarness) -> None:
    """Nothing is left to be carried out when such a turn goes on; the model is asked again, not replayed."""
    made = ScriptedAgent(model=Script(calls(("c", "client", {})), "thanks"), tools=[Tool(name="client")])
    runtime = await Database(harness).runtime(made)
    await runtime.create("agent", session_id="s")
    (wait,) = (await runtime.send("s", "go")).waits
    answered = await runtime.answer(wait.wait_id, "clicked")
    assert answered.outcome is not None
    assert answered.outcome.text == "thanks"
    assert made.model_calls == 2
