"""Going on from a checkpoint: after a crash at any place, in loops, subgraphs and half-done fan-outs."""

import asyncio
from collections import Counter
from typing import Annotated, Any, ClassVar

import pytest

from tenuto import Store
from tenuto.errors import (
    CheckpointNotFound,
    CheckpointRecordInvalid,
    CheckpointSaveFailed,
    StateMigrationError,
    StoreUnavailable,
)
from tenuto.graph import END, Branch, CompiledGraph, End, GraphBuilder, State, append
from tests.conftest import OurHarness


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


class Bomb:
    """Counts what runs, and crashes, or fails with an error, once at the n-th call."""

    def __init__(self, at: int | None = None, error: type[BaseException] = Crash) -> None:
        self.at = at
        self.error = error
        self.calls = 0
        self.ran: Counter[str] = Counter()

    def node(self, name: str, change: Any) -> Any:
        async def body(state: Any) -> dict[str, Any]:
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            await asyncio.sleep(0)
            label = f"{name}:{state.item}" if hasattr(state, "item") else name
            self.ran[label] += 1
            update: dict[str, Any] = change(state)
            return update

        return body


class Main(State):
    n: int = 0
    note: str = ""
    log: Annotated[list[str], append] = []
    items: list[int] = []
    results: Annotated[list[int], append] = []


class Inner(State):
    n: int = 0
    log: Annotated[list[str], append] = []


class Cell(State):
    item: int = 0
    result: int = 0


def big_graph(bomb: Bomb, store: Store | None) -> CompiledGraph[Main]:
    """Thirty nodes, a subgraph, a fan-out and branches among them."""
    inner = GraphBuilder(Inner)
    for number in range(4):
        inner.add_node(f"i{number}", bomb.node(f"i{number}", lambda s, k=number: {"n": s.n + 1, "log": [f"i{k}"]}))
        inner.add_edge(f"i{number}", f"i{number + 1}" if number < 3 else END)
    subgraph = inner.set_entry("i0").compile()
    cell = (
        GraphBuilder(Cell)
        .add_node("cell", bomb.node("cell", lambda s: {"result": s.item * 10}))
        .add_edge("cell", END)
        .set_entry("cell")
        .compile()
    )
    builder = GraphBuilder(Main, "big")
    names = [f"m{number}" for number in range(22)]
    names[5:5], names[12:12], names[18:18] = ["sub"], ["fan"], ["both"]
    for name in names:
        match name:
            case "sub":
                builder.add_subgraph_node(name, subgraph, inputs={"n": "n"}, outputs={"n": "n", "log": "log"})
            case "fan":
                builder.add_fan_out_node(
                    name,
                    cell,
                    items_field="items",
                    item_field="item",
                    collect_field="result",
                    target_field="results",
                    concurrency=2,
                )
            case "both":
                left = bomb.node("left", lambda _: {"note": "left"})
                builder.add_parallel_branches_node(name, {"left": Branch(call=left)})
            case _:
                builder.add_node(name, bomb.node(name, lambda s, k=name: {"n": s.n + 1, "log": [k]}))
    targets: list[str | End] = [*names[1:], END]
    for name, following in zip(names, targets, strict=True):
        builder.add_edge(name, following)
    if store:
        builder.with_checkpointer(store)
    return builder.set_entry(names[0]).compile()


START = {"items": [1, 2, 3, 4]}


async def unbroken() -> tuple[dict[str, Any], int, Counter[str]]:
    bomb = Bomb()
    final = await big_graph(bomb, None).invoke(START)
    return final.__dict__, bomb.calls, bomb.ran


async def crash_and_resume(store: Store, at: int) -> tuple[dict[str, Any], Counter[str]]:
    bomb = Bomb(at)
    graph = big_graph(bomb, store)
    first = f"first-{at}"
    with pytest.raises(Crash):
        await graph.run(START, invocation_id=first, correlation_id="kept")
    outcome = await (graph.run(START) if at == 1 else graph.run(resume_invocation=first))
    assert outcome.state is not None, outcome.error
    if at > 1:
        assert outcome.correlation_id == "kept"
        assert outcome.invocation_id != first
    return outcome.state.__dict__, bomb.ran


async def test_a_crash_at_any_node_resumes_to_the_same_end_and_repeats_no_completed_node(harness: OurHarness) -> None:
    store = await harness.open()
    expected, calls, ran = await unbroken()
    places = range(1, calls + 1) if harness.name == "sqlite" else range(2, calls + 1, 7)
    for at in places:
        final, seen = await crash_and_resume(store, at)
        assert final == expected, at
        # An instance that was under way when its sibling crashed may run again, as the specification allows.
        again = {name for name, count in seen.items() if count > ran[name]}
        assert all(name.startswith("cell:") for name in again), (at, again)
        assert len(again) <= 1, (at, again)


async def test_a_loop_goes_on_in_the_round_it_was_in(harness: OurHarness) -> None:
    bomb = Bomb(at=5)
    graph = (
        GraphBuilder(Main)
        .with_checkpointer(await harness.open())
        .add_node("a", bomb.node("a", lambda s: {"n": s.n + 1, "log": ["a"]}))
        .add_node("b", bomb.node("b", lambda _: {"log": ["b"]}))
        .add_edge("a", "b")
        .add_conditional_edge("b", lambda s: END if s.n == 4 else "a")
        .set_entry("a")
        .compile()
    )
    with pytest.raises(Crash):
        await graph.run(invocation_id="looping")
    async with asyncio.timeout(20):
        final = await graph.invoke(resume_invocation="looping")
    assert (final.n, final.log) == (4, ["a", "b"] * 4)
    assert bomb.ran == {"a": 4, "b": 4}


async def test_a_finished_fan_out_in_a_loop_does_not_leave_its_results_to_the_next_round(harness: OurHarness) -> None:
    for at in range(2, 12):
        bomb = Bomb(at)
        cell = (
            GraphBuilder(Cell)
            .add_node("cell", bomb.node("cell", lambda s: {"result": s.item * 10}))
            .add_edge("cell", END)
            .set_entry("cell")
            .compile()
        )
        graph = (
            GraphBuilder(Main)
            .with_checkpointer(await harness.open())
            .add_node("next", bomb.node("next", lambda s: {"n": s.n + 1, "items": [s.n, s.n + 5]}))
            .add_fan_out_node(
                "fan", cell, items_field="items", item_field="item", collect_field="result", target_field="results"
            )
            .add_edge("next", "fan")
            .add_conditional_edge("fan", lambda s: END if s.n == 4 else "next")
            .set_entry("next")
            .compile()
        )
        with pytest.raises(Crash):
            await graph.run(invocation_id=f"rounds-{at}")
        final = await graph.invoke(resume_invocation=f"rounds-{at}")
        assert final.results == [0, 50, 10, 60, 20, 70, 30, 80], at


async def test_only_what_changed_is_written(harness: OurHarness) -> None:
    store = await harness.open()
    await big_graph(Bomb(), store).invoke(START, invocation_id="whole")
    entries = (await store.dump())["entry"]
    assert Counter(row["body"] for row in entries).most_common(1)[0][1] <= 2  # once as child's, once as parent's entry
    runs = await store.runs.of_invocation("whole")
    assert [run.status for run in runs] == ["completed"]


async def test_a_checkpoint_that_cannot_be_written_stops_the_run_and_the_one_before_is_good(
    harness: OurHarness,
) -> None:
    store = await harness.open()
    bomb = Bomb()
    graph = big_graph(bomb, store)
    real, count = store.commit, 0

    async def failing(commit: Any) -> Any:
        nonlocal count
        count += 1
        if count == 6:
            raise StoreUnavailable("no answer")
        return await real(commit)

    store.commit = failing  # type: ignore[method-assign]
    outcome = await graph.run(START, invocation_id="cut")
    assert isinstance(outcome.error, CheckpointSaveFailed)
    store.commit = real  # type: ignore[method-assign]
    expected, _, _ = await unbroken()
    assert (await graph.invoke(resume_invocation="cut")).__dict__ == expected


async def test_cancelling_leaves_a_checkpoint_to_go_on_from(harness: OurHarness) -> None:
    reached = asyncio.Event()
    waiting = True

    async def wait(_: Main) -> dict[str, Any]:
        reached.set()
        if waiting:
            await asyncio.Event().wait()
        return {"log": ["waited"]}

    bomb = Bomb()
    graph = (
        GraphBuilder(Main)
        .with_checkpointer(await harness.open())
        .add_node("a", bomb.node("a", lambda _: {"log": ["a"]}))
        .add_node("wait", wait)
        .add_edge("a", "wait")
        .add_edge("wait", END)
        .set_entry("a")
        .compile()
    )
    running = asyncio.create_task(graph.run(invocation_id="cancelled"))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    waiting = False
    assert (await graph.invoke(resume_invocation="cancelled")).log == ["a", "waited"]
    assert bomb.ran == {"a": 1}


async def test_nothing_to_resume_is_said() -> None:
    graph = big_graph(Bomb(), None)
    outcome = await graph.run(resume_invocation="x")
    assert isinstance(outcome.error, CheckpointNotFound)


async def test_a_cursor_that_names_a_node_the_graph_lacks_is_refused_and_nothing_runs(harness: OurHarness) -> None:
    store = await harness.open()
    with pytest.raises(Crash):
        await big_graph(Bomb(3), store).run(START, invocation_id="old")
    other = (
        GraphBuilder(Main)
        .with_checkpointer(store)
        .add_node("m0", Bomb(1).node("m0", lambda _: {}))
        .add_edge("m0", END)
        .set_entry("m0")
        .compile()
    )
    before = await store.dump()
    outcome = await other.run(resume_invocation="old")
    assert isinstance(outcome.error, CheckpointRecordInvalid)
    assert "m2" in outcome.error.message
    assert await store.dump() == before


class V1(State):
    schema_version: ClassVar[str] = "1"
    name: str = ""
    words: Annotated[list[str], append] = []


class V3(State):
    schema_version: ClassVar[str] = "3"
    title: str
    words: Annotated[list[str], append] = []


def versioned(kind: type[State], store: Store, bomb: Bomb) -> GraphBuilder[Any]:
    field = "name" if kind is V1 else "title"
    return (
        GraphBuilder(kind)
        .with_checkpointer(store)
        .add_node("a", bomb.node("a", lambda _: {field: "Ada", "words": ["a"]}))
        .add_node("b", bomb.node("b", lambda _: {"words": ["b"]}))
        .add_edge("a", "b")
        .add_edge("b", END)
        .set_entry("a")
    )


async def test_an_old_checkpoint_goes_on_under_a_new_schema_by_a_chain_of_migrations(harness: OurHarness) -> None:
    store = await harness.open()
    with pytest.raises(Crash):
        await versioned(V1, store, Bomb(2)).compile().run(invocation_id="v1")
    builder = versioned(V3, store, Bomb())
    outcome = await builder.compile().run(resume_invocation="v1")
    assert isinstance(outcome.error, StateMigrationError)
    assert outcome.error.category == "checkpoint_state_migration_missing"
    builder.with_state_migration("1", "2", lambda s: {**s, "words": [word.upper() for word in s["words"]]})
    builder.with_state_migration("2", "3", lambda s: {"title": s["name"], "words": s["words"]})
    final = await builder.compile().invoke(resume_invocation="v1")
    assert (final.title, final.words) == ("Ada", ["A", "b"])
    builder.with_state_migration("1", "2b", dict)
    builder.with_state_migration("2b", "3", dict)
    with pytest.raises(StateMigrationError, match="2 shortest paths") as ambiguous:
        builder.compile()
    assert ambiguous.value.category == "checkpoint_state_migration_chain_ambiguous"
    with pytest.raises(StateMigrationError, match="two migrations"):
        builder.with_state_migration("1", "2", dict)


async def test_a_migration_that_raises_stops_the_chain_and_keeps_the_cause(harness: OurHarness) -> None:
    store = await harness.open()
    with pytest.raises(Crash):
        await versioned(V1, store, Bomb(2)).compile().run(invocation_id="v1")
    later: list[Any] = []

    def second(state: dict[str, Any]) -> dict[str, Any]:
        later.append(state)
        return state

    builder = versioned(V3, store, Bomb())
    builder.with_state_migration("1", "2", lambda s: {"x": s["nothing"]})
    builder.with_state_migration("2", "3", second)
    outcome = await builder.compile().run(resume_invocation="v1")
    assert isinstance(outcome.error, StateMigrationError)
    assert outcome.error.category == "checkpoint_state_migration_failed"
    assert isinstance(outcome.error.__cause__, KeyError)
    assert not later


async def test_a_run_resumed_twice_over_a_migration_keeps_the_migrated_entries(harness: OurHarness) -> None:
    store = await harness.open()
    with pytest.raises(Crash):
        await versioned(V1, store, Bomb(2)).compile().run(invocation_id="v1")

    def upgraded(bomb: Bomb) -> CompiledGraph[Any]:
        builder = versioned(V3, store, bomb)
        builder.with_state_migration("1", "3", lambda s: {"title": s["name"], "words": [w.upper() for w in s["words"]]})
        return builder.compile()

    first = await upgraded(Bomb(1, ValueError)).run(resume_invocation="v1")
    assert first.error is not None
    final = await upgraded(Bomb()).invoke(resume_invocation=first.invocation_id)
    assert (final.title, final.words) == ("Ada", ["A", "b"])


async def test_a_run_whose_first_node_fails_can_be_resumed_with_its_first_state(harness: OurHarness) -> None:
    store = await harness.open()
    broken = True

    async def first(state: Main) -> dict[str, Any]:
        if broken:
            raise ValueError("not yet")
        return {"n": state.n + 1, "log": ["first"]}

    graph = (
        GraphBuilder(Main)
        .with_checkpointer(store)
        .add_node("first", first)
        .add_edge("first", END)
        .set_entry("first")
        .compile()
    )
    outcome = await graph.run({"n": 41, "log": ["given"]}, invocation_id="early")
    assert outcome.error is not None
    broken = False
    final = await graph.invoke(resume_invocation="early")
    assert (final.n, final.log) == (42, ["given", "first"])


async def test_a_node_that_is_gone_is_told_with_what_was_and_what_is(harness: OurHarness) -> None:
    store = await harness.open()
    with pytest.raises(Crash):
        await versioned(V1, store, Bomb(2)).compile().run(invocation_id="v1")

    async def nothing(_: Any) -> dict[str, Any]:
        return {}

    other = GraphBuilder(V3, "newer").add_node("elsewhere", nothing).add_edge("elsewhere", END).set_entry("elsewhere")
    outcome = await other.with_checkpointer(store).compile().run(resume_invocation="v1")
    assert isinstance(outcome.error, CheckpointRecordInvalid)
    details = outcome.error.details()
    assert (details["graph"], details["stored_version"], details["current_version"]) == ("newer", "1", "3")
    assert details["stored_by"]
    assert "'1'" in outcome.error.message
    assert "'3'" in outcome.error.message
