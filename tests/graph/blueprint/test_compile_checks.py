"""What a builder refuses when it is given, or when it is compiled, so that no run finds it out."""

import operator
import time
from functools import partial
from typing import Annotated, Any, Literal

import annotated_types
import pytest
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SkipValidation, StringConstraints
from typing_extensions import TypeAliasType

from tenuto import SessionRuntime
from tenuto.errors import GraphCompileError, InvalidInput, InvocationInterrupted, RoutingError, StateMigrationError
from tenuto.graph import (
    END,
    Branch,
    GraphBuilder,
    SessionState,
    State,
    append,
    bounded_append,
    dedupe_append,
    merge_by_key,
)
from tenuto.graph.reducers import Reducer
from tenuto.migration import MigrationRegistry
from tenuto.store.open import memory_store


class Notes(State):
    n: int = 0
    items: list[int] = []
    notes: Annotated[list[str], append] = []
    errors: list[dict[str, Any]] = []


async def nothing(state: Any) -> dict[str, Any]:
    return {}


async def each(state: Any, item: Any) -> str:
    return "done"


def builder(state: type[State] = Notes) -> GraphBuilder[Any]:
    return GraphBuilder(state, "g").add_node("a", nothing).add_edge("a", END).set_entry("a")


def lines(state: type[State]) -> str:
    with pytest.raises(GraphCompileError) as refused:
        builder(state).compile()
    assert refused.value.category == "reducer_configuration_invalid"
    assert refused.value.details()["field"] == "x"
    return refused.value.message


@pytest.mark.parametrize(
    "meant",
    [operator.add, lambda old, _: old, partial(operator.add), bounded_append, dedupe_append, merge_by_key, Reducer],
)
def test_a_function_or_an_uncalled_factory_for_a_reducer_is_refused_with_its_field(meant: Any) -> None:
    class Wrong(State):
        x: Annotated[list[int], meant] = []

    assert "'x'" in lines(Wrong)


def test_a_reducer_where_nobody_would_see_it_is_refused() -> None:
    class InUnion(State):
        x: Annotated[list[int], append] | None = None

    class InItems(State):
        x: list[Annotated[list[int], append]] = []

    class AsDefault(State):
        x: list[int] = append  # type: ignore[assignment]

    alias = TypeAliasType("alias", Annotated[list[int], append])

    class BehindAlias(State):
        x: alias = []

    for kind in (InUnion, InItems, AsDefault, BehindAlias):
        assert "append" in lines(kind)


def test_whatever_else_may_stand_in_annotated_still_may() -> None:
    class Mark:
        pass

    class Fine(State):
        a: Annotated[list[int], "what it is", append] = []
        b: Annotated[int, Field(ge=0, description="how many")] = 0
        c: Annotated[int, annotated_types.Gt(-1), annotated_types.Predicate(lambda n: n < 9)] = 0
        d: Annotated[str, AfterValidator(str.strip), BeforeValidator(str)] = ""
        e: Annotated[str, StringConstraints(max_length=9), PlainSerializer(str)] = ""
        f: Annotated[int, Mark(), Mark, {"unit": "s"}, ("x",)] = 0
        g: Annotated[int, SkipValidation] = 0
        h: SkipValidation[int] = 0

    builder(Fine).compile()


def test_a_misspelt_word_is_refused_where_it_is_given() -> None:
    fresh = builder()
    for policy in ("fail-fast", "Collect", "", None, 3):
        with pytest.raises(InvalidInput, match="fail_fast, collect"):
            fresh.add_parallel_branches_node("b", {"x": Branch(call=nothing)}, error_policy=policy)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="fail_fast, collect"):
            fresh.add_fan_out_node("f", each, items_field="items", target_field="notes", error_policy=policy)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="raise, noop"):
        fresh.add_fan_out_node("f", each, items_field="items", target_field="notes", on_empty="nop")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="exclusive"):
        fresh.with_session_store(memory_store(), concurrency="exlusive")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda b: b.add_node("x", None),
        lambda b: b.add_node("x", nothing, middleware=["retry"]),
        lambda b: b.add_middleware("retry"),
        lambda b: b.add_node(["x"], nothing),
        lambda b: b.add_edge(["a"], "a"),
        lambda b: b.add_edge("a", lambda _: END),
        lambda b: b.add_conditional_edge("a", "a"),
        lambda b: b.add_conditional_edge("a", nothing),
        lambda b: b.add_conditional_edge("a", lambda _: END, targets="a"),
        lambda b: b.add_conditional_edge("a", lambda _: END, targets=[]),
        lambda b: b.add_conditional_edge("a", lambda _: END, targets=[3]),
        lambda b: b.add_subgraph_node("x", b),
        lambda b: b.add_parallel_branches_node("x", {"y": nothing}),
        lambda b: b.set_entry(None),
        lambda b: b.with_state_migration(1, 2, dict),
        lambda b: b.with_session_migration("1", "2", None),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        wrong(builder())


class FourMethods:
    async def load(self, session_id: str) -> None:
        return None

    async def save(self, session_id: str, record: Any) -> None: ...

    async def delete(self, session_id: str) -> None: ...

    async def list(self, filter: Any = None) -> list[Any]:  # noqa: A002 - the protocol's own name
        return []


@pytest.mark.parametrize("store", [FourMethods(), "sqlite:///x.db", object()])
def test_a_store_of_four_methods_is_refused_where_a_whole_one_is_needed(store: Any) -> None:
    if not isinstance(store, str):
        with pytest.raises(InvalidInput, match="open_store"):
            SessionRuntime(store)
    with pytest.raises(InvalidInput, match="open_store") as refused:
        builder().with_checkpointer(store)
    assert "x.db" not in refused.value.message


def test_no_store_at_all_keeps_no_sessions() -> None:
    with pytest.raises(InvalidInput, match="load"):
        builder().with_session_store(None)  # type: ignore[arg-type]


def test_a_node_without_an_edge_after_it_is_refused() -> None:
    with pytest.raises(GraphCompileError, match="no edge after b") as refused:
        GraphBuilder(Notes, "g").add_node("a", nothing).add_node("b", nothing).add_edge("a", "b").set_entry(
            "a"
        ).compile()
    assert refused.value.category == "no_outgoing_edge"
    assert refused.value.details()["nodes"] == ["b"]


class V4(State):
    schema_version = "4"
    x: int = 0


class K4(SessionState):
    schema_version = "4"
    x: int


@pytest.mark.parametrize("whole", [True, False])
def test_two_shortest_chains_are_refused_when_the_graph_is_compiled(whole: bool) -> None:
    forked = builder(V4).with_session_store(memory_store(), None if whole else K4)
    for pair in (("1", "2"), ("1", "3"), ("2", "4"), ("3", "4")):
        forked.with_session_migration(*pair, dict)
    with pytest.raises(StateMigrationError, match="2 shortest paths from '1' to '4'"):
        forked.compile()
    forked.with_session_migration("1", "4", dict).compile()  # shorter than both


def test_two_shortest_chains_of_checkpoints_are_refused_too() -> None:
    forked = builder(V4)
    for pair in (("1", "2"), ("1", "3"), ("2", "4"), ("3", "4")):
        forked.with_state_migration(*pair, dict)
    with pytest.raises(StateMigrationError) as refused:
        forked.compile()
    assert refused.value.category == "checkpoint_state_migration_chain_ambiguous"


def test_a_chain_is_found_at_once_among_many_versions() -> None:
    registry = MigrationRegistry("session")
    for a in range(60):
        for b in range(60):
            if a != b:
                registry.add(str(a), str(b), dict)
    begun = time.process_time()
    assert registry.chain("3", "7") == [("3", "7")]
    with pytest.raises(StateMigrationError, match="No migration path"):
        registry.chain("3", "nowhere")
    assert time.process_time() - begun < 1


def choosing(choose: Any, targets: Any = None) -> GraphBuilder[Any]:
    return (
        GraphBuilder(Notes, "g")
        .add_node("a", nothing)
        .add_node("b", nothing)
        .add_node("c", nothing)
        .add_conditional_edge("a", choose, targets)
        .add_edge("b", END)
        .add_edge("c", END)
        .set_entry("a")
    )


def test_declared_targets_are_checked_and_drawn() -> None:
    with pytest.raises(GraphCompileError, match="'d'") as refused:
        choosing(lambda _: END, ["b", "d"]).compile()
    assert refused.value.category == "dangling_edge"
    with pytest.raises(GraphCompileError, match="Nothing leads to c"):
        choosing(lambda _: "b", ["b", END]).compile()
    drawn = choosing(lambda _: "b", ["b", "c"]).compile().to_mermaid()
    assert "n_a -.-> n_b & n_c\n" in drawn
    assert "n_a -.-> n_b & n_c & finish\n" in choosing(lambda _: "b", ["b", "c", END]).compile().to_mermaid()


def test_a_literal_return_type_declares_the_targets() -> None:
    def either(state: Any) -> Literal["b", "c"]:
        return "b"

    def wrong(state: Any) -> Literal["b", "typo"]:
        return "b"

    class Chooser:
        def __call__(self, state: Any) -> "Literal['b', 'c'] | type_of_end":  # type: ignore[name-defined] # noqa: F821 - cannot be read
            return "b"

    assert "n_a -.-> n_b & n_c\n" in choosing(either).compile().to_mermaid()
    with pytest.raises(GraphCompileError, match="typo"):
        choosing(wrong).compile()
    assert "& finish" in choosing(Chooser()).compile().to_mermaid()


@pytest.mark.parametrize("chosen", ["a", END, "nowhere", ["b"], None])
async def test_a_choice_that_is_not_among_the_targets_is_a_routing_error(chosen: Any) -> None:
    with pytest.raises(RoutingError, match="targets are b, c"):
        await choosing(lambda _: chosen, ["b", "c"]).compile().invoke()


async def test_a_stop_inside_anything_returns_the_outermost_state_and_invoke_raises() -> None:
    class Inner(State):
        n: int = 0

    stopping: list[bool] = []

    async def stops(state: Inner) -> dict[str, Any]:
        stopping.append(True)
        return {"n": 9}

    inner = (
        GraphBuilder(Inner, "inner")
        .add_node("first", stops)
        .add_node("second", nothing)
        .add_edge("first", "second")
        .add_edge("second", END)
        .set_entry("first")
        .compile()
    )
    middle = GraphBuilder(Inner, "middle").add_subgraph_node("in", inner).add_edge("in", END).set_entry("in").compile()
    graphs = [
        GraphBuilder(Notes, "g").add_subgraph_node("x", middle, outputs={}),
        GraphBuilder(Notes, "g").add_fan_out_node("x", middle, count=2, collect_field="n", target_field="items"),
        GraphBuilder(Notes, "g").add_parallel_branches_node("x", {"one": Branch(subgraph=middle, outputs={})}),
    ]
    for each_builder in graphs:
        graph = each_builder.add_edge("x", END).set_entry("x").compile()
        stopping.clear()
        outcome = await graph.run({"n": 3}, stop=lambda: bool(stopping))
        assert outcome.interrupted
        assert outcome.state == Notes(n=3)
        stopping.clear()
        with pytest.raises(InvocationInterrupted) as stopped:
            await graph.invoke({"n": 3}, stop=lambda: bool(stopping))
        assert stopped.value.outcome.state == Notes(n=3)
        assert not stopped.value.retryable
