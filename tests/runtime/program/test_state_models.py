"""Which models can be a state: aliases, strict types, enums, validators, and what an instance has beside fields."""

from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, computed_field, field_validator, model_validator

from tenuto import Store, Turn, program
from tenuto.errors import StateInvalid
from tests.runtime.runtimes import in_memory, opened

pytestmark = in_memory
T = TypeVar("T")


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Box(BaseModel, Generic[T]):
    item: T


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=str.upper, frozen=True)
    at: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    tags: set[int] = set()
    by_number: dict[int, str] = {}


class Wide(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: f"x-{name}", extra="forbid", frozen=True)
    colour: Colour = Colour.RED
    box: Box[int] = Box[int](item=1)
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    strict: Strict = Strict()
    size: int | None = None
    numbers: dict[int, str] = {}
    total: int = 0
    anything: Any = None
    _note: int = PrivateAttr(default=3)

    @field_validator("size", mode="before")
    @classmethod
    def read(cls, value: Any) -> Any:
        return 7 if value == "seven" else value

    @model_validator(mode="after")
    def add(self) -> Self:
        object.__setattr__(self, "total", sum(self.numbers))
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * (self.size or 0)

    def note(self) -> None:
        self._note += 1

    @cached_property
    def count(self) -> int:
        return len(self.numbers)


async def test_a_field_of_any_type_is_read_back_as_it_was_set(store: Store) -> None:
    async def body(turn: Turn[Wide]) -> Any:
        state: Any = turn.state
        if turn.text == "again":
            return None
        state.colour = Colour.BLUE
        state.box = Box[int](item=5)
        state.pet = Dog()
        state.strict = state.strict.model_copy(update={"tags": {1, 2}, "by_number": {3: "x"}})
        state.size = "seven"
        assert (state.size, state.double, state.count) == (7, 14, 0)
        state.numbers = {1: "a", 5: "b"}
        assert (state.total, state.count) == (6, 2)
        state.anything = {"a": [1, {"b": None}]}
        state.note()
        return state.model_dump(mode="json", by_alias=True)["x-double"]

    runtime = await opened(store, [program(state=Wide, name="wide")(body)])
    session = await runtime.create("wide", Wide())
    assert (await session.send("hi")).result() == 14
    found = (await session.get()).state(Wide)
    assert (found.colour, found.box.item, found.pet, found.size, found.total) == (Colour.BLUE, 5, Dog(), 7, 6)
    assert (found.strict.at, found.strict.tags, found.strict.by_number) == (Strict().at, {1, 2}, {3: "x"})
    assert (await session.get()).document["strict"] == {
        "at": "2026-01-02T00:00:00Z",
        "tags": [1, 2],
        "by_number": {"3": "x"},
    }
    assert (await session.send("again")).completed


BAD = {
    "set": ({1, 2}, "state.anything"),
    "not finite": ([1, float("nan")], "state.anything[1]"),
    "object": (object(), "state.anything"),
    "surrogate": ({"a": "\ud800"}, "state.anything.a"),
    "integer key": ({1: 2}, "state.anything"),
}


@pytest.mark.parametrize(("value", "path"), BAD.values(), ids=BAD)
async def test_what_would_be_read_back_as_something_else_is_refused(store: Store, value: Any, path: str) -> None:
    async def body(turn: Turn[Wide]) -> None:
        with pytest.raises(StateInvalid) as caught:
            turn.update(lambda _: {"anything": value, "size": 1})
        assert caught.value.path == path
        assert (turn.state.anything, turn.state.size) == (None, None)

    runtime = await opened(store, [program(state=Wide, name="wide")(body)])
    outcome = await (await runtime.create("wide")).send("hi")
    assert outcome.completed, outcome.error
