"""Replies in the forms in which OpenAI and Anthropic send them, whole and streamed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput
from tenuto.messages.anthropic_messages import to_anthropic
from tenuto.messages.message import AssistantMessage
from tenuto.messages.openai_chat import to_openai
from tenuto.messages.openai_responses import to_openai_responses

CHAT, RESPONSES, ANTHROPIC = "/v1/chat/completions", "/v1/responses", "/v1/messages"


class Said(NamedTuple):
    """What a provider says in one reply: the number of the request, its model, the message, the tokens."""

    number: int
    model: str
    message: AssistantMessage
    input_tokens: int
    output_tokens: int


def whole(path: str, said: Said) -> dict[str, Any]:
    """Return a reply as one JSON object."""
    match path:
        case "/v1/chat/completions":
            return _chat(said)
        case "/v1/responses":
            return _response(said)
        case _:
            return _message(said, _blocks(said), said.output_tokens)


def streamed(path: str, said: Said, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pieces of a reply as server-sent events."""
    match path:
        case "/v1/chat/completions":
            for data in _chat_chunks(said, usage=bool((request.get("stream_options") or {}).get("include_usage"))):
                yield f"data: {json.dumps(data)}\n\n"
            yield "data: [DONE]\n\n"
        case "/v1/messages":
            for event in _message_events(said):
                yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        case _:
            raise InvalidInput("Replies of the Responses API are not streamed here; ask without `stream`.")


def refusal(path: str, status: int, text: str) -> dict[str, Any]:
    """Return an error in the provider's form."""
    if path == ANTHROPIC:
        return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": text}}
    return {"error": {"message": text, "type": _KINDS.get(status, "server_error"), "param": None, "code": None}}


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _chat(said: Said) -> dict[str, Any]:
    (message,) = _as_dicts(to_openai([said.message]))
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": {"refusal": None, **message}, "finish_reason": reason, "logprobs": None}
    return {**_chat_head(said, "chat.completion"), "choices": [choice], "usage": _usage(said)}


def _chat_head(said: Said, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{said.number}", "object": kind, "created": 0, "model": said.model}


def _usage(said: Said) -> dict[str, Any]:
    together = said.input_tokens + said.output_tokens
    return {"prompt_tokens": said.input_tokens, "completion_tokens": said.output_tokens, "total_tokens": together}


def _chat_chunks(said: Said, *, usage: bool) -> Iterator[dict[str, Any]]:
    head = _chat_head(said, "chat.completion.chunk")
    (message,) = _as_dicts(to_openai([said.message]))

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(_text(message["content"])):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        if "function" not in call:
            yield chunk({"tool_calls": [{"index": index, **call}]})
            continue
        begun = {**call, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if message.get("tool_calls") else "stop")
    if usage:
        yield {**head, "choices": [], "usage": _usage(said)}


def _response(said: Said) -> dict[str, Any]:
    items = []
    for at, item in enumerate(_as_dicts(to_openai_responses([said.message]))):
        more: dict[str, Any] = {"id": f"item_{said.number}_{at}", "status": "completed"}
        if isinstance(item.get("content"), str):
            more["content"] = [{"type": "output_text", "text": item["content"], "annotations": []}]
        items.append({**item, **more})
    return {
        "id": f"resp_{said.number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": said.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": said.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.input_tokens + said.output_tokens,
        },
    }


def _message(said: Said, blocks: Sequence[Any], output_tokens: int) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": f"msg_{said.number}",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": said.input_tokens, "output_tokens": output_tokens},
    }


def _blocks(said: Said) -> list[dict[str, Any]]:
    sent = _as_dicts(to_anthropic([said.message]))  # with a user's message before it
    content = sent[-1]["content"] if sent else ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _message_events(said: Said) -> Iterator[dict[str, Any]]:
    blocks = _blocks(said)
    begun = _message(said, [], 0) | {"stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(blocks):
        first, deltas = _deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": first}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = _message(said, blocks, said.output_tokens)
    delta = {"stop_reason": end["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": said.output_tokens}}
    yield {"type": "message_stop"}


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it begins, and what is then added to it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signed]
        case "tool_use":
            text = json.dumps(block["input"])
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(text)]
            return {**block, "input": {}}, pieces
        case _:
            return block, []


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of some characters."""
    for at in range(0, len(text), 5):
        yield text[at : at + 5]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _as_dicts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(message) for message in messages]
