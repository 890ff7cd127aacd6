"""A function is a tool by its signature and docstring: what a model is shown of it."""

import functools
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tenuto import Tool, Turn, program, tool
from tenuto.errors import InvalidInput


class Address(BaseModel):
    """Where a parcel goes."""

    street: str
    code: Annotated[str, Field(pattern=r"^\d{4}$", description="Four digits.")]


class Branch(BaseModel):
    name: str
    under: list["Branch"] = []


class Speed(StrEnum):
    SLOW = "slow"
    FAST = "fast"


async def post(
    turn: Turn,
    item: Annotated[str, Field(description="What to send.", max_length=80)],
    to: Address,
    count: int,
    size: Literal["S", "L"] = "S",
    speed: Speed = Speed.SLOW,
    when: date | None = None,
    notes: list[str] = [],  # noqa: B006
) -> str:
    """Send a parcel.

    It leaves the same day.

    Args:
        item: Not this: the annotation takes precedence.
        to: The address,
            in full.
        count (int): How many.

    Returns:
        Its number.
    """
    return item


def property_of(made: Tool, name: str) -> Any:
    """Return what the schema says about one parameter."""
    properties: Any = made.parameters["properties"]
    return properties[name]


def test_the_name_and_the_description_are_the_functions() -> None:
    made = tool(post)
    assert (made.name, made.description) == ("post", "Send a parcel.\n\nIt leaves the same day.")
    named = tool(name="send_parcel", description="Post it.")(post)
    assert (named.name, named.description) == ("send_parcel", "Post it.")


def test_each_parameter_is_described_by_its_type_its_annotation_and_the_docstring() -> None:
    made = tool(post)
    assert property_of(made, "item") == {"type": "string", "description": "What to send.", "maxLength": 80}
    assert property_of(made, "to") == {"$ref": "#/$defs/Address", "description": "The address, in full."}
    assert property_of(made, "count") == {"type": "integer", "description": "How many."}
    assert property_of(made, "size") == {"type": "string", "enum": ["S", "L"], "default": "S"}
    assert property_of(made, "speed") == {"$ref": "#/$defs/Speed", "default": "slow"}
    dates: Any = [{"type": "string", "format": "date"}, {"type": "null"}]
    assert property_of(made, "when") == {"anyOf": dates, "default": None}
    assert property_of(made, "notes") == {"type": "array", "items": {"type": "string"}, "default": []}


def test_what_has_no_default_is_required_and_nothing_else_is_taken() -> None:
    made = tool(post)
    assert made.parameters["required"] == ["item", "to", "count"]
    assert made.parameters["additionalProperties"] is False


def test_nested_models_are_definitions_with_what_they_say_of_their_fields() -> None:
    definitions: Any = tool(post).parameters["$defs"]
    assert definitions["Address"]["description"] == "Where a parcel goes."
    assert definitions["Address"]["required"] == ["street", "code"]
    assert definitions["Address"]["properties"]["code"]["description"] == "Four digits."
    assert definitions["Speed"]["enum"] == ["slow", "fast"]


def test_a_type_may_contain_itself() -> None:
    @tool
    async def plant(root: Branch) -> None: ...

    definitions: Any = plant.parameters["$defs"]
    assert definitions["Branch"]["properties"]["under"]["items"] == {"$ref": "#/$defs/Branch"}


def test_the_turn_is_not_a_parameter_whatever_it_is_called() -> None:
    async def first(here: Turn, n: int) -> int:
        return n

    async def last(n: int, here: "Turn[Any]") -> int:
        return n

    async def bare(turn, n: int) -> int:  # type: ignore[no-untyped-def]
        return n

    for function in (first, last, bare):
        assert list(tool(function).parameters["properties"]) == ["n"]  # type: ignore[arg-type]


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    @tool
    async def today() -> str:
        """Tell the date."""
        return "Monday"

    assert today.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_parameter_without_an_annotation_takes_anything() -> None:
    @tool
    def note(what, why: "str" = "so"):  # type: ignore[no-untyped-def]
        return what

    assert property_of(note, "what") == {}
    assert property_of(note, "why") == {"type": "string", "default": "so"}


def test_methods_objects_and_partial_functions_are_tools_too() -> None:
    class Desk:
        def look(self, n: int) -> int:
            """Look."""
            return n

        async def __call__(self, n: int) -> int:
            """Call."""
            return n

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert (tool(Desk().look).name, tool(Desk().look).description) == ("look", "Look.")
    assert tool(name="desk")(Desk()).description == "Call."
    assert property_of(tool(name="inc")(functools.partial(add, b=1)), "b") == {"type": "integer", "default": 1}


def test_a_model_or_a_schema_declares_the_parameters_of_a_tool_that_is_made_by_hand() -> None:
    async def run(turn: Turn, arguments: dict[str, Any]) -> None: ...

    assert Tool("go", run, parameters=Address).parameters["required"] == ["street", "code"]
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert Tool("go", run, parameters=schema).parameters == schema
    assert Tool("go", run).parameters == {"type": "object", "properties": {}}


def test_a_program_is_a_tool_by_one_word() -> None:
    @program(name="legal", version=3)
    async def lawyers(turn: Turn) -> str:
        """Ask the lawyers.

        Args:
            turn: The turn.
        """
        return "no"

    made = lawyers.as_tool()
    assert (made.name, made.description) == ("legal", "Ask the lawyers.")
    assert made.parameters["required"] == ["message"]
    other = lawyers.as_tool(name="counsel", description="Ask again.")
    assert (other.name, other.description) == ("counsel", "Ask again.")


def test_the_forms_of_providers_have_the_name_the_description_and_the_schema() -> None:
    made = tool(post)
    schema = dict(made.parameters)
    assert made.openai() == {
        "type": "function",
        "function": {"name": "post", "description": made.description, "parameters": schema},
    }
    assert made.anthropic() == {"name": "post", "description": made.description, "input_schema": schema}
    bare = Tool("go")
    assert bare.openai()["function"] == {"name": "go", "parameters": {"type": "object", "properties": {}}}
    assert bare.anthropic() == {"name": "go", "input_schema": {"type": "object", "properties": {}}}


class NoJson: ...


def in_thread(turn: Turn, n: int) -> int:
    return n


async def spread(*args: int) -> None: ...


async def named(**options: int) -> None: ...


async def by_position(n: int, /) -> None: ...


async def strange(one: int, thing: NoJson) -> None: ...


async def unresolved(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def returns_nothing_known(n: int) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
    return n


async def twice(one: Turn, two: Turn) -> None: ...


def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (in_thread, "takes the turn as 'turn', but runs in a thread: declare it with `async def`"),
        (spread, "takes *args: int, but a model names each parameter"),
        (named, "takes **options: int, but a model names each parameter"),
        (by_position, "takes n: int, but a model names each parameter"),
        (strange, "its parameter 'thing' has a type that JSON cannot have"),
        (unresolved, "the annotation of its parameter 'thing', 'Nowhere', cannot be resolved"),
        (returns_nothing_known, "the annotation of what it returns, 'Nowhere', cannot be resolved"),
        (twice, "takes the turn twice, as 'one' and as 'two'"),
        (generator, "is a generator; a tool returns one value"),
        (lambda n: n, "has no name that a model could call; pass `name=`"),
        (NoJson, "is not a function"),
        (5, "is not a function"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_declared(function: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tool(function)
    assert said in str(refused.value)


def test_a_clients_tool_takes_no_turn() -> None:
    with pytest.raises(InvalidInput, match="but is run by the client"):
        tool(client=True)(post)


@pytest.mark.parametrize("name", ["", "two words", "n" * 65, "näme", "a.b"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be a tool's name|has no name"):
        tool(name=name or None)(lambda: 1)
