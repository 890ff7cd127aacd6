"""A graph's next version, which accepts the sessions and the pauses of the one before."""

from typing import Annotated, Any, ClassVar

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, ProgramNotRegistered
from tenuto.graph import END, CompiledGraph, GraphBuilder, SignalDescriptor, State, append, suspend
from tenuto.messages import text_of
from tests.runtime.runtimes import in_memory, opened


class Old(State):
    notes: Annotated[list[str], append] = []
    name: str = "tides"
    answer: str = ""


class New(State):
    schema_version: ClassVar[str] = "2"
    notes: Annotated[list[str], append] = []
    title: str
    answer: str = ""


async def ask(state: Any) -> dict[str, Any]:
    if state.notes[-1] == "ask" and not state.answer:
        await suspend(SignalDescriptor("answer"))
    return {"notes": [f"re: {state.notes[-1]}"]}


async def reply(state: Any) -> dict[str, Any]:
    return {"notes": [f"{type(state).__name__}: {state.answer}"]}


def titled(old: dict[str, Any]) -> dict[str, Any]:
    return {"title": old.pop("name"), **old}


def graph(kind: type[State]) -> CompiledGraph[Any]:
    builder = GraphBuilder(kind, "article").add_node("ask", ask).add_node("reply", reply)
    builder.add_edge("ask", "reply").add_edge("reply", END).set_entry("ask")
    if kind is New:
        builder.with_session_migration("", "2", titled).with_state_migration("", "2", titled)
    return builder.with_session_state(None).compile()


@in_memory
async def test_sessions_and_pauses_go_over_to_the_version_that_accepts_them(store: Store) -> None:
    before = await opened(store, [graph(Old).as_program(input="notes", entry=text_of)])
    await (await before.create("article", session_id="s")).send("hi")
    (wait,) = (await before.send("s", "ask")).waits
    strict = await opened(store, [graph(New).as_program(version=2, input="notes", entry=text_of)])
    with pytest.raises(ProgramNotRegistered):
        await strict.send("s", "hi")
    after = await opened(store, [graph(New).as_program(version=2, accepts=[1], input="notes", entry=text_of)])
    answered = await after.answer(wait, {"answer": "why"})
    assert answered.outcome is not None
    assert answered.outcome.completed, answered.outcome.error
    view = await after.get("s")
    assert view.definition is not None
    assert (view.definition.version, view.schema_version, view.document["title"]) == ("2", "2", "tides")
    assert (await after.send("s", "more")).completed
    assert list((await after.get("s")).logs["notes"])[-1] == "New: why"


def test_versions_are_texts_or_numbers() -> None:
    program = graph(Old).as_program(version=3, accepts=["1", 2], input="notes", entry=text_of)
    assert (program.version, program.accepts) == ("3", frozenset({"1", "2"}))
    for options in ({"version": ""}, {"version": True}, {"accepts": "1"}, {"accepts": [None]}):
        with pytest.raises(InvalidInput):
            graph(Old).as_program(input="notes", entry=text_of, **options)


@in_memory
async def test_a_session_that_is_rewound_or_forked_to_before_its_migration_is_migrated_again(store: Store) -> None:
    before = await opened(store, [graph(Old).as_program(input="notes", entry=text_of)])
    await (await before.create("article", session_id="s")).send("one")
    after = await opened(store, [graph(New).as_program(version=2, accepts=[1], input="notes", entry=text_of)])
    session = after.session("s")
    assert (await session.send("two")).completed
    moved, first = await session.runs()
    assert (await session.get()).schema_version == "2"
    fork = await session.fork(at=first.run_id)
    assert (await fork.send("three")).completed
    await session.rewind(moved.run_id)
    assert (await session.send("four")).completed
    for each in (fork, session):
        view = await each.get()
        assert (view.schema_version, view.document["title"], "name" in view.document) == ("2", "tides", False)
    assert list((await session.get()).logs["notes"]) == ["one", "re: one", "Old: ", "four", "re: four", "New: "]
