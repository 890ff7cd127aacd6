"""No input blocks its session: it is refused for what it is, left to others, or tried again, and the rest goes on."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import (
    InvalidHistory,
    LaneLost,
    MessageRefused,
    ProgramNotRegistered,
    SessionDeleted,
    StateMigrationError,
    StatusRefused,
    StoreUnavailable,
)
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.model.input import Boundary, InputKind, InputStatus, NewInput
from tenuto.runtime.change.action import ResumeSession, SuspendSession
from tenuto.runtime.change.hooks import on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.testing.harness import Harness
from tenuto.words import WhenBusy
from tests.conftest import OurHarness
from tests.polling import until
from tests.runtime.gates import GatedProgram, events_of, talk_of
from tests.runtime.runtimes import Database, on_disk, opened
from tests.runtime.seams import advance, fail_takeovers

RESULT = {"role": "tool", "tool_call_id": "never made", "content": "?"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "n", "arguments": {}}]}

POISON: dict[str, tuple[InputKind, Any, str]] = {
    "a result without a call": (InputKind.MESSAGE, {"message": RESULT}, "history_invalid"),
    "a call that nothing stands for": (InputKind.MESSAGE, {"message": CALL}, "history_invalid"),
    "a role nobody knows": (InputKind.MESSAGE, {"message": {"role": "ghost"}}, "history_invalid"),
    "a message that is none": (InputKind.MESSAGE, {"message": 7}, "history_invalid"),
    "no message": (InputKind.MESSAGE, {"text": "hello"}, "invalid_input"),
    "a number": (InputKind.MESSAGE, 7, "invalid_input"),
    "nothing": (InputKind.MESSAGE, None, "invalid_input"),
    "a wake with a message that is none": (InputKind.WAKE, {"message": [1]}, "history_invalid"),
    "a wake with a notice that is none": (InputKind.WAKE, {"notice": 7}, "invalid_input"),
    "a command that is none": (InputKind.COMMAND, [1], "invalid_input"),
    "a command without values": (InputKind.COMMAND, {"action": "SuspendSession"}, "invalid_input"),
    "a command its class refuses": (InputKind.COMMAND, {"action": "FailSession", "values": {"reason": 7}}, ""),
}


def answered(*texts: str) -> list[str]:
    return [word for text in texts for word in (text, f"re: {text}")]


async def put(store: Store, kind: InputKind, body: Any, session: str = "s", **parts: Any) -> str:
    """Queue something as an outsider does that writes to the store."""
    return (await store.inbox.enqueue(session, NewInput(kind=kind, body=body, **parts))).input.input_id


@pytest.fixture
async def runtime(store: Store) -> SessionRuntime:
    runtime = await opened(store, [GatedProgram()])
    for name in ("s", "other"):
        await runtime.create("gate", session_id=name)
    return runtime


@pytest.mark.parametrize("name", [name for name, (_, _, category) in POISON.items() if category])
async def test_what_nobody_could_ever_take_is_refused_and_the_rest_goes_on(
    runtime: SessionRuntime, store: Store, name: str
) -> None:
    kind, body, category = POISON[name]
    poison = await put(store, kind, body)
    behind, beside = await runtime.session("s").enqueue("behind"), await runtime.session("other").enqueue("beside")
    assert (await runtime.send("s", "innocent")).text == "re: innocent"
    await runtime.drain()
    assert await talk_of(runtime, "s") == answered("behind", "innocent")
    for each in (behind, beside):
        assert (await runtime.outcome(each)).completed
    outcome = await runtime.outcome(poison)
    assert (outcome.status, outcome.run_id, outcome.error["category"]) == ("failed", None, category)
    with pytest.raises(Exception, match=poison):
        outcome.result()
    assert await store.inbox.list("s") == ()
    told = [*await events_of(runtime, "s", "input_refused"), *await events_of(runtime, "s", "session_action_failed")]
    assert [(each["input_id"], each["error"]["category"]) for each in told] == [(poison, category)]


@pytest.mark.parametrize("name", POISON)
async def test_a_turn_under_way_does_not_fail_for_what_comes_next(store: Store, name: str) -> None:
    gate = GatedProgram()
    runtime = await opened(store, [gate])
    await runtime.create("gate", session_id="s")
    await runtime.send("s", "first")
    held = await runtime.session("s").enqueue("hold")
    draining = asyncio.ensure_future(runtime.drain())
    await gate.entered("hold")
    await put(store, *POISON[name][:2])
    behind = await runtime.session("s").enqueue("behind")
    gate.let_go("hold")
    await draining
    assert (await runtime.outcome(held)).text == "re: hold"
    if POISON[name][2]:
        assert (await runtime.outcome(behind)).text == "re: behind"


@pytest.mark.parametrize("message", [RESULT, CALL, {"role": "ghost"}])
@pytest.mark.parametrize("boundary", ["after_step", "before_completion"])
async def test_a_turn_does_not_fail_for_what_it_is_sent_meanwhile(store: Store, boundary: str, message: Any) -> None:
    gate = GatedProgram()
    runtime = await opened(store, [gate])
    await runtime.create("gate", session_id="s")
    handle = await runtime.session("s").start("hold")
    await gate.entered("hold")
    wrong = await put(store, InputKind.MESSAGE, {"message": message}, boundary=Boundary(boundary))
    right = await runtime.session("s").enqueue("right", boundary="before_completion")
    gate.let_go("hold")
    assert (await handle.wait()).text == "re: right"
    await runtime.drain()
    assert (await runtime.outcome(right)).completed
    assert (await runtime.outcome(wrong)).error["category"] == "history_invalid"


@on_disk
@pytest.mark.parametrize("damage", ["body = '{broken'", "body = ''", "kind = 'ghost'", "body = '{\"message\": 1'"])
async def test_what_cannot_be_read_is_refused_and_the_rest_goes_on(
    runtime: SessionRuntime, harness: Harness, store: Store, damage: str
) -> None:
    poison = await runtime.session("s").enqueue("broken")
    behind = await runtime.session("s").enqueue("behind")
    await harness.damage(f"UPDATE input SET {damage} WHERE input_id = '{poison}'")
    assert (await runtime.outcome(poison)).status == "queued"
    (row, _) = await store.inbox.list("s")
    assert (row.has_body, row.body) == (False, None)
    assert poison in str(row.unreadable)
    await runtime.drain()
    assert (await runtime.outcome(behind)).completed
    outcome = await runtime.outcome(poison)
    assert (outcome.status, outcome.error["category"]) == ("failed", "stored_data_corrupt")
    assert await talk_of(runtime, "s") == answered("behind")


async def test_a_sender_hears_its_own_refusal_and_nobody_elses(harness: Harness, store: Store) -> None:
    class Judging(GatedProgram):
        declares = ProgramTraits(entry=lambda message: message if message["content"] != "bad" else _refuse())

    gate = Judging()
    runtime, elsewhere = await opened(store, [gate]), await opened(await harness.open(), [gate])
    await runtime.create("gate", session_id="s")
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    bad = [await elsewhere.session("s").start("bad", key="bad", when_busy=policy) for policy in ("queue", "interrupt")]
    good = await elsewhere.session("s").start("good", key="good", when_busy="queue")
    assert (await good.wait()).text == "re: good"
    await held.wait()
    for each in bad:
        with pytest.raises(InvalidHistory, match="never made") as refused:
            await each.wait()
        assert refused.value.details()["input_id"] == bad[0].input_id
        assert [item async for item in each.events()] == []
    for sender in (runtime, elsewhere):
        with pytest.raises(InvalidHistory, match="never made"):
            await sender.send("s", "bad", key="bad")
    row = await store.inbox.find("s", "bad")
    assert row is not None
    assert (row.status, row.body, row.has_body, row.run_id) == (InputStatus.REFUSED, None, False, None)
    assert await runtime.session("s").cancel(row.input_id) == {row.input_id: "refused"}


def _refuse() -> Any:
    raise InvalidHistory("The call was never made.", call_id="c")


class Picky:
    """A program that takes no message with a no in it, and says so in words of its own."""

    name, version = "gate", "1"

    def __init__(self, error: type[Exception]) -> None:
        self.declares = ProgramTraits(entry=self._entry)
        self.error: type[Exception] | None = error

    def _entry(self, message: Any) -> Any:
        if self.error is not None and "no" in message["content"]:
            raise self.error("not this one")
        return message

    async def run(self, turn: Turn) -> None:
        turn.append(f"re: {turn.text}")


@pytest.mark.parametrize("error", [ValueError, PermissionError, MessageRefused, KeyError])
async def test_what_a_program_refuses_is_refused_whatever_it_raises(store: Store, error: type[Exception]) -> None:
    runtime = await opened(store, [Picky(error)])
    await runtime.create("gate", session_id="s")
    with pytest.raises(error):
        await runtime.send("s", "no, at once")
    assert await store.inbox.list("s") == ()
    ids = [await runtime.session("s").enqueue(text) for text in ("one", "no", "two")]
    with pytest.raises(MessageRefused, match="not this one"):
        await runtime.send("s", "no, later", when_busy="queue")
    statuses = [(await runtime.outcome(each)).status for each in ids]
    assert statuses == ["completed", "failed", "completed"]
    assert await talk_of(runtime, "s") == answered("one", "two")


@pytest.mark.parametrize("error", [ConnectionError, TimeoutError, StoreUnavailable])
async def test_what_passes_leaves_a_message_queued(store: Store, error: type[Exception]) -> None:
    picky = Picky(error)
    runtime = await opened(store, [picky])
    await runtime.create("gate", session_id="s")
    queued = await runtime.session("s").enqueue("no")
    await runtime.drain()
    assert (await runtime.outcome(queued)).status == "queued"
    picky.error = None
    await runtime.drain()
    assert (await runtime.outcome(queued)).text == "re: no"


async def test_a_hooks_refusal_settles_a_queued_message_and_is_raised_to_whoever_sends(store: Store) -> None:
    refused = ["for now"]

    async def hook(session: SessionView) -> SessionView:
        if refused:
            raise PermissionError(f"not {refused[0]}")
        return session

    runtime = await opened(store, [GatedProgram()], hooks=[on("after_load", hook, priority=1)])
    plain = await opened(store, [GatedProgram()])
    await plain.create("gate", session_id="s")
    with pytest.raises(PermissionError, match="not for now"):
        await runtime.send("s", "at once")
    queued = await runtime.session("s").enqueue("queued")
    await runtime.drain()
    outcome = await runtime.outcome(queued)
    assert (outcome.status, outcome.error["message"]) == ("failed", "not for now")
    refused.clear()
    assert (await runtime.send("s", "again")).completed


async def test_a_store_that_fails_for_a_moment_settles_nothing(
    runtime: SessionRuntime, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = [await runtime.session("s").enqueue(text) for text in ("one", "two")]
    commit, failures = store.commit, iter(range(2))

    async def failing(given: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreUnavailable("for a moment")
        return await commit(given)

    monkeypatch.setattr(store, "commit", failing)
    await runtime.drain()
    assert [(await runtime.outcome(each)).text for each in queued] == ["re: one", "re: two"]


@dataclass(frozen=True)
class Mark:
    """An action of the application's own."""

    word: str

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(mark=self.word)


async def test_an_action_that_is_not_known_here_waits_for_a_process_that_knows_it(
    harness: Harness, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    knows, knows_not = (
        await opened(await harness.open(), [GatedProgram()], actions=[Mark]),
        await opened(store, [GatedProgram()]),
    )
    await knows.create("gate", session_id="s")
    marks = [await knows.session("s").enqueue(Mark(f"{number}")) for number in range(20)]
    behind = await knows.session("s").enqueue("behind")
    with caplog.at_level(logging.WARNING):
        await knows_not.drain()
        assert (await knows_not.send("s", "later")).text == "re: later"
    assert (await knows.outcome(behind)).text == "re: behind"
    assert {(await knows.outcome(each)).status for each in marks} == {"queued"}
    assert [record for record in caplog.records if "Mark" in record.getMessage()] == caplog.records[:1]
    assert marks[0] in caplog.records[0].getMessage()
    await knows.drain()
    assert {(await knows.outcome(each)).status for each in marks} == {"executed"}
    assert (await knows.get("s")).document == {"mark": "19"}
    assert await talk_of(knows, "s") == answered("behind", "later")


async def test_a_program_that_is_not_known_here_leaves_its_input_to_a_worker_that_has_it(
    harness: Harness, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    lacking, having = (
        await opened(store, [GatedProgram("other")]),
        await opened(await harness.open(), [GatedProgram()]),
    )
    names = [f"s{number}" for number in range(3)]
    for name in names:
        await having.create("gate", session_id=name)
    await lacking.create("other", session_id="mine")
    queued = [await lacking.session(name).enqueue(text) for name in names for text in ("one", "two")]
    mine = await lacking.session("mine").enqueue("here")
    with caplog.at_level(logging.WARNING):
        await lacking.drain()
    assert len([record for record in caplog.records if "gate@1" in record.getMessage()]) == 1
    assert (await lacking.outcome(mine)).completed
    assert {(await lacking.outcome(each)).status for each in queued} == {"queued"}
    with pytest.raises(ProgramNotRegistered):
        await lacking.send("s0", "not here", when_busy="queue")
    workers = [asyncio.ensure_future(each.worker(poll=0.01).work()) for each in (lacking, having)]

    async def all_are_completed() -> bool:
        return {(await lacking.outcome(each)).status for each in queued} == {"completed"}

    await until(all_are_completed)
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    for name in names:
        assert await talk_of(having, name) == answered("one", "two")


async def test_a_sender_whose_process_lacks_the_program_waits_for_whoever_has_it(
    harness: Harness, store: Store
) -> None:
    gate = GatedProgram()
    lacking, having = await opened(store, []), await opened(await harness.open(), [gate])
    await having.create("gate", session_id="s")
    held = await having.session("s").start("hold")
    await gate.entered("hold")
    sent = await lacking.session("s").start("next", when_busy="queue")
    gate.let_go("hold")
    await held.wait()
    working = asyncio.ensure_future(having.worker(poll=0.01).work())
    async with asyncio.timeout(20):
        assert (await sent.wait()).text == "re: next"
    working.cancel()
    await asyncio.wait([working])


def survey(version: str) -> Any:
    class Survey(State):
        schema_version = version
        messages: Annotated[list[dict[str, Any]], append] = []

    async def reply(state: Any) -> Mapping[str, Any]:
        return {"messages": [{"role": "assistant", "content": f"re: {state.messages[-1]['content']}"}]}

    builder = GraphBuilder(Survey, "survey").add_node("reply", reply).add_edge("reply", END).set_entry("reply")
    return builder.compile().as_program(version="1")


async def test_state_that_this_process_has_no_way_from_leaves_its_input_queued(harness: Harness, store: Store) -> None:
    old, new = await opened(await harness.open(), [survey("1")]), await opened(store, [survey("2")])
    await new.create("survey", session_id="s")
    queued = await new.session("s").enqueue("hello")
    await old.drain()
    assert (await old.outcome(queued)).status == "queued"
    with pytest.raises(StateMigrationError):
        await old.send("s", "not here")
    await new.drain()
    assert (await new.outcome(queued)).completed
    assert await talk_of(new, "s") == answered("hello")


@pytest.mark.parametrize("policy", ["queue", "reject"])
async def test_a_session_that_is_suspended_keeps_what_waits_in_it_unless_it_was_to_be_rejected(
    runtime: SessionRuntime, store: Store, monkeypatch: pytest.MonkeyPatch, policy: WhenBusy
) -> None:
    first = await runtime.session("s").enqueue("first")
    enqueue = store.inbox.enqueue

    async def suspended_then(*arguments: Any, **options: Any) -> Any:
        queued = await enqueue(*arguments, **options)
        await runtime.execute("s", SuspendSession())
        return queued

    monkeypatch.setattr(store.inbox, "enqueue", suspended_then)
    with pytest.raises(StatusRefused, match="was cancelled" if policy == "reject" else "stays queued") as refused:
        await runtime.send("s", "second", when_busy=policy)
    second = refused.value.details()["input_id"]
    monkeypatch.undo()
    await runtime.drain()
    assert (await runtime.outcome(first)).status == "queued"
    await runtime.execute("s", ResumeSession())
    await runtime.drain()
    assert (await runtime.outcome(first)).completed
    assert (await runtime.outcome(second)).status == ("cancelled" if policy == "reject" else "completed")


async def test_a_sender_whose_session_is_deleted_hears_that(harness: Harness, store: Store) -> None:
    gate = GatedProgram()
    runtime, elsewhere = await opened(store, [gate]), await opened(await harness.open(), [gate])
    await runtime.create("gate", session_id="s")
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    sent = await elsewhere.session("s").start("next", when_busy="queue")
    await elsewhere.session("s").delete()
    with pytest.raises(SessionDeleted):
        await sent.wait()
    gate.let_go("hold")
    with pytest.raises(Exception, match="s"):
        await held.wait()


async def test_a_wake_whose_run_cannot_go_on_is_refused_and_a_message_behind_it_begins(store: Store) -> None:
    refused = ["it"]

    async def hook(session: SessionView) -> SessionView:
        if refused and len(session.messages) > 0:
            raise PermissionError("not now")
        return session

    @program
    async def asks(turn: Turn) -> None:
        if turn.text == "ask":
            await turn.wait("answer")
        turn.append({"role": "assistant", "content": f"re: {turn.text}"})

    plain = await opened(store, [asks])
    await plain.create("asks", session_id="s")
    paused = await plain.send("s", "ask")
    await plain.answer(paused.waits[0].wait_id, "yes", run=False)
    runtime = await opened(store, [asks], hooks=[on("after_load", hook, priority=1)])
    await runtime.drain()
    assert await store.inbox.list("s") == ()
    assert len(await events_of(plain, "s", "input_refused")) == 1
    refused.clear()
    assert (await runtime.send("s", "next")).completed
    assert [each for each in await talk_of(plain, "s") if each == "next"] == ["next"]


async def test_an_answer_stands_though_going_on_is_refused_here(store: Store) -> None:
    async def hook(session: SessionView) -> SessionView:
        raise ValueError("never here")

    @program
    async def asks(turn: Turn) -> Any:
        return await turn.wait("answer")

    plain = await opened(store, [asks])
    await plain.create("asks", session_id="s")
    paused = await plain.send("s", "ask")
    runtime = await opened(store, [asks], hooks=[on("after_load", hook, priority=1)])
    answered = await runtime.answer(paused.waits[0].wait_id, "yes")
    assert (answered.continues, answered.outcome) == ("worker", None)
    assert await advance(plain, "s")
    assert (await plain.outcome(str(paused.input_id))).output == "yes"


async def test_a_refusal_that_cannot_be_kept_as_it_is_is_kept_as_far_as_it_can(store: Store) -> None:
    class Odd(Picky):
        def _entry(self, message: Any) -> Any:
            raise ValueError("\ud800 is no character")

    runtime = await opened(store, [Odd(ValueError)])
    await runtime.create("gate", session_id="s")
    queued = await runtime.session("s").enqueue("hello")
    await runtime.drain()
    outcome = await runtime.outcome(queued)
    assert (outcome.status, outcome.error["category"]) == ("failed", "ValueError")
    assert outcome.error["message"] == "\ufffd is no character"


async def test_a_sender_does_not_hear_what_went_wrong_with_a_lost_turn_it_found(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, gate = Database(harness), GatedProgram()
    lost, runtime = await database.runtime(gate), await database.runtime(gate)
    await lost.create("gate", session_id="s")
    sending = asyncio.create_task(lost.send("s", "hold"))
    await gate.entered("hold")
    await database.lose(lost, sending)
    gate.let_go("hold")
    fail_takeovers(runtime, monkeypatch, LaneLost("taken", key=None, expected=1, found=2))
    assert (await runtime.send("s", "next")).text == "re: next"
    assert await talk_of(runtime, "s") == answered("hold", "next")
