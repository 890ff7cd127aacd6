"""The scripted provider, driven by the real clients: replies, streams, errors and broken connections."""

from collections.abc import Awaitable
from typing import Any

import pytest

from tenuto import Turn, program
from tenuto.messages import (
    AssistantMessage,
    from_anthropic,
    from_openai,
    from_openai_responses,
    stream_anthropic,
    stream_openai,
    text_of,
    to_openai,
    user,
)
from tenuto.testing import Answer, Provider, memory_runtime, provider
from tests.testing.test_provider import CALLING

pytestmark = [pytest.mark.wide, pytest.mark.long("it imports two whole libraries")]

BROKEN = {"APIConnectionError", "ReadError", "RemoteProtocolError"}
"""What the clients raise where a stream breaks: their own error, or that of the HTTP library beneath them."""

ASKED: Any = [{"role": "user", "content": "hi"}]


def openai_client(server: Provider) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0, timeout=10)


def anthropic_client(server: Provider) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0, timeout=10)


async def failure(call: Awaitable[Any]) -> str:
    """Return the name of the error that a call raises."""
    try:
        await call
    except Exception as error:
        return type(error).__name__
    return "none"


async def test_the_openai_client_gets_replies_streams_and_responses() -> None:
    async with provider(CALLING, CALLING, "hi") as server, openai_client(server) as client:
        reply = await client.chat.completions.create(model="m", messages=ASKED)
        assert from_openai(reply) == CALLING
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)
        stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
        assert await stream_openai(stream) == CALLING
        response = await client.responses.create(model="m", input="hi")
        assert [text_of(each) for each in from_openai_responses(response)] == [response.output_text] == ["hi"]
        assert [each["path"] for each in server.requests][1:] == ["/v1/chat/completions", "/v1/responses"]


async def test_the_anthropic_client_gets_replies_and_both_kinds_of_stream() -> None:
    asked: Any = {"model": "m", "max_tokens": 9, "messages": ASKED}
    async with provider(CALLING, CALLING, CALLING) as server, anthropic_client(server) as client:
        reply = await client.messages.create(**asked)
        assert from_anthropic(reply) == CALLING
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 5)
        assert await stream_anthropic(await client.messages.create(**asked, stream=True)) == CALLING
        async with client.messages.stream(**asked) as stream:
            assert await stream_anthropic(stream) == CALLING


async def test_errors_and_broken_connections_are_those_of_the_clients() -> None:
    import anthropic
    import openai

    steps = (Answer(status=429), Answer(drop_after=0), Answer(message=CALLING, drop_after=2)) * 2
    async with provider(*steps) as server:
        async with openai_client(server) as client:
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(model="m", messages=ASKED)
            with pytest.raises(openai.APIConnectionError):
                await client.chat.completions.create(model="m", messages=ASKED)
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            assert await failure(stream_openai(stream)) in BROKEN
        asked: Any = {"model": "m", "max_tokens": 9, "messages": ASKED}
        async with anthropic_client(server) as client:
            with pytest.raises(anthropic.RateLimitError):
                await client.messages.create(**asked)
            with pytest.raises(anthropic.APIConnectionError):
                await client.messages.create(**asked)
            stream = await client.messages.create(**asked, stream=True)
            assert await failure(stream_anthropic(stream)) in BROKEN
        assert len(server.requests) == 6


async def test_a_chat_that_streams_is_a_few_lines() -> None:
    async with provider("Good morning.") as server, openai_client(server) as client:

        @program
        async def chat(turn: Turn) -> None:
            async def ask() -> AssistantMessage:
                stream = await client.chat.completions.create(model="m", messages=to_openai(turn.context), stream=True)
                return await stream_openai(stream, turn.emit)

            turn.append(await turn.effect("model", ask, kind="model"))

        async with memory_runtime(chat) as runtime:
            session = await runtime.create(chat)
            run = await session.start(user("hi", secret="no"))
            assert "".join([text async for text in run.text()]) == "Good morning."
        assert server.requests[0]["body"]["messages"] == ASKED
