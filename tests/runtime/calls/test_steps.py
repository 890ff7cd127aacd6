"""Steps of a program's loop: where one ends, and what a turn that goes on begins with."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto.errors import EffectFailed, KeyRepeated
from tenuto.model.run import RunStatus
from tenuto.model.wait import Wait
from tenuto.runtime.calls.effect_call import call_effect, start_call
from tenuto.runtime.calls.steps import begin_step, finish_step
from tenuto.runtime.conversation.history import History
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.effect_journal import Place
from tests.conftest import OurHarness
from tests.guide_agent import guide_agent
from tests.runtime.runtimes import Database, Gate

TOOLS = ("look", "ask", "kid", "pay")


class Shop:
    """The agent of the guide, what it does to the outside, and the answers others give it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate: Gate | None = None

    def programs(self) -> list[Program[None]]:
        async def look(_: Turn, arguments: Mapping[str, Any]) -> str:
            if self.gate is not None:
                await self.gate()
            self.done.append("look")
            return f"looked at {arguments['order']}"

        async def pay(_: Turn, arguments: Mapping[str, Any]) -> str:
            self.done.append("pay")
            return f"paid {arguments['order']}"

        tools = [
            Tool(name="look", run=look, idempotent=True),
            Tool(name="pay", run=pay, needs_approval=True, idempotent=True),
            Tool(name="ask"),
            Tool(name="kid", child="leaf"),
        ]

        async def model(turn: Turn) -> dict[str, Any]:
            self.done.append("model")
            last: Any = turn.context[-1]
            if last["role"] != "user":
                return {"role": "assistant", "content": f"Done: {last['content']}"}
            made = [{"id": name, "name": name, "arguments": {"order": 7}} for name in last["content"].split()]
            return {"role": "assistant", "content": "", "tool_calls": made}

        @program
        async def leaf(turn: Turn) -> None:
            turn.append({"role": "assistant", "content": "leaf"})

        return [guide_agent(model, tools), leaf]

    async def answer(self, runtime: SessionRuntime, wait: Wait) -> None:
        """Answer what a turn waits for, if somebody has to."""
        match wait.kind:
            case "approval":
                await runtime.answer(wait.wait_id, True)
            case "tool_result":
                await runtime.answer(wait.wait_id, "XL")

    async def finish(self, runtime: SessionRuntime) -> None:
        """Bring the session's turn to its end."""
        async with asyncio.timeout(10):
            while True:
                await runtime.drain()
                run = await runtime.store.runs.current("s")
                if run is not None and run.status not in (RunStatus.RUNNING, RunStatus.SUSPENDED):
                    return
                for wait in await runtime.session("s").waits():
                    await self.answer(runtime, wait)


async def roles(runtime: SessionRuntime) -> list[str]:
    return [message["role"] for message in (await runtime.get("s")).messages]


async def check(runtime: SessionRuntime, asked: str) -> None:
    """The turn completed, each call has one result, and the steps are counted once each."""
    calls = asked.split()
    messages = (await runtime.get("s")).messages
    assert [each["role"] for each in messages] == ["user", "assistant", *["tool" for _ in calls], "assistant"]
    assert History().judged(messages).open == {}
    said = {each["tool_call_id"]: each["content"] for each in messages[2:-1]}
    told = {"look": "looked at 7", "pay": "paid 7", "ask": "XL", "kid": "leaf"}
    assert said == {name: told[name] for name in calls}
    runs = await runtime.session("s").runs()
    assert runs[0].run.status is RunStatus.COMPLETED
    assert sum(each.run.steps for each in runs) == 2


@pytest.mark.parametrize("asked", [*TOOLS, "ask look", "pay kid ask look"])
async def test_a_step_ends_with_its_last_answered_call(harness: OurHarness, asked: str) -> None:
    shop, database = Shop(), Database(harness)
    runtime = await database.runtime(*shop.programs())
    await runtime.create("agent", session_id="s")
    await runtime.send("s", asked)
    await shop.finish(runtime)
    await check(runtime, asked)
    assert shop.done.count("model") == 2


class Dying:
    """A backend of a process that is gone with its n-th write: before it, or as soon as it stands."""

    def __init__(self, inner: Any, nth: int, *, lands: bool) -> None:
        self.inner = inner
        self._left = nth
        self._lands = lands
        self.gone = asyncio.Event()
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        self.writes += 1
        if self.gone.is_set() or (self.writes == self._left and not self._lands):
            await self._die()
        result = await self.inner.transact(*arguments, **options)
        if self.writes == self._left:
            await self._die()
        return result

    async def _die(self) -> None:
        self.gone.set()
        await asyncio.Event().wait()


async def live_through(shop: Shop, runtime: SessionRuntime, asked: str) -> None:
    await runtime.send("s", asked)
    await shop.finish(runtime)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("asked", ["ask", "kid", "pay", "ask look"])
async def test_whoever_takes_such_a_turn_over_at_any_commit_comes_to_the_same_end(
    harness: OurHarness, asked: str, lands: bool
) -> None:
    for nth in range(1, 100):
        shop, database = Shop(), Database(harness)
        runtime = await database.runtime(*shop.programs())
        await runtime.create("agent", session_id="s")
        dying = Dying(runtime.store.backend, nth, lands=lands)
        runtime.store.backend = dying
        task = asyncio.create_task(live_through(shop, runtime, asked))
        gone = asyncio.create_task(dying.gone.wait())
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if task.done():
            await task
            assert dying.writes > 4
            break
        runtime.store.backend = dying.inner
        await database.lose(runtime, task)
        heir = await database.runtime(*shop.programs())
        if await heir.store.runs.current("s") is None:
            await heir.send("s", asked)  # its sender heard nothing
        await shop.finish(heir)
        await check(heir, asked)
        await heir.session("s").delete(cascade=True)
    else:
        pytest.fail("the turn never came to its end")
    await check(runtime, asked)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize("asked", ["look", "ask", "kid", "pay", "ask look"])
async def test_a_turn_that_was_stopped_after_its_runner_died_at_any_commit_can_be_gone_on_with(
    harness: OurHarness, asked: str
) -> None:
    """Whoever takes it over runs nothing of its program, and answers its open calls: its step is over all the same."""
    for nth in range(1, 100):
        shop, database = Shop(), Database(harness)
        runtime = await database.runtime(*shop.programs())
        await runtime.create("agent", session_id="s")
        dying = Dying(runtime.store.backend, nth, lands=True)
        runtime.store.backend = dying
        task = asyncio.create_task(runtime.send("s", asked))
        gone = asyncio.create_task(dying.gone.wait())
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        runtime.store.backend = dying.inner
        if task.done():
            assert nth > 2
            break
        await database.lose(runtime, task)
        heir = await database.runtime(*shop.programs())
        run = await heir.store.runs.current("s")
        if run is not None and run.status is RunStatus.RUNNING:
            await heir.session("s").stop()
            await heir.drain()
            assert (await heir.session("s").runs())[0].status is RunStatus.INTERRUPTED
            outcome = await heir.session("s").resume()
            assert outcome.error is None
            await shop.finish(heir)
            assert (await heir.session("s").runs())[0].status is RunStatus.COMPLETED
        await heir.session("s").delete(cascade=True)
    else:
        pytest.fail("the turn never came to its end")


async def test_a_turn_that_was_stopped_in_a_tool_goes_on_with_the_next_step(harness: OurHarness) -> None:
    shop, database = Shop(), Database(harness)
    shop.gate = Gate()
    runtime = await database.runtime(*shop.programs())
    await runtime.create("agent", session_id="s")
    started = await runtime.session("s").start("look")
    await shop.gate.reached.wait()
    await runtime.session("s").stop()
    shop.gate.open.set()
    assert not (await started.wait()).completed
    assert await roles(runtime) == ["user", "assistant", "tool"]
    outcome = await runtime.session("s").resume()
    assert outcome.completed, outcome.error
    assert await roles(runtime) == ["user", "assistant", "tool", "assistant"]
    assert [each.run.steps for each in await runtime.session("s").runs()] == [1, 1]


async def test_a_reply_that_is_kept_of_a_stopped_step_is_not_asked_for_again(harness: OurHarness) -> None:
    """The model's answer is on record with the conversation before it: the next question is another one."""
    gate = Gate()

    async def model() -> str:
        return "half"

    @program
    async def talker(turn: Turn) -> None:
        async for _ in turn.steps():
            said = await turn.effect("model", model, {"upto": len(turn.messages)}, kind="model")
            turn.append({"role": "assistant", "content": said})
            if len(turn.messages) > 2:
                return
            await gate()

    runtime = await Database(harness).runtime(talker)
    await runtime.create("talker", session_id="s")
    started = await runtime.session("s").start("go")
    await gate.reached.wait()
    await runtime.session("s").stop()
    assert not (await started.wait()).completed
    assert (await runtime.session("s").resume()).completed
    assert await roles(runtime) == ["user", "assistant", "assistant"]


async def test_a_stop_that_is_withdrawn_lets_the_next_step_begin_where_the_last_call_was_answered(
    harness: OurHarness,
) -> None:
    shop, database = Shop(), Database(harness)
    shop.gate = Gate()
    runtime = await database.runtime(*shop.programs())
    await runtime.create("agent", session_id="s")
    started = await runtime.session("s").start("look")
    await shop.gate.reached.wait()
    await runtime.session("s").stop()
    assert started.run_id is not None
    await runtime.session("s").withdraw_stop(started.run_id)
    shop.gate.open.set()
    outcome = await started.wait()
    assert outcome.completed, outcome.error
    await check(runtime, "look")


async def test_a_failed_turn_goes_on_after_the_calls_that_were_answered(harness: OurHarness) -> None:
    shop, database = Shop(), Database(harness)
    inner, leaf = shop.programs()
    look: Any = {"id": "c", "name": "look"}

    @program
    async def agent(turn: Turn) -> None:
        context = context_of(turn)

        def record(_: Any, __: Any) -> None:
            turn.append({"role": "tool", "tool_call_id": "c", "content": "x"})

        if not turn.resumed:
            turn.append({"role": "assistant", "content": "", "tool_calls": [look]})
            async for _ in turn.steps():
                start_call(context, "c", {}, idempotent=True)
                here = Place("", turn.step, "c")
                await call_effect(
                    context, here, answered, {}, kind="tool", idempotent=False, call_id="c", record=record
                )
                raise ValueError("no")
        await inner.run(turn)

    async def answered() -> str:
        return "x"

    runtime = await database.runtime(agent, leaf)
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "look")
    assert outcome.error is not None
    assert outcome.error["category"] == "ValueError"
    assert [each.run.steps for each in await runtime.session("s").runs()] == [1]
    assert (await runtime.session("s").resume()).text == "Done: x"


async def test_a_turn_that_never_began_a_step_stays_in_its_first(harness: OurHarness) -> None:
    """An engine that replays from its start finds every call where it was made, also after an answer."""
    made: list[int] = []
    ask: Any = {"id": "c", "name": "ask"}

    async def call() -> int:
        made.append(1)
        return len(made)

    @program
    async def replays(turn: Turn) -> list[Any]:
        one = await turn.effect("one", call)
        if not turn.open_calls and len(turn.messages) == 1:
            turn.append({"role": "assistant", "content": "", "tool_calls": [ask]})
        await run_tools(turn, [Tool(name="ask")])
        return [one, turn.step]

    runtime = await Database(harness).runtime(replays)
    await runtime.create("replays", session_id="s")
    (wait,) = (await runtime.send("s", "go")).waits
    answered = await runtime.answer(wait.wait_id, "yes")
    assert answered.outcome is not None
    assert answered.outcome.output == [1, 1]
    assert made == [1]


class TestTheSameKeyTwice:
    async def test_is_refused_and_the_first_result_not_returned(self, harness: OurHarness) -> None:
        refusals: list[Any] = []
        made: list[int] = []

        async def call() -> int:
            made.append(1)
            return 7

        @program
        async def loops(turn: Turn) -> Any:
            first = await turn.effect("model", call, kind="model")
            with pytest.raises(KeyRepeated, match="steps") as refusal:
                await turn.effect("model", call, kind="model")
            refusals.append(refusal.value)
            ends = await asyncio.gather(turn.effect("b", call), turn.effect("b", call), return_exceptions=True)
            refusals.extend(end for end in ends if isinstance(end, KeyRepeated))
            await begin_step(context_of(turn))
            await finish_step(context_of(turn))
            return [first, await turn.effect("model", call, kind="model")]

        runtime = await Database(harness).runtime(loops)
        await runtime.create("loops", session_id="s")
        outcome = await runtime.send("s", "go")
        assert outcome.output == [7, 7], outcome.error
        assert [each.place[-1] for each in refusals] == ["model", "b"]
        assert len(made) == 3

    async def test_is_refused_for_one_that_failed(self, harness: OurHarness) -> None:
        async def call() -> int:
            raise ValueError("no")

        @program
        async def stubborn(turn: Turn) -> Any:
            with pytest.raises(EffectFailed):
                await turn.effect("k", call)
            return await turn.effect("k", call)

        runtime = await Database(harness).runtime(stubborn)
        await runtime.create("stubborn", session_id="s")
        error: Any = (await runtime.send("s", "go")).error
        assert error["category"] == "key_repeated"

    async def test_is_no_repeat_after_a_suspension(self, harness: OurHarness) -> None:
        made: list[int] = []

        async def call() -> int:
            made.append(1)
            return len(made)

        @program
        async def waits(turn: Turn) -> Any:
            one = await turn.effect("k", call)
            await turn.wait("go on")
            return [one, await turn.effect("k2", call)]

        runtime = await Database(harness).runtime(waits)
        await runtime.create("waits", session_id="s")
        (wait,) = (await runtime.send("s", "go")).waits
        answered = await runtime.answer(wait.wait_id, None)
        assert answered.outcome is not None
        assert answered.outcome.output == [1, 2]
