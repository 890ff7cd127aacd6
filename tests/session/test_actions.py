"""Actions on sessions: what each does, where it is refused, and what cannot be asked at all."""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import (
    CommitRefused,
    ForkPointNotRetained,
    InvalidHistory,
    InvalidId,
    InvalidInput,
    NotJson,
    OperationConflict,
    ProgramNotRegistered,
    SessionExists,
    SessionNotFound,
    StatusRefused,
    TenutoError,
)
from tenuto.model.session import SessionKey, SessionRecord, SessionStatus
from tenuto.session.actions import (
    ChangeModel,
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
    SuspendSession,
    UpdateTask,
    WriteMetadata,
)
from tenuto.session.definition import Definition, Task
from tenuto.session.handle import SessionHandle
from tenuto.session.live import LiveTurn
from tenuto.session.program import program
from tenuto.session.runtime import SessionRuntime
from tenuto.session.tools import Tool
from tenuto.session.value import Session
from tenuto.testing.agent import Script, ScriptedAgent, calls
from tests.conftest import OurHarness
from tests.crash.processes import ROOT
from tests.session.talking import Heard, Refused, broken, echo, rows, said


async def started(store: Store, **options: Any) -> SessionRuntime:
    runtime = SessionRuntime(store, [echo, broken], **options)
    await runtime.create("echo", {"mood": "calm"}, session_id="s")
    return runtime


async def raised_by(attempt: Awaitable[Any]) -> type[Exception] | None:
    """Return the very class of what is raised."""
    try:
        await attempt
    except Exception as error:
        return type(error)
    return None


async def test_create_takes_the_callers_id_or_mints_one_and_what_it_returns_is_stored(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    minted = await runtime.create("echo")
    named = await runtime.create(
        "echo", {"mood": "calm"}, session_id="mine", user_id="u", tags=["x"], metadata={"a": 1}, title="t"
    )
    assert (minted.session_id[14], len(minted.session_id), named.session_id) == ("7", 36, "mine")
    for created in (minted, named):
        assert (created.status, created.version, created.profile.parent) == ("active", 1, None)
        found = await runtime.get(created.key)
        assert found == replace(created, logs=found.logs)
        assert {name: list(items) for name, items in found.logs.items()} == {"messages": []}
    assert named.definition == Definition(name="echo", label="echo")
    assert (named.profile.agent, named.profile.user_id, named.profile.tags) == ("echo", "u", ("x",))


@pytest.mark.parametrize(
    ("defined", "seeded", "found"),
    [("be kind", "be rude", "be kind"), ("  ", "be rude", "be rude"), (None, "be rude", "be rude"), ("a", None, "a")],
)
async def test_a_prompt_of_the_definition_goes_before_the_seeds(
    store: Store, defined: str | None, seeded: str | None, found: str
) -> None:
    runtime = SessionRuntime(store, [echo])
    seed = {"system_prompt": seeded} if seeded else {}
    created = await runtime.create(Definition(name="echo", system_prompt=defined), seed)
    assert created.definition is not None
    assert created.definition.system_prompt == found
    assert "system_prompt" not in created.document


async def test_a_seed_is_document_and_logs(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    messages = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]
    await runtime.create(
        "echo", {"messages": messages, "notes": [1, 2], "mood": "calm"}, session_id="s", logs=["notes"]
    )
    await runtime.send("s", "now")
    session = await runtime.get("s")
    assert (said(session), list(session.logs["notes"])) == (["before", "yes", "now", "re: now"], [1, 2])
    assert dict(session.document) == {"mood": "calm"}


CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look"}]}
BAD_CREATES: list[tuple[dict[str, Any], type[TenutoError]]] = [
    ({"session_id": ""}, InvalidId),
    ({"session_id": "a/b"}, InvalidId),
    ({"session_id": ".."}, InvalidId),
    ({"session_id": "x" * 256}, InvalidId),
    ({"seed": {"mood": {1, 2}}}, NotJson),
    ({"seed": {"mood": float("nan")}}, NotJson),
    ({"seed": {"mood": datetime(2026, 1, 1)}}, NotJson),
    ({"seed": "mood"}, InvalidInput),
    ({"seed": {"system_prompt": 5}}, InvalidInput),
    ({"seed": {"messages": "hello"}}, InvalidInput),
    ({"seed": {"messages": None}}, InvalidInput),
    ({"seed": {"messages": ["hello"]}}, InvalidHistory),
    ({"seed": {"messages": [{"role": "robot"}]}}, InvalidHistory),
    ({"seed": {"messages": [CALL]}}, InvalidHistory),
    ({"seed": {"messages": [CALL, {"role": "user", "content": "x"}]}}, InvalidHistory),
    ({"seed": {"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]}}, InvalidHistory),
    ({"seed": {"notes": 5}, "logs": ["notes"]}, InvalidInput),
    ({"logs": "notes"}, InvalidInput),
    ({"metadata": {"a": object()}}, NotJson),
    ({"metadata": "a"}, InvalidInput),
    ({"tags": "abc"}, InvalidInput),
    ({"tags": [1]}, InvalidInput),
    ({"title": 5}, InvalidInput),
    ({"expires_at": datetime(2026, 1, 1)}, InvalidInput),
    ({"parent": "nobody"}, SessionNotFound),
    ({"parent": SessionKey("p", tenant="other"), "session_id": "s"}, InvalidInput),
    ({"program": "unheard"}, ProgramNotRegistered),
    ({"program": "echo@9"}, ProgramNotRegistered),
    ({"program": Definition(name="echo", version="9")}, ProgramNotRegistered),
    ({"program": Definition(name="echo", model=object())}, NotJson),
]


async def test_a_create_that_makes_no_sense_is_refused_and_writes_nothing(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    before = await store.dump()
    for given, error in BAD_CREATES:
        assert await raised_by(runtime.create(**({"program": "echo"} | given))) is error, given
    assert await store.dump() == before


async def test_a_create_repeated_with_its_operation_id_is_the_same_create(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    first = await runtime.create("echo", {"mood": "calm"}, session_id="s", operation_id="op-1")
    before = await store.dump()
    again = await SessionRuntime(store, [echo]).create("echo", {"mood": "calm"}, session_id="s", operation_id="op-1")
    assert again == first
    with pytest.raises(OperationConflict):
        await runtime.create("echo", {"mood": "sour"}, session_id="s", operation_id="op-1")
    with pytest.raises(SessionExists):
        await runtime.create("echo", {"mood": "calm"}, session_id="s", operation_id="op-2")
    assert await store.dump() == before


async def test_a_child_has_its_parents_tenant_root_and_trace(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    top = await runtime.create("echo", session_id=SessionKey("top", tenant="t"))
    child = await runtime.create("echo", parent=top.key)
    grandchild = await runtime.create("echo", parent=child.key)
    assert (child.key.tenant, child.profile.parent, child.profile.root) == ("t", "top", "top")
    assert (grandchild.profile.parent, grandchild.profile.root) == (child.session_id, "top")
    assert grandchild.profile.trace == child.profile.trace == top.profile.trace


BAD_MESSAGES: list[tuple[Any, type[TenutoError]]] = [
    ("", InvalidInput),
    ({}, InvalidInput),
    (None, InvalidInput),
    (5, InvalidInput),
    (["hello"], InvalidInput),
    ({"content": "no role"}, InvalidInput),
    ({"role": "user"}, InvalidInput),
    ({"role": "user", "content": ""}, InvalidInput),
    ({"role": "assistant", "content": "x"}, InvalidInput),
    ({"role": "tool", "tool_call_id": "a", "content": "x"}, InvalidInput),
    ({"role": "frame", "content": "x"}, InvalidInput),
    ({"role": "user", "content": "x", "tool_calls": [{"id": "a"}]}, InvalidHistory),
    ({"role": "user", "content": {1, 2}}, NotJson),
    ({"role": "user", "content": "\ud800"}, NotJson),
]


async def test_what_is_no_message_is_refused_at_every_door_and_writes_nothing(store: Store) -> None:
    runtime = await started(store)
    before = await store.dump()
    for message, error in BAD_MESSAGES:
        for door in (runtime.send, runtime.start, runtime.enqueue):
            assert await raised_by(door("s", message)) is error, message
        assert await raised_by(runtime.execute("s", SendMessage(message))) is error, message
    assert await store.dump() == before


async def test_words_nobody_knows_are_refused(store: Store) -> None:
    runtime = await started(store)
    before = await store.dump()
    attempts: list[Callable[[], Any]] = [
        lambda: runtime.send("s", "hello", when_busy="patiently"),
        lambda: runtime.start("s", "hello", when_busy="patiently"),
        lambda: runtime.enqueue("s", "hello", boundary="whenever"),
        lambda: runtime.stop("s", kind="gently", run_id="r"),
        lambda: runtime.execute("s", "suspend"),
        lambda: runtime.execute("s", SuspendSession),
        lambda: runtime.execute("s", object()),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInput):
            await attempt()
    wrong: list[dict[str, Any]] = [{"when_busy": "x"}, {"in_doubt": "x"}, {"steps": 0}, {"steps": True}]
    for options in wrong:
        with pytest.raises(InvalidInput):
            SessionRuntime(store, [echo], **options)
    with pytest.raises(InvalidInput):
        SessionRuntime(store, [echo, echo])
    assert await store.dump() == before


async def test_suspend_and_resume_close_and_open_the_session(store: Store) -> None:
    runtime = await started(store)
    suspended = await runtime.execute("s", SuspendSession())
    assert (suspended.status, suspended.version) == ("suspended", 1)
    before = await rows(store)
    with pytest.raises(StatusRefused) as refused:
        await runtime.send("s", "hello")
    assert refused.value.found == "suspended"
    assert await rows(store) == before
    resumed = await runtime.execute("s", ResumeSession())
    assert resumed.status == "active"
    assert (await runtime.send("s", "hello")).completed


CLOSING = {"suspended": SuspendSession(), "completed": CompleteSession(), "failed": FailSession("why")}


@pytest.mark.parametrize("closed", CLOSING)
async def test_what_the_table_forbids_raises_and_changes_nothing(store: Store, closed: str) -> None:
    heard = Heard()
    runtime = await started(store, listeners=[heard])
    await runtime.execute("s", CLOSING[closed])
    before = await rows(store)
    heard.take()
    for word, action in CLOSING.items():
        if word == closed:
            continue
        with pytest.raises(StatusRefused) as refused:
            await runtime.execute("s", action)
        assert refused.value.details() == {
            "key": SessionKey("s"),
            "found": closed,
            "wanted": word,
            "version": 1,
        }
        assert heard.names == ["SessionLoaded", "ActionFailed"]
    for door in (runtime.send, runtime.start):
        with pytest.raises(StatusRefused):
            await door("s", "hello")
        assert heard.names == ["ActionFailed"]
    with pytest.raises(StatusRefused):
        await runtime.execute("s", SendMessage("hello"))
    assert await rows(store) == before


@pytest.mark.parametrize("closed", CLOSING)
async def test_a_closed_session_can_still_be_described_and_is_opened_by_resuming(store: Store, closed: str) -> None:
    runtime = await started(store)
    await runtime.execute("s", CLOSING[closed])
    changed = await runtime.execute("s", WriteMetadata({"a": 1}))
    assert (changed.status, changed.metadata) == (closed, {"a": 1})
    assert changed.profile.failure_reason == ("why" if closed == "failed" else None)
    opened = await runtime.execute("s", ResumeSession())
    assert (opened.status, opened.profile.failure_reason) == ("active", None)
    assert (await runtime.info("s")).profile.failure_reason is None


async def test_a_deleted_session_is_not_there_for_any_action(store: Store) -> None:
    heard = Heard()
    runtime = await started(store, listeners=[heard])
    await runtime.send("s", "hello")
    heard.take()
    report = await runtime.execute("s", DeleteSession())
    assert report.sessions == 1
    (told,) = heard.take()
    assert (told.data()["before_status"], told.data()["after_status"]) == ("active", "deleted")
    before = await store.dump()
    every: list[Any] = [
        *CLOSING.values(),
        ResumeSession(),
        ClearSession(),
        ChangeModel("m"),
        SendMessage("hello"),
        ForkSession(),
        RewindSession(1),
        StopRun(),
        DeleteSession(),
    ]
    for action in every:
        with pytest.raises(SessionNotFound):
            await runtime.execute("s", action)
        assert heard.names == ["LoadFailed"], action
    assert await store.dump() == before


async def test_no_action_makes_a_session_deleted(store: Store) -> None:
    class Vanish:
        async def apply(self, session: Session) -> Session:
            return replace(session, status=SessionStatus.DELETED)

    runtime = await started(store)
    before = await rows(store)
    with pytest.raises(StatusRefused, match="Delete it"):
        await runtime.execute("s", Vanish())
    assert await rows(store) == before


async def test_clear_begins_the_logs_anew_and_keeps_everything_else(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    await runtime.execute("s", WriteMetadata({"a": 1}))
    ends = (await runtime.info("s")).ends["messages"]
    cleared = await runtime.execute("s", ClearSession())
    assert (said(cleared), dict(cleared.document), cleared.metadata) == ([], {"mood": "calm"}, {"a": 1})
    assert cleared.definition == Definition(name="echo")
    assert (await runtime.info("s")).ends["messages"].branch != ends.branch
    old = await store.logs.read("s", "messages", end=ends)
    assert [entry.value["content"] for entry in old] == ["one", "re: one"]
    await runtime.send("s", "two")
    assert said(await runtime.get("s")) == ["two", "re: two"]


async def test_clear_can_name_the_logs(store: Store) -> None:
    runtime = SessionRuntime(store, [echo])
    await runtime.create("echo", {"notes": [1], "other": [2]}, session_id="s", logs=["notes", "other"])
    await runtime.send("s", "one")
    cleared = await runtime.execute("s", ClearSession(logs=("notes",)))
    assert {name: len(items) for name, items in cleared.logs.items()} == {"messages": 2, "notes": 0, "other": 1}


async def test_change_of_model_and_prompt_reach_the_next_request_really_sent(store: Store) -> None:
    model = Script("one", "two", "three")
    runtime = SessionRuntime(store, [ScriptedAgent(model=model)])
    await runtime.create(Definition(name="agent", model="m1", system_prompt="be kind"), session_id="s")
    await runtime.send("s", "a")
    await runtime.execute("s", ChangeModel({"name": "m2"}))
    await runtime.execute("s", ChangeSystemPrompt("be brief"))
    await runtime.send("s", "b")
    await SessionRuntime(store, [ScriptedAgent(model=model)]).send("s", "c")
    assert [(each.model, each.system_prompt) for each in model.requests] == [
        ("m1", "be kind"),
        ({"name": "m2"}, "be brief"),
        ({"name": "m2"}, "be brief"),
    ]
    assert (await runtime.info("s")).version == 7  # three turns of two saves: no definition moved the head


async def test_a_task_list_is_stored_whole_or_refused(store: Store) -> None:
    runtime = await started(store)
    tasks = [Task(content=f"t{n}", status="in_progress" if n == 3 else "pending") for n in range(20)]
    session = await runtime.execute("s", UpdateTask(tasks))
    assert session.definition.tasks == tuple(tasks)
    found = (await runtime.get("s")).definition
    assert found is not None
    assert found.tasks == tuple(tasks)
    before = await rows(store)
    bad: list[Any] = [
        [*tasks, Task(content="one more")],
        [Task(content="a", status="in_progress"), Task(content="b", status="in_progress")],
        [{"content": "a", "status": "done"}],
        [{"text": "a"}],
        [{"status": "pending"}],
        "abc",
        [5],
    ]
    for each in bad:
        with pytest.raises(InvalidInput):
            await runtime.execute("s", UpdateTask(each))
    assert await rows(store) == before


@dataclass(frozen=True, slots=True)
class Changing:
    change: Callable[[Session], Session]

    async def apply(self, session: Session) -> Session:
        return self.change(session)


@dataclass(frozen=True, slots=True)
class Rename:
    title: str

    async def apply(self, session: Session) -> Session:
        if not self.title:
            raise Refused("a title, please")
        return session.with_profile(title=self.title).with_fields(renamed=True)


async def test_a_users_own_action_works_like_any_other_also_from_the_inbox(store: Store) -> None:
    runtime = await started(store, actions=[Rename])
    session = await runtime.execute("s", Rename("first"))
    assert (session.profile.title, session.version) == ("first", 2)
    input_id = await runtime.enqueue("s", Rename("second"))
    assert (await runtime.outcome(input_id)).status == "queued"
    await runtime.drain()
    assert (await runtime.outcome(input_id)).status == "executed"
    assert (await runtime.info("s")).profile.title == "second"
    with pytest.raises(InvalidInput):
        await SessionRuntime(store, [echo]).enqueue("s", Rename("third"))


async def test_a_users_own_deed_gets_the_session_and_the_runtime_and_its_failure_is_told(store: Store) -> None:
    heard = Heard()

    class Count:
        async def perform(self, session: SessionHandle, runtime: SessionRuntime) -> int:
            found = await session.get()
            if not found.messages:
                raise Refused("nothing said yet")
            return len(found.messages)

    runtime = await started(store, listeners=[heard])
    heard.take()
    with pytest.raises(Refused):
        await runtime.execute("s", Count())
    failure = heard.take()[-1]
    assert failure.data() == {
        "stage": "action",
        "action": "Count",
        "error": "nothing said yet",
        "category": "Refused",
    }
    await runtime.send("s", "hello")
    heard.take()
    assert await runtime.execute("s", Count()) == 2
    assert heard.names == ["SessionLoaded", "SessionActionExecuted"]


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


WRONG: list[tuple[Callable[[Session], Session], type[TenutoError]]] = [
    (lambda session: session.appended("mood", "a"), CommitRefused),
    (lambda session: session.appended("a/b", "a"), InvalidInput),
    (lambda session: session.with_fields(messages=[]), CommitRefused),
    (lambda session: session.with_fields(mood={1}), NotJson),
    (lambda session: session.with_metadata(mood={1}), NotJson),
    (lambda session: session.with_profile(root="r"), InvalidInput),
    (lambda session: session.appended("messages", "hello"), InvalidHistory),
]


async def test_an_action_that_makes_of_a_session_what_it_cannot_be_is_refused(store: Store) -> None:
    heard = Heard()
    runtime = await started(store, listeners=[heard])
    before = await rows(store)
    heard.take()
    for change, error in WRONG:
        assert await raised_by(runtime.execute("s", Changing(change))) is error
        assert heard.names == ["SessionLoaded", "SessionActionExecuted", "SaveFailed"]
    assert await rows(store) == before


async def test_a_log_can_be_dropped_by_an_action(store: Store) -> None:
    class Drop:
        async def apply(self, session: Session) -> Session:
            return replace(session, logs={"messages": session.messages})

    runtime = SessionRuntime(store, [echo])
    await runtime.create("echo", {"notes": [1]}, session_id="s", logs=["notes"])
    await runtime.execute("s", Drop())
    assert set((await runtime.get("s")).logs) == {"messages"}
    assert (await runtime.send("s", "hello")).completed


async def test_opposite_actions_at_once_are_put_in_order(store: Store) -> None:
    runtime = await started(store)

    async def attempt(action: Any) -> str:
        try:
            return str((await runtime.execute("s", action)).status)
        except StatusRefused as refused:
            return f"refused from {refused.found}"

    told = await asyncio.gather(attempt(CompleteSession()), attempt(FailSession("x")))
    status = str((await runtime.info("s")).status)
    assert sorted(told) == sorted([status, f"refused from {status}"])


async def test_run_numbers_rise_by_one_per_turn_and_are_the_same_after_a_reload(store: Store) -> None:
    runtime = await started(store)
    assert list(await runtime.runs("s")) == []
    for count in (1, 2, 3):
        await runtime.send("s", "hello")
        for reader in (runtime, SessionRuntime(store, [echo])):
            assert [run.run.number for run in await reader.runs("s")] == list(range(count, 0, -1))
    await runtime.execute("s", WriteMetadata({"a": 1}))
    assert len(await runtime.runs("s")) == 3


async def test_a_session_without_a_definition_is_read_and_takes_no_turns(store: Store) -> None:
    await store.save("s", SessionRecord(session_id="s", state={"mood": "calm"}, schema_version="v1"))
    heard = Heard()
    runtime = SessionRuntime(store, [echo], listeners=[heard])
    session = await runtime.get("s")
    assert (session.definition, dict(session.document), session.schema_version) == (None, {"mood": "calm"}, "v1")
    before = await rows(store)
    heard.take()
    for attempt in (runtime.send("s", "hello"), runtime.execute("s", SendMessage("hello"))):
        with pytest.raises(ProgramNotRegistered):
            await attempt
        assert heard.names == ["ActionFailed"]
    with pytest.raises(InvalidInput):
        await runtime.execute("s", ChangeModel("m"))
    assert await rows(store) == before
    assert (await runtime.execute("s", WriteMetadata({"a": 1}))).metadata == {"a": 1}

    class Adopt:
        async def apply(self, session: Session) -> Session:
            return session.with_definition(name="echo").replaced("messages")

    await runtime.execute("s", Adopt())
    assert (await runtime.send("s", "hello")).output == "re: hello"


async def test_a_session_whose_program_is_not_registered_opens_for_reading(store: Store) -> None:
    await started(store)
    elsewhere = SessionRuntime(store, [broken])
    assert dict((await elsewhere.get("s")).document) == {"mood": "calm"}
    before = await rows(store)
    with pytest.raises(ProgramNotRegistered) as refused:
        await elsewhere.send("s", "hello")
    assert refused.value.details() == {"program": "echo@1", "registered": ["broken@1"]}
    assert await rows(store) == before
    assert (await SessionRuntime(store, [echo]).send("s", "hello")).completed


async def test_a_runtime_without_a_store_says_so_and_works(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tenuto.session"):
        runtime = SessionRuntime(programs=[echo])
    assert "memory" in caplog.text
    async with runtime:
        await runtime.create("echo", session_id="s")
        assert (await runtime.send("s", "hello")).output == "re: hello"
    await runtime.store.aclose()


async def test_a_handle_can_have_a_store_of_its_own_with_everything_else_the_runtimes(
    store: Store, harness: OurHarness
) -> None:
    heard = Heard()
    runtime = SessionRuntime(store, iter([echo]), listeners=iter([heard]), actions=iter([Rename]))
    other = SessionRuntime(None, [echo])
    await other.create("echo", session_id="s")
    handle = runtime.open("s", store=other.store)
    assert (await handle.send("hello")).output == "re: hello"
    assert heard.names == ["SessionLoaded", "RunStarted", "SessionActionExecuted", "SessionSaved", "RunEnded"]
    assert not await store.exists("s")
    await other.store.aclose()


@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_two_sends_from_two_processes_give_four_messages_in_order(store: Store, harness: OurHarness) -> None:
    runtime = await started(store)
    versions = [(await runtime.info("s")).version]
    for text in ("one", "two"):
        words = [harness.address or "", json.dumps(harness.options), "s", text]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.session.talking", *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await process.communicate()
        outcome = json.loads(told)
        assert outcome["output"] == f"re: {text}"
        versions.append(outcome["version"])
    assert said(await runtime.get("s")) == ["one", "re: one", "two", "re: two"]
    assert sorted(set(versions)) == versions
    assert (await runtime.info("s")).version == versions[-1]
    assert (await runtime.send("s", "three")).output == "re: three"
    trace = {run.trace_id for run in await runtime.runs("s")}
    assert len(trace) == 1
    assert len(str(trace.pop())) == 32
