"""Stages and events of creating a session and of changing it: for success, and for each stage that fails."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, SessionExists, SessionNotFound, StatusRefused, StoreUnavailable, VersionConflict
from tenuto.model.commit import Commit
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.change.action import SendMessage, SuspendSession, WriteMetadata
from tenuto.runtime.change.hooks import on
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import (
    ActionFailed,
    Failure,
    HookFailed,
    ListenerFailed,
    LoadFailed,
    Notice,
    SaveFailed,
    SessionActionExecuted,
    SessionLoaded,
    SessionSaved,
)
from tenuto.words import Stage
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened
from tests.runtime.talking import (
    STAGES,
    Change,
    Heard,
    Ours,
    Refused,
    as_streamed,
    echo,
    faulty,
    refuse,
    rows,
    setting,
    streamed,
    without_stream,
)

CREATING = ["before_create", "before_save", "after_save", "after_create"]


CHANGING = ["after_load", "after_action", "before_save", "after_save"]


@dataclass(frozen=True, slots=True)
class Note:
    """An action of a user's own."""

    text: str

    async def apply(self, session: SessionView) -> SessionView:
        if self.text == "refused":
            raise Refused("not this note")
        return session.with_fields(note=self.text)


async def test_create_runs_its_stages_and_tells_that_it_saved(store: Store) -> None:
    ours = await Ours(store).opened()
    session = await ours.runtime.create("echo", session_id="s")
    assert ours.watching.take() == CREATING
    assert ours.heard.take() == [SessionSaved(key=SessionKey(session.session_id), version=1, status="active")]
    assert await streamed(store, "s") == [("session_saved", {"status": "active"})]


async def test_what_is_changed_before_the_commit_is_stored_and_after_it_only_seen_by_the_hooks_that_follow(
    store: Store,
) -> None:
    seen: list[set[str]] = []

    async def looking(session: SessionView) -> SessionView:
        seen.append(set(session.document))
        return session

    stages = {stage: setting(**{stage: True}) for stage in CREATING[:3]}
    ours = await Ours(store, **stages, after_create=looking).opened()
    created = await ours.runtime.create("echo", session_id="s")
    assert seen == [{"before_create", "before_save", "after_save"}]
    for stored in (await created.get(), await (await opened(store, [echo])).get("s")):
        assert set(stored.document) == {"before_create", "before_save"}


async def test_what_an_action_returns_has_what_was_changed_after_its_commit(store: Store) -> None:
    stages = {stage: setting(**{stage: True}) for stage in CHANGING}
    ours = await Ours(store, **stages).created()
    changed = await ours.runtime.execute("s", Note("one"))
    assert set(changed.document) == {"mood", "note", *CHANGING}
    assert set((await (await opened(store, [echo])).get("s")).document) == {"mood", "note", *CHANGING[:3]}


async def test_a_status_set_before_a_create_is_saved_is_the_sessions(store: Store) -> None:
    async def closing(session: SessionView) -> SessionView:
        return session.with_status(SessionStatus.COMPLETED)

    ours = await Ours(store, before_save=closing).opened()
    created = await ours.runtime.create("echo", session_id="s")
    assert ((await created.get()).status, (await created.info()).status) == ("completed", "completed")


@pytest.mark.parametrize("stage", ["before_create", "before_save"])
async def test_a_create_that_is_refused_before_its_commit_leaves_nothing(store: Store, stage: str) -> None:
    ours = await Ours(store, **{stage: refuse}).opened()
    before = await store.dump()
    with pytest.raises(Refused):
        await ours.runtime.create("echo", session_id="s")
    assert ours.watching.take() == CREATING[: CREATING.index(stage) + 1]
    failure = ours.failure()
    assert isinstance(failure, SaveFailed)
    assert (failure.stage, failure.error, failure.category) == (stage, "not this one", "Refused")
    assert len(ours.heard.take()) == 1
    assert await store.dump() == before


async def test_a_create_the_store_fails_tells_that_and_raises_the_same_error(harness: OurHarness) -> None:
    store, faults = await faulty(harness)
    ours = await Ours(store).opened()
    cause = StoreUnavailable("the disk is gone")
    faults.fail_call(1, cause)
    with pytest.raises(StoreUnavailable) as raised:
        await ours.runtime.create("echo", session_id="s")
    assert raised.value is cause
    assert ours.watching.take() == CREATING[:2]
    assert ours.failure().stage == "save"
    assert ours.heard.names == ["SaveFailed"]
    assert not await store.exists("s")


async def test_a_create_on_a_live_id_is_refused_and_told_of(store: Store) -> None:
    ours = await Ours(store).created()
    before = await store.dump()
    with pytest.raises(SessionExists):
        await ours.runtime.create("echo", session_id="s")
    assert (ours.failure().stage, ours.failure().category) == ("save", "session_exists")
    assert await store.dump() == before


@pytest.mark.parametrize("stage", ["after_save", "after_create"])
async def test_a_hook_that_fails_after_a_create_never_makes_it_a_failure(store: Store, stage: str) -> None:
    ours = await Ours(store, **{stage: refuse}).opened()
    created = await ours.runtime.create("echo", {"mood": "calm"}, session_id="s")
    assert ours.watching.take() == CREATING
    fault, saved = ours.heard.take()
    assert fault == HookFailed(key=SessionKey("s"), stage=stage, error="Refused('not this one')")
    assert saved == SessionSaved(key=SessionKey("s"), version=1, status="active")
    assert (await created.get()).version == (await ours.runtime.get("s")).version == 1


async def test_an_action_runs_its_stages_and_tells_what_stands_in_the_stream(store: Store) -> None:
    ours = await Ours(store).created()
    before, after = await ours.runtime.session("s").info(), await ours.runtime.execute("s", Note("one"))
    key = before.key
    assert ours.watching.take() == CHANGING
    notices: list[Notice] = [
        SessionLoaded(key=key, version=1, status="active"),
        SessionActionExecuted(
            key=key, action="Note", before_version=1, after_version=2, before_status="active", after_status="active"
        ),
        SessionSaved(key=key, version=2, status="active"),
    ]
    assert ours.heard.take() == notices
    assert await streamed(store, "s", before.event_seq) == as_streamed(notices)
    assert (after.version, after.commit_number) == (2, before.commit_number + 1)
    assert (await ours.runtime.get("s")).document == {"mood": "calm", "note": "one"}


async def test_an_action_on_metadata_alone_keeps_the_version_and_raises_the_commit_number(store: Store) -> None:
    ours = await Ours(store).created()
    before = await ours.runtime.session("s").info()
    after = await ours.runtime.execute("s", WriteMetadata({"a": 1}))
    assert ours.watching.take() == CHANGING
    assert ours.heard.names == ["SessionLoaded", "SessionActionExecuted", "SessionSaved"]
    assert (after.version, after.commit_number) == (before.version, before.commit_number + 1)
    assert (await ours.runtime.session("s").info()).profile.metadata == {"a": 1}


async def test_an_action_on_an_unknown_id_tells_only_that_it_could_not_load(store: Store) -> None:
    ours = await Ours(store).opened()
    before = await store.dump()
    for attempt in (
        ours.runtime.execute("s", Note("one")),
        ours.runtime.execute("s", SendMessage("hello")),
        ours.runtime.send("s", "hello"),
        ours.runtime.get("s"),
        ours.runtime.session("s").rewind(1),
    ):
        with pytest.raises(SessionNotFound):
            await attempt
        (failure,) = ours.heard.take()
        assert isinstance(failure, LoadFailed)
        assert (failure.stage, failure.category) == ("load", "session_not_found")
    assert ours.watching.take() == []
    assert await store.dump() == before


FAILING = [
    ("after_load", Note("one"), ["after_load"], [], LoadFailed, "after_load"),
    ("action", Note("refused"), ["after_load"], [SessionLoaded], ActionFailed, "action"),
    ("after_action", Note("one"), CHANGING[:2], [SessionLoaded], ActionFailed, "after_action"),
    ("before_save", Note("one"), CHANGING[:3], [SessionLoaded], SaveFailed, "before_save"),
]


@pytest.mark.parametrize(
    ("at", "action", "stages", "told", "kind", "named"), FAILING, ids=[each[0] for each in FAILING]
)
async def test_a_stage_that_fails_before_the_commit_is_named_once_and_nothing_else_changes(
    store: Store, at: str, action: Note, stages: list[str], told: list[type], kind: type[Failure], named: str
) -> None:
    ours = await Ours(store, **({at: refuse} if at in CHANGING else {})).created()
    before = await without_stream(store)
    with pytest.raises(Refused):
        await ours.runtime.execute("s", action)
    assert ours.watching.take() == stages
    failure = ours.failure()
    assert (type(failure), failure.stage, failure.category) == (kind, named, "Refused")
    assert [type(each) for each in ours.heard.take()] == [*told, kind]
    assert await without_stream(store) == before
    assert (await streamed(store, "s"))[-1] == (kind.type, failure.event().data)
    assert (await (await opened(store, [echo])).send("s", "still there?")).completed


async def test_a_conflict_at_the_save_comes_out_and_nothing_changes(store: Store) -> None:
    async def meanwhile(session: SessionView) -> SessionView:
        head = await store.head("s")
        assert head is not None
        commit = Commit(
            key=head.key,
            operation_id="somebody",
            life=head.life,
            generation=head.generation,
            save=True,
            document={"mood": "theirs"},
        )
        await store.commit(commit)
        return session

    ours = await Ours(store, before_save=meanwhile).created()
    with pytest.raises(VersionConflict) as raised:
        await ours.runtime.execute("s", Note("one"))
    assert (raised.value.category, raised.value.expected, raised.value.found) == ("session_write_conflict", 1, 2)
    assert ours.failure().stage == "save"
    assert ours.heard.names == ["SessionLoaded", "SessionActionExecuted", "SaveFailed"]
    session = await (await opened(store, [echo])).get("s")
    assert (dict(session.document), session.version) == ({"mood": "theirs"}, 2)


async def test_a_hook_that_fails_after_the_save_leaves_it_saved(store: Store) -> None:
    ours = await Ours(store, after_save=refuse).created()
    after = await ours.runtime.execute("s", Note("one"))
    assert ours.watching.take() == CHANGING
    assert ours.heard.names == ["SessionLoaded", "SessionActionExecuted", "HookFailed", "SessionSaved"]
    assert (after.version, (await ours.runtime.get("s")).document["note"]) == (2, "one")


async def test_a_listener_that_fails_disturbs_neither_the_save_nor_other_listeners(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    def deaf(notice: Notice) -> None:
        if isinstance(notice, SessionSaved):
            raise LookupError("deaf")

    runtime = await opened(store, [echo], listeners=[deaf, heard])
    with caplog.at_level(logging.CRITICAL, "tenuto.runtime"):
        await runtime.create("echo", session_id="s")
        await runtime.execute("s", Note("one"))
        outcome = await runtime.send("s", "hello")
    assert outcome.completed
    faults = [each for each in heard.notices if isinstance(each, ListenerFailed)]
    assert [(each.notice, each.error) for each in faults] == [("session_saved", "LookupError('deaf')")] * 3
    names = heard.names
    assert "SaveFailed" not in names
    assert names[:2] == ["SessionSaved", "ListenerFailed"]
    assert (await runtime.get("s")).document["note"] == "one"


async def test_what_after_load_changes_is_stored_with_the_action(store: Store) -> None:
    ours = await Ours(store, after_load=setting(seen=True), after_save=setting(ghost=True)).created()
    after = await ours.runtime.execute("s", Note("one"))
    assert dict(after.document) == {"mood": "calm", "seen": True, "note": "one", "ghost": True}
    assert dict((await (await opened(store, [echo])).get("s")).document) == {
        "mood": "calm",
        "seen": True,
        "note": "one",
    }


async def test_a_look_shows_what_after_load_changes_and_stores_nothing(store: Store) -> None:
    ours = await Ours(store, after_load=setting(seen=True)).created()
    before = await store.dump()
    assert (await ours.runtime.get("s")).document["seen"] is True
    await ours.runtime.session("s").info()
    assert len(await ours.runtime.list()) == 1
    assert ours.watching.take() == ["after_load"]
    assert ours.heard.names == ["SessionLoaded"]
    assert await store.dump() == before


async def test_a_status_set_before_the_save_is_stored_with_it(store: Store) -> None:
    async def closing(session: SessionView) -> SessionView:
        return session.with_status(SessionStatus.SUSPENDED)

    ours = await Ours(store, before_save=closing).created()
    after = await ours.runtime.execute("s", Note("one"))
    executed = ours.heard.take()[1]
    assert isinstance(executed, SessionActionExecuted)
    assert (executed.before_status, executed.after_status, after.status) == ("active", "suspended", "suspended")
    head = await ours.runtime.session("s").info()
    assert (head.status, head.version) == ("suspended", 2)


async def test_a_hook_cannot_go_round_the_table(store: Store) -> None:
    async def failing(session: SessionView) -> SessionView:
        return replace(session, status=SessionStatus.FAILED)

    ours = await Ours(store, before_save=failing).created()
    await (await opened(store, [echo])).execute("s", SuspendSession())
    before = await rows(store)
    with pytest.raises(StatusRefused) as refused:
        await ours.runtime.execute("s", Note("one"))
    assert (refused.value.found, refused.value.details()["version"]) == ("suspended", 1)
    assert ours.failure().stage == "save"
    assert await rows(store) == before


@pytest.mark.parametrize("returned", [None, "other"])
async def test_an_action_has_to_return_the_session(store: Store, returned: Any) -> None:
    class Careless:
        async def apply(self, session: SessionView) -> SessionView:
            found: Any = returned
            return found  # type: ignore[no-any-return]

    ours = await Ours(store).created()
    with pytest.raises(InvalidInput, match="Careless"):
        await ours.runtime.execute("s", Careless())
    assert ours.failure().stage == "action"


async def test_hooks_are_asked_in_their_order_at_every_stage(store: Store) -> None:
    order: list[str] = []

    def noting(name: str, stage: Stage) -> Change:
        async def note(session: SessionView) -> SessionView:
            order.append(f"{name} {stage}")
            return session

        return note

    ranks = {"a": 0, "b": 1, "c": 0}
    hooks = [on(stage, noting(name, stage), priority=rank) for name, rank in ranks.items() for stage in STAGES]
    runtime = await opened(store, [echo], hooks=hooks)
    await runtime.create("echo", session_id="s")
    await runtime.execute("s", Note("one"))
    assert order == [f"{name} {stage}" for stage in (*CREATING, *CHANGING) for name in "bac"]
