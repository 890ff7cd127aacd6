"""Versions of a program and of its state: which one runs a session, and how its document is brought over."""

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from tenuto import SessionRuntime, SessionView, Store, Turn, on, program
from tenuto.actions import ChangeProgram, ClearSession
from tenuto.errors import InvalidInput, ProgramNotRegistered, StateInvalid, StateMigrationError
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, Gate, in_memory, on_disk, opened


class Old(BaseModel):
    mail: str | None = None
    visits: int = 0


class New(BaseModel):
    schema_version: ClassVar[str] = "2"
    email: str | None = None
    visits: int = 0


def forward(old: dict[str, Any]) -> dict[str, Any]:
    return {"email": old.pop("mail", None), **old}


def back(new: dict[str, Any]) -> dict[str, Any]:
    return {"mail": new.pop("email", None), **new}


@program(state=Old, name="greet", migrations={("2", ""): back})
async def greet_1(turn: Turn[Old]) -> str:
    turn.state.visits += 1
    return f"1: {turn.state.mail} {turn.state.visits}"


@program(state=New, name="greet", version=2, accepts=[1], migrations={("", "2"): forward})
async def greet_2(turn: Turn[New]) -> str:
    turn.state.visits += 1
    return f"2: {turn.state.email} {turn.state.visits}"


@program(state=New, name="greet", version=2, accepts=[1])
async def greet_without_a_way(turn: Turn[New]) -> None: ...


def misses(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "visits": "many"}


@program(state=New, name="greet", version=2, accepts=[1], migrations={("", "2"): misses})
async def greet_to_nowhere(turn: Turn[New]) -> None: ...


class SetVisits:
    def __init__(self, visits: Any, **more: Any) -> None:
        self.fields = {"visits": visits, **more}

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(**self.fields)


@pytest.fixture
def database(harness: OurHarness) -> Database:
    return Database(harness)


@pytest.fixture
async def before(store: Store) -> SessionRuntime:
    """A session of version 1 with one visit."""
    runtime = await opened(store, [greet_1])
    session = await runtime.create(greet_1, Old(mail="a@b.c"), "s")
    assert (await session.send("hi")).result() == "1: a@b.c 1"
    return runtime


@in_memory
async def test_a_session_runs_on_its_own_version_while_that_is_registered(before: SessionRuntime) -> None:
    both = await opened(before.store, [greet_1, greet_2])
    assert (await both.send("s", "hi")).result() == "1: a@b.c 2"
    view = await both.get("s")
    assert (view.definition.version, view.schema_version) == ("1", "")  # type: ignore[union-attr]


@in_memory
async def test_the_version_that_accepts_it_moves_it_over_with_the_first_commit(
    before: SessionRuntime, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = await opened(store, [greet_2])
    commits: list[Any] = []
    commit = store.commit

    async def noted(change: Any) -> Any:
        commits.append(change)
        return await commit(change)

    monkeypatch.setattr(store, "commit", noted)
    assert (await after.send("s", "hi")).result() == "2: a@b.c 2"
    first, last = commits
    assert (first.document, first.removed, first.schema_version) == ({"email": "a@b.c"}, {"mail"}, "2")
    assert first.profile["definition"]["version"] == "2"
    assert (last.document, dict(last.profile)) == ({"visits": 2}, {})
    view = await after.get("s")
    assert (view.definition.version, view.schema_version) == ("2", "2")  # type: ignore[union-attr]
    assert view.state(New) == New(email="a@b.c", visits=2)
    assert (await after.send("s", "hi")).result() == "2: a@b.c 3"
    with pytest.raises(ProgramNotRegistered):
        await before.send("s", "hi")


@in_memory
async def test_the_newest_that_accepts_is_the_one_registered_last(before: SessionRuntime) -> None:
    @program(name="greet", version=4, accepts=["1", 2])
    async def greet_4(turn: Turn) -> str:
        return f"4: {turn.state['mail']}"

    assert (await (await opened(before.store, [greet_2, greet_4])).send("s", "hi")).result() == "4: a@b.c"


@in_memory
async def test_without_a_version_that_accepts_it_a_session_can_only_be_read(before: SessionRuntime) -> None:
    @program(state=New, name="greet", version=2, migrations={("", "2"): forward})
    async def strict(turn: Turn[New]) -> None: ...

    after = await opened(before.store, [strict])
    with pytest.raises(ProgramNotRegistered):
        await after.send("s", "hi")
    assert (await after.get("s")).document == {"mail": "a@b.c", "visits": 1}


@pytest.mark.parametrize(
    ("there", "category"),
    [(greet_without_a_way, "missing"), (greet_to_nowhere, "failed")],
    ids=["no migration", "one that leaves what does not fit"],
)
@in_memory
async def test_a_session_that_cannot_be_brought_over_is_not_locked(
    before: SessionRuntime, there: Any, category: str
) -> None:
    after = await opened(before.store, [there])
    await after.session("s").enqueue("later")
    with pytest.raises(StateMigrationError) as caught:
        await after.session("s").send("hi", when_busy="queue")
    assert category in caught.value.category
    assert (await after.get("s")).document == {"mail": "a@b.c", "visits": 1}
    await before.drain()
    assert (await before.send("s", "hi", when_busy="queue")).result() == "1: a@b.c 3"


@in_memory
async def test_what_is_read_is_what_the_next_turn_begins_with(before: SessionRuntime) -> None:
    after = await opened(before.store, [greet_2])
    assert (await after.get("s")).state(New) == New(email="a@b.c", visits=1)
    assert (await before.get("s")).document == {"mail": "a@b.c", "visits": 1}
    with pytest.raises(StateInvalid, match="version"):
        (await before.get("s")).state(New)


@in_memory
async def test_a_session_is_moved_by_hand_both_ways(before: SessionRuntime) -> None:
    both = await opened(before.store, [greet_1, greet_2])
    session = both.session("s")
    view = await session.execute(ChangeProgram(greet_2))
    assert (view.document, view.schema_version) == ({"email": "a@b.c", "visits": 1}, "2")
    assert (await session.send("hi")).result() == "2: a@b.c 2"
    await session.execute(ChangeProgram("greet@1"))
    assert (await session.send("hi")).result() == "1: a@b.c 3"
    await session.enqueue(ChangeProgram("greet"))
    await both.drain()
    assert (await session.send("hi")).result() == "2: a@b.c 4"


@in_memory
async def test_a_move_that_no_migration_leads_to_is_refused(before: SessionRuntime) -> None:
    both = await opened(before.store, [greet_1, greet_without_a_way])
    session = both.session("s")
    with pytest.raises(InvalidInput, match="cannot be moved to greet@2"):
        await session.execute(ChangeProgram("greet@2"))
    with pytest.raises(ProgramNotRegistered):
        await session.execute(ChangeProgram("nobody"))
    await session.enqueue(ChangeProgram("greet@2"))
    await both.drain()
    assert (await session.send("hi")).result() == "1: a@b.c 2"
    view = await session.execute(ChangeProgram("greet@7"))  # only registered elsewhere
    assert view.definition is not None
    assert (view.definition.version, view.document["mail"]) == ("7", "a@b.c")


@in_memory
async def test_an_older_document_is_migrated_again_after_a_rewind_and_in_a_fork(before: SessionRuntime) -> None:
    await before.send("s", "hi")
    (_, first) = await before.session("s").runs()
    after = await opened(before.store, [greet_2])
    session = after.session("s")
    assert (await session.send("hi")).result() == "2: a@b.c 3"
    (moved, *_) = await session.runs()
    fork = await session.fork(at=first.run_id)
    assert (await fork.send("hi")).result() == "2: a@b.c 2"
    view = await session.rewind(moved.run_id)
    assert (view.document, view.schema_version) == ({"email": "a@b.c", "visits": 2}, "2")
    assert (await session.send("hi")).result() == "2: a@b.c 3"
    await session.rewind(first.run_id)
    assert (await session.send("hi")).result() == "2: a@b.c 1"


@in_memory
async def test_a_rollback_to_before_the_migration_migrates_again(database: Database) -> None:
    gate = Gate()

    @program(state=New, name="greet", version=2, accepts=[1], migrations={("", "2"): forward})
    async def slow(turn: Turn[New]) -> str:
        turn.state.visits += 1
        await turn.save()
        if turn.text == "wait":
            await gate()
        return f"{turn.state.email} {turn.state.visits}"

    old = await database.runtime(greet_1)
    await (await old.create(greet_1, Old(mail="a@b.c"), "s")).send("hi")
    new = await database.runtime(slow)
    waiting = asyncio.ensure_future(new.send("s", "wait"))
    await gate.reached.wait()
    assert (await new.send("s", "no", when_busy="rollback")).result() == "a@b.c 2"
    await waiting
    assert (await new.get("s")).document == {"email": "a@b.c", "visits": 2}


@in_memory
async def test_a_run_that_waits_is_resumed_by_the_version_that_accepts_it(store: Store) -> None:
    @program(state=Old, name="greet")
    async def asks(turn: Turn[Old]) -> None:
        turn.state.visits += 1
        await turn.wait("answer")

    @program(state=New, name="greet", version=2, accepts=[1], migrations={("", "2"): forward})
    async def hears(turn: Turn[New]) -> Any:
        if not turn.resumed:
            turn.state.visits += 1
        return [await turn.wait("answer"), turn.state.email, turn.state.visits]

    old = await opened(store, [asks])
    outcome = await (await old.create(asks, Old(mail="a@b.c"), "s")).send("hi")
    new = await opened(store, [hears])
    answered = await new.answer(outcome.waits[0], "yes")
    assert answered.outcome is not None
    assert answered.outcome.result() == ["yes", "a@b.c", 1]
    assert (await new.get("s")).schema_version == "2"


@on_disk
async def test_a_lost_run_is_taken_over_by_the_version_that_accepts_it(database: Database) -> None:
    gate = Gate()

    @program(state=Old, name="greet")
    async def hangs(turn: Turn[Old]) -> None:
        turn.state.visits += 1
        await turn.save()
        await gate()

    old = await database.runtime(hangs)
    session = await old.create(hangs, Old(mail="a@b.c"), "s")
    task = asyncio.ensure_future(session.send("hi"))
    await gate.reached.wait()
    await database.lose(old, task)
    new = await database.runtime(greet_2)
    await new.drain()
    view = await new.get("s")
    assert (view.document, view.schema_version) == ({"email": "a@b.c", "visits": 2}, "2")


@in_memory
async def test_what_an_action_leaves_is_checked_by_the_program(before: SessionRuntime) -> None:
    session = before.session("s")
    for action in (SetVisits("many"), SetVisits(1, colour="red")):
        with pytest.raises(StateInvalid):
            await session.execute(action)
    assert (await session.execute(SetVisits("7"))).document["visits"] == 7
    elsewhere = await opened(before.store, [greet_2])
    view = await elsewhere.session("s").execute(SetVisits(8))
    assert (view.document, view.schema_version) == ({"email": "a@b.c", "visits": 8}, "2")
    assert (await elsewhere.send("s", "hi")).result() == "2: a@b.c 9"


@in_memory
async def test_an_action_that_changes_no_field_migrates_nothing(before: SessionRuntime) -> None:
    elsewhere = await opened(before.store, [greet_2])
    await elsewhere.session("s").execute(ClearSession(logs=("messages",)))
    assert (await before.get("s")).document == {"mail": "a@b.c", "visits": 1}
    assert (await before.send("s", "hi")).result() == "1: a@b.c 2"


@in_memory
async def test_a_clear_resets_the_state_to_its_defaults(before: SessionRuntime) -> None:
    view = await before.session("s").execute(ClearSession(keep=("mail",)))
    assert (view.document, list(view.messages)) == ({"mail": "a@b.c", "visits": 0}, [])


@pytest.mark.parametrize("stage", ["after_load", "after_action", "before_save"])
@in_memory
async def test_what_a_hook_leaves_in_a_turn_is_checked(before: SessionRuntime, stage: Any) -> None:
    async def spoil(session: SessionView) -> SessionView:
        return session.with_fields(visits="many")

    spoilt = await opened(before.store, [greet_1], hooks=[on(stage, spoil)])
    try:
        outcome = await spoilt.send("s", "hi")
    except StateInvalid as refused:
        assert refused.path == "state.visits"
    else:
        assert outcome.error is not None
        assert outcome.error["category"] == "state_invalid"
    assert (await before.get("s")).document == {"mail": "a@b.c", "visits": 1}


@in_memory
async def test_what_a_hook_leaves_in_a_new_session_is_checked(store: Store) -> None:
    async def spoil(session: SessionView) -> SessionView:
        return session.with_fields(colour="red")

    runtime = await opened(store, [greet_1], hooks=[on("before_create", spoil)])
    with pytest.raises(StateInvalid):
        await runtime.create(greet_1, session_id="s")
    assert not await runtime.list()


@in_memory
async def test_a_draft_is_a_whole_state_too(store: Store) -> None:
    runtime = await opened(store, [greet_2])
    draft = SessionView.draft(greet_2.definition, "s").with_fields(email="a@b.c")
    assert (await (await runtime.create(draft)).get()).document == {"email": "a@b.c", "visits": 0}
    with pytest.raises(StateInvalid):
        await runtime.create(SessionView.draft(greet_2.definition, "t").with_fields(mail="a@b.c"))


@in_memory
async def test_a_fork_that_its_program_could_not_run_is_refused(before: SessionRuntime) -> None:
    after = await opened(before.store, [greet_to_nowhere])
    (run,) = await before.session("s").runs()
    for at in (None, run.run_id):
        with pytest.raises(StateMigrationError):
            await after.session("s").fork(at=at, session_id="t")
    assert [each.key.session_id for each in await before.list()] == ["s"]


@in_memory
async def test_a_move_to_a_program_whose_state_does_not_fit_is_refused(store: Store) -> None:
    class Counted(BaseModel):
        visits: int = 0

    @program
    async def loose(turn: Turn) -> None:
        turn.state["visits"] = "many"

    @program(state=Counted)
    async def strict(turn: Turn[Counted]) -> int:
        return turn.state.visits

    runtime = await opened(store, [loose, strict])
    session = await runtime.create(loose, session_id="s")
    await session.send("hi")
    with pytest.raises(InvalidInput, match=r"cannot be moved to strict@1, .* state\.visits does not fit Counted"):
        await session.execute(ChangeProgram(strict))
    definition = (await session.get()).definition
    assert definition is not None
    assert definition.name == "loose"
    assert (await session.send("hi")).completed


@in_memory
async def test_a_hand_off_to_a_program_that_cannot_read_the_state_is_refused(before: SessionRuntime) -> None:
    class Bill(BaseModel):
        schema_version: ClassVar[str] = "9"
        mail: str | None = None
        due: int = 7

    @program(state=Bill)
    async def strict(turn: Turn[Bill]) -> None: ...

    @program(state=Bill, migrations={("", "9"): dict})
    async def bills(turn: Turn[Bill]) -> str:
        return f"{turn.state.mail} owes {turn.state.due}"

    @program(state=Old, name="greet")
    async def hands_over(turn: Turn[Old]) -> None:
        turn.hand_off(turn.text)

    runtime = await opened(before.store, [hands_over, strict, bills])
    refused = await runtime.send("s", "strict")
    assert isinstance(refused.exception, InvalidInput)
    assert "cannot be moved to strict@1" in str(refused.exception)
    assert (await runtime.send("s", "bills")).completed
    assert (await runtime.send("s", "hi")).result() == "a@b.c owes 7"
    assert (await runtime.get("s")).document == {"mail": "a@b.c", "due": 7, "visits": 1}


@in_memory
async def test_a_log_that_the_model_has_as_a_field_is_left_alone(store: Store) -> None:
    class Lined(BaseModel):
        lines: list[str] = Field(default_factory=list)

    @program(name="shop")
    async def logs(turn: Turn) -> None:
        turn.add("lines", turn.text)

    @program(state=Lined, name="shop")
    async def fields(turn: Turn[Lined]) -> None: ...

    before = await opened(store, [logs])
    await (await before.create("shop", session_id="s", logs=["lines"])).send("tea")
    after = await opened(store, [fields])
    with pytest.raises(StateMigrationError, match="'lines' is a log of the session"):
        await after.send("s", "milk")
    assert list((await after.get("s")).logs["lines"]) == ["tea"]
    assert (await before.send("s", "milk")).completed
    with pytest.raises(InvalidInput, match="both a log and a field"):
        await after.create("shop", session_id="t", logs=["lines"])


@in_memory
async def test_a_message_that_is_queued_behind_a_hand_off_waits_for_the_program(before: SessionRuntime) -> None:
    @program(state=Old, name="greet")
    async def leaves(turn: Turn[Old]) -> None:
        turn.hand_off("elsewhere@1")
        await turn.save()
        turn.append("Gone.")

    runtime = await opened(before.store, [leaves])
    session = runtime.session("s")
    await session.enqueue("one")
    await session.enqueue("two")
    await runtime.drain()
    assert [each.run.status for each in await session.runs()] == ["completed", "completed"]
    assert (await runtime.get("s")).definition.name == "elsewhere"  # type: ignore[union-attr]

    @program(name="elsewhere")
    async def elsewhere(turn: Turn) -> str:
        return turn.text

    there = await opened(before.store, [elsewhere])
    await there.drain()
    assert [each.run.status for each in await session.runs()] == ["completed"] * 3
