"""Creating sessions and opening them: what is refused, what is stored, and who may only read."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import (
    InvalidHistory,
    InvalidId,
    InvalidInput,
    NotJson,
    OperationConflict,
    ProgramNotRegistered,
    SessionExists,
    SessionNotFound,
    TenutoError,
)
from tenuto.model.session import Profile, SessionKey, SessionRecord
from tenuto.runtime.change.action import ChangeModel, SendMessage, SuspendSession, WriteMetadata
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import SessionView
from tests.conftest import OurHarness
from tests.crash.processes import ROOT
from tests.runtime.runtimes import opened
from tests.runtime.seams import advance
from tests.runtime.talking import Heard, broken, echo, raised_by, rows, said, started


async def test_create_takes_the_callers_id_or_mints_one_and_what_it_was_given_is_stored(store: Store) -> None:
    runtime = await opened(store, [echo])
    minted = await runtime.create("echo")
    named = await runtime.create(
        "echo", {"mood": "calm"}, session_id="mine", user_id="u", tags=["x"], metadata={"a": 1}, title="t"
    )
    assert (minted.session_id[14], len(minted.session_id), named.session_id) == ("7", 36, "mine")
    for created in (minted, named):
        assert created == runtime.session(created.session_id)
        found = await created.get()
        assert found == await (await opened(store, [echo])).get(created.session_id)
        assert (found.session_id, found.tenant) == (created.session_id, created.tenant)
        assert (found.status, found.version, found.profile.parent) == ("active", 1, None)
        assert {name: list(items) for name, items in found.logs.items()} == {"messages": []}
    stored = await named.get()
    assert stored.definition == Definition(name="echo", label="echo")
    assert (dict(stored.document), stored.metadata, stored.profile.title) == ({"mood": "calm"}, {"a": 1}, "t")
    assert (stored.profile.agent, stored.profile.user_id, stored.profile.tags) == ("echo", "u", ("x",))


@pytest.mark.parametrize(
    ("defined", "seeded", "found"),
    [("be kind", "be rude", "be kind"), ("  ", "be rude", "be rude"), (None, "be rude", "be rude"), ("a", None, "a")],
)
async def test_a_prompt_of_the_definition_goes_before_the_seeds(
    store: Store, defined: str | None, seeded: str | None, found: str
) -> None:
    runtime = await opened(store, [echo])
    seed: dict[str, Any] = {"system_prompt": seeded} if seeded else {}
    created = await (await runtime.create(Definition(name="echo", system_prompt=defined), seed)).get()
    assert created.definition is not None
    assert created.definition.system_prompt == found
    assert "system_prompt" not in created.document


async def test_a_seed_is_document_and_logs(store: Store) -> None:
    runtime = await opened(store, [echo])
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
    ({"seed": {"a/b": 1}}, InvalidInput),
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
    ({"parent": SessionKey("p", tenant="other"), "session_id": "s"}, InvalidId),
    ({"program": "unheard"}, ProgramNotRegistered),
    ({"program": "echo@9"}, ProgramNotRegistered),
    ({"program": Definition(name="echo", version="9")}, ProgramNotRegistered),
    ({"program": Definition(name="echo", model=object())}, NotJson),
]


async def test_a_create_that_makes_no_sense_is_refused_and_writes_nothing(store: Store) -> None:
    runtime = await opened(store, [echo])
    before = await store.dump()
    for given, error in BAD_CREATES:
        assert await raised_by(runtime.create(**({"program": "echo"} | given))) is error, given
    assert await store.dump() == before


async def test_a_create_repeated_with_its_key_is_the_same_create(store: Store) -> None:
    runtime = await opened(store, [echo])
    first = await runtime.create("echo", {"mood": "calm"}, session_id="s", key="op-1")
    before = await store.dump()
    again = await (await opened(store, [echo])).create("echo", {"mood": "calm"}, session_id="s", key="op-1")
    assert again.session_id == first.session_id
    assert await again.get() == await first.get()
    with pytest.raises(OperationConflict):
        await runtime.create("echo", {"mood": "sour"}, session_id="s", key="op-1")
    with pytest.raises(SessionExists):
        await runtime.create("echo", {"mood": "calm"}, session_id="s", key="op-2")
    assert await store.dump() == before


async def test_a_child_has_its_parents_tenant_root_and_trace(store: Store) -> None:
    runtime = await opened(store, [echo])
    theirs = runtime.for_tenant("t")
    top = await (await theirs.create("echo", session_id="top")).get()
    child = await (await theirs.create("echo", parent="top")).get()
    grandchild = await (await theirs.create("echo", parent=child.session_id)).get()
    assert (child.tenant, child.profile.parent, child.profile.root) == ("t", "top", "top")
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
    ({"role": "user", "content": {1, 2}}, InvalidHistory),
    ({"role": "user", "content": "x", "metadata": {"at": {1, 2}}}, NotJson),
    ({"role": "user", "content": "\ud800"}, NotJson),
]


async def test_what_is_no_message_is_refused_at_every_door_and_writes_nothing(store: Store) -> None:
    runtime = await started(store)
    session = runtime.session("s")
    before = await store.dump()
    for message, error in BAD_MESSAGES:
        for door in (session.send, session.start, session.enqueue):
            assert await raised_by(door(message)) is error, message
        assert await raised_by(runtime.send("s", message)) is error, message
        assert await raised_by(session.execute(SendMessage(message))) is error, message
    assert await store.dump() == before


async def test_words_nobody_knows_are_refused(store: Store) -> None:
    runtime: Any = await started(store)  # a type checker would find these words
    before = await store.dump()
    attempts: list[Callable[[], Any]] = [
        lambda: runtime.send("s", "hello", when_busy="patiently"),
        lambda: runtime.session("s").send("hello", when_busy="patiently"),
        lambda: runtime.session("s").start("hello", when_busy="patiently"),
        lambda: runtime.session("s").enqueue("hello", boundary="whenever"),
        lambda: runtime.session("s").stop(kind="gently", run_id="r"),
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
            await opened(store, [echo], **options)
    with pytest.raises(InvalidInput):
        await opened(store, [echo, echo])
    assert await store.dump() == before


async def test_run_numbers_rise_by_one_per_turn_and_are_the_same_after_a_reload(store: Store) -> None:
    runtime = await started(store)
    assert list(await runtime.session("s").runs()) == []
    for count in (1, 2, 3):
        await runtime.send("s", "hello")
        for reader in (runtime, await opened(store, [echo])):
            assert [run.run.number for run in await reader.session("s").runs()] == list(range(count, 0, -1))
    await runtime.execute("s", WriteMetadata({"a": 1}))
    assert len(await runtime.session("s").runs()) == 3


async def test_a_session_without_a_definition_is_read_and_takes_no_turns(store: Store) -> None:
    await store.save("s", SessionRecord(session_id="s", state={"mood": "calm"}, schema_version="v1"))
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
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
        async def apply(self, session: SessionView) -> SessionView:
            return session.with_definition(name="echo").replaced("messages")

    await runtime.execute("s", Adopt())
    assert (await runtime.send("s", "hello")).text == "re: hello"


@pytest.mark.parametrize(
    "odd", ["weird", [1], {"name": "echo"}, {"name": 3, "version": "1"}, {"name": "echo", "version": "1", "tasks": 5}]
)
async def test_a_session_whose_definition_is_not_one_is_read_and_takes_no_turns_and_stops_nobody(
    store: Store, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    profile = Profile(definition=odd, trace=odd)
    await store.create("odd", state={"messages": [], "mood": "calm"}, logs={"messages"}, profile=profile)
    runtime = await started(store)
    session = await runtime.get("odd")
    assert (session.definition, session.profile, session.document["mood"]) == (None, profile, "calm")
    queued = {name: await runtime.session(name).enqueue("hello") for name in ("odd", "s")}
    for attempt in (runtime.send("odd", "hello"), advance(runtime, "odd")):
        with pytest.raises(ProgramNotRegistered, match="its definition"):
            await attempt
    with caplog.at_level("WARNING"):
        await runtime.drain()
    assert [record.levelname for record in caplog.records if "'odd'" in record.getMessage()] == ["WARNING"]
    assert (await runtime.outcome(queued["s"])).completed
    assert {each.session_id for each in await runtime.list()} == {"odd", "s"}
    assert list(await runtime.session("odd").runs()) == []
    assert (await store.head("odd")).profile == profile  # type: ignore[union-attr]

    class Adopt:
        async def apply(self, session: SessionView) -> SessionView:
            return session.with_definition(name="echo")

    await runtime.execute("odd", Adopt())
    await runtime.drain()
    assert (await runtime.outcome(queued["odd"])).completed
    assert [run.trace_id for run in await runtime.session("odd").runs()] == [None]


async def test_a_session_whose_program_is_not_registered_opens_for_reading(store: Store) -> None:
    await started(store)
    elsewhere = await opened(store, [broken])
    assert dict((await elsewhere.get("s")).document) == {"mood": "calm"}
    before = await rows(store)
    with pytest.raises(ProgramNotRegistered) as refused:
        await elsewhere.send("s", "hello")
    assert refused.value.details() == {"program": "echo@1", "registered": ["broken@1"]}
    assert await rows(store) == before
    assert (await (await opened(store, [echo])).send("s", "hello")).completed


async def test_a_runtime_without_a_store_says_so_and_works(caplog: pytest.LogCaptureFixture) -> None:
    runtime = SessionRuntime(programs=[echo])
    with caplog.at_level(logging.WARNING, "tenuto.runtime"):
        async with runtime:
            assert "memory" in caplog.text
            await runtime.create("echo", session_id="s")
            assert (await runtime.send("s", "hello")).text == "re: hello"


async def test_a_runtime_can_be_used_on_another_store_with_everything_else_its_own(
    store: Store, harness: OurHarness
) -> None:
    heard = Heard()
    runtime = await opened(store, iter([echo]), listeners=iter([heard]))
    async with runtime.using("memory://") as other:
        await (await opened(other.store, [echo])).create("echo", session_id="s")
        assert (await other.session("s").send("hello")).text == "re: hello"
    assert heard.names == ["SessionLoaded", "RunStarted", "SessionActionExecuted", "SessionSaved", "RunEnded"]
    assert not await store.exists("s")


@pytest.mark.long("two processes are started")
@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_two_sends_from_two_processes_give_four_messages_in_order(store: Store, harness: OurHarness) -> None:
    runtime = await started(store)
    versions = [(await runtime.session("s").info()).version]
    for text in ("one", "two"):
        words = [harness.address or "", json.dumps(harness.options), "s", text]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.runtime.talking", *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await process.communicate()
        outcome = json.loads(told)
        assert outcome["text"] == f"re: {text}"
        versions.append(outcome["version"])
    assert said(await runtime.get("s")) == ["one", "re: one", "two", "re: two"]
    assert sorted(set(versions)) == versions
    assert (await runtime.session("s").info()).version == versions[-1]
    assert (await runtime.send("s", "three")).text == "re: three"
    trace = {run.trace_id for run in await runtime.session("s").runs()}
    assert len(trace) == 1
    assert len(str(trace.pop())) == 32


async def test_what_is_no_program_is_refused_by_name(store: Store) -> None:
    runtime = await opened(store, [echo])
    for wrong in (None, 7, object(), [echo]):
        given: Any = wrong
        with pytest.raises(InvalidInput, match="is not a program"):
            await runtime.create(given)


async def test_a_draft_is_created_as_it_is(store: Store) -> None:
    runtime = await opened(store, [echo])
    draft = SessionView.draft(Definition(name="echo"), "drafted")
    draft = draft.with_fields(mood="calm").appended("messages", {"role": "user", "content": "hello"})
    draft = draft.with_metadata(shop="north").with_profile(title="Drafted", user_id="u-1")
    assert (draft.is_draft, draft.version, draft.created_at) == (True, 0, None)
    session = await runtime.for_tenant("acme").create(draft, key="once")
    assert await runtime.for_tenant("acme").create(draft, key="once") == session
    view = await session.get()
    assert (view.session_id, view.tenant, view.is_draft, view.version) == ("drafted", "acme", False, 1)
    assert (view.document, view.messages) == ({"mood": "calm"}, [{"role": "user", "content": "hello"}])
    assert (view.metadata, view.profile.title, view.profile.user_id) == ({"shop": "north"}, "Drafted", "u-1")
    assert (await session.send("again")).completed


async def test_a_draft_has_its_own_parts_and_a_stored_session_is_none(store: Store) -> None:
    runtime = await opened(store, [echo])
    draft = SessionView.draft(Definition(name="echo"))
    with pytest.raises(InvalidInput, match="its own title"):
        await runtime.create(draft, title="Another")
    session = await runtime.create(draft)
    with pytest.raises(InvalidInput, match="is stored already"):
        await runtime.create(await session.get())
    with pytest.raises(ProgramNotRegistered):
        await runtime.create(SessionView.draft(Definition(name="nobody's")))
    with pytest.raises(SessionExists):
        await runtime.create(draft)
