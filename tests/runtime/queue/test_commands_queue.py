"""Commands: actions that wait in the inbox, executed between turns, one at a time, never skipped."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, OperationConflict, SessionNotFound, StatusRefused, StoreContended
from tenuto.model.input import Cancelled, InputStatus
from tenuto.runtime.change.action import (
    ChangeSystemPrompt,
    ClearSession,
    CompleteSession,
    DeleteSession,
    FailSession,
    ForkSession,
    ResumeSession,
    RewindSession,
    SendMessage,
    StopRun,
    UpdateTask,
    WriteMetadata,
)
from tenuto.runtime.change.hooks import on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.definition import Task
from tenuto.runtime.session.session_view import SessionView
from tenuto.testing.harness import Harness
from tests.runtime.gates import GatedProgram, events_of, lane_is_free, talk_of
from tests.runtime.runtimes import opened
from tests.runtime.seams import advance


@dataclass(frozen=True, slots=True)
class Count:
    """Counts in the session's state, and notes what it saw."""

    name: str

    async def apply(self, session: SessionView) -> SessionView:
        if self.name == "bad":
            raise ValueError("this one fails")
        seen: Any = session.document.get("seen", [])
        return session.with_fields(seen=[*seen, [self.name, len(session.messages)]])


@pytest.fixture
async def runtime(store: Store, gate: GatedProgram) -> SessionRuntime:
    runtime = await opened(store, [gate], actions=[Count])
    await runtime.create("gate", session_id="s")
    return runtime


async def seen(runtime: SessionRuntime) -> Any:
    return (await runtime.get("s")).document.get("seen")


async def test_commands_and_messages_go_in_order_of_arrival(runtime: SessionRuntime, gate: GatedProgram) -> None:
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    ids = [await runtime.session("s").enqueue(each) for each in (Count("a"), Count("b"), "one", Count("c"), "two")]
    assert await seen(runtime) is None
    gate.let_go("hold")
    await held.wait()
    await runtime.drain()
    assert await seen(runtime) == [["a", 2], ["b", 2], ["c", 4]]
    assert gate.said == ["hold", "one", "two"]
    found = [(await runtime.outcome(each)).status for each in ids]
    executed, completed = "executed", "completed"
    assert found == [executed, executed, completed, executed, completed]
    assert await talk_of(runtime, "s") == ["hold", "re: hold", "one", "re: one", "two", "re: two"]


async def test_a_sender_executes_older_commands_first(runtime: SessionRuntime) -> None:
    await runtime.send("s", "warm up")
    command = await runtime.session("s").enqueue(Count("a"))
    assert (await runtime.send("s", "one")).completed
    assert (await runtime.outcome(command)).status == "executed"
    assert await seen(runtime) == [["a", 2]]
    told = [each for each in await events_of(runtime, "s", "session_action_executed") if each["action"] == "Count"]
    assert [each["input_id"] for each in told] == [command]


async def test_a_command_that_fails_is_over_and_holds_nothing_up(runtime: SessionRuntime) -> None:
    ids = [await runtime.session("s").enqueue(each) for each in (Count("bad"), Count("good"), "one")]
    await runtime.drain()
    outcomes = [await runtime.outcome(each) for each in ids]
    assert [each.status for each in outcomes] == ["failed", "executed", "completed"]
    assert outcomes[0].error == {"category": "ValueError", "message": "this one fails"}
    assert await seen(runtime) == [["good", 0]]
    row = await runtime.store.inbox.get(ids[0])
    assert row is not None
    assert (row.status, row.run_id, row.has_body) == (InputStatus.CONSUMED, None, False)
    await runtime.drain()
    assert len(await events_of(runtime, "s", "session_action_failed")) == 1


async def test_the_same_key_is_the_same_command(runtime: SessionRuntime, store: Store) -> None:
    first = await runtime.session("s").enqueue(Count("a"), key="k")
    assert await runtime.session("s").enqueue(Count("a"), key="k") == first
    await runtime.drain()
    assert await runtime.session("s").enqueue(Count("a"), key="k") == first
    for other in (Count("b"), "a message", WriteMetadata({})):
        with pytest.raises(OperationConflict):
            await runtime.session("s").enqueue(other, key="k")
    await runtime.drain()
    assert await seen(runtime) == [["a", 0]]
    assert await store.inbox.list("s") == ()


async def test_an_action_that_is_not_known_here_is_not_queued(runtime: SessionRuntime, store: Store) -> None:
    @dataclass(frozen=True, slots=True)
    class Stranger:
        async def apply(self, session: SessionView) -> SessionView:
            return session

    before = await store.dump()
    with pytest.raises(InvalidInput, match="Stranger"):
        await runtime.session("s").enqueue(Stranger())
    assert await store.dump() == before


async def test_what_our_own_actions_say_survives_the_queue(runtime: SessionRuntime) -> None:
    tasks = (Task(content="dig", status="in_progress"), Task(content="plant"))
    await runtime.send("s", "one")
    for action in (WriteMetadata({"a": [1, {"b": None}]}), UpdateTask(tasks), ClearSession(("messages",))):
        await runtime.session("s").enqueue(action)
    await runtime.drain()
    session = await runtime.get("s")
    assert session.metadata == {"a": [1, {"b": None}]}
    assert session.definition is not None
    assert [each.content for each in session.definition.tasks] == ["dig", "plant"]
    assert list(session.messages) == []


async def test_one_of_many_workers_executes_it(runtime: SessionRuntime, harness: Harness, gate: GatedProgram) -> None:
    others = [await opened(await harness.open(), [gate], actions=[Count]) for _ in range(3)]
    names = [f"command {number}" for number in range(10)]
    for name in names:
        await runtime.session("s").enqueue(Count(name))
    await asyncio.gather(*(each.drain() for each in (runtime, *others)))
    await runtime.drain()
    assert await seen(runtime) == [[name, 0] for name in names]


async def test_one_cancelled_while_it_is_executed_changes_nothing(store: Store, gate: GatedProgram) -> None:
    unwanted: list[str] = []

    async def cancel(session: SessionView) -> SessionView:
        if unwanted:
            wanted = unwanted.pop()
            assert await store.inbox.cancel("s", [wanted]) == {wanted: Cancelled.CANCELLED}
        return session

    runtime = await opened(store, [gate], hooks=[on("before_save", cancel)], actions=[Count])
    await runtime.create("gate", session_id="s")
    gone = await runtime.session("s").enqueue(Count("a"))
    unwanted.append(gone)
    await runtime.session("s").enqueue(Count("b"))
    assert (await runtime.send("s", "one")).completed
    assert await seen(runtime) == [["b", 0]]
    assert (await runtime.outcome(gone)).status == "cancelled"


async def test_a_store_that_fails_leaves_the_command_for_the_next_runner(runtime: SessionRuntime, store: Store) -> None:
    command = await runtime.session("s").enqueue(Count("a"))
    commit, refusals = store.commit, [1]

    async def contended(given: Any) -> Any:
        if refusals:
            refusals.pop()
            raise StoreContended("try again")
        return await commit(given)

    store.commit = contended  # type: ignore[assignment,method-assign]
    with pytest.raises(StoreContended):
        await advance(runtime, "s")
    assert (await runtime.outcome(command)).status == "queued"
    assert await lane_is_free(runtime, "s")
    await advance(runtime, "s")
    assert (await runtime.outcome(command)).status == "executed"
    assert await seen(runtime) == [["a", 0]]


async def test_what_is_queued_behind_a_close_waits_until_the_session_is_resumed(
    runtime: SessionRuntime, gate: GatedProgram
) -> None:
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    await runtime.session("s").enqueue(CompleteSession())
    queued = await runtime.session("s").start("behind", when_busy="queue")
    gate.let_go("hold")
    assert (await held.wait()).completed
    with pytest.raises(StatusRefused):
        await queued.wait()
    await runtime.drain()
    assert queued.input_id is not None
    assert (await runtime.outcome(queued.input_id)).status == "queued"
    with pytest.raises(StatusRefused):
        await runtime.session("s").enqueue(ResumeSession())
    await runtime.execute("s", ResumeSession())
    await runtime.drain()
    assert (await runtime.outcome(queued.input_id)).completed
    assert gate.said == ["hold", "behind"]


async def test_a_queued_rewind_goes_back_and_says_so(runtime: SessionRuntime) -> None:
    session = runtime.session("s")
    outcomes = [await session.send(text) for text in ("one", "two", "three")]
    command = await session.enqueue(RewindSession(str(outcomes[1].run_id)))
    await runtime.drain()
    assert await talk_of(runtime, "s") == ["one", "re: one"]
    assert (await runtime.outcome(command)).status == "executed"
    told = await events_of(runtime, "s", "session_action_executed")
    assert (told[-1]["action"], told[-1]["input_id"]) == ("RewindSession", command)


async def test_a_queued_rewind_to_nowhere_fails_and_holds_nothing_up(runtime: SessionRuntime) -> None:
    ids = [await runtime.session("s").enqueue(each) for each in (RewindSession("nowhere"), "one")]
    await runtime.drain()
    failed, completed = [await runtime.outcome(each) for each in ids]
    assert (failed.status, completed.status) == ("failed", "completed")
    assert "nowhere" in str(failed.error)


async def test_a_queued_fork_is_made_once_with_its_first_message(
    runtime: SessionRuntime, harness: Harness, gate: GatedProgram
) -> None:
    session = runtime.session("s")
    first = await session.send("one")
    await session.send("two")
    command = await session.enqueue(ForkSession(at=first.run_id, session_id="f", message="other"))
    elsewhere = await opened(await harness.open(), [gate])
    await asyncio.gather(runtime.drain(), elsewhere.drain())
    assert (await runtime.outcome(command)).status == "executed"
    assert await talk_of(runtime, "f") == ["one", "re: one", "other", "re: other"]
    assert await talk_of(runtime, "s") == ["one", "re: one", "two", "re: two"]


async def test_a_queued_fork_that_is_cut_off_before_it_is_consumed_finds_its_fork_again(
    runtime: SessionRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, commit, cuts = runtime.session("s"), runtime.store.commit, iter([StoreContended("cut off here")])
    await session.send("one")
    await session.enqueue(ForkSession(message="other"))

    async def cut(given: Any, *args: Any, **options: Any) -> Any:
        if given.consume and given.key.session_id == "s" and (error := next(cuts, None)):
            raise error
        return await commit(given, *args, **options)

    monkeypatch.setattr(runtime.store, "commit", cut)
    await runtime.drain()
    monkeypatch.undo()
    await runtime.drain()
    forks = [each.session_id for each in await runtime.list() if each.session_id != "s"]
    assert len(forks) == 1
    assert await talk_of(runtime, forks[0]) == ["one", "re: one", "other", "re: other"]


@pytest.mark.parametrize("due", [True, False])
async def test_a_queued_delete_ends_the_session_and_its_queue(
    runtime: SessionRuntime, gate: GatedProgram, due: bool
) -> None:
    session = runtime.session("s")
    await session.send("one")
    await session.enqueue(DeleteSession(), delay=None if due else 3600)
    last = await session.enqueue("never said")
    await runtime.drain()
    if due:
        with pytest.raises(SessionNotFound):
            await session.get()
        assert gate.said == ["one"]
    else:
        assert (await runtime.outcome(last)).completed


@pytest.mark.parametrize("bad", [5, {1}, b"x", [None], 1.5], ids=repr)
async def test_an_action_with_a_wrong_argument_is_not_queued(runtime: SessionRuntime, store: Store, bad: Any) -> None:
    before = await store.dump()
    wrong = (FailSession, ChangeSystemPrompt, WriteMetadata, UpdateTask, DeleteSession)
    for each in (*wrong, lambda given: ClearSession(keep=given), lambda given: ForkSession(message=given)):
        with pytest.raises(InvalidInput):
            await runtime.session("s").enqueue(each(bad))
    assert await store.dump() == before


async def test_a_queued_send_is_a_message(runtime: SessionRuntime) -> None:
    session = runtime.session("s")
    first = await session.enqueue(SendMessage("one", key="k"))
    assert await session.enqueue("one", key="k") == first
    assert await session.enqueue(SendMessage("one"), key="k") == first
    with pytest.raises(InvalidInput, match="two keys"):
        await session.enqueue(SendMessage("one", key="k"), key="other")
    await runtime.drain()
    assert await talk_of(runtime, "s") == ["one", "re: one"]
    assert (await runtime.outcome(first)).completed


async def test_a_program_queues_any_action_or_hears_why_not(store: Store) -> None:
    refused: list[str] = []

    @program
    async def queueing(turn: Turn) -> None:
        if turn.text == "rewind":
            turn.enqueue(SendMessage("after", key="k"), session="t")
            turn.enqueue(RewindSession(turn.run_id))
        for wrong in (StopRun(), WriteMetadata, RewindSession(True), ForkSession(session_id=""), DeleteSession(5)):  # type: ignore[arg-type]
            with pytest.raises(InvalidInput) as told:
                turn.enqueue(wrong)  # type: ignore[arg-type]
            refused.append(str(told.value))
        turn.append(f"re: {turn.text}")

    runtime = await opened(store, [queueing])
    for name in ("s", "t"):
        await runtime.create("queueing", session_id=name)
    await runtime.send("s", "one")
    await runtime.send("s", "rewind")
    await runtime.drain()
    assert await talk_of(runtime, "s") == ["one", "re: one"]
    assert await talk_of(runtime, "t") == ["after", "re: after"]
    assert "session.stop()" in refused[0]
    assert all("A message to a session" not in each for each in refused)


async def test_an_action_that_only_another_worker_knows_stays_queued_for_it(
    runtime: SessionRuntime, harness: Harness, gate: GatedProgram
) -> None:
    without = await opened(await harness.open(), [gate])
    command = await runtime.session("s").enqueue(Count("a"))
    later = await without.session("s").enqueue("one")
    await without.drain()
    assert (await without.outcome(later)).completed
    assert (await runtime.outcome(command)).status == "queued"
    await runtime.drain()
    assert (await runtime.outcome(command)).status == "executed"
    assert await seen(runtime) == [["a", 2]]
