"""What a type checker knows of a graph: mypy reads this file with all others in `make check`.

A line that mypy is to refuse has a `type: ignore` with the error's code; mypy reports one that is not needed.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, assert_type

import pytest

from tenuto import Store
from tenuto.codec import JSON
from tenuto.errors import GraphCompileError, InvalidInput, InvocationSuspended
from tenuto.graph import (
    END,
    Branch,
    CompiledGraph,
    End,
    GraphBuilder,
    GraphOutcome,
    SessionState,
    State,
    append,
    suspend,
)
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.model.wait import Wait


class Article(State):
    sources: list[str] = []
    notes: Annotated[list[str], append] = []
    approved: bool | None = None


class Other(State):
    sources: list[str] = []


class Kept(SessionState):
    notes: list[str]


async def read(state: Article, source: str) -> str:
    return f"note on {source} of {len(state.sources)}"


async def read_number(_: Article, source: int) -> str:
    return f"note {source}"


async def gate(state: Article) -> NoReturn:
    await suspend("publish?", timeout=datetime.timedelta(hours=len(state.notes) + 1))


async def other(_: Other) -> dict[str, object]:
    return {}


async def noted(_: Article) -> Mapping[str, list[str]]:
    return {"notes": ["noted"]}


def after_gate(state: Article) -> Literal["read"] | End:
    return END if state.approved else "read"


def sources(state: Article) -> Sequence[str]:
    return state.sources


def built() -> CompiledGraph[Article]:
    builder = GraphBuilder(Article, "article")
    assert_type(builder, GraphBuilder[Article])
    builder = builder.add_node("gate", gate)
    assert_type(builder, GraphBuilder[Article])
    graph = (
        builder.add_fan_out_node("read", read, items=lambda state: state.sources, target_field="notes")
        .add_parallel_branches_node("both", {"one": Branch(call=noted), "two": Branch(call=noted)})
        .add_edge("read", "both")
        .add_edge("both", "gate")
        .add_conditional_edge("gate", after_gate)
        .set_entry("read")
        .with_session_state(Kept)
        .with_checkpoints()
        .compile()
    )
    assert_type(graph, CompiledGraph[Article])
    return graph


async def test_a_graphs_verbs_return_its_own_state(store: Store) -> None:
    graph = built().bind(store)
    assert_type(graph, CompiledGraph[Article])
    with pytest.raises(InvocationSuspended):
        assert_type(await graph.invoke({"sources": ["moons"]}), Article)
    outcome = await graph.run({"sources": ["tides"]}, session_id="s")
    assert_type(outcome, GraphOutcome[Article])
    assert_type(outcome.status, Literal["completed", "suspended", "failed", "interrupted"])
    assert_type(outcome.wait, Wait | None)
    with pytest.raises(InvocationSuspended):
        assert_type(outcome.result(), Article)
    assert outcome.status == "suspended"
    _, wait = await graph.waiting()
    final = (await graph.resume(wait, {"approved": True})).result()
    assert_type(final, Article)
    assert final.notes == ["note on tides of 1", "noted", "noted"]


def test_a_program_has_the_type_of_its_output() -> None:
    graph = built()
    assert_type(graph.as_program(input="notes", output=lambda state: len(state.notes)), GraphProgram[int])
    assert_type(graph.as_program(input="notes", output="notes"), GraphProgram[JSON])
    program = graph.as_program(input="notes", version=3)
    assert_type(program, GraphProgram[None])
    assert program.version == "3"


def test_a_checker_refuses_what_would_be_refused_later() -> None:
    def builder() -> GraphBuilder[Article]:
        return GraphBuilder(Article)

    builder().add_node("other", other)  # type: ignore[arg-type]
    builder().add_fan_out_node("read", read_number, items=sources, target_field="notes")  # type: ignore[misc]
    builder().add_parallel_branches_node("both", {"one": Branch(call=other)})  # type: ignore[arg-type]
    builder().add_conditional_edge("gate", lambda _: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidInput):
        builder().add_edge("gate", None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        builder().with_session_state(Kept, concurrency="exlusive")  # type: ignore[arg-type]


async def test_a_checker_refuses_words_that_are_misspelt(store: Store) -> None:
    graph = built().bind(store)
    outcome = await graph.run({"sources": ["tides"]}, session_id="s")
    assert outcome.status != "compelted"  # type: ignore[comparison-overlap]
    assert outcome.wait is not None
    with pytest.raises(InvalidInput, match="overwrite, rebase"):
        await graph.resume(outcome.wait, {}, on_moved="rebsae")  # type: ignore[arg-type]


def routed(choose: Any) -> CompiledGraph[Article]:
    builder = GraphBuilder(Article).add_node("noted", noted).add_node("read", noted).add_edge("read", END)
    return builder.add_conditional_edge("noted", choose).set_entry("noted").compile()


async def test_the_annotation_of_a_conditional_edge_declares_its_targets() -> None:
    graph = routed(after_gate)
    assert "n_noted -.-> n_read & finish" in graph.to_mermaid()
    assert (await graph.invoke({"approved": True})).notes == ["noted"]
    assert (await graph.invoke()).notes == ["noted", "noted"]

    def astray(_: Article) -> Literal["raed"] | End:
        return END

    with pytest.raises(GraphCompileError, match="raed"):
        routed(astray)

    def only_end(_: Article) -> End:
        return END

    with pytest.raises(GraphCompileError, match="read"):
        routed(only_end)
