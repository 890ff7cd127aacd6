"""Actions on sessions: what each does, and where it is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import (
    CommitRefused,
    InvalidHistory,
    InvalidInput,
    NotJson,
    SessionNotFound,
    StatusRefused,
    TenutoError,
)
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.change.action import (
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
from tenuto.runtime.session.definition import Definition, Task
from tenuto.runtime.session.session_view import SessionView
from tenuto.testing.agent import Script, ScriptedAgent
from tests.runtime.runtimes import opened
from tests.runtime.talking import Heard, Refused, as_streamed, echo, raised_by, rows, said, started, streamed


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


CLOSING: dict[str, Any] = {"suspended": SuspendSession(), "completed": CompleteSession(), "failed": FailSession("why")}


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
        assert refused.value.details() == {"key": SessionKey("s"), "found": closed, "wanted": word, "version": 1}
        assert heard.names == ["SessionLoaded", "ActionFailed"]
    session = runtime.session("s")
    for door in (session.send, session.start):
        with pytest.raises(StatusRefused):
            await door("hello")
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
    assert (await runtime.session("s").info()).profile.failure_reason is None


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
        async def apply(self, session: SessionView) -> SessionView:
            return replace(session, status=SessionStatus.DELETED)

    runtime = await started(store)
    before = await rows(store)
    with pytest.raises(StatusRefused, match="Call `delete`"):
        await runtime.execute("s", Vanish())
    assert await rows(store) == before


async def test_clear_begins_the_logs_anew_and_keeps_everything_else(store: Store) -> None:
    runtime = await started(store)
    await runtime.send("s", "one")
    await runtime.execute("s", WriteMetadata({"a": 1}))
    ends = (await runtime.session("s").info()).ends["messages"]
    cleared = await runtime.execute("s", ClearSession())
    assert (said(cleared), dict(cleared.document), cleared.metadata) == ([], {"mood": "calm"}, {"a": 1})
    assert cleared.definition == Definition(name="echo")
    assert (await runtime.session("s").info()).ends["messages"].branch != ends.branch
    old = await store.logs.read("s", "messages", end=ends)
    assert [entry.value["content"] for entry in old] == ["one", "re: one"]
    await runtime.send("s", "two")
    assert said(await runtime.get("s")) == ["two", "re: two"]


async def test_clear_can_name_the_logs(store: Store) -> None:
    runtime = await opened(store, [echo])
    await runtime.create("echo", {"notes": [1], "other": [2]}, session_id="s", logs=["notes", "other"])
    await runtime.send("s", "one")
    cleared = await runtime.execute("s", ClearSession(logs=("notes",)))
    assert {name: len(items) for name, items in cleared.logs.items()} == {"messages": 2, "notes": 0, "other": 1}


async def test_change_of_model_and_prompt_reach_the_next_request_really_sent(store: Store) -> None:
    model = Script("one", "two", "three")
    runtime = await opened(store, [ScriptedAgent(model=model)])
    await runtime.create(Definition(name="agent", model="m1", system_prompt="be kind"), session_id="s")
    await runtime.send("s", "a")
    await runtime.execute("s", ChangeModel({"name": "m2"}))
    await runtime.execute("s", ChangeSystemPrompt("be brief"))
    await runtime.send("s", "b")
    await (await opened(store, [ScriptedAgent(model=model)])).send("s", "c")
    assert [(each.model, each.system_prompt) for each in model.requests] == [
        ("m1", "be kind"),
        ({"name": "m2"}, "be brief"),
        ({"name": "m2"}, "be brief"),
    ]
    assert (await runtime.session("s").info()).version == 7  # three turns of two saves: no definition moved the head


async def test_a_task_list_is_stored_whole_or_refused(store: Store) -> None:
    runtime = await started(store)
    tasks = [Task(content=f"t{n}", status="in_progress" if n == 3 else "pending") for n in range(20)]
    session = await runtime.execute("s", UpdateTask(tasks))
    assert session.definition is not None
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
        "",
        [5],
    ]
    for each in bad:
        with pytest.raises(InvalidInput):
            await runtime.execute("s", UpdateTask(each))
    assert await rows(store) == before


async def test_a_task_is_given_by_its_description_too(store: Store) -> None:
    runtime = await started(store)
    one = await runtime.execute("s", UpdateTask("find the invoice"))
    assert one.definition is not None
    assert one.definition.tasks == (Task(content="find the invoice"),)
    two = await runtime.execute("s", UpdateTask(["find it", Task(content="send it", status="in_progress")]))
    assert two.definition is not None
    assert [(task.content, task.status) for task in two.definition.tasks] == [
        ("find it", "pending"),
        ("send it", "in_progress"),
    ]


async def test_metadata_is_written_by_key_and_value_or_as_a_mapping(store: Store) -> None:
    runtime = await started(store)
    await runtime.execute("s", WriteMetadata("ticket", {"id": 7}))
    await runtime.execute("s", WriteMetadata("note", None))
    await runtime.execute("s", WriteMetadata(values={"note": 0, "values": 1}))
    written = await runtime.execute("s", WriteMetadata(key="by", value="ann"))
    assert written.metadata == {"ticket": {"id": 7}, "note": 0, "values": 1, "by": "ann"}
    assert (await runtime.get("s")).metadata == written.metadata
    odd: Any = WriteMetadata
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("ticket",), {}),
        ((5, 6), {}),
        (("a", 1), {"values": {}}),
        (({"a": 1}, 2), {}),
    ]
    for given, named in wrong:
        with pytest.raises(InvalidInput):
            odd(*given, **named)


@dataclass(frozen=True, slots=True)
class Changing:
    change: Callable[[SessionView], SessionView]

    async def apply(self, session: SessionView) -> SessionView:
        return self.change(session)


@dataclass(frozen=True, slots=True)
class Rename:
    title: str

    async def apply(self, session: SessionView) -> SessionView:
        if not self.title:
            raise Refused("a title, please")
        return session.with_profile(title=self.title).with_fields(renamed=True)


async def test_a_users_own_action_works_like_any_other_also_from_the_inbox(store: Store) -> None:
    runtime = await started(store, actions=[Rename])
    session = await runtime.execute("s", Rename("first"))
    assert (session.profile.title, session.version) == ("first", 2)
    input_id = await runtime.session("s").enqueue(Rename("second"))
    assert (await runtime.outcome(input_id)).status == "queued"
    await runtime.drain()
    assert (await runtime.outcome(input_id)).status == "executed"
    assert (await runtime.session("s").info()).profile.title == "second"
    with pytest.raises(InvalidInput):
        await (await opened(store, [echo])).session("s").enqueue(Rename("third"))


async def test_an_action_from_the_inbox_tells_what_stands_in_the_stream_and_names_its_input(store: Store) -> None:
    heard = Heard()
    runtime = await started(store, actions=[Rename], listeners=[heard])
    after = (await runtime.session("s").info()).event_seq
    heard.take()
    input_id = await runtime.session("s").enqueue(Rename("queued"))
    await runtime.drain()
    notices = heard.take()
    assert [type(each).__name__ for each in notices] == ["SessionLoaded", "SessionActionExecuted", "SessionSaved"]
    assert notices[1].data()["input_id"] == input_id
    queued = ("input_queued", {"input_id": input_id, "kind": "command"})
    assert await streamed(store, "s", after) == [queued, *as_streamed(notices)]


WRONG: list[tuple[Callable[[SessionView], SessionView], type[TenutoError]]] = [
    (lambda session: session.appended("mood", "a"), CommitRefused),
    (lambda session: session.appended("a/b", "a"), InvalidInput),
    (lambda session: session.with_fields(messages=[]), CommitRefused),
    (lambda session: session.with_fields(**{"a/b": 1}), InvalidInput),
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
        async def apply(self, session: SessionView) -> SessionView:
            return replace(session, logs={"messages": session.messages})

    runtime = await opened(store, [echo])
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
    status = str((await runtime.session("s").info()).status)
    assert sorted(told) == sorted([status, f"refused from {status}"])
