"""What clearing a session empties, resets, and leaves."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tenuto import Store
from tenuto.errors import InvalidInput
from tenuto.graph import END, GraphBuilder, SessionState, State, append
from tenuto.runtime.change.action import ChangeModel, ClearSession, WriteMetadata
from tenuto.runtime.program.program import FunctionProgram, program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.traits import ProgramTraits
from tests.runtime.runtimes import in_memory, opened
from tests.runtime.talking import echo, rows, said

FIRST: dict[str, Any] = {"visits": 0, "plan": "free", "cart": []}


def declaring(version: str = "") -> FunctionProgram[Any]:
    """Return a program that declares its state, and changes all of it in each turn."""

    @program(name="shop")
    async def shop(turn: Turn) -> None:
        turn.state.update(visits=turn.state["visits"] + 1, plan="gold", cart=[turn.text], extra="kept nowhere")
        turn.record_usage("m", input=3, output=5)
        turn.append(f"re: {turn.text}")

    declared: Any = shop
    declared.declares = ProgramTraits(first_document=lambda: FIRST, schema_version=version)
    return shop


async def test_clear_resets_a_declared_state_and_keeps_what_is_not_state(store: Store) -> None:
    runtime = await opened(store, [declaring()])
    session = await runtime.create("shop", FIRST, session_id="s")
    await session.send("one")
    await session.execute(WriteMetadata({"ticket": 7}))
    await session.execute(ChangeModel("m2"))

    cleared = await session.execute(ClearSession())

    assert (dict(cleared.document), said(cleared)) == (FIRST, [])
    stored = await session.get()
    assert (dict(stored.document), said(stored), stored.metadata) == (FIRST, [], {"ticket": 7})
    assert stored.definition is not None
    assert (stored.definition.name, stored.definition.model) == ("shop", "m2")
    assert (await session.usage()).total.input == 3
    assert (await session.send("two")).completed
    assert (await session.get()).document["visits"] == 1


async def test_clear_leaves_the_fields_and_logs_that_it_is_to_keep(store: Store) -> None:
    runtime = await opened(store, [declaring()])
    session = await runtime.create("shop", FIRST | {"notes": ["n1"]}, session_id="s", logs=["notes"])
    await session.send("one")

    await session.execute(ClearSession(keep=("plan", "notes")))

    stored = await session.get()
    assert dict(stored.document) == FIRST | {"plan": "gold"}
    assert {name: list(items) for name, items in stored.logs.items()} == {"messages": [], "notes": ["n1"]}


async def test_clear_leaves_the_document_of_a_program_without_a_declared_state(store: Store) -> None:
    runtime = await opened(store, [echo])
    session = await runtime.create("echo", {"mood": "calm"}, session_id="s")
    await session.send("one")
    assert dict((await session.execute(ClearSession())).document) == {"mood": "calm"}
    assert dict((await session.get()).document) == {"mood": "calm"}


async def test_a_queued_clear_does_the_same(store: Store) -> None:
    runtime = await opened(store, [declaring()])
    session = await runtime.create("shop", FIRST, session_id="s")
    await session.send("one")
    await session.enqueue(ClearSession(keep=("plan",)))
    await runtime.drain()
    assert dict((await session.get()).document) == FIRST | {"plan": "gold"}


@pytest.mark.parametrize("keep", [("crat",), ("plan", "crat"), "plan", (5,), 7], ids=repr)
async def test_what_cannot_be_kept_is_refused_before_anything_is_cleared(store: Store, keep: Any) -> None:
    runtime = await opened(store, [declaring()])
    session = await runtime.create("shop", FIRST, session_id="s")
    await session.send("one")
    before = await rows(store)
    with pytest.raises(InvalidInput):
        await session.execute(ClearSession(keep=keep))
    with pytest.raises(InvalidInput, match="not both"):
        await session.execute(ClearSession(logs=("messages",), keep=("plan",)))
    assert await rows(store) == before


@in_memory
async def test_a_state_of_an_older_version_is_cleared_whole_to_the_programs_version(store: Store) -> None:
    old = await opened(store, [declaring("1")])
    session = await old.create("shop", FIRST, session_id="s")
    await session.send("one")
    new = (await opened(store, [declaring("2")])).session("s")
    with pytest.raises(InvalidInput, match="send it a message"):
        await new.execute(ClearSession(keep=("plan",)))

    cleared = await new.execute(ClearSession())

    assert (cleared.schema_version, dict(cleared.document)) == ("2", FIRST)
    assert (await new.info()).schema_version == "2"


class Kept(SessionState):
    messages: list[Any]
    total: int


class Sum(State):
    messages: Annotated[list[Any], append] = []
    total: int = 10


async def _add(state: Sum) -> dict[str, Any]:
    return {"total": state.total + 1, "messages": [{"role": "assistant", "content": str(state.total + 1)}]}


async def test_clear_resets_what_a_graph_keeps(store: Store) -> None:
    graph = GraphBuilder(Sum).add_node("add", _add).add_edge("add", END).set_entry("add")
    runtime = await opened(store, [graph.with_session_state(Kept).compile().as_program(name="sum")])
    session = await runtime.create("sum", session_id="s")
    assert [(await session.send(text)).text for text in ("one", "two")] == ["11", "12"]
    cleared = await session.execute(ClearSession())
    assert (dict(cleared.document), said(cleared)) == ({}, [])
    assert (await session.send("three")).text == "11"
    await session.execute(ClearSession(keep=("total",)))
    assert (await session.send("four")).text == "12"


class Customer(BaseModel):
    visits: int = 0
    plan: str = "free"
    cart: list[str] = []


@program(state=Customer)
async def shopping(turn: Turn[Customer]) -> int:
    turn.update(lambda state: {"visits": state.visits + 1, "plan": "gold", "cart": [*state.cart, turn.text]})
    return turn.state.visits


async def test_clear_resets_the_model_that_a_program_declares(store: Store) -> None:
    runtime = await opened(store, [shopping])
    session = await runtime.create(shopping, Customer(plan="trial"), session_id="s")
    assert [(await session.send(text)).output for text in ("one", "two")] == [1, 2]
    await session.execute(ClearSession())
    assert (await session.get()).state(Customer) == Customer()
    assert (await session.send("three")).output == 1
    await session.enqueue(ClearSession(keep=("visits", "cart")))
    await runtime.drain()
    cleared = await session.get()
    assert (cleared.state(Customer), said(cleared)) == (Customer(visits=1, cart=["three"]), [])
    assert (await session.send("four")).output == 2
