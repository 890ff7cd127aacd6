"""Effects: done once and replayed, refused for another request, in doubt when their runner is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenuto import words
from tenuto.errors import (
    AnswerInvalid,
    CommitTooLarge,
    EffectFailed,
    EffectInDoubt,
    EffectMismatch,
    EffectNotOpen,
    EffectResultDropped,
    InvalidInput,
    KeyRepeated,
    LaneLost,
    NotJson,
    RunNotLive,
)
from tenuto.model.effect import EffectKind, EffectStatus
from tenuto.model.run import RunStatus
from tenuto.model.wait import Wait
from tenuto.runtime.calls.effect_call import call_effect
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.turn.effect_journal import EffectJournal, Place, check_same, difference, result_of
from tests.conftest import OurHarness
from tests.polling import until
from tests.runtime.runtimes import Database, Gate, contents, in_memory
from tests.runtime.seams import commit_now, live_turns, stop_renewing


def giving(value: Any, calls: list[str] | None = None, name: str = "") -> Callable[[], Awaitable[Any]]:
    """Return a call that gives a value, and notes that it was made."""

    async def call() -> Any:
        if calls is not None:
            calls.append(name)
        return value

    return call


async def effect_at(turn: Turn, place: Place, call: Callable[[], Awaitable[Any]]) -> Any:
    """Call a tool at a place that a program cannot name, as an engine does."""
    return await call_effect(
        context_of(turn), place, call, None, kind="tool", idempotent=False, call_id=None, record=None
    )


def failing(calls: list[str]) -> Callable[[], Awaitable[Any]]:
    """Return a call that fails, and notes that it was made."""

    async def call() -> Any:
        calls.append("failed")
        raise ConnectionError("the line is dead")

    return call


async def test_a_recorded_result_or_error_comes_back_without_a_call_in_whatever_order(harness: OurHarness) -> None:
    calls: list[str] = []
    seen: list[Any] = []

    @program
    async def asks(turn: Turn) -> None:
        wanted: dict[str, Callable[[], Awaitable[Any]]] = {
            "a": giving({"n": [1, None]}, calls, "a"),
            "b": giving("two", calls, "b"),
            "broken": failing(calls),
        }
        for key in ("a", "broken", "b") if not turn.resumed else ("b", "a", "broken"):
            try:
                kind: words.EffectKind = "model" if key == "b" else "tool"
                seen.append(await turn.effect(key, wanted[key], {"ask": key}, kind=kind))
            except EffectFailed as error:
                seen.append((error.message, error.details()["error"]))
        await turn.wait("go")

    database = Database(harness)
    first = await database.runtime(asks)
    await first.create("asks", session_id="s")
    outcome = await first.send("s", "hi")
    second = await database.runtime(asks)
    await second.answer(outcome.waits[0].wait_id, "now")

    assert calls == ["a", "failed", "b"]
    failure = (
        "The effect broken (step 1) failed: ConnectionError: the line is dead",
        {"category": "ConnectionError", "message": "the line is dead"},
    )
    assert seen == [{"n": [1, None]}, failure, "two", "two", {"n": [1, None]}, failure]


async def test_the_same_key_is_another_effect_in_another_step_or_namespace(harness: OurHarness) -> None:
    calls: list[str] = []

    @program
    async def steps(turn: Turn) -> Any:
        found = []
        async for step in turn.steps():
            found.append(await turn.effect("k", giving(step, calls, f"step {step}"), {"of": step}))
            elsewhere = Place(f"n{step}", step, "k")
            found.append(await effect_at(turn, elsewhere, giving("x", calls, "elsewhere")))
            if step == 2:
                break
        return found

    runtime = await Database(harness).runtime(steps)
    await runtime.create("steps", session_id="s")
    assert (await runtime.send("s", "hi")).output == [1, "x", 2, "x"]
    assert calls == ["step 1", "elsewhere", "step 2", "elsewhere"]
    stored = await runtime.store.effects.list("s")
    places = [(each.namespace, each.step, each.effect_key) for each in stored]
    assert sorted(places) == [("", 1, "k"), ("", 2, "k"), ("n1", 1, "k"), ("n2", 2, "k")]


@pytest.mark.parametrize(
    ("asked", "again", "path"),
    [
        ({"a": 1}, {"a": 2}, "request.a"),
        ({"a": {"b": [1, 2, 3]}}, {"a": {"b": [1, 9, 3]}}, "request.a.b[1]"),
        ({"a": [1]}, {"a": [1, 2]}, "request.a[1]"),
        ({"a": 1, "b": 2}, {"a": 1}, "request.b"),
        ({"a": 1}, {"a": True}, "request.a"),
        ({"a": None}, {}, "request.a"),
        ("text", ["text"], "request"),
    ],
)
def test_a_difference_is_named_by_its_path(asked: Any, again: Any, path: str) -> None:
    assert difference(asked, again) == path
    assert difference(again, asked) == path
    assert difference(asked, asked) is None


async def test_another_request_under_a_known_key_is_refused_and_says_where_they_differ(harness: OurHarness) -> None:
    calls: list[str] = []

    @program
    async def asks(turn: Turn) -> None:
        limit = 10 if not turn.resumed else 11
        await turn.effect("search", giving([], calls), {"query": {"limit": limit, "text": "x"}})
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    answered = await runtime.answer(outcome.waits[0].wait_id, None)

    assert answered.outcome is not None
    assert answered.outcome.status == "failed"
    assert answered.outcome.error["category"] == "effect_mismatch"
    assert "differ at request.query.limit" in answered.outcome.error["message"]
    assert answered.outcome.error["details"]["path"] == "request.query.limit"
    assert answered.outcome.error["details"]["place"] == ["", 1, "search"]
    assert calls == [""]


@in_memory
async def test_another_request_in_the_same_turn_is_refused_and_what_is_changed_in_place_is_not_it(
    harness: OurHarness,
) -> None:
    refusals: list[EffectMismatch] = []
    seen: list[Any] = []

    @program
    async def asks(turn: Turn) -> None:
        request = {"messages": ["one"]}
        reply: Any = await turn.effect("model", giving({"content": "yes"}), request, kind="model")
        request["messages"].append("two")
        reply["content"] = "changed"
        with pytest.raises(KeyRepeated):  # the request that is on record is the one that was made
            await turn.effect("model", giving("never"), {"messages": ["one"]}, kind="model")
        known = context_of(turn).journal.find(Place("", 1, "model"))
        assert known is not None
        seen.append(known.result)
        with pytest.raises(EffectMismatch) as refusal:
            await turn.effect("model", giving("never"), request, kind="model")
        refusals.append(refusal.value)
        with pytest.raises(EffectMismatch, match="a model call, and is a tool call now"):
            await turn.effect("model", giving("never"), {"messages": ["one"]}, kind="tool")

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).error is None
    assert seen == [{"content": "yes"}]
    assert refusals[0].details()["path"] == "request.messages[1]"
    assert refusals[0].details()["found"] != refusals[0].details()["given"]


async def test_what_is_dropped_with_the_completed_origin_is_never_called_again(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        await turn.effect("tool", giving({"n": 1}), {"q": 1})
        await turn.effect("model", giving({"n": 2}), {"q": 2}, kind="model")
        await turn.save()
        await turn.effect("last", giving({"n": 3}), {"q": 3}, kind="model")  # done with the turn: no row is left of it

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).completed

    stored = await runtime.store.effects.list("s")
    bare = (EffectStatus.DONE, False, False)
    assert [(each.status, each.has_request, each.has_result) for each in stored] == [bare, bare]
    journal = EffectJournal(stored)
    for kind, key, number in ((EffectKind.TOOL, "tool", 1), (EffectKind.MODEL, "model", 2)):
        place = Place("", 1, key)
        known = journal.find(place)
        assert known is not None
        check_same(place, known, kind, {"q": number})
        with pytest.raises(EffectResultDropped) as dropped:
            result_of(place, known)
        assert dropped.value.details()["place"] == ["", 1, key]
        with pytest.raises(EffectMismatch, match="digests differ") as other:
            check_same(place, known, kind, {"q": 3})
        assert other.value.details()["found"] == known.digest
        assert other.value.details()["given"] not in ("", known.digest)


@in_memory
async def test_an_effect_outside_a_turn_without_a_key_or_of_an_unknown_kind_is_refused(harness: OurHarness) -> None:
    kept: list[Turn] = []
    calls: list[str] = []

    @program
    async def asks(turn: Turn) -> Any:
        kept.append(turn)
        with pytest.raises(InvalidInput, match="key must be a text of 1 to 1024 bytes"):
            await turn.effect("", giving(1, calls), None)
        guess: Any = "guess"
        with pytest.raises(InvalidInput, match=r"kind must be one of .*, got 'guess'"):
            await turn.effect("k", giving(1, calls), None, kind=guess)
        no_json: Any = object()
        with pytest.raises(NotJson, match=r"request\.at"):
            await turn.effect("k", giving(1, calls), {"at": no_json})
        return await turn.effect("k", giving("fine", calls), {"at": 1})

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).output == "fine"
    before = await runtime.store.dump()
    with pytest.raises(InvalidInput, match="is over"):
        await kept[0].effect("late", giving(1, calls), None)
    assert await runtime.store.dump() == before
    assert calls == [""]


async def test_two_calls_at_once_under_one_key_are_refused(harness: OurHarness) -> None:
    gate = Gate()

    @program
    async def asks(turn: Turn) -> Any:
        async def slow() -> str:
            await gate()
            return "first"

        first = asyncio.create_task(turn.effect("k", slow, None))
        await gate.reached.wait()
        with pytest.raises(InvalidInput, match="called twice"):
            await turn.effect("k", giving("second"), None)
        gate.open.set()
        return await first

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).output == "first"


async def test_what_cannot_be_stored_is_the_failure_of_its_call(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> Any:
        with pytest.raises(EffectFailed) as failure:
            await turn.effect("k", giving({"at": {1, 2}}), None)
        assert "pass `returns=`" in str(failure.value)
        return failure.value.details()["error"]["category"]

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).output == "value_not_json"
    (stored,) = await runtime.store.effects.list("s")
    assert stored.status is EffectStatus.FAILED


async def test_deleting_a_session_removes_its_effects_and_no_others(harness: OurHarness) -> None:
    @program
    async def asks(turn: Turn) -> None:
        await turn.effect("k", giving(turn.session_id), None)
        await turn.wait("go")

    runtime = await Database(harness).runtime(asks)
    for name in ("one", "two"):
        await runtime.create("asks", session_id=name)
        await runtime.send(name, "hi")
    await runtime.session("one").delete()
    assert await runtime.store.effects.list("one") == ()
    assert [each.result for each in await runtime.store.effects.list("two")] == ["two"]
    await runtime.create("asks", session_id="one")
    assert await runtime.store.effects.list("one") == ()


class Paying:
    """A program that pays through an effect, whose runner can be lost between the payment and its record."""

    name = "paying"
    version = "1"

    def __init__(self, *, kind: words.EffectKind = "tool", idempotent: bool = False) -> None:
        self.gate = Gate()
        self.paid = 0
        self.found: list[Any] = []
        self.failure: EffectFailed | None = None
        self.program = program(name=self.name)(self._run)
        self._kind, self._idempotent = kind, idempotent

    async def _run(self, turn: Turn) -> Any:
        async def pay() -> Any:
            self.paid += 1
            await self.gate()
            return {"receipt": self.paid}

        try:
            found: Any = await turn.effect("pay", pay, {"amount": 7}, kind=self._kind, idempotent=self._idempotent)
        except EffectFailed as failure:
            self.failure = failure
            return failure.details()["error"]
        self.found.append(found)
        await turn.wait("more", timeout=60)
        return self.found

    async def lost(self, database: Database) -> None:
        """Let a runner die with the payment made and not recorded."""
        runtime = await database.runtime(self.program)
        await runtime.create(self.name, session_id="s")
        task = asyncio.create_task(runtime.send("s", "pay"))
        await self.gate.reached.wait()
        if self._kind == "model":  # whose start is on record once something else was written
            await commit_now(*live_turns(runtime))
        await database.lose(runtime, task)
        self.gate.open.set()


async def _only_wait(runtime: SessionRuntime) -> Wait:
    (wait,) = await runtime.session("s").waits()
    return wait


async def test_a_payment_whose_runner_died_is_asked_about_and_not_made_again(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program)
    assert [run.status for run in await second.session("s").runs()] == [RunStatus.RUNNING]
    await second.drain()
    (doubtful,) = await second.session("s").effects_in_doubt()
    assert (doubtful.effect_key, doubtful.request, doubtful.status) == ("pay", {"amount": 7}, EffectStatus.STARTED)
    wait = await _only_wait(second)
    assert (wait.kind, wait.metadata["effect"], wait.metadata["request"]) == ("in_doubt", ["", 1, "pay"], {"amount": 7})
    assert paying.paid == 1
    for bad in (None, "done", {"outcome": "perhaps"}):
        with pytest.raises(AnswerInvalid, match=r"answer"):
            await second.answer(wait.wait_id, bad)

    await second.answer(wait.wait_id, {"outcome": "done", "result": {"receipt": 99}})
    more = await _only_wait(second)
    answered = await second.answer(more.wait_id, None)
    assert answered.outcome is not None
    assert answered.outcome.output == [{"receipt": 99}, {"receipt": 99}]
    assert paying.paid == 1
    assert await second.session("s").effects_in_doubt() == ()
    assert [run.status for run in await second.session("s").runs()] == [
        RunStatus.COMPLETED,
        RunStatus.SUSPENDED,
        RunStatus.SUSPENDED,
    ]


async def test_a_call_in_doubt_that_somebody_says_failed_fails_for_the_program(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program)
    await second.drain()
    answered = await second.answer((await _only_wait(second)).wait_id, {"outcome": "failed", "error": "declined"})
    assert answered.outcome is not None
    assert answered.outcome.output == {"category": "tool_error", "message": "declined"}
    assert paying.paid == 1


async def test_a_call_in_doubt_that_somebody_wants_again_is_made_once_more_and_then_replayed(
    harness: OurHarness,
) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program)
    await second.drain()
    await second.answer((await _only_wait(second)).wait_id, {"outcome": "retry"})
    answered = await second.answer((await _only_wait(second)).wait_id, None)
    assert answered.outcome is not None
    assert answered.outcome.output == [{"receipt": 2}, {"receipt": 2}]
    assert paying.paid == 2


@pytest.mark.parametrize(
    ("kind", "idempotent", "policy"), [("tool", True, "ask"), ("tool", False, "retry"), ("model", False, "fail")]
)
async def test_what_may_be_called_again_is_called_once_more_and_then_replayed(
    harness: OurHarness, kind: words.EffectKind, idempotent: bool, policy: str
) -> None:
    database, paying = Database(harness), Paying(kind=kind, idempotent=idempotent)
    await paying.lost(database)
    second = await database.runtime(paying.program, in_doubt=policy)
    await second.drain()
    assert paying.paid == 2
    assert (await _only_wait(second)).kind == "signal"
    third = await database.runtime(paying.program, in_doubt=policy)
    answered = await third.answer((await _only_wait(third)).wait_id, None)
    assert answered.outcome is not None
    assert answered.outcome.output == [{"receipt": 2}, {"receipt": 2}]
    assert paying.paid == 2


async def test_where_asking_is_not_wanted_a_call_in_doubt_fails_the_run_and_stays_listed(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program, in_doubt="fail")
    await second.drain()
    (run,) = await second.session("s").runs()
    error: Any = run.run.error
    assert (run.status, error["category"]) == (RunStatus.FAILED, EffectInDoubt.category)
    assert error["details"]["place"] == ["", 1, "pay"]
    assert len(await second.session("s").effects_in_doubt()) == 1
    assert paying.paid == 1


async def test_a_displaced_runner_cannot_record_what_came_back(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    first = await database.runtime(paying.program)
    await first.create("paying", session_id="s")
    task = asyncio.create_task(first.send("s", "pay"))
    await paying.gate.reached.wait()
    stop_renewing(*live_turns(first))
    database.clock.advance(60)

    second = await database.runtime(paying.program)
    await second.drain()
    assert (await _only_wait(second)).kind == "in_doubt"
    before = await second.store.dump()
    paying.gate.open.set()
    with pytest.raises((LaneLost, RunNotLive)):
        await task
    assert await second.store.dump() == before
    assert (await second.session("s").effects_in_doubt())[0].status is EffectStatus.STARTED


async def test_while_its_lane_is_held_no_rival_makes_a_call_again(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying(idempotent=True)
    first = await database.runtime(paying.program)
    await first.create("paying", session_id="s")
    task = asyncio.create_task(first.send("s", "pay"))
    await paying.gate.reached.wait()
    second = await database.runtime(paying.program)
    await second.drain()
    assert await second.session("s").effects_in_doubt() == ()
    assert paying.paid == 1
    (under_way,) = await second.store.effects.list("s")
    with pytest.raises(EffectNotOpen, match="not in doubt"):
        await second.session("s").settle_effect(under_way, result="said by a stranger")
    paying.gate.open.set()
    assert (await task).suspended


async def test_settling_by_hand_answers_the_run_that_asks(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program)
    await second.drain()
    (doubtful,) = await second.session("s").effects_in_doubt()
    await second.session("s").settle_effect(doubtful, result={"receipt": 5})
    await second.drain()
    answered = await second.answer((await _only_wait(second)).wait_id, None)
    assert answered.outcome is not None
    assert answered.outcome.output == [{"receipt": 5}, {"receipt": 5}]
    session = await second.get("s")
    assert contents(session.messages, "system") == []


async def test_a_call_that_a_run_under_way_goes_on_with_is_not_settled_by_others(harness: OurHarness) -> None:
    database, before, paid = Database(harness), Gate(), list[int]()
    paying = Gate()

    @program
    async def pays(turn: Turn) -> Any:
        async def pay() -> Any:
            paid.append(len(paid))
            await paying()
            return {"receipt": len(paid)}

        await before()
        return await turn.effect("pay", pay, {"amount": 7}, idempotent=True)

    first = await database.runtime(pays)
    await first.create("pays", session_id="s")
    before.open.set()
    task = asyncio.create_task(first.send("s", "pay"))
    await paying.reached.wait()
    await database.lose(first, task)
    before.reached.clear()
    before.open.clear()
    paying.open.set()

    second, third = await database.runtime(pays), await database.runtime(pays)
    draining = asyncio.create_task(second.drain())
    await before.reached.wait()
    (doubtful,) = await third.session("s").effects_in_doubt()
    with pytest.raises(EffectNotOpen, match="resumed it is running"):
        await third.session("s").settle_effect(doubtful, result={"receipt": 9})
    before.open.set()
    await draining
    (run,) = await second.session("s").runs()
    assert (run.status, run.run.attempt) == (RunStatus.COMPLETED, 2)
    assert len(paid) == 2


async def test_a_call_that_is_settled_as_its_run_is_resumed_is_not_made_again(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program, in_doubt="fail")
    await second.drain()
    (doubtful,) = await second.session("s").effects_in_doubt()
    third = await database.runtime(paying.program, in_doubt="retry")
    read = third.store.waits.of_invocation

    async def settled_meanwhile(*given: Any) -> list[Wait]:
        await second.session("s").settle_effect(doubtful, result={"receipt": 9})
        return await read(*given)

    monkeypatch.setattr(third.store.waits, "of_invocation", settled_meanwhile)
    assert (await third.session("s").resume()).suspended
    assert (paying.found, paying.paid) == ([{"receipt": 9}], 1)


async def test_settling_by_hand_after_the_run_gave_up_is_one_notice_to_the_model(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program, in_doubt="fail")
    await second.drain()
    (doubtful,) = await second.session("s").effects_in_doubt()
    await second.session("s").settle_effect(doubtful, error={"category": "declined", "message": "no funds"})
    assert await second.session("s").effects_in_doubt() == ()
    with pytest.raises(EffectNotOpen):
        await second.session("s").settle_effect(doubtful, result=1)
    await second.drain()
    session = await second.get("s")
    (told,) = [message for message in session.messages if message["role"] == "system"]
    assert "'pay', whose outcome was unknown, was settled as failed" in told["content"]
    assert "no funds" not in told["content"]
    assert told["metadata"]["data"] == {"error": {"category": "declined", "message": "no funds"}}
    await second.drain()
    assert len((await second.get("s")).messages) == len(session.messages)


async def test_abandoning_an_in_doubt_wait_blocks_nothing(harness: OurHarness) -> None:
    database, paying = Database(harness), Paying()
    await paying.lost(database)
    second = await database.runtime(paying.program)
    await second.drain()
    wait = await _only_wait(second)
    paying.gate.open.set()
    assert (await second.send("s", "pay again")).suspended
    assert paying.paid == 2
    assert [each.run_id != wait.run_id for each in await second.session("s").waits()] == [True]
    (doubtful,) = await second.session("s").effects_in_doubt()
    await second.session("s").settle_effect(doubtful, result={"receipt": 1})
    assert await second.session("s").effects_in_doubt() == ()
    await second.drain()
    assert len(contents((await second.get("s")).messages, "system")) == 1


async def test_what_is_added_once_is_added_again_if_it_was_never_written(harness: OurHarness) -> None:
    broken = [True]

    @program
    async def adds(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "working"}, once="said")
        turn.add("notes", "n", once="noted")
        turn.record_usage("m", once="counted", input=5)
        if broken[0]:
            raise RuntimeError("not yet")
        await turn.wait("go")

    runtime = await Database(harness).runtime(adds)
    await runtime.create("adds", session_id="s")
    assert (await runtime.send("s", "hi")).status == "failed"
    assert contents((await runtime.get("s")).messages, "assistant") == []
    broken[0] = False
    resumed = await runtime.session("s").resume()
    await runtime.answer(resumed.waits[0].wait_id, None)
    session = await runtime.get("s")
    assert contents(session.messages, "assistant") == ["working"]
    assert list(session.logs["notes"]) == ["n"]
    assert (await runtime.session("s").usage()).total.input == 5


async def test_a_call_that_was_never_on_record_is_not_in_doubt_when_its_commit_is_refused(harness: OurHarness) -> None:
    calls: list[str] = []

    @program
    async def asks(turn: Turn) -> None:
        turn.append({"role": "tool", "tool_call_id": "nobody made it", "content": "x"})
        await turn.effect("k", giving(1, calls), None)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    outcome = await runtime.send("s", "hi")
    assert (outcome.status, outcome.error["category"]) == ("failed", "history_invalid")
    assert calls == []
    assert await runtime.session("s").effects_in_doubt() == ()


@in_memory
async def test_what_is_too_big_to_be_written_is_the_failure_of_its_call(harness: OurHarness) -> None:
    calls: list[str] = []

    @program
    async def asks(turn: Turn) -> Any:
        big = "x" * (5 * 1024 * 1024)
        with pytest.raises(CommitTooLarge):
            await turn.effect("asked", giving(1, calls), {"big": big})
        with pytest.raises(InvalidInput):
            await turn.effect("k" * 2000, giving(1, calls), None, kind="model")
        with pytest.raises(CommitTooLarge) as failure:
            await turn.effect("answered", giving(big), None, kind="model")
        await turn.save()
        return failure.value.category

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    assert (await runtime.send("s", "hi")).output == "commit_budget_exceeded"
    assert calls == []
    assert [each.status for each in await runtime.store.effects.list("s")] == [EffectStatus.FAILED]


async def test_a_soft_stop_comes_when_the_last_call_under_way_is_done(harness: OurHarness) -> None:
    first, second, went_on = Gate(), Gate(), list[bool]()

    @program
    async def asks(turn: Turn) -> None:
        async def one() -> str:
            await first()
            return "one"

        async def two() -> str:
            await second()
            return "two"

        await asyncio.gather(turn.effect("one", one, None), turn.effect("two", two, None))
        went_on.append(True)

    runtime = await Database(harness).runtime(asks)
    await runtime.create("asks", session_id="s")
    task = asyncio.create_task(runtime.send("s", "hi"))
    await first.reached.wait()
    await second.reached.wait()
    await runtime.session("s").stop()
    first.open.set()

    async def one_is_done() -> bool:
        return EffectStatus.DONE in [each.status for each in await runtime.store.effects.list("s")]

    await until(one_is_done)
    second.open.set()
    assert (await task).status == "interrupted"
    assert [each.status for each in await runtime.store.effects.list("s")] == [EffectStatus.DONE] * 2
    assert went_on == []
