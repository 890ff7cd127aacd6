"""A message that is sent again under its key after its turn failed: one invocation, resumed where that may help."""

import asyncio
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, contents, in_memory


class Flaky:
    """A program whose model is down for some calls; a payment before it must be made once."""

    def __init__(self, down: int = 1, error: type[Exception] = ConnectionError) -> None:
        self.asked, self.paid, self.gate = 0, 0, Gate()
        self.gate.open.set()

        @program(name="flaky")
        async def flaky(turn: Turn) -> str:
            async def pay() -> str:
                self.paid += 1
                return "receipt"

            async def model() -> str:
                self.asked += 1
                await self.gate()
                if self.asked <= down:
                    raise error("it is down")
                return "hello"

            await turn.effect("pay", pay)
            said = await turn.model(model, retries=0)
            turn.append(said)
            return said

        self.program = flaky


async def begun(harness: OurHarness, flaky: Flaky, **options: Any) -> SessionRuntime:
    runtime = await Database(harness).runtime(flaky.program, **options)
    await runtime.create("flaky", session_id="s")
    return runtime


async def test_the_same_key_after_a_transient_failure_resumes_the_turn(harness: OurHarness) -> None:
    flaky = Flaky()
    runtime = await begun(harness, flaky)
    first = await runtime.send("s", "hi", key="k")
    assert (first.status, first.retryable, first.can_resume, first.replayed) == ("failed", True, True, False)
    second = await runtime.send("s", "hi", key="k")
    assert (second.output, second.input_id, second.replayed) == ("hello", first.input_id, False)
    third = await runtime.send("s", "hi", key="k")
    assert (third.output, third.replayed, third.can_resume) == ("hello", True, False)
    assert third == second
    assert (flaky.asked, flaky.paid) == (2, 1)
    messages = await runtime.session("s").messages()
    assert (contents(messages, "user"), contents(messages, "assistant")) == (["hi"], ["hello"])
    runs = [run.run for run in await runtime.session("s").runs()]
    assert len({run.invocation_id for run in runs}) == 1
    assert len(runs) == 2


async def test_repeats_that_come_at_once_share_one_run(harness: OurHarness) -> None:
    flaky = Flaky()
    runtime = await begun(harness, flaky)
    await runtime.send("s", "hi", key="k")
    flaky.gate.open.clear()
    flaky.gate.reached.clear()
    repeats = [asyncio.create_task(runtime.send("s", "hi", key="k")) for _ in range(3)]
    await flaky.gate.reached.wait()
    flaky.gate.open.set()
    outcomes = await asyncio.gather(*repeats)
    assert [each.output for each in outcomes] == ["hello"] * 3
    assert len({each.run_id for each in outcomes}) == 1
    assert len({each.input_id for each in outcomes}) == 1
    assert (flaky.asked, flaky.paid) == (2, 1)


async def test_another_turn_since_leaves_the_failed_outcome_as_it_was(harness: OurHarness) -> None:
    flaky = Flaky()
    runtime = await begun(harness, flaky)
    first = await runtime.send("s", "hi", key="k")
    assert (await runtime.send("s", "and now?")).output == "hello"
    again = await runtime.send("s", "hi", key="k")
    assert (again.status, again.run_id, again.replayed) == ("failed", first.run_id, True)
    assert (again.can_resume, again.resume_refused) == (False, "Another turn has begun since.")
    assert again.error == first.error
    assert flaky.asked == 2


@in_memory
async def test_a_call_is_made_again_although_the_run_that_was_to_make_it_was_interrupted(harness: OurHarness) -> None:
    asked, gate = 0, Gate()

    @program(name="flaky")
    async def flaky(turn: Turn) -> str:
        async def model() -> str:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise ConnectionError("it is down")
            return "hello"

        if asked:
            await gate()
        return await turn.model(model, retries=0)

    runtime = await Database(harness).runtime(flaky)
    await runtime.create("flaky", session_id="s")
    assert (await runtime.send("s", "hi", key="k")).status == "failed"
    repeat = asyncio.create_task(runtime.send("s", "hi", key="k"))
    await gate.reached.wait()
    repeat.cancel()
    with pytest.raises(asyncio.CancelledError):
        await repeat
    gate.open.set()
    assert ([run.status for run in await runtime.session("s").runs()], asked) == (["interrupted", "failed"], 1)
    assert ((await runtime.session("s").resume()).output, asked) == ("hello", 2)


@in_memory
async def test_a_runtime_that_never_retries_returns_the_failed_outcome(harness: OurHarness) -> None:
    flaky = Flaky()
    runtime = await begun(harness, flaky, retry_failed="never")
    await runtime.send("s", "hi", key="k")
    again = await runtime.send("s", "hi", key="k")
    assert (again.status, again.can_resume, again.replayed) == ("failed", False, True)
    assert again.resume_refused is not None
    assert "retry_failed='never'" in again.resume_refused
    assert flaky.asked == 1
    assert (await runtime.session("s").resume()).output == "hello"


@in_memory
async def test_a_mistake_in_the_program_is_not_tried_again_by_its_key(harness: OurHarness) -> None:
    flaky = Flaky(error=KeyError)
    runtime = await begun(harness, flaky)
    await runtime.send("s", "hi", key="k")
    again = await runtime.send("s", "hi", key="k")
    assert (again.status, again.retryable, again.can_resume, again.replayed) == ("failed", False, True, True)
    assert flaky.asked == 1


@in_memory
async def test_an_aborted_turn_is_final_for_its_key_too(harness: OurHarness) -> None:
    flaky = Flaky()
    flaky.gate.open.clear()
    runtime = await begun(harness, flaky)
    run = await runtime.session("s").start("hi", key="k")
    await flaky.gate.reached.wait()
    await run.stop("abort")
    live = await run.wait()
    again = await runtime.send("s", "hi", key="k")
    for outcome in (live, again):
        assert (outcome.status, outcome.can_resume) == ("failed", False)
        assert outcome.resume_refused is not None
        assert "final" in outcome.resume_refused


@in_memory
async def test_a_run_that_was_started_again_under_its_key_is_waited_for(harness: OurHarness) -> None:
    flaky = Flaky()
    runtime = await begun(harness, flaky)
    await runtime.send("s", "hi", key="k")
    run = await runtime.session("s").start("hi", key="k")
    assert [text async for text in run.text()] == ["hello"]
    assert (await run.wait()).output == "hello"


@pytest.mark.parametrize("policy", ["always", None, True])
def test_only_the_words_are_policies(policy: Any) -> None:
    with pytest.raises(InvalidInput, match="retry_failed must be one of retryable, never"):
        SessionRuntime("memory://", retry_failed=policy)
