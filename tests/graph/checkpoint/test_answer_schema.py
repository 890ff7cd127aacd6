"""What a graph's pause takes as its answer: the types of its fields, in any process, and little to store."""

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NoReturn, Optional

import pytest
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from tenuto import SessionRuntime
from tenuto.errors import AnswerInvalid
from tenuto.graph import END, CompiledGraph, GraphBuilder, State, append, suspend
from tenuto.graph.checkpoint.answer_schema import answer_schema
from tenuto.graph.state import schema_of
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database


class Line(BaseModel):
    """A line of an order, with words that nobody needs to check an answer."""

    title: str = Field(description="What it is called.")
    price: Decimal = Field(gt=0)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Node(BaseModel):
    below: list["Node"] = []


class Own:
    """A type that JSON Schema cannot describe."""


class Order(State):
    messages: Annotated[list[dict[str, Any]], append] = []
    amount: int = 0
    lines: list[Line] = []
    size: Size | None = None
    due: datetime | None = None
    tree: Node = Node()
    read: list[Annotated[int, BeforeValidator(lambda given: int(str(given), 0))]] = []
    own: Own | None = None


class Inner(State):
    reason: Literal["lost", "broken"] = "lost"
    amount: str = ""


async def asks(_: Any) -> NoReturn:
    await suspend("order")


async def says(state: Order) -> dict[str, Any]:
    made = f"{state.amount} {[line.title for line in state.lines]} {state.read}"
    return {"messages": [{"role": "assistant", "content": made}]}


def orders(*, nested: bool = False) -> CompiledGraph[Order]:
    builder = GraphBuilder(Order, "orders")
    if nested:
        inner = GraphBuilder(Inner, "inner").add_node("ask", asks).add_edge("ask", END).set_entry("ask").compile()
        builder.add_subgraph_node("ask", inner, outputs={})
    else:
        builder.add_node("ask", asks)
    return builder.add_node("say", says).add_edge("ask", "say").add_edge("say", END).set_entry("ask").compile()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"amount": "many"}, "answer.amount"),
    ({"amount": None}, "answer.amount"),
    ({"amount": 3, "lines": [{"title": "tea", "price": 1}, {"title": 7, "price": 1}]}, "answer.lines[1].title"),
    ({"lines": [{"title": "tea"}]}, "answer.lines[0].price"),
    ({"lines": [{"title": "tea", "price": 0}]}, "answer.lines[0].price"),
    ({"size": "m"}, "answer.size"),
    ({"due": "tomorrow"}, "answer.due"),
    ({"tree": {"below": [{"below": 3}]}}, "answer.tree.below[0].below"),
    ({"messages": "none"}, "answer.messages"),
]
RIGHT: dict[str, Any] = {
    "amount": 3,
    "lines": [{"title": "tea", "price": "9.90"}],
    "size": "l",
    "due": "2026-03-01T10:00:00Z",
    "tree": {"below": [{"below": []}]},
    "read": ["0x10"],
}


@pytest.mark.parametrize("registered", [True, False], ids=["its own runtime", "a door that knows no graph"])
async def test_a_value_of_another_type_is_refused_in_any_process_and_the_run_waits_on(
    harness: OurHarness, registered: bool
) -> None:
    database = Database(harness)
    runtime = await database.runtime(orders().as_program())
    door: SessionRuntime = runtime if registered else await database.runtime()
    session = await runtime.create("orders", session_id="s")
    (wait,) = (await session.send("go")).waits
    before = await runtime.store.dump()
    for answer, path in WRONG:
        with pytest.raises(AnswerInvalid) as refused:
            await door.answer(wait, answer)
        assert path in {each["path"] for each in refused.value.problems}, answer
    assert await runtime.store.dump() == before
    await door.answer(wait, RIGHT, run=False)
    await runtime.drain()
    assert (await session.get()).messages[-1]["content"] == "3 ['tea'] [16]"


async def test_the_fields_of_an_inner_graph_are_checked_too_and_the_outer_one_has_the_first_word(
    harness: OurHarness,
) -> None:
    runtime = await Database(harness).runtime(orders(nested=True).as_program())
    session = await runtime.create("orders", session_id="s")
    (wait,) = (await session.send("go")).waits
    for answer in ({"reason": "stolen"}, {"amount": "3"}):
        with pytest.raises(AnswerInvalid):
            await session.answer(wait, answer)
    answered = await session.answer(wait, {"reason": "broken", "amount": 4})
    assert answered.outcome is not None
    assert answered.outcome.text == "4 [] []"


def fields_of(*kinds: type[State]) -> Mapping[str, Any]:
    found: Any = answer_schema(schema_of(kind) for kind in kinds)
    assert (found["type"], found["additionalProperties"]) == ("object", False)
    return {**found["properties"], "$defs": found.get("$defs", {})}


def test_the_schema_has_what_checks_a_value_and_nothing_more() -> None:
    fields = fields_of(Order)
    assert fields["amount"] == {"type": "integer"}
    assert fields["lines"] == {"items": {"$ref": "#/$defs/Line"}, "type": "array"}
    assert fields["$defs"]["Line"]["properties"]["title"] == {"type": "string"}
    assert "description" not in json.dumps(fields)
    assert (fields["own"], fields["read"]) == ({}, {})


class Wide(State):
    choices: list[Literal[tuple(f"choice-{n}" for n in range(400))]] = []  # type: ignore[valid-type]
    one: Literal[tuple(f"choice-{n}" for n in range(400))] = "choice-1"  # type: ignore[valid-type]
    unknown: Optional["Wide"] = None


def test_a_long_schema_is_stored_as_the_kind_of_its_values() -> None:
    fields = fields_of(Wide)
    assert (fields["choices"], fields["one"]) == ({"type": "array"}, {"type": "string"})
    assert len(json.dumps(fields)) < 2500


def test_two_types_of_one_name_do_not_become_one() -> None:
    def other() -> type[State]:
        class Line(BaseModel):
            grams: int

        class Parcel(State):
            parcel: Line | None = None

        return Parcel

    fields = fields_of(Order, other())
    assert fields["parcel"] == {}
    assert fields["$defs"]["Line"]["required"] == ["title", "price"]


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    price: int = Field(alias="eur")


class ByChoice(BaseModel):
    price: int = Field(validation_alias=AliasChoices("eur", "usd"))


class Texts(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    text: str


def test_a_type_that_takes_more_than_its_schema_says_takes_any_json_there() -> None:
    class Loose(State):
        name: ByName | None = None
        choice: list[ByChoice] = []
        texts: Texts | None = None
        count: int = 0

    fields = fields_of(Loose)
    assert fields == {"name": {}, "choice": {}, "texts": {}, "count": {"type": "integer"}, "$defs": {}}
