"""Forking a session and taking it back: copying nothing, losing nothing, and never inside an open call."""

import pytest

from tenuto import Store
from tenuto.errors import (
    ForkPointNotRetained,
    InvalidHistory,
    InvalidId,
    InvalidInput,
    SessionExists,
)
from tenuto.session.actions import (
    ChangeModel,
    ClearSession,
    ForkSession,
    RewindSession,
    SuspendSession,
)
from tenuto.session.live import LiveTurn
from tenuto.session.program import program
from tenuto.session.runtime import SessionRuntime
from tenuto.session.tools import Tool
from tenuto.session.value import Session
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.session.talking import Heard, rows, said, started


async def test_a_fork_gets_an_id_is_active_and_copies_nothing(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    await runtime.execute("s", SuspendSession())
    entries = len((await store.dump())["entry"])
    minted = await runtime.execute("s", ForkSession())
    named = await runtime.execute("s", ForkSession(session_id="fork"))
    assert len((await store.dump())["entry"]) == entries
    for fork in (minted, named):
        assert (fork.status, fork.version, said(fork)) == ("active", 1, ["one", "re: one"])
        assert fork.profile.parent is None
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
        assert said(fork) == expected[: 2 * count]


async def test_a_fork_at_a_run_has_nothing_of_what_actions_did_since(store: Store) -> None:
    runtime = await started(store)
    first = await runtime.send("s", "one")
    await runtime.execute("s", ClearSession())
    for _ in range(2):
        fork = await runtime.execute("s", ForkSession(at=first.run_id))
        assert said(fork) == ["one", "re: one"]
        await runtime.send("s", "two")
    points = await store.checkpoints.of_session("s")
    cleared = next(point for point in points if point.cursor == {"action": "ClearSession"})
    assert said(await runtime.execute("s", ForkSession(at=cleared.commit_number))) == ["one", "re: one"]


async def test_a_fork_with_a_first_message_has_had_its_turn(store: Store) -> None:
    runtime = await started(store)
    first = await runtime.send("s", "one")
    await runtime.send("s", "two")
    fork = await runtime.execute("s", ForkSession(at=first.run_id, session_id="fork", message="or else"))
    assert said(fork) == ["one", "re: one", "or else", "re: or else"]
    assert [run.run.number for run in await runtime.runs("fork")] == [1]


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


def with_client_tool() -> ScriptedAgent:
    model = Script("hello", calls(("c1", "ask", {})), "thanks")
    return ScriptedAgent(model=model, tools=[Tool(name="ask")])


async def test_a_fork_inside_an_open_call_is_refused_with_the_nearest_points(store: Store) -> None:
    runtime = SessionRuntime(store, [with_client_tool()])
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
    assert [said(fork) for fork in forks] == [["one", "hello"], []]


async def test_a_rewind_takes_the_session_to_before_a_run_and_keeps_what_came_after_readable(store: Store) -> None:
    heard = Heard()
    runtime = await started(store, listeners=[heard])
    outcomes = [await runtime.send("s", text) for text in ("one", "two", "three")]
    head = await runtime.info("s")
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
    async def counting(turn: LiveTurn) -> None:
        turn.update("count", lambda count: count + 1, 0)
        if turn.get("count") == 2:
            turn.set(extra=["big"] * 500)
        turn.append({"role": "assistant", "content": "ok"})

    runtime = SessionRuntime(store, [counting])
    await runtime.create("counting", session_id="s")
    outcomes = [await runtime.send("s", "go") for _ in range(3)]
    await runtime.execute("s", ChangeModel("m2"))
    for number, count in ((2, 2), (1, 1), (0, 0)):
        back = await runtime.execute("s", RewindSession(str(outcomes[number].run_id)))
        assert (back.document.get("count", 0), "extra" in back.document) == (count, count == 2)
        assert back.definition.model == "m2"
    await runtime.execute("s", RewindSession(str(outcomes[2].run_id)))
    session = await runtime.get("s")
    assert (session.document["count"], len(session.document["extra"])) == (2, 500)


async def test_a_rewind_tells_values_apart_that_only_python_calls_equal(store: Store) -> None:
    @program
    async def flipping(turn: LiveTurn) -> None:
        turn.set(flag=turn.get("flag") is not True)
        turn.append({"role": "assistant", "content": "ok"})

    runtime = SessionRuntime(store, [flipping])
    await runtime.create("flipping", {"flag": 1}, session_id="s")
    first = await runtime.send("s", "go")
    assert (await runtime.get("s")).document["flag"] is True
    back = await runtime.execute("s", RewindSession(str(first.run_id)))
    assert type(back.document["flag"]) is type((await runtime.get("s")).document["flag"]) is int


async def test_a_rewind_gives_up_what_a_suspended_run_waited_for(store: Store) -> None:
    runtime = SessionRuntime(store, [with_client_tool()])
    await runtime.create("agent", session_id="s")
    await runtime.send("s", "one")
    waiting = await runtime.send("s", "two")
    back = await runtime.execute("s", RewindSession(str(waiting.run_id)))
    assert (said(back), list(await runtime.waits("s"))) == (["one", "hello"], [])
    wait = await store.waits.get(waiting.waits[0].wait_id)
    assert wait is not None
    assert wait.status == "abandoned"
    await runtime.drain()
    assert said(await runtime.get("s")) == ["one", "hello"]
    assert (await runtime.send("s", "three")).suspended


async def test_a_session_that_waits_for_a_call_can_have_its_past_edited_and_still_be_answered(store: Store) -> None:
    class Redact:
        async def apply(self, session: Session) -> Session:
            first, *rest = session.messages
            return session.replaced("messages", [{**first, "content": "[redacted]"}, *rest])

    runtime = SessionRuntime(store, [with_client_tool()])
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
        async def apply(self, session: Session) -> Session:
            return session.appended("messages", {"role": "user", "content": "by the way"})

    runtime = SessionRuntime(store, [with_client_tool()])
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
