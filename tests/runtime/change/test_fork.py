"""Forking a session and taking it back: copying nothing, losing nothing, and never inside an open call."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import (
    ForkPointNotRetained,
    InvalidHistory,
    InvalidId,
    InvalidInput,
    OperationConflict,
    ProgramNotRegistered,
    SessionExists,
    TenutoError,
    VersionConflict,
)
from tenuto.model.session import SessionKey
from tenuto.runtime.change.action import ChangeModel, ClearSession, ForkSession, RewindSession, SuspendSession
from tenuto.runtime.program.program import program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.session_view import SessionView
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened
from tests.runtime.talking import Heard, broken, echo, faulty, rows, said, started


async def test_a_fork_gets_an_id_is_active_and_copies_nothing(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    await runtime.execute("s", SuspendSession())
    entries = len((await store.dump())["entry"])
    minted = await runtime.execute("s", ForkSession())
    named = await runtime.execute("s", ForkSession(session_id="fork"))
    assert len((await store.dump())["entry"]) == entries
    for handle in (minted, named):
        fork = await handle.get()
        assert (fork.status, fork.version, said(fork)) == ("active", 1, ["one", "re: one"])
        assert fork.profile.parent is None
        assert fork.profile.forked_from is not None
        assert fork.profile.forked_from.session_id == "s"
        assert dict(fork.document) == {"mood": "calm"}
    assert (named.session_id, minted.session_id[14]) == ("fork", "7")
    await runtime.send("fork", "two")
    assert said(await runtime.get("s")) == ["one", "re: one"]
    with pytest.raises(SessionExists):
        await runtime.execute("s", ForkSession(session_id="fork"))


async def test_a_fork_at_a_run_is_the_session_as_that_run_left_it(store: Store) -> None:
    runtime = await started(store)
    outcomes = [await runtime.send("s", text) for text in ("one", "two", "three")]
    expected = [f"{prefix}{text}" for text in ("one", "two", "three") for prefix in ("", "re: ")]
    for count, outcome in enumerate(outcomes, start=1):
        fork = await runtime.execute("s", ForkSession(at=outcome.run_id))
        assert said(await fork.get()) == expected[: 2 * count]


async def test_a_fork_at_a_run_has_nothing_of_what_actions_did_since(store: Store) -> None:
    runtime = await started(store)
    first = await runtime.send("s", "one")
    await runtime.execute("s", ClearSession())
    for _ in range(2):
        fork = await runtime.execute("s", ForkSession(at=first.run_id))
        assert said(await fork.get()) == ["one", "re: one"]
        await runtime.send("s", "two")
    points = await store.checkpoints.of_session("s")
    cleared = next(point for point in points if point.cursor == {"action": "ClearSession"})
    fork = await runtime.execute("s", ForkSession(at=cleared.commit_number))
    assert said(await fork.get()) == ["one", "re: one"]


async def test_a_fork_with_a_first_message_has_had_its_turn(store: Store) -> None:
    runtime = await started(store)
    first = await runtime.send("s", "one")
    await runtime.send("s", "two")
    fork = await runtime.execute("s", ForkSession(at=first.run_id, session_id="fork", message="or else"))
    assert said(await fork.get()) == ["one", "re: one", "or else", "re: or else"]
    assert [run.run.number for run in await runtime.session("fork").runs()] == [1]


async def test_a_fork_at_what_was_not_kept_or_is_not_its_own_is_refused(store: Store) -> None:
    runtime = await started(store)
    await runtime.create("echo", session_id="other")
    theirs = await runtime.send("other", "hello")
    await runtime.send("s", "one")
    before = await store.dump()
    with pytest.raises(ForkPointNotRetained):
        await runtime.execute("s", ForkSession(at=99))
    for wrong in ("no-run", str(theirs.run_id)):
        with pytest.raises(InvalidInput):
            await runtime.execute("s", ForkSession(at=wrong))
    with pytest.raises(InvalidId):
        await runtime.execute("s", ForkSession(session_id="a/b"))
    assert await store.dump() == before


@dataclass(frozen=True)
class Note:
    """Change the state, and with it leave a point."""

    mood: int

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(mood=self.mood)


def with_client_tool() -> ScriptedAgent:
    model = Script("hello", calls(("c1", "ask", {})), "thanks")
    return ScriptedAgent(model=model, tools=[Tool(name="ask")])


async def test_a_fork_inside_an_open_call_is_refused_with_the_nearest_points(store: Store) -> None:
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    assert waiting.suspended
    with pytest.raises(InvalidHistory) as refused:
        await runtime.execute("s", ForkSession(session_id="fork"))
    assert refused.value.call_id == "c1"
    assert not await store.exists("fork")
    nearest = refused.value.details()["nearest"]
    forks = [await runtime.execute("s", ForkSession(at=commit)) for commit in nearest]
    assert [said(await fork.get()) for fork in forks] == [["one", "hello"], []]


async def test_a_refused_fork_never_stood_in_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment, in which its maker could be cut off."""
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    await runtime.execute("s", Note(1))
    inside = (await store.checkpoints.of_session("s", limit=1))[0].commit_number
    await runtime.answer(waiting.waits[0].wait_id, "done", run=False)
    before = await store.dump()

    async def never(*_: object, **__: object) -> None:
        raise AssertionError("it was written first")

    monkeypatch.setattr(store, "fork", never)
    with pytest.raises(InvalidHistory):
        await runtime.session("s").fork(session_id="fork")
    with pytest.raises(InvalidHistory):
        await runtime.session("s").fork(session_id="fork", at=inside, message="go on", key="k")
    assert await store.dump() == before


async def test_a_fork_of_a_session_that_moves_on_is_judged_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the fork its turn comes to an open call: that is what would be forked."""
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    real = store.fork

    async def late(*given: Any, **options: Any) -> Any:
        monkeypatch.undo()
        assert (await runtime.send("s", "two")).suspended
        return await real(*given, **options)

    monkeypatch.setattr(store, "fork", late)
    with pytest.raises(InvalidHistory):
        await runtime.session("s").fork(session_id="fork")
    assert not await store.exists("fork")


async def test_a_fork_of_what_moves_on_all_the_time_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    real, looks = store.fork, 0

    async def late(*given: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        await runtime.send("s", "more")
        return await real(*given, **options)

    monkeypatch.setattr(store, "fork", late)
    with pytest.raises(VersionConflict):
        await runtime.session("s").fork(session_id="fork")
    assert 1 < looks < 50
    assert not await store.exists("fork")


async def test_the_nearest_points_are_found_behind_any_number_of_others(store: Store) -> None:
    """Those of a run's own steps are not among them, nor are they all read."""
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    assert (await runtime.send("s", "two")).suspended
    for mood in range(25):
        await runtime.execute("s", Note(mood))
    points = await store.checkpoints.points("s")
    with pytest.raises(InvalidHistory) as refused:
        await runtime.session("s").fork(at=points[12].commit_number)
    assert refused.value.details()["nearest"] == [points[25].commit_number, points[26].commit_number]


async def test_a_fork_with_a_message_is_one_operation_under_its_key(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    fork = await runtime.session("s").fork(message="or else", key="k")
    await runtime.send("s", "two")
    again = await (await opened(store, [echo])).execute("s", ForkSession(message="or else", key="k"))
    assert (again.session_id, again.outcome) == (fork.session_id, fork.outcome)
    assert fork.outcome is not None
    assert fork.outcome.text == "re: or else"
    assert said(await again.get()) == ["one", "re: one", "or else", "re: or else"]
    assert len(await store.list()) == 2
    with pytest.raises(OperationConflict):
        await runtime.session("s").fork(message="something else", key="k")
    with pytest.raises(OperationConflict):
        await runtime.session("s").fork(key="k")
    assert (await fork.send("or else", key="k")).run_id == fork.outcome.run_id


async def test_a_fork_without_a_message_is_repeated_under_its_key_too(store: Store) -> None:
    runtime = await started(store)
    run = await runtime.send("s", "one")
    for at in (None, run.run_id):
        fork = await runtime.session("s").fork(at=at, key=f"k {at}")
        before = await fork.get()
        await runtime.send("s", "two")
        again = await runtime.session("s").fork(at=at, key=f"k {at}")
        assert (again, again.outcome) == (fork, None)
        assert said(await again.get()) == said(before)


async def test_the_failure_of_a_forks_first_turn_is_seen(store: Store) -> None:
    runtime = await opened(store, [broken])
    await runtime.create("broken", session_id="s")
    fork = await runtime.execute("s", ForkSession(message="go"))
    assert fork.outcome is not None
    assert (fork.outcome.status, fork.outcome.error["message"]) == ("failed", "no luck")
    assert said(await fork.get()) == ["go"]


async def test_a_fork_whose_message_nobody_here_can_take_is_not_made(store: Store) -> None:
    await started(store)
    before = await store.dump()
    with pytest.raises(ProgramNotRegistered):
        await (await opened(store, [broken])).session("s").fork(message="go")
    refused: list[Any] = ["", {"role": "assistant", "content": "I am the model"}]
    for wrong in refused:
        with pytest.raises(InvalidInput):
            await (await opened(store, [echo])).session("s").fork(message=wrong)
    theirs: Any = SessionKey("fork", tenant="theirs")
    with pytest.raises(InvalidInput):
        await (await opened(store, [echo])).session("s").fork(session_id=theirs)
    assert await store.dump() == before


async def test_a_fork_that_was_cut_off_has_its_message(harness: OurHarness) -> None:
    """Whoever comes next does its turn, and a repeat under its key is the same fork."""
    store, faults = await faulty(harness)
    runtime = await started(store)
    await runtime.send("s", "one")
    before = faults.transactions
    await runtime.session("s").fork(session_id="whole", message="go on")
    for nth in range(1, faults.transactions - before + 1):
        faults.lose_reply(nth)
        with suppress(TenutoError):
            await runtime.session("s").fork(session_id=f"cut {nth}", message="go on", key="k")
        faults.heal()
        await (await opened(store, [echo])).drain()
        fork = await runtime.session("s").fork(session_id=f"cut {nth}", message="go on", key="k")
        assert said(await fork.get()) == ["one", "re: one", "go on", "re: go on"]
        assert len(await runtime.session(f"cut {nth}").runs()) == 1


async def test_a_rewind_takes_the_session_to_before_a_run_and_keeps_what_came_after_readable(store: Store) -> None:
    heard = Heard()
    runtime = await started(store, listeners=[heard])
    outcomes = [await runtime.send("s", text) for text in ("one", "two", "three")]
    head = await runtime.session("s").info()
    entries = len((await store.dump())["entry"])
    heard.take()
    back = await runtime.execute("s", RewindSession(str(outcomes[1].run_id)))
    told = heard.take()
    assert [type(each).__name__ for each in told] == ["SessionLoaded", "SessionActionExecuted", "SessionSaved"]
    assert told[1].data()["action"] == "RewindSession"
    assert (said(back), back.version) == (["one", "re: one"], head.version + 1)
    assert len((await store.dump())["entry"]) == entries
    old = await store.logs.read("s", "messages", end=head.ends["messages"])
    assert len(old) == 6
    await runtime.send("s", "instead")
    assert said(await runtime.get("s")) == ["one", "re: one", "instead", "re: instead"]


async def test_a_rewind_goes_back_over_a_clear(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    second = await runtime.send("s", "two")
    await runtime.execute("s", ClearSession())
    for text in ("a", "b", "c"):
        await runtime.send("s", text)
    entries = len((await store.dump())["entry"])
    back = await runtime.execute("s", RewindSession(str(second.run_id)))
    assert said(back) == said(await runtime.get("s")) == ["one", "re: one"]
    assert len((await store.dump())["entry"]) == entries
    await runtime.send("s", "again")
    assert said(await runtime.get("s")) == ["one", "re: one", "again", "re: again"]


async def test_a_rewind_restores_the_document_and_not_the_definition(store: Store) -> None:
    @program
    async def counting(turn: Turn) -> None:
        turn.update(lambda state: {"count": state.get("count", 0) + 1})
        if turn.state.get("count") == 2:
            turn.state.update(extra=["big"] * 500)
        turn.append({"role": "assistant", "content": "ok"})

    runtime = await opened(store, [counting])
    await runtime.create("counting", session_id="s")
    outcomes = [await runtime.send("s", "go") for _ in range(3)]
    await runtime.execute("s", ChangeModel("m2"))
    for number, count in ((2, 2), (1, 1), (0, 0)):
        back = await runtime.execute("s", RewindSession(str(outcomes[number].run_id)))
        assert (back.document.get("count", 0), "extra" in back.document) == (count, count == 2)
        assert back.definition is not None
        assert back.definition.model == "m2"
    await runtime.execute("s", RewindSession(str(outcomes[2].run_id)))
    session = await runtime.get("s")
    assert (session.document["count"], len(session.document["extra"])) == (2, 500)


async def test_a_rewind_tells_values_apart_that_only_python_calls_equal(store: Store) -> None:
    @program
    async def flipping(turn: Turn) -> None:
        turn.state.update(flag=turn.state.get("flag") is not True)
        turn.append({"role": "assistant", "content": "ok"})

    runtime = await opened(store, [flipping])
    await runtime.create("flipping", {"flag": 1}, session_id="s")
    first = await runtime.send("s", "go")
    assert (await runtime.get("s")).document["flag"] is True
    back = await runtime.execute("s", RewindSession(str(first.run_id)))
    assert type(back.document["flag"]) is type((await runtime.get("s")).document["flag"]) is int


async def test_a_rewind_gives_up_what_a_suspended_run_waited_for(store: Store) -> None:
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    back = await runtime.execute("s", RewindSession(str(waiting.run_id)))
    assert (said(back), list(await runtime.session("s").waits())) == (["one", "hello"], [])
    wait = await store.waits.get(waiting.waits[0].wait_id)
    assert wait is not None
    assert wait.status == "abandoned"
    await runtime.drain()
    assert said(await runtime.get("s")) == ["one", "hello"]
    assert (await runtime.send("s", "three")).suspended


@pytest.mark.parametrize("clears", [True, False], ids=["clear", "rewind"])
async def test_a_run_whose_conversation_is_taken_from_under_it_does_not_go_on_with_an_answer_it_has(
    store: Store, clears: bool
) -> None:
    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    assert (await runtime.answer(waiting.waits[0].wait_id, "42", run=False)).continues == "worker"
    await runtime.execute("s", ClearSession() if clears else RewindSession(str(waiting.run_id)))
    await runtime.drain()
    kept = [] if clears else ["one", "hello"]
    assert said(await runtime.get("s")) == kept
    assert len(await runtime.session("s").runs()) == 2
    outcome = await runtime.send("s", "three")
    assert outcome.completed is clears  # the scripted model counts its own replies
    assert said(await runtime.get("s"))[: len(kept) + 1] == [*kept, "three"]


@pytest.mark.parametrize("answered", [True, False])
async def test_a_child_whose_turn_is_taken_back_answers_its_parent(store: Store, answered: bool) -> None:
    @program
    async def asks(turn: Turn) -> None:
        answer = await turn.child("waits", "one")
        assert answer.error is not None
        turn.append({"role": "assistant", "content": str(answer.error["category"])}, once="told")

    @program
    async def waits(turn: Turn) -> None:
        await turn.wait("go")

    runtime = await opened(store, [waits, asks])
    await runtime.create("asks", session_id="parent")
    await runtime.send("parent", "go")
    await runtime.drain()
    (child,) = [each.session_id for each in await runtime.list() if each.session_id != "parent"]
    (wait,) = await runtime.session(child).waits()
    if answered:
        await runtime.answer(wait.wait_id, "now", run=False)
    await runtime.execute(child, ClearSession())
    await runtime.drain()
    assert said(await runtime.get("parent")) == ["go", "child_abandoned"]
    assert said(await runtime.get(child)) == []


async def test_a_session_that_waits_for_a_call_can_have_its_past_edited_and_still_be_answered(store: Store) -> None:
    class Redact:
        async def apply(self, session: SessionView) -> SessionView:
            first, *rest = session.messages
            return session.replaced("messages", [{**first, "content": "[redacted]"}, *rest])

    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    await runtime.execute("s", Redact())
    answered = await runtime.answer(waiting.waits[0].wait_id, "42")
    assert answered.outcome is not None
    assert answered.outcome.completed
    assert said(await runtime.get("s")) == ["[redacted]", "hello", "two", "", "42", "thanks"]


async def test_an_action_cannot_let_a_message_pass_an_open_call(store: Store) -> None:
    class Interject:
        async def apply(self, session: SessionView) -> SessionView:
            return session.appended("messages", {"role": "user", "content": "by the way"})

    runtime = await opened(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    await runtime.execute("s", Interject())
    await runtime.send("s", "two")
    before = await rows(store)
    with pytest.raises(InvalidHistory):
        await runtime.execute("s", Interject())
    assert await rows(store) == before


async def test_a_rewind_to_what_was_not_kept_is_refused(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    before = await rows(store)
    for wrong in ("no-run", 99):
        with pytest.raises(InvalidInput):
            await runtime.execute("s", RewindSession(wrong))
    assert await rows(store) == before


@pytest.mark.parametrize("action", ["rewind", "clear"])
async def test_a_wait_that_is_answered_as_it_is_given_up_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The answer comes after the look at the waits and before the commit; it was in time, and it is over with it."""
    heard = Heard()
    model = Script(calls(("c1", "ask", {}), ("c2", "ask", {})), "thanks")
    runtime = await opened(store, [ScriptedAgent(model=model, tools=[Tool(name="ask")])], listeners=[heard])
    await runtime.create("agent", session_id="s")
    waiting = await runtime.send("s", "one")
    first, second = (wait.wait_id for wait in waiting.waits)
    real = store.commit

    async def answered_first(commit: Any) -> Any:
        if commit.settle_waits and commit.save:
            monkeypatch.undo()
            await runtime.answer(first, "just in time", run=False)
        return await real(commit)

    monkeypatch.setattr(store, "commit", answered_first)
    session = runtime.session("s")
    clearing = session.rewind(str(waiting.run_id)) if action == "rewind" else session.execute(ClearSession())
    assert list((await clearing).messages) == []
    statuses = {wait.wait_id: str(wait.status) for wait in await store.waits.of_session("s", status=None)}
    assert statuses == {first: "answered", second: "abandoned"}
    assert "SaveFailed" not in heard.names
    assert (await runtime.send("s", "again")).suspended  # as the first time: nothing of that stands in its way
