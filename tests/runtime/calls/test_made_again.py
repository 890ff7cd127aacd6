"""Calls that are made again: after a failure that nothing followed, when a run is resumed, and after a pause."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto.errors import StatusRefused
from tenuto.model.effect import Effect, EffectStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool_function import tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, agent, contents, in_memory, on_disk


class Provider:
    """A provider that is down for as many calls as a test says, and counts them and their tokens."""

    def __init__(self, down: int = 1) -> None:
        self.down = down
        self.asked: list[str] = []

    def model(self, turn: Turn, name: str = "big") -> Callable[[], Awaitable[str]]:
        async def call() -> str:
            self.asked.append(name)
            turn.record_usage(name, input=10)
            await asyncio.sleep(0)
            if len([each for each in self.asked if each == name]) <= self.down:
                raise ConnectionError(f"{name} is down")
            return f"{name} says hello"

        return call


async def effects(runtime: SessionRuntime) -> list[tuple[str, str, int]]:
    found = await runtime.store.effects.list(SessionKey("s"))
    return [(each.effect_key, each.status, each.making) for each in found if not each.namespace.startswith("/")]


async def calls_counted(runtime: SessionRuntime) -> int:
    return (await runtime.session("s").usage()).total.calls


async def test_an_outage_is_over_when_the_run_is_resumed(harness: OurHarness) -> None:
    provider = Provider()

    @program
    async def chat(turn: Turn) -> None:
        turn.append(await turn.model(provider.model(turn), retries=0))
        await turn.wait("go")

    database = Database(harness)
    runtime = await database.runtime(chat)
    await runtime.create("chat", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert (outcome.status, outcome.retryable, outcome.error["category"]) == ("failed", True, "ConnectionError")
    assert await effects(runtime) == [("model", "failed", 1)]
    again = await (await database.runtime(chat)).session("s").resume()
    assert again.suspended
    assert contents(await runtime.session("s").messages(), "assistant") == ["big says hello"]
    assert await effects(runtime) == [("model", "done", 2)]
    assert len(provider.asked) == await calls_counted(runtime) == 2


async def test_a_failure_that_comes_back_is_made_again_by_each_resume(harness: OurHarness) -> None:
    provider = Provider(down=3)

    @program
    async def chat(turn: Turn) -> str:
        async def looked_up() -> str:
            return await provider.model(turn)()

        return await turn.effect("look", looked_up, idempotent=True)

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    assert (await runtime.send("s", "hi")).status == "failed"
    for _ in range(2):
        assert (await runtime.session("s").resume()).status == "failed"
    assert (await runtime.session("s").resume()).output == "big says hello"
    assert len(provider.asked) == await calls_counted(runtime) == 4


async def _model(turn: Turn, provider: Provider) -> None:
    await turn.model(provider.model(turn, "small"), retries=0)


async def _tool(turn: Turn, provider: Provider) -> None:
    await turn.effect("tool", provider.model(turn, "small"), idempotent=False)


async def _entry(turn: Turn, _: Provider) -> None:
    turn.append("One moment.")
    await turn.save()


async def _state(turn: Turn, _: Provider) -> None:
    turn.state["plan"] = "small"
    await turn.save()


async def _wait(turn: Turn, _: Provider) -> None:
    await turn.wait("what now")


async def _outgoing(turn: Turn, _: Provider) -> None:
    turn.enqueue("later", session="other")
    await turn.save()


@in_memory
@pytest.mark.parametrize("follows", [_model, _tool, _entry, _state, _wait, _outgoing])
async def test_a_failure_that_something_followed_is_replayed(
    harness: OurHarness, follows: Callable[[Turn, Provider], Awaitable[None]]
) -> None:
    provider = Provider()
    branches: list[str] = []
    provider.asked = ["small"]

    @program
    async def chat(turn: Turn) -> str:
        try:
            await turn.model(provider.model(turn), retries=0)
            branches.append("big")
        except ConnectionError:
            branches.append("spare")
            await follows(turn, provider)
        if branches.count("spare") < 2 + (follows is _wait):
            raise ValueError("a bug")
        return "done"

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    await runtime.create("chat", session_id="other")
    outcome = await runtime.send("s", "hi")
    if follows is _wait:
        outcome = (await runtime.answer(outcome.waits[0], 1)).outcome  # type: ignore[assignment]
    assert outcome.status == "failed"
    assert (await runtime.session("s").resume()).output == "done"
    assert set(branches) == {"spare"}
    assert provider.asked.count("big") == 1


@in_memory
async def test_additions_that_the_failure_took_back_do_not_count(harness: OurHarness) -> None:
    provider = Provider()

    @program
    async def chat(turn: Turn) -> None:
        turn.append("Let me ask.")
        try:
            said = await turn.model(provider.model(turn), retries=0)
        except ConnectionError:
            turn.append("It is down.")
            raise
        turn.append(said)

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    assert (await runtime.send("s", "hi")).status == "failed"
    assert (await runtime.session("s").resume()).completed
    said = contents(await runtime.session("s").messages(), "assistant")
    assert said == ["Let me ask.", "big says hello"]


@on_disk
async def test_a_takeover_and_an_interrupted_run_do_not_make_a_failed_call_again(harness: OurHarness) -> None:
    provider, gate = Provider(), Gate()

    @program
    async def chat(turn: Turn) -> str:
        try:
            return await turn.effect("look", provider.model(turn), idempotent=True)
        except ConnectionError:
            await gate()
            raise

    database = Database(harness)
    runtime = await database.runtime(chat)
    await runtime.create("chat", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hi"))
    await gate.reached.wait()
    await database.lose(runtime, task)
    gate.open.set()
    second = await database.runtime(chat)
    await second.drain()
    assert len(provider.asked) == 1
    assert [run.status for run in await second.session("s").runs()] == ["failed"]
    assert (await second.session("s").resume()).output == "big says hello"
    assert len(provider.asked) == await calls_counted(second) == 2


@on_disk
async def test_a_repeat_is_numbered_and_on_record_before_it_begins(harness: OurHarness) -> None:
    seen: list[Effect] = []
    database = Database(harness)
    other = await harness.open(clock=database.clock)
    made: list[int] = []

    @program
    async def chat(turn: Turn) -> str:
        async def call() -> str:
            made.append(1)
            turn.record_usage("big", input=1)
            seen.extend(await other.effects.list(SessionKey("s")))
            if len(made) < 3:
                raise ConnectionError("down")
            return "hello"

        return await turn.model(call, backoff=0)

    runtime = await database.runtime(chat)
    await runtime.create("chat", session_id="s")
    assert (await runtime.send("s", "hi")).output == "hello"
    assert [(each.status, each.making) for each in seen] == [(EffectStatus.STARTED, 2), (EffectStatus.STARTED, 3)]
    assert await calls_counted(runtime) == 3


async def test_a_long_pause_is_a_wait_and_not_a_process(harness: OurHarness) -> None:
    provider = Provider(down=2)

    @program
    async def report(turn: Turn) -> str:
        look = provider.model(turn)
        return await turn.effect("sales", look, idempotent=True, retries=2, backoff=60)

    database = Database(harness)
    runtime = await database.runtime(report)
    await runtime.create("report", session_id="s")
    outcome = await runtime.send("s", "hi")
    (wait,) = outcome.waits
    assert (wait.kind, wait.signal_id) == ("time", "retry:sales (step 1)")
    database.clock.advance(59)
    await runtime.drain()
    assert len(provider.asked) == 1
    database.clock.advance(2)
    second = await database.runtime(report)
    await second.drain()
    assert len(provider.asked) == 2
    database.clock.advance(121)
    await second.drain()
    assert len(provider.asked) == await calls_counted(second) == 3
    assert (await second.outcome(outcome.run_id or "")).output == "big says hello"


@in_memory
async def test_a_long_pause_ends_with_the_last_retry(harness: OurHarness) -> None:
    provider = Provider(down=9)

    @program
    async def report(turn: Turn) -> str:
        return await turn.model(provider.model(turn), retries=1, backoff=60)

    database = Database(harness)
    runtime = await database.runtime(report)
    await runtime.create("report", session_id="s")
    outcome = await runtime.send("s", "hi")
    for _ in range(3):
        database.clock.advance(600)
        await runtime.drain()
    assert (await runtime.outcome(outcome.run_id or "")).status == "failed"
    assert len(provider.asked) == 2


async def test_a_tool_pauses_while_the_others_have_their_results(harness: OurHarness) -> None:
    made: list[str] = []

    @tool(idempotent=True, retries=1, backoff=90)
    async def slow() -> str:
        """Look up slowly."""
        made.append("slow")
        if made.count("slow") == 1:
            raise ConnectionError("down")
        return "slow found"

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        made.append("pay")
        return "paid"

    @tool
    async def quick() -> str:
        """Look up quickly."""
        made.append("quick")
        return "quick found"

    calls: list[Any] = [{"id": name, "name": name, "arguments": {}} for name in ("slow", "pay", "quick")]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    database = Database(harness)
    scripted = agent(said, "All done.", tools=[slow, pay, quick])
    runtime = await database.runtime(scripted)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert sorted(wait.kind for wait in outcome.waits) == ["approval", "time"]
    approval = next(wait for wait in outcome.waits if wait.kind == "approval")
    second = await database.runtime(scripted)
    await second.answer(approval, True)
    assert made == ["slow", "quick", "pay"]
    database.clock.advance(91)
    await second.drain()
    messages = await second.session("s").messages()
    assert sorted(contents(messages, "tool")) == ["paid", "quick found", "slow found"]
    assert contents(messages, "assistant")[-1] == "All done."
    assert made == ["slow", "quick", "pay", "slow"]


@in_memory
async def test_a_call_that_is_made_again_makes_its_own_failed_calls_again(harness: OurHarness) -> None:
    provider = Provider(down=1)
    gone_past: list[str] = []

    @program
    async def chat(turn: Turn) -> str:
        async def outer() -> str:
            try:
                await turn.effect("caught", provider.model(turn, "caught"), idempotent=True)
            except ConnectionError:
                gone_past.append("caught")
            return await turn.model(provider.model(turn), retries=0)

        return await turn.effect("outer", outer, idempotent=True, retries=1, backoff=0)

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    assert (await runtime.send("s", "hi")).output == "big says hello"
    assert provider.asked == ["caught", "big", "big"]
    assert gone_past == ["caught", "caught"]


@in_memory
async def test_failed_calls_that_ran_side_by_side_are_both_made_again(harness: OurHarness) -> None:
    provider = Provider()

    @program
    async def chat(turn: Turn) -> list[str]:
        ends = await asyncio.gather(
            turn.model(provider.model(turn, "a"), key="a", retries=0),
            turn.model(provider.model(turn, "b"), key="b", retries=0),
            return_exceptions=True,
        )
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [str(end) for end in ends]

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    assert (await runtime.send("s", "hi")).status == "failed"
    assert (await runtime.session("s").resume()).output == ["a says hello", "b says hello"]
    assert sorted(provider.asked) == ["a", "a", "b", "b"]


@on_disk
@pytest.mark.parametrize("way", ["tool", "effect"])
async def test_an_answer_lets_a_call_in_doubt_be_made_once_more_and_not_twice(harness: OurHarness, way: str) -> None:
    made: list[str] = []
    gates = [Gate(), Gate(), Gate()]

    async def paying() -> str:
        gate = gates[len(made)]
        made.append("pay")
        await gate()
        return "receipt"

    @tool
    async def pay() -> str:
        """Pay."""
        return await paying()

    @program
    async def payer(turn: Turn) -> None:
        await turn.effect("pay", paying)

    said: dict[str, Any] = {"role": "assistant", "tool_calls": [{"id": "pay", "name": "pay", "arguments": {}}]}
    runs: Any = agent({"content": "", **said}, "All done.", tools=[pay]) if way == "tool" else payer
    database = Database(harness)
    runtime = await database.runtime(runs)
    await runtime.create(runs, session_id="s")
    task = asyncio.create_task(runtime.send("s", "hi"))
    for lost in range(2):
        await gates[lost].reached.wait()
        await database.lose(runtime, task)
        gates[lost].open.set()
        runtime = await database.runtime(runs)
        await runtime.drain()
        (wait,) = await runtime.session("s").waits()
        assert (wait.kind, wait.metadata.get("making", 1)) == ("in_doubt", lost + 1)
        assert len(made) == lost + 1
        if lost == 0:
            task = asyncio.create_task(runtime.answer(wait, {"outcome": "retry"}))  # type: ignore[arg-type]
    answered = await runtime.answer(wait, {"outcome": "done", "result": "receipt"})
    assert answered.outcome is not None
    assert answered.outcome.completed
    assert len(made) == 2


@in_memory
async def test_a_run_that_was_interrupted_in_a_pause_repeats_the_call_when_it_is_resumed(harness: OurHarness) -> None:
    provider, paused = Provider(), asyncio.Event()

    def backoff(_: int) -> float:
        paused.set()
        return 29

    @program
    async def chat(turn: Turn) -> str:
        return await turn.model(provider.model(turn), backoff=backoff)

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    run = await runtime.session("s").start("hi")
    await paused.wait()
    await run.stop()
    assert (await run.wait()).status == "interrupted"
    assert (await runtime.session("s").resume()).output == "big says hello"
    assert len(provider.asked) == await calls_counted(runtime) == 2


@in_memory
async def test_an_aborted_run_is_final(harness: OurHarness) -> None:
    gate = Gate()

    @program
    async def chat(turn: Turn) -> None:
        del turn
        await gate()

    runtime = await Database(harness).runtime(chat)
    await runtime.create("chat", session_id="s")
    run = await runtime.session("s").start("hi")
    await gate.reached.wait()
    await run.stop("abort")
    assert (await run.wait()).status == "failed"
    with pytest.raises(StatusRefused, match="was aborted, which is final"):
        await runtime.session("s").resume()
