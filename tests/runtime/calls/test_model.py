"""Model calls: their keys by order of start, what is recorded as asked, results as what they were, and repeats."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from tenuto.errors import EffectMismatch, InvalidInput, KeyRepeated
from tenuto.model.effect import Effect, EffectStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.tool_function import tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, agent, in_memory


class Size(BaseModel):
    letter: str
    at: datetime


@dataclass(frozen=True)
class Offer:
    price: float
    sizes: tuple[str, ...]


AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def saying(calls: list[Any], *said: Any) -> Callable[[], Awaitable[Any]]:
    """Return a model that says one thing after the other, and raises those that are errors."""
    left = list(said)

    async def call() -> Any:
        calls.append(len(calls))
        answer = left.pop(0)
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return call


async def effects_of(runtime: SessionRuntime) -> tuple[Effect, ...]:
    return await runtime.store.effects.list(SessionKey("s"))


async def test_keyless_calls_are_numbered_in_each_step_and_found_again_by_that_at_a_replay(harness: OurHarness) -> None:
    calls: list[Any] = []
    model = saying(calls, "a", "b", "c", "d", "e")
    seen: list[list[str]] = []

    @program
    async def asks(turn: Turn) -> None:
        heard: list[str] = []
        seen.append(heard)
        async for step in turn.steps():
            heard.extend([await turn.model(model), await turn.model(model, key="named")])
            heard.append(await turn.model(model) if step == 1 else "-")
            if step == 2:
                await turn.wait("go")
                return

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    again = await database.runtime(asks)
    await again.answer(outcome.waits[0], "now")

    assert seen == [["a", "b", "c", "d", "e", "-"], ["d", "e", "-"]]
    assert len(calls) == 5


@in_memory
async def test_a_tool_counts_its_model_calls_apart_from_the_program_and_from_other_tools(harness: OurHarness) -> None:
    calls: list[Any] = []
    model = saying(calls, *"abcd")

    @tool
    async def thinks(turn: Turn, about: str) -> str:
        """Think."""
        return str(await turn.model(model)) + str(await turn.model(model)) + about[:0]

    @program
    async def asks(turn: Turn) -> None:
        turn.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{n}", "name": "thinks", "arguments": {"about": "it"}} for n in (1, 2)],
            }
        )
        await run_tools(turn, [thinks])
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    await runtime.send("s", "hi")
    found = await effects_of(runtime)
    assert {(each.namespace, each.effect_key) for each in found if each.kind == "model"} == {
        ("c1", "model"),
        ("c1", "model:2"),
        ("c2", "model"),
        ("c2", "model:2"),
    }


@in_memory
async def test_a_second_keyless_call_while_one_is_under_way_asks_for_a_key(harness: OurHarness) -> None:
    calls: list[Any] = []
    model = saying(calls, "one", "two")

    @program
    async def asks(turn: Turn) -> Any:
        ends: Any = await asyncio.gather(turn.model(model), turn.model(model), return_exceptions=True)
        assert ends[0] == "one"
        with pytest.raises(KeyRepeated, match="its own `key=`"):
            raise ends[1]
        return await asyncio.gather(turn.model(model, key="a"), turn.model(saying(calls, "three"), key="b"))

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).result() == ["two", "three"]
    assert len(calls) == 3


@in_memory
async def test_what_a_model_saw_is_recorded_as_a_digest_that_later_messages_do_not_change(harness: OurHarness) -> None:
    calls: list[Any] = []
    model = saying(calls, "first", "second")

    @program
    async def asks(turn: Turn) -> None:
        turn.append(str(await turn.model(model)))
        await turn.wait("go")
        turn.append(str(await turn.model(model)))
        await turn.wait("more")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    (asked,) = await effects_of(runtime)
    assert {**asked.request, "digest": len(asked.request["digest"])} == {"messages": 1, "since": 0, "digest": 24}
    again = await database.runtime(asks)
    answered = await again.answer(outcome.waits[0], 1)
    third = await database.runtime(asks)
    last = await third.answer(answered.outcome.waits[0], 1)  # type: ignore[union-attr]
    assert last.outcome is not None
    assert last.outcome.completed
    assert len(calls) == 2


@in_memory
async def test_a_program_that_asks_something_else_at_its_place_is_refused(harness: OurHarness) -> None:
    asked = [{"prompt": "one"}, {"prompt": "two"}]

    @program
    async def asks(turn: Turn) -> None:
        await turn.model(saying([], "said"), request=asked.pop(0))
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    answered = await runtime.answer(outcome.waits[0], 1)
    assert answered.outcome is not None
    assert isinstance(answered.outcome.exception, EffectMismatch)


async def test_a_result_is_what_the_call_returned_now_and_at_every_replay(harness: OurHarness) -> None:
    size, offer = Size(letter="L", at=AT), Offer(9.5, ("S", "L"))
    seen: list[Any] = []
    calls: list[Any] = []

    @program
    async def asks(turn: Turn) -> None:
        seen.append(
            [
                await turn.model(saying(calls, size), returns=Size),
                await turn.effect("offer", saying(calls, offer), returns=Offer),
                await turn.effect("day", saying(calls, AT), returns=datetime),
                await turn.effect("set", saying(calls, {3, 1}), returns=TypeAdapter(set[int])),
                await turn.effect("lenient", saying(calls, {"letter": "S", "at": AT}), returns=Size),
            ]
        )
        await turn.wait("go")

    database = Database(harness)
    runtime = await database.runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    await (await database.runtime(asks)).answer(outcome.waits[0], 1)
    assert seen == [[size, offer, AT, {1, 3}, Size(letter="S", at=AT)]] * 2
    assert [type(each) for each in seen[1]] == [Size, Offer, datetime, set, Size]
    assert len(calls) == 5


@in_memory
@pytest.mark.parametrize(
    ("returns", "result", "said"),
    [
        (Size, {"letter": 7, "at": AT}, r"at letter: Input should be a valid string"),
        (list[Size], [Size(letter="L", at=AT), "no"], r"at \[1\]: Input should be"),
        (Size, None, "Input should be"),
    ],
)
async def test_a_result_that_is_not_of_its_type_fails_the_call_with_its_path(
    harness: OurHarness, returns: Any, result: Any, said: str
) -> None:
    @program
    async def asks(turn: Turn) -> None:
        await turn.effect("k", saying([], result), returns=returns)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert outcome.status == "failed"
    with pytest.raises(Exception, match=said):
        raise outcome.exception or AssertionError


@in_memory
@pytest.mark.parametrize("returns", ["Size", 7, object()])
async def test_what_is_not_a_type_is_refused_before_anything_is_called(harness: OurHarness, returns: Any) -> None:
    calls: list[Any] = []

    @program
    async def asks(turn: Turn) -> None:
        with pytest.raises(InvalidInput, match="returns must be a type"):
            await turn.model(saying(calls, 1), returns=returns)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).completed
    assert calls == []


@in_memory
async def test_a_transient_failure_of_a_model_is_repeated_twice_and_others_are_not(harness: OurHarness) -> None:
    calls: list[Any] = []
    worse: list[Any] = []

    @program
    async def asks(turn: Turn) -> Any:
        dead = ConnectionError("the line is dead")
        said = await turn.model(saying(calls, dead, dead, "hello"), backoff=0)
        with pytest.raises(Exception, match="not known"):
            await turn.model(saying(worse, ValueError("not known"), "never"), backoff=0)
        with pytest.raises(Exception, match="the line is dead"):
            await turn.model(saying(worse, dead, dead, dead, "never"), backoff=0)
        return said

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).result() == "hello"
    assert (len(calls), len(worse)) == (3, 4)


@in_memory
async def test_a_call_that_must_not_be_repeated_needs_a_reason_to_be(harness: OurHarness) -> None:
    calls: list[Any] = []

    @program
    async def pays(turn: Turn) -> Any:
        with pytest.raises(InvalidInput, match="retry_on="):
            await turn.effect("pay", saying(calls, 1), retries=1)
        refused = ConnectionRefusedError("nobody there")
        return await turn.effect(
            "charge", saying(calls, refused, "paid"), retries=1, backoff=0, retry_on=ConnectionRefusedError
        )

    runtime = await Database(harness).runtime(pays)
    await runtime.create("pays", session_id="s")
    assert (await runtime.send("s", "hi")).result() == "paid"
    assert len(calls) == 2


async def stuck() -> Any:
    await asyncio.Event().wait()


@in_memory
async def test_a_call_that_took_too_long_and_must_not_be_repeated_is_asked_about(harness: OurHarness) -> None:
    made: list[Any] = []

    @program
    async def pays(turn: Turn) -> Any:
        async def pay() -> Any:
            made.append("paid")
            await stuck()

        return await turn.effect("pay", pay, timeout=0.01, retries=3, backoff=0, retry_on=TimeoutError)

    runtime = await Database(harness).runtime(pays)
    await runtime.create("pays", session_id="s")
    outcome = await runtime.send("s", "hi")
    (wait,) = outcome.waits
    assert (wait.kind, wait.metadata["effect"]) == ("in_doubt", ["", 1, "pay"])
    (doubtful,) = await runtime.session("s").effects_in_doubt()
    assert (doubtful.effect_key, doubtful.status) == ("pay", EffectStatus.STARTED)
    answered = await runtime.answer(wait, {"outcome": "done", "result": "receipt"})
    assert answered.outcome is not None
    assert answered.outcome.output == "receipt"
    assert made == ["paid"]


@in_memory
async def test_a_call_that_took_too_long_says_so_now_and_when_it_is_replayed(harness: OurHarness) -> None:
    told: list[str] = []

    @program
    async def asks(turn: Turn) -> None:
        try:
            await turn.model(stuck, timeout=0.01, retries=0)
        except TimeoutError as error:
            told.append(str(error))
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    (wait,) = (await runtime.send("s", "hi")).waits
    await runtime.answer(wait, None)
    assert told == ["The call model (step 1) took longer than 0.01 s."] * 2


@in_memory
@pytest.mark.parametrize("policy", ["fail", "retry"])
async def test_a_new_doubt_fails_the_turn_where_nobody_is_asked(harness: OurHarness, policy: Any) -> None:
    @program
    async def pays(turn: Turn) -> Any:
        return await turn.effect("pay", stuck, timeout=0.01)

    runtime = await Database(harness).runtime(pays, in_doubt=policy)
    await runtime.create("pays", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert (outcome.status, outcome.error["category"]) == ("failed", "effect_in_doubt")


@in_memory
async def test_a_tool_that_took_too_long_is_asked_about_and_the_others_have_their_results(harness: OurHarness) -> None:
    calls: list[Any] = []

    @tool(timeout=0.01)
    async def pay(order: int) -> str:
        """Pay."""
        await stuck()
        return "never"

    @tool(idempotent=True, retries=1, backoff=0)
    async def look_up() -> str:
        """Look it up."""
        return str(await saying(calls, *([ConnectionError("dead")] if not calls else ["found"]))())

    arguments = {"pay": {"order": 7}, "look_up": {}}
    made: list[Any] = [{"id": name, "name": name, "arguments": given} for name, given in arguments.items()]
    replies = {"role": "assistant", "content": "", "tool_calls": made}
    runtime = await Database(harness).runtime(agent(replies, "All done.", tools=[pay, look_up]))
    await runtime.create("agent", session_id="s")
    outcome = await runtime.send("s", "hi")
    (wait,) = outcome.waits
    assert (wait.kind, wait.tool, wait.call_id, wait.arguments) == ("in_doubt", "pay", "pay", {"order": 7})
    assert [each.get("tool_call_id") for each in await runtime.session("s").messages()][2:] == ["look_up"]
    answered = await runtime.answer(wait, {"outcome": "done", "result": "receipt"})
    assert answered.outcome is not None
    assert answered.outcome.text == "All done."
    assert len(calls) == 2


@in_memory
async def test_a_tool_that_is_repeated_repeats_what_it_called(harness: OurHarness) -> None:
    calls: list[Any] = []

    @program
    async def works(turn: Turn) -> Any:
        async def outer() -> Any:
            inner = await turn.effect("inner", saying(calls, "inner"), idempotent=True)
            if len(calls) < 2:
                calls.append("outer")
                raise ConnectionError("dead")
            return [inner, "outer"]

        return await turn.effect("outer", outer, idempotent=True, retries=1, backoff=0)

    runtime = await Database(harness).runtime(works)
    await runtime.create("works", session_id="s")
    assert (await runtime.send("s", "hi")).result() == ["inner", "outer"]
    assert calls == [0, "outer"]
