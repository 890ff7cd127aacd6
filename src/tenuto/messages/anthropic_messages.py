"""Messages from and to Anthropic's messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

from tenuto.errors import InvalidInput
from tenuto.messages.context_order import in_order, quoted_data
from tenuto.messages.message import AssistantMessage, ContextMessage, Delta, text_of
from tenuto.messages.provider_fields import (
    Entry,
    Sent,
    data_url,
    fields,
    file_part,
    other,
    text_part,
    with_fields,
    without,
)
from tenuto.messages.provider_object import Native, ProviderObject, Stream, opened, plain, understood_as
from tenuto.messages.tool_arguments import arguments_of
from tenuto.quote import quote

if TYPE_CHECKING:
    from anthropic.types import MessageParam

PROVIDER = "anthropic"
_FORM = "a message of Anthropic's"
_ROLES = ("system", "user", "assistant")
_PDF = "application/pdf"
_BEFORE = "(The conversation begins before this.)"


@overload
def from_anthropic(message: ProviderObject) -> AssistantMessage: ...
@overload
def from_anthropic(message: Mapping[str, object]) -> ContextMessage: ...
@overload
def from_anthropic(message: Iterable[Native]) -> list[ContextMessage]: ...
def from_anthropic(message: ProviderObject | Mapping[str, object] | Iterable[Native]) -> Any:
    """Return a `Message` of Anthropic's, or a message as it is sent, in our form; a list for a list.

    A message that has results of tools is several of ours: give it in a list.
    """
    given = plain(message)
    with understood_as(_FORM, given):
        found = [each for one in (given if isinstance(given, list) else [given]) for each in _from_one(one)]
    if isinstance(given, list):
        return found
    if len(found) != 1:
        raise InvalidInput(
            f"This message of Anthropic's is {len(found)} of ours, one for each result and one for the rest; "
            "give it in a list: from_anthropic([message])."
        )
    return found[0]


def system_of(messages: Iterable[ContextMessage]) -> str:
    """Return the text of the system messages, for the `system` of a request to Anthropic."""
    return "\n\n".join(text for each in messages if each["role"] == "system" and (text := text_of(each)))


def to_anthropic(messages: Iterable[ContextMessage]) -> list["MessageParam"]:
    """Return messages in the form of Anthropic's messages: without metadata, and without the texts of `system_of`.

    Messages of one side that follow each other are one, with the results of tools first; one without content is left
    out. The value that a notice is about is quoted in a user's message. A context that begins with the assistant has a
    sentence of a user before it, because the first message must be a user's.
    """
    found: list[dict[str, Any]] = []
    for message in in_order(messages):
        with understood_as("a message that can be sent", message):
            role, content = _to_one(message)
        if not content:
            continue
        if not found and role == "assistant":
            found.append({"role": "user", "content": _BEFORE})
        if found and found[-1]["role"] == role:
            found[-1]["content"] = [*_blocks(found[-1]["content"]), *_blocks(content)]
        else:
            found.append({"role": role, "content": content})
    return cast("list[MessageParam]", found)


async def stream_anthropic(events: Stream, emit: Callable[[Delta], None] | None = None) -> AssistantMessage:
    """Assemble the message of a stream of `RawMessageStreamEvent`s, calling `emit` with each delta as it arrives.

    `events` is the stream, or the request for it. One that ends before its last event is a `ConnectionError`: its
    message would not be whole.
    """
    reply = _Reply(emit or (lambda _: None))
    async for event in await opened(events):
        reply.add(plain(event))
    if not reply.whole:
        raise ConnectionError("The stream of a message ended before its last event.")
    return cast("AssistantMessage", _from_one(reply.message())[0])


def _from_one(given: Any) -> list[ContextMessage]:
    """Return a message: its results of tools each as one, then the rest."""
    role = given.get("role") if isinstance(given, dict) else None
    content = given.get("content") if isinstance(given, dict) else None
    if role not in _ROLES or not isinstance(content, str | list):
        raise InvalidInput(f"This is not {_FORM}: {quote(given)}.")
    if isinstance(content, str):
        return [cast("ContextMessage", {"role": role, "content": content})]
    results: list[ContextMessage] = []
    parts: list[Any] = []
    calls: list[Any] = []
    last_to_place = max((at for at, block in enumerate(content) if _needs_place(block)), default=-1)
    for at, block in enumerate(content):
        if block.get("type") == "tool_use" and role == "assistant":
            made, extra = _from_call(block)
            if at <= last_to_place:
                parts.append(fields(PROVIDER, "tool_call", extra, index=len(calls)))
            calls.append(made)
        elif block.get("type") == "tool_result" and role == "user":
            results.append(_from_result(block))
        else:
            parts += _from_block(block)
    if results and not parts:
        return results
    is_reply = given.get("type") == "message"  # and so not a form that must come back to the letter
    if not parts or (is_reply and len(parts) == 1 and parts[0]["type"] == "text"):
        message: dict[str, Any] = {"role": role, "content": parts[0]["text"] if parts else ""}
    else:
        message = {"role": role, "content": parts}
    return [*results, cast("ContextMessage", message | ({"tool_calls": calls} if calls else {}))]


def _needs_place(block: Mapping[str, Any]) -> bool:
    """Return whether a block, and so every call before it, must be found again at its place among the parts."""
    return block.get("type") != "tool_use" or bool(without(block, "type", "id", "name", "input"))


def _from_call(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    given = block.get("input")
    arguments = given if isinstance(given, dict) else arguments_of(str(given or ""))
    extra = without(block, "type", "id", "name", "input")
    return {"id": block["id"], "name": block["name"], "arguments": arguments}, extra


def _from_result(block: Mapping[str, Any]) -> ContextMessage:
    content: Any = block.get("content") or ""
    parts = content if isinstance(content, str) else [part for each in content for part in _from_block(each)]
    own = without(block, "type", "tool_use_id", "content")
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": with_fields(PROVIDER, parts, own)}


def _from_block(block: Mapping[str, Any]) -> list[Any]:
    match block:
        case {"type": "text", "text": str(text)}:
            more = without(block, "type", "text")
            return [text_part(text), *([fields(PROVIDER, "part", more)] if more else [])]
        case {"type": "image" | "document" as kind, "source": {"type": str()} as source}:
            given = _file_of(kind, source)
            more = without(block, "type", "source", *(["title"] if kind == "document" else []))
            if given is not None and not more:
                return [file_part(*given, block.get("title"))]
    return [other(PROVIDER, block)]


def _file_of(kind: str, source: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the address and the media type of an image or a document; None if our form has no place for it."""
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data), **rest} if not rest:
            is_known = media_type.startswith("image/") if kind == "image" else media_type == _PDF
            return (f"data:{media_type};base64,{data}", media_type) if is_known else None
        case {"type": "url", "url": str(url), **rest} if not rest and data_url(url) is None:
            return url, "image/*" if kind == "image" else _PDF
    return None


def _to_one(message: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the side of a message, and its content: a text or blocks, either of which may be empty."""
    role = message["role"]
    if role == "system":
        return "user", quoted_data(message) or ""
    sent, calls = Sent.of(message, PROVIDER), message.get("tool_calls") or ()
    if role == "tool":
        content: Any = sent.text() if sent.as_text else [_to_block(each) for each in sent.entries]
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        return "user", [{**sent.fields, **result}]
    if sent.as_text and not calls:
        return role, sent.text()
    blocks: list[Any] = []
    for entry, call in sent.with_calls(calls):
        if call is not None:
            given = dict(call.get("arguments") or {})
            blocks.append({**entry.fields, "type": "tool_use", "id": call["id"], "name": call["name"], "input": given})
        elif entry.part.get("type") != "text" or entry.part["text"]:
            blocks.append(_to_block(entry))
    return role, blocks


def _to_block(entry: Entry) -> Mapping[str, Any]:
    part = entry.part
    if part.get("type") == "text" or "media_type" not in part:
        return {**entry.fields, **part}
    media_type, url = part["media_type"], part["url"]
    found = data_url(url)
    source = {"type": "base64", "media_type": found[0], "data": found[1]} if found else {"type": "url", "url": url}
    if media_type.startswith("image/"):
        return {"type": "image", "source": source}
    if media_type == _PDF:
        return {"type": "document", "source": source, **({"title": part["name"]} if "name" in part else {})}
    raise InvalidInput(f"Anthropic's messages take images and PDF documents, not {media_type} at {quote(url)}.")


def _blocks(content: Any) -> list[Any]:
    return [text_part(content)] if isinstance(content, str) else content


class _Reply:
    """The message of a stream, as far as it has arrived."""

    def __init__(self, emit: Callable[[Delta], None]) -> None:
        self.whole = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._calls: dict[int, int] = {}
        self._emit = emit

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event; one that is not of the raw stream says nothing new."""
        match event:
            case {"type": "content_block_start", "index": int(at), "content_block": block}:
                self._blocks[at] = dict(block)
                if block["type"] == "tool_use":
                    self._calls[at] = len(self._calls)
                    self._emit_call(at, "", id=block["id"], name=block["name"])
                elif block["type"] == "text" and block.get("text"):
                    self._emit({"text": block["text"]})
            case {"type": "content_block_delta", "index": int(at), "delta": delta}:
                self._add_delta(at, delta)
            case {"type": "error", "error": error}:
                raise ConnectionError(f"The stream of a message ended with an error: {quote(error)}")
            case {"type": "message_stop"}:
                self.whole = True

    def message(self) -> dict[str, Any]:
        """Return the message as Anthropic would have returned it whole."""
        for at, text in self._inputs.items():
            if text:
                self._blocks[at]["input"] = arguments_of(text)
        blocks = [self._blocks[at] for at in sorted(self._blocks)]
        return {"type": "message", "role": "assistant", "content": blocks}

    def _add_delta(self, at: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks[at]
        match delta:
            case {"type": "text_delta", "text": text}:
                block["text"] = block.get("text", "") + text
                self._emit({"text": text})
            case {"type": "thinking_delta", "thinking": text}:
                block["thinking"] = block.get("thinking", "") + text
                self._emit({"reasoning": text})
            case {"type": "input_json_delta", "partial_json": text}:
                self._inputs[at] = self._inputs.get(at, "") + text
                if at in self._calls:
                    self._emit_call(at, text)
            case {"type": "signature_delta", "signature": text}:
                block["signature"] = block.get("signature", "") + text
            case {"type": "citations_delta", "citation": citation}:
                block["citations"] = [*(block.get("citations") or ()), citation]

    def _emit_call(self, at: int, arguments: str, **named: str) -> None:
        self._emit({"tool_call": {"index": self._calls[at], **named, "arguments": arguments}})
