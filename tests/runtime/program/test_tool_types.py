"""The forms of a tool against the types of the real libraries."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from tenuto import Tool, Turn, program, tool

pytestmark = [pytest.mark.wide, pytest.mark.long("it builds the types of two whole libraries")]


class Address(BaseModel):
    street: str
    under: "list[Address]" = []


@tool
async def post(to: Address, count: Annotated[int, Field(gt=0)], size: Literal["S", "L"] = "S") -> str:
    """Send a parcel."""
    return "sent"


@tool(client=True)
async def location() -> tuple[float, float]:
    raise NotImplementedError


@program
async def legal(turn: Turn) -> str:
    """Ask the lawyers."""
    return "no"


TOOLS = [post, location, legal.as_tool(), Tool("bare"), Tool("made", parameters=Address)]


def validated(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return a value as the library's type reads it; unknown fields are refused."""
    return adapter.validate_python(value, extra="forbid")


@pytest.mark.parametrize("made", TOOLS, ids=lambda each: each.name)
def test_openai_takes_the_form(made: Tool) -> None:
    from openai.types.chat import ChatCompletionToolParam
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    form = made.openai()
    assert validated(TypeAdapter(ChatCompletionToolParam), form) == form
    request = {"model": "m", "messages": [], "tools": [form]}
    validated(TypeAdapter(CompletionCreateParamsNonStreaming), request)


@pytest.mark.parametrize("made", TOOLS, ids=lambda each: each.name)
def test_anthropic_takes_the_form(made: Tool) -> None:
    from anthropic.types import ToolParam
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    form = made.anthropic()
    TypeAdapter(ToolParam).validate_python(form)
    assert form["input_schema"]["type"] == "object"
    request = {"model": "m", "max_tokens": 8, "messages": [], "tools": [form]}
    TypeAdapter(MessageCreateParamsNonStreaming).validate_python(request)


async def test_the_real_clients_send_the_schema_as_it_is() -> None:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

    from tenuto.testing import provider

    async with provider("hi", "hi") as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as openai:
            await openai.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], tools=[each.openai() for each in TOOLS]
            )
        async with AsyncAnthropic(base_url=server.url, api_key="none") as anthropic:
            await anthropic.messages.create(
                model="m",
                max_tokens=8,
                messages=[{"role": "user", "content": "hi"}],
                tools=[each.anthropic() for each in TOOLS],
            )
    first, second = (each["body"] for each in server.requests)
    assert [each["function"]["parameters"] for each in first["tools"]] == [dict(each.parameters) for each in TOOLS]
    assert [each["input_schema"] for each in second["tools"]] == [dict(each.parameters) for each in TOOLS]
