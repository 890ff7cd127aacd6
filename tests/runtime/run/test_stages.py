"""Stages and events of a turn: for success, and for each stage that fails."""

import asyncio
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import StatusRefused, StoreUnavailable
from tenuto.model.session import SessionStatus
from tenuto.runtime.change.action import SendMessage
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import ActionFailed, Failure, RunEnded, SaveFailed, SessionSaved
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tenuto.writing.error_record import without_frames
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened
from tests.runtime.talking import (
    Heard,
    Ours,
    Refused,
    Watching,
    as_streamed,
    echo,
    faulty,
    refuse,
    rows,
    said,
    streamed,
    without_stream,
)

TURN = ["after_load", "after_action", "before_save", "after_save"]


TURNED = ["SessionLoaded", "RunStarted", "SessionActionExecuted", "SessionSaved", "RunEnded"]


async def test_a_turn_adds_the_start_and_end_of_its_run_and_the_stream_has_the_same(store: Store) -> None:
    ours = await Ours(store).created()
    for number, text in enumerate(("cold", "warm")):
        before = await ours.runtime.session("s").info()
        outcome = await ours.runtime.send("s", text)
        assert ours.watching.take() == TURN
        notices = ours.heard.take()
        assert [type(each).__name__ for each in notices] == TURNED
        assert await streamed(store, "s", before.event_seq) == as_streamed(notices)
        ended, saved = notices[-1], notices[-2]
        assert isinstance(ended, RunEnded)
        assert isinstance(saved, SessionSaved)
        assert (ended.run_id, ended.status) == (outcome.run_id, "completed")
        assert saved.version == outcome.version == before.version + 2 == 2 * number + 3


async def test_a_message_sent_by_an_action_has_the_sequence_of_a_turn(store: Store) -> None:
    ours = await Ours(store).created()
    outcome = await ours.runtime.execute("s", SendMessage("hello"))
    assert outcome.text == "re: hello"
    assert (ours.watching.take(), ours.heard.names) == (TURN, TURNED)


async def test_a_turn_whose_program_fails_ends_its_run_and_keeps_the_message_alone(store: Store) -> None:
    ours = await Ours(store).created("broken")
    for count in (1, 2):
        before = await ours.runtime.session("s").info()
        outcome = await ours.runtime.send("s", "go")
        assert (outcome.status, without_frames(outcome.error)) == (
            "failed",
            {"category": "ValueError", "message": "no luck"},
        )
        assert ours.watching.take() == ["after_load", "after_save"]
        notices = ours.heard.take()
        assert [type(each).__name__ for each in notices] == TURNED
        assert await streamed(store, "s", before.event_seq) == as_streamed(notices)
        session = await ours.runtime.get("s")
        assert (said(session), dict(session.document)) == (["go"] * count, {"mood": "calm"})
        ours.heard.take()
        ours.watching.take()


async def test_a_turn_refused_at_after_load_begins_nothing(store: Store) -> None:
    ours = await Ours(store, after_load=refuse).created()
    before = await without_stream(store)
    with pytest.raises(Refused):
        await ours.runtime.send("s", "hello")
    assert (ours.watching.take(), ours.failure().stage) == (["after_load"], "after_load")
    assert ours.heard.names == ["LoadFailed"]
    assert await without_stream(store) == before
    assert [kind for kind, _ in await streamed(store, "s")] == ["session_saved", "session_load_failed"]
    assert (await (await opened(store, [echo])).send("s", "hello")).completed


@pytest.mark.parametrize(("stage", "kind"), [("after_action", ActionFailed), ("before_save", SaveFailed)])
async def test_a_hook_that_fails_at_the_end_of_a_turn_fails_its_run_and_is_named(
    store: Store, stage: str, kind: type[Failure]
) -> None:
    ours = await Ours(store, **{stage: refuse}).created()
    before = await ours.runtime.session("s").info()
    outcome = await ours.runtime.send("s", "hello")
    assert (outcome.status, without_frames(outcome.error)) == (
        "failed",
        {"category": "Refused", "message": "not this one"},
    )
    failure = ours.failure()
    assert (type(failure), failure.stage) == (kind, stage)
    notices = ours.heard.take()
    assert [type(each).__name__ for each in notices] == ["SessionLoaded", "RunStarted", kind.__name__, "RunEnded"]
    assert await streamed(store, "s", before.event_seq) == as_streamed(notices)
    assert said(await (await opened(store, [echo])).get("s")) == ["hello"]


async def test_a_hook_that_fails_after_a_turn_leaves_it_completed(store: Store) -> None:
    ours = await Ours(store, after_save=refuse).created()
    outcome = await ours.runtime.send("s", "hello")
    assert outcome.completed
    assert ours.heard.names == [*TURNED[:3], "HookFailed", *TURNED[3:]]


async def test_hooks_change_a_turn_with_its_begin_and_its_end(store: Store) -> None:
    async def counting(session: SessionView) -> SessionView:
        loads: Any = session.document.get("loads", 0)
        return session.with_fields(loads=loads + 1)

    async def signing(session: SessionView) -> SessionView:
        return session.with_metadata(last=len(session.messages)).with_fields(ends=session.document["loads"])

    ours = await Ours(store, after_load=counting, before_save=signing).created()
    first = await ours.runtime.send("s", "one")
    assert first.version == 3
    run = (await ours.runtime.session("s").runs())[0]
    began = await store.runs.get(run.run_id)
    assert began is not None
    point = await store.checkpoints.get("s", began.commit_number)
    assert point is not None
    assert dict(point.document) == {"mood": "calm"}  # as it was before the turn
    await ours.runtime.send("s", "two")
    for reader in (store, store):
        record = await reader.load("s")
        assert record is not None
        assert record.state["loads"] == record.state["ends"] == 2
        assert record.head is not None
        assert record.head.profile.metadata == {"last": 4}


async def test_a_hook_may_edit_what_a_turn_said_before_it_is_saved(store: Store) -> None:
    async def redacting(session: SessionView) -> SessionView:
        *rest, last = session.messages
        return session.replaced("messages", [*rest, {**last, "content": "[redacted]"}])

    ours = await Ours(store, before_save=redacting).created()
    for text in ("one", "two"):
        await ours.runtime.send("s", text)
    expected = ["one", "[redacted]", "two", "[redacted]"]
    assert said(await ours.runtime.get("s")) == expected
    record = await store.load("s")
    assert record is not None
    assert [each["content"] for each in record.state["messages"]] == expected


async def test_a_hook_that_breaks_the_history_fails_the_turn(store: Store) -> None:
    async def breaking(session: SessionView) -> SessionView:
        call = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look"}]}
        return session.replaced("messages", [*session.messages[:-1], call])

    ours = await Ours(store, before_save=breaking).created()
    outcome = await ours.runtime.send("s", "one")
    assert (outcome.status, outcome.error["category"]) == ("failed", "history_invalid")
    assert said(await (await opened(store, [echo])).get("s")) == ["one"]


async def test_a_hook_may_close_the_session_with_the_end_of_a_turn(store: Store) -> None:
    async def closing(session: SessionView) -> SessionView:
        return session.with_status(SessionStatus.COMPLETED)

    ours = await Ours(store, before_save=closing).created()
    assert (await ours.runtime.send("s", "one")).completed
    assert (await ours.runtime.session("s").info()).status == "completed"
    ours.heard.take()
    with pytest.raises(StatusRefused):
        await ours.runtime.send("s", "two")
    (failure,) = ours.heard.take()
    assert isinstance(failure, ActionFailed)
    assert (failure.stage, failure.action, failure.category) == ("action", "SendMessage", "session_status_invalid")


async def test_a_hook_may_refuse_a_turn_by_closing_the_session_at_its_load(store: Store) -> None:
    async def closing(session: SessionView) -> SessionView:
        return session.with_status(SessionStatus.COMPLETED)

    ours = await Ours(store, after_load=closing).created()
    before = await rows(store)
    with pytest.raises(StatusRefused):
        await ours.runtime.send("s", "one")
    assert ours.failure().stage == "action"
    assert await rows(store) == before


async def test_a_message_on_which_the_store_fails_can_be_sent_again(harness: OurHarness) -> None:
    store, faults = await faulty(harness)
    runtime = await opened(store, [echo])
    await runtime.create("echo", session_id="s")
    faults.cut()
    with pytest.raises(StoreUnavailable):
        await runtime.send("s", "hello", key="k")
    faults.heal()
    assert (await runtime.send("s", "hello", key="k")).text == "re: hello"
    assert said(await runtime.get("s")) == ["hello", "re: hello"]


def asking() -> ScriptedAgent:
    return ScriptedAgent(model=Script(calls(("a", "ask", {})), "thanks"), tools=[Tool(name="ask")])


async def test_a_turn_that_suspends_and_the_one_that_goes_on_have_the_sequence_of_a_turn(store: Store) -> None:
    heard, watching = Heard(), Watching()
    runtime = await opened(store, [asking()], hooks=watching.hooks, listeners=[heard])
    await runtime.create("agent", session_id="s")
    after = (await runtime.session("s").info()).event_seq
    heard.take()
    watching.take()
    waiting = await runtime.send("s", "go")
    await runtime.answer(waiting.waits[0].wait_id, "42")
    assert watching.take() == TURN * 2
    notices = heard.take()
    assert [type(each).__name__ for each in notices] == [*TURNED, "WaitSettled", *TURNED]
    assert [each.status for each in notices if isinstance(each, RunEnded)] == ["suspended", "completed"]
    assert await streamed(store, "s", after) == as_streamed(notices)


async def test_a_turn_that_is_stopped_asks_no_hook_before_its_end(store: Store) -> None:
    reached = asyncio.Event()

    @program
    async def lingering(turn: Turn) -> None:
        reached.set()
        await asyncio.Event().wait()

    heard, watching = Heard(), Watching()
    runtime = await opened(store, [lingering], hooks=watching.hooks, listeners=[heard])
    await runtime.create("lingering", session_id="s")
    heard.take()
    watching.take()
    handle = await runtime.session("s").start("go")
    await reached.wait()
    await handle.stop(reason="enough")
    assert (await handle.wait()).status == "interrupted"
    assert watching.take() == ["after_load", "after_save"]
    assert heard.names == TURNED


async def test_a_hook_may_edit_the_past_of_a_turn_that_waits_for_a_call(store: Store) -> None:
    async def redacting(session: SessionView) -> SessionView:
        edited = [{**each, "content": "[redacted]"} if each["role"] == "user" else each for each in session.messages]
        return session.replaced("messages", edited)

    runtime = await opened(store, [asking()], hooks=Watching(before_save=redacting).hooks)
    await runtime.create("agent", session_id="s")
    waiting = await runtime.send("s", "my secret")
    assert said(await runtime.get("s")) == ["[redacted]", ""]
    answered = await (await opened(store, [asking()])).answer(waiting.waits[0].wait_id, "42")
    assert answered.outcome is not None
    assert answered.outcome.completed
    assert said(await runtime.get("s")) == ["[redacted]", "", "42", "thanks"]
