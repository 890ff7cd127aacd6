"""The scripted provider, driven by plain HTTP: what it answers, streams, breaks, holds and logs."""

import asyncio
import http.client
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.messages import AssistantMessage
from tenuto.testing import Answer, Provider, provider

CALLING: AssistantMessage = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [{"id": "c", "name": "look_up", "arguments": {"order": "seven"}}],
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def post(url: str, body: Mapping[str, Any]) -> bytes:
    """Post JSON and return the answer."""
    headers = {"content-type": "application/json", "x-api-key": "secret", "authorization": "Bearer secret"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as reply:
        found: bytes = reply.read()
    return found


async def ask(server: Provider, form: str = "chat", **body: Any) -> Any:
    """Ask in one of the forms, in a thread; return the JSON, or the data of the events."""
    text = (await asyncio.to_thread(post, server.url + PATHS[form], {"model": "m", **body})).decode()
    if not body.get("stream"):
        return json.loads(text)
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


async def test_a_text_and_a_message_are_answers_in_each_form() -> None:
    async with provider("hi", CALLING, "hi", CALLING, "hi", CALLING) as server:
        assert (await ask(server))["choices"][0]["message"]["content"] == "hi"
        choice = (await ask(server))["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"order":"seven"}'}
        assert (await ask(server, "messages"))["content"] == [{"type": "text", "text": "hi"}]
        message = await ask(server, "messages")
        assert message["stop_reason"] == "tool_use"
        assert message["content"][1] == {"type": "tool_use", "id": "c", "name": "look_up", "input": {"order": "seven"}}
        assert (await ask(server, "responses"))["output"][0]["content"][0]["text"] == "hi"
        assert (await ask(server, "responses"))["output"][1]["call_id"] == "c"


async def test_a_chat_completion_is_streamed_with_its_usage_if_asked() -> None:
    async with provider(Answer(message=CALLING, input_tokens=7, output_tokens=3)) as server:
        chunks = await ask(server, stream=True, stream_options={"include_usage": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "I look."
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["id"] == "c"
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"order": "seven"}
    assert chunks[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


async def test_a_message_is_streamed_block_by_block() -> None:
    async with provider(CALLING) as server:
        events = await ask(server, "messages", stream=True)
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    pieces = [event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"order": "seven"}


@pytest.mark.parametrize("form", PATHS)
async def test_an_error_has_the_status_the_headers_and_the_form_of_the_provider(form: str) -> None:
    async with provider(Answer(status=429, error="Slowly.", headers={"retry-after": "3"})) as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            await ask(server, form)
    assert (refused.value.code, refused.value.headers["retry-after"]) == (429, "3")
    error = json.loads(refused.value.read())["error"]
    assert (error["type"], error["message"]) == ("rate_limit_error", "Slowly.")


async def test_a_connection_breaks_before_the_answer_or_within_the_stream() -> None:
    async with provider(Answer(drop_after=0), Answer(message=CALLING, drop_after=2)) as server:
        with pytest.raises((ConnectionError, http.client.HTTPException, urllib.error.URLError)):
            await ask(server)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            await ask(server, stream=True)
        assert len(server.requests) == 2


async def test_a_held_answer_waits_until_it_is_released_and_is_logged_before() -> None:
    async with provider(Answer(hold=True), "second") as server:
        held = asyncio.create_task(ask(server))
        assert [each["number"] for each in await server.arrived(1)] == [1]
        assert (await ask(server))["choices"][0]["message"]["content"] == "second"
        assert not held.done()
        server.release()
        assert (await held)["id"] == "chatcmpl-1"


async def test_an_answer_that_is_held_at_the_end_breaks() -> None:
    async with provider(Answer(hold=True)) as server:
        held = asyncio.create_task(ask(server))
        await server.arrived(1)
    with pytest.raises((ConnectionError, http.client.HTTPException, urllib.error.URLError)):
        await held


async def test_an_answer_is_delayed() -> None:
    async with provider(Answer(delay=0.2)) as server:
        began = time.monotonic()
        await ask(server)
    assert time.monotonic() - began >= 0.2


async def test_a_script_may_be_a_function_of_the_request() -> None:
    async with provider(lambda body: f"You said {body['messages'][-1]['content']}.") as server:
        for text in ("one", "two"):
            reply = await ask(server, messages=[{"role": "user", "content": text}])
            assert reply["choices"][0]["message"]["content"] == f"You said {text}."


async def test_what_is_not_in_the_script_is_refused() -> None:
    async with provider("only") as server:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(post, f"{server.url}/v1/embeddings", {})
        await ask(server)
        with pytest.raises(urllib.error.HTTPError) as refused:
            await ask(server)
        assert "The script has 1 steps" in refused.value.read().decode()
        with pytest.raises(TimeoutError, match="3 requests came"):
            await server.arrived(4, within=0.01)
    with pytest.raises(InvalidInput, match="async with"):
        assert server.url


ASKER = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], b'{"model": "of another process"}', {"x-api-key": "secret"})
urllib.request.urlopen(request, timeout=10).read()
"""


def test_requests_of_other_processes_are_lines_of_a_file_without_secrets(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with provider("hi", log=log) as server:
        command = [sys.executable, "-c", ASKER, server.url + PATHS["messages"]]
        subprocess.run(command, check=True, timeout=30)
        (request,) = server.wait_for(1)
    assert json.loads(log.read_text()) == request
    assert (request["path"], request["body"]) == ("/v1/messages", {"model": "of another process"})
    assert request["answer"] == {"status": 200, "input_tokens": 10, "output_tokens": 5}
    assert "secret" not in log.read_text()
