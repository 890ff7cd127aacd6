"""Sessions and pauses written by an earlier deployment."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pytest

from tenuto import Store
from tenuto.errors import StateMigrationError
from tenuto.graph import CompiledGraph, GraphBuilder, SessionState, State, append
from tenuto.model.commit import Budget
from tests.conftest import OurHarness
from tests.graph.conftest import FaultyStore
from tests.graph.talking import Body, Ran, ended, gate, held, line, nothing, resumed, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])


class One(State):
    schema_version: ClassVar[str] = "1"
    messages: Annotated[list[str], append] = []
    topic: str = "weather"
    tags: list[str] = ["x", "y"]


class Two(State):
    schema_version: ClassVar[str] = "2"
    messages: Annotated[list[str], append] = []
    subject: str = ""
    tags: Annotated[list[str], append] = []


def raised(state: dict[str, Any]) -> dict[str, Any]:
    """Bring a One to a Two: a field gets another name, messages another shape, tags become a log."""
    messages = [f"<{text}>" for text in state["messages"]]
    return {"messages": messages, "subject": state["topic"], "tags": state["tags"]}


def first(*bodies: Body, store: Store, **session: Any) -> CompiledGraph[Any]:
    return line(*bodies, store=store, kind=One, state=None, **session)


def second(*bodies: Body, store: Store, migrate: Any = raised, **session: Any) -> CompiledGraph[Any]:
    def build(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("1", "2", migrate)

    return line(*bodies, store=store, kind=Two, state=None, build=build, **session)


@CHECKPOINTS
@pytest.mark.parametrize("concurrency", ["last_write_wins", "optimistic", "exclusive"])
async def test_a_session_is_migrated_in_memory_and_written_with_the_first_save(
    store: Store, concurrency: str, checkpoints: bool
) -> None:
    await first(says("a", "b", topic="rain"), store=store).invoke(session_id="s")
    options: dict[str, Any] = {"concurrency": concurrency, "checkpoints": store if checkpoints else None}
    graph = second(says("c"), store=store, **options)
    out = await graph.run({"messages": ["ask"]}, session_id="s")
    assert ended(out) == "completed"
    want = {"messages": ["<a>", "<b>", "ask", "c"], "subject": "rain", "tags": ["x", "y"]}
    assert await held(store) == want
    record = await store.load("s")
    assert record is not None
    assert (record.schema_version, sorted(record.logs)) == ("2", ["messages", "tags"])
    for again in (graph, second(says("d"), store=store, **options)):
        assert ended(await again.run(session_id="s")) == "completed"
    assert (await held(store))["messages"][:4] == want["messages"]


async def test_a_run_that_saves_nothing_leaves_the_session_at_its_version(store: Store) -> None:
    await first(says("a"), store=store).invoke(session_id="s")
    before = await store.load("s")

    async def fails(state: Any) -> Mapping[str, Any]:
        assert state.messages == ["<a>"]
        raise ValueError

    assert ended(await second(fails, store=store).run(session_id="s")) == "failed: node_exception"
    after = await store.load("s")
    assert before is not None
    assert after is not None
    assert (after.state, after.schema_version, after.version) == (before.state, "1", before.version)


async def test_a_log_that_gets_another_name_keeps_its_entries(store: Store) -> None:
    class Renamed(State):
        schema_version: ClassVar[str] = "2"
        history: Annotated[list[str], append] = []

    await first(says("a", "b"), store=store).invoke(session_id="s")

    def build(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("1", "2", lambda state: {"history": state["messages"]})

    async def adds(_: Any) -> Mapping[str, Any]:
        return {"history": ["c"]}

    graph = line(adds, store=store, kind=Renamed, state=None, build=build)
    assert (await graph.invoke(session_id="s")).history == ["a", "b", "c"]
    assert await held(store) == {"history": ["a", "b", "c"]}


class Kept(SessionState):
    schema_version: ClassVar[str] = "k2"
    messages: list[str]


@pytest.mark.parametrize(
    ("stored", "category"), [("k1", "session_state_migration_failed"), ("k9", "session_state_migration_missing")]
)
async def test_what_cannot_be_migrated_is_refused_before_anything_runs(
    store: Store, stored: str, category: str
) -> None:
    def breaks(_: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no way")

    def build(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("k1", "k2", breaks)

    await store.create("s", state={"messages": ["a"]}, logs={"messages"}, schema_version=stored)
    before, ran = await store.head("s"), Ran()
    graph = line(ran.node("n"), store=store, state=Kept, build=build, concurrency="last_write_wins")
    out = await graph.run(session_id="s")
    assert (ended(out), ran.nodes) == (f"failed: {category}", [])
    assert isinstance(out.error, StateMigrationError)
    assert isinstance(out.error.__cause__, ValueError) == (stored == "k1")
    assert await store.head("s") == before


def test_a_second_migration_of_one_pair_is_refused_by_the_builder() -> None:
    builder = GraphBuilder(One).with_session_migration("1", "2", dict)
    with pytest.raises(StateMigrationError) as caught:
        builder.with_session_migration("1", "2", dict)
    assert caught.value.category == "session_state_migration_chain_ambiguous"


async def test_equal_versions_run_no_migration(store: Store) -> None:
    def never(_: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    def build(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("k2", "k2", never).with_session_migration("k1", "k2", never)

    graph = line(says("a"), store=store, state=Kept, build=build)
    assert [ended(await graph.run(session_id="s")) for _ in range(2)] == ["completed"] * 2


async def test_a_field_that_changes_its_kind_without_a_migration_is_refused(store: Store) -> None:
    class Grown(State):
        schema_version: ClassVar[str] = "1"
        messages: list[str] = []
        topic: str = ""
        tags: Annotated[list[str], append] = []

    await first(says("a"), store=store).invoke(session_id="s")
    out = await line(nothing, store=store, kind=Grown, state=None).run(session_id="s")
    assert ended(out) == "failed: session_load_failed"
    assert out.error is not None
    assert out.error.details()["fields"] == ["messages", "tags"]


async def test_a_log_becomes_a_document_field_and_back(store: Store) -> None:
    class Flat(State):
        schema_version: ClassVar[str] = "2"
        messages: list[str] = []

    def up(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("1", "2", lambda state: {"messages": state["messages"]})

    def down(builder: GraphBuilder[Any]) -> None:
        builder.with_session_migration("2", "1", lambda state: {**state, "topic": "t", "tags": []})

    await first(says("a"), store=store).invoke(session_id="s")
    flat = line(nothing, store=store, kind=Flat, state=None, build=up)
    assert (await flat.invoke(session_id="s")).messages == ["a"]
    record = await store.load("s")
    assert record is not None
    assert (record.logs, record.state) == (frozenset(), {"messages": ["a"]})
    back = line(says("b"), store=store, kind=One, state=None, build=down)
    assert (await back.invoke(session_id="s")).messages == ["a", "b"]
    assert (await held(store))["messages"] == ["a", "b"]


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_a_big_log_is_migrated_in_slices_that_fit_the_budget(harness: OurHarness, checkpoints: bool) -> None:
    many = [f"m{number}" for number in range(30_000)]
    wide = await harness.open(budget=Budget(max_rows=100_000))
    await wide.create("s", state={"messages": many, "topic": "t", "tags": ["x"]}, logs={"messages"}, schema_version="1")
    store = await harness.open()
    graph = second(says("end"), store=store, checkpoints=store if checkpoints else None)
    assert ended(await graph.run(session_id="s")) == "completed"
    messages = (await held(store))["messages"]
    assert (len(messages), messages[0], messages[-2:]) == (30_001, "<m0>", ["<m29999>", "end"])


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("fault", ["refused", "landed"])
@pytest.mark.parametrize("concurrency", ["last_write_wins", "optimistic"])
async def test_a_migration_whose_write_failed_is_made_good_with_the_save(
    faulty: FaultyStore, nth: int, fault: str, concurrency: str
) -> None:
    many = [f"m{number}" for number in range(2500)]
    await first(says(*many), store=faulty).invoke(session_id="s")

    async def last(_: Any) -> Mapping[str, Any]:
        if fault == "landed":
            faulty.faults.lose_reply(nth)
        else:
            faulty.faults.fail_call(nth)
        return {"messages": ["end"]}

    graph = second(last, store=faulty, concurrency=concurrency)
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: session_save_failed"
    await graph.save_again(out.error)  # type: ignore[arg-type]
    assert (await held(faulty))["messages"] == [*[f"<{text}>" for text in many], "end"]


@CHECKPOINTS
async def test_a_migrated_run_wins_over_an_older_deployment_that_wrote_meanwhile(
    store: Store, checkpoints: bool
) -> None:
    older = first(says("old"), store=store, concurrency="last_write_wins")
    await older.invoke(session_id="s")

    async def last(_: Any) -> Mapping[str, Any]:
        if not checkpoints:
            await older.invoke(session_id="s")
        return {"messages": ["new"]}

    started: list[bool] = []

    def migrate(state: dict[str, Any]) -> dict[str, Any]:
        started.append(True)
        return raised(state)

    options: dict[str, Any] = {"checkpoints": store if checkpoints else None, "concurrency": "last_write_wins"}
    graph = second(last, store=store, migrate=migrate, **options)
    loading = graph.session
    load = loading.load

    async def slow(key: Any) -> Any:
        loaded = await load(key)
        if checkpoints:
            await older.invoke(session_id="s")
        return loaded

    loading.load = slow  # type: ignore[method-assign]
    out = await graph.run({"messages": ["ask"]}, session_id="s")
    assert ended(out) == "completed"
    assert await held(store) == {"messages": ["<old>", "ask", "new"], "subject": "weather", "tags": ["x", "y"]}
    assert ended(await second(nothing, store=store).run(session_id="s")) == "completed"


@CHECKPOINTS
async def test_a_migration_of_the_session_is_no_move_to_a_paused_run(store: Store, checkpoints: bool) -> None:
    options: dict[str, Any] = {"checkpoints": store if checkpoints else None}
    paused = await first(says("a"), gate(), nothing, store=store, auto_save=False, **options).run(session_id="s")
    await first(says("b"), store=store).invoke(session_id="t")
    base = await first(says("old"), gate(), nothing, store=store, **options).run(session_id="t")
    migrating = second(nothing, store=store, auto_save=False, checkpoints=store)
    assert ended(await migrating.run(session_id="t")) == "completed"
    head = await store.head("t")
    assert head is not None
    assert (head.version, head.schema_version) == (3, "2")
    after = second(nothing, nothing, says("end"), store=store, **options)
    out = await resumed(after, base, subject="given")
    assert ended(out) == "completed"
    assert await held(store, "t") == {"messages": ["<b>", "<old>", "end"], "subject": "given", "tags": ["x", "y"]}
    out = await resumed(after, paused)
    assert ended(out) == "completed"
    assert (await held(store))["messages"] == ["<a>", "end"]


@CHECKPOINTS
@pytest.mark.parametrize("auto_save", [True, False], ids=["saved", "unsaved"])
async def test_a_pause_of_the_first_version_goes_on_under_the_second(
    store: Store, auto_save: bool, checkpoints: bool
) -> None:
    options: dict[str, Any] = {"store": store, "checkpoints": store if checkpoints else None}
    await first(says("old"), store=store).invoke(session_id="s")
    paused = await first(says("own"), gate(), nothing, auto_save=auto_save, **options).run(session_id="s")
    ran = Ran()
    graph = second(ran.node("n0"), ran.node("n1"), ran.node("n2", says("end")), **options)
    out = await resumed(graph, paused)
    assert (ended(out), ran.nodes) == ("completed", ["n2"])
    want = {"messages": ["<old>", "<own>", "end"], "subject": "weather", "tags": ["x", "y"]}
    assert await held(store) == want
    assert ended(await second(nothing, store=store).run(session_id="s")) == "completed"
    assert await held(store) == want


@CHECKPOINTS
@pytest.mark.parametrize("auto_save", [True, False], ids=["saved", "unsaved"])
async def test_a_pause_of_the_first_version_is_rebased_under_the_second(
    store: Store, auto_save: bool, checkpoints: bool
) -> None:
    options: dict[str, Any] = {"store": store, "checkpoints": store if checkpoints else None}
    other = first(says("other"), store=store)
    await other.invoke(session_id="s")
    paused = await first(says("own"), gate(), nothing, auto_save=auto_save, **options).run(session_id="s")
    await other.invoke(session_id="s")
    graph = second(nothing, nothing, says("end"), **options)
    out = await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="rebase")
    assert ended(out) == "completed"
    shared = ["<other>", "<own>", "<other>", "end"] if auto_save else ["<other>", "<other>", "<own>", "end"]
    assert (await held(store))["messages"] == shared


async def test_a_pause_of_an_unknown_version_is_refused_and_kept(store: Store) -> None:
    paused = await first(gate(), nothing, store=store).run(session_id="s")
    missing = line(nothing, nothing, store=store, kind=Two, state=None)
    assert ended(await resumed(missing, paused)) == "failed: checkpoint_state_migration_missing"
    assert ended(await resumed(first(gate(), nothing, store=store), paused)) == "completed"
