"""Messages from and to OpenAI's chat completions."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

from tenuto.errors import InvalidInput
from tenuto.messages.context_order import in_order, quoted_data
from tenuto.messages.message import AssistantMessage, ContextMessage, Delta
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
from tenuto.messages.tool_arguments import UNPARSED, arguments_of, text_of_arguments
from tenuto.quote import quote

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

PROVIDER = "openai"
_FORM = "a message of OpenAI's chat completions"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_REASONING = ("reasoning_content", "reasoning")


@overload
def from_openai(message: ProviderObject) -> AssistantMessage: ...
@overload
def from_openai(message: Mapping[str, object]) -> ContextMessage: ...
@overload
def from_openai(message: Iterable[Native]) -> list[ContextMessage]: ...
def from_openai(message: ProviderObject | Mapping[str, object] | Iterable[Native]) -> Any:
    """Return a `ChatCompletion`, a message of one, or a message as it is sent, in our form; a list for a list.

    Of a completion with several choices it is the first. What only OpenAI understands becomes `other` parts.
    """
    given = plain(message)
    with understood_as(_FORM, given):
        return [_from_one(each) for each in given] if isinstance(given, list) else _from_one(given)


def to_openai(messages: Iterable[ContextMessage]) -> list["ChatCompletionMessageParam"]:
    """Return messages in the form of chat completions: without metadata, each result right after its call.

    The value that a notice is about follows it as a user's message, quoted.
    """
    found: list[dict[str, Any]] = []
    for message in in_order(messages):
        with understood_as("a message that can be sent", message):
            found.append(_to_one(message))
        if (quoted := quoted_data(message)) is not None:
            found.append({"role": "user", "content": quoted})
    return cast("list[ChatCompletionMessageParam]", found)


async def stream_openai(chunks: Stream, emit: Callable[[Delta], None] | None = None) -> AssistantMessage:
    """Assemble the message of a stream of `ChatCompletionChunk`s, calling `emit` with each delta as it arrives.

    `chunks` is the stream, or the request for it. One that ends without a finish reason is a `ConnectionError`: its
    message would not be whole.
    """
    reply = _Reply(emit or (lambda _: None))
    async for chunk in await opened(chunks):
        for choice in plain(chunk).get("choices") or ():
            if not choice.get("index"):
                reply.add(choice)
    if reply.finish_reason is None:
        raise ConnectionError("The stream of a chat completion ended before its finish reason.")
    return from_openai_message(reply.message)


def from_openai_message(given: Mapping[str, Any]) -> AssistantMessage:
    """Return a reply of a chat completion in our form."""
    return cast("AssistantMessage", _from_one({"role": "assistant", **given}))


def _from_one(given: Any) -> ContextMessage:
    if isinstance(given, dict) and "choices" in given:
        given = next((choice["message"] for choice in given["choices"] or ()), None)
    role = _ROLES.get(str(given.get("role"))) if isinstance(given, dict) else None
    if role is None:
        raise InvalidInput(f"This is not {_FORM}: {quote(given)}.")
    left = without(given, "role", "content", "tool_calls", "tool_call_id")
    if given["role"] == "developer":
        left["role"] = "developer"
    content = given.get("content") or ""
    parts = content if isinstance(content, str) else [part for each in content for part in _from_part(each)]
    calls: list[Any] = []
    more: list[Any] = []
    for index, call in enumerate(given.get("tool_calls") or ()):
        made, extra = _from_call(call)
        calls.append(made)
        if extra:
            more.append(fields(PROVIDER, "tool_call", extra, index=index))
    message: dict[str, Any] = {"role": role, "content": with_fields(PROVIDER, parts, left, *more)}
    if role == "tool":
        message["tool_call_id"] = given["tool_call_id"]
    if calls:
        message["tool_calls"] = calls
    return cast("ContextMessage", message)


def _from_call(call: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call in our form, and its fields that have no place in it."""
    extra = without(call, "id", "type", "function", "custom")
    if "function" in call:
        function = call["function"]
        extra |= {"function": more} if (more := without(function, "name", "arguments")) else {}
        arguments = arguments_of(function.get("arguments") or "")
        return {"id": call["id"], "name": function["name"], "arguments": arguments}, extra
    if "custom" in call:
        custom = call["custom"]
        made = {"id": call["id"], "name": custom["name"], "arguments": {UNPARSED: custom["input"]}}
        return made, {"type": "custom", **extra}
    raise InvalidInput(f"This is not a tool call of OpenAI's chat completions: {quote(call)}.")


def _from_part(part: Mapping[str, Any]) -> list[Any]:
    match part:
        case {"type": "text", "text": str(text)}:
            more = without(part, "type", "text")
            return [text_part(text), *([fields(PROVIDER, "part", more)] if more else [])]
        case {"type": "image_url", "image_url": {"url": str(url), **rest}} if not rest and len(part) == 2:
            media_type = (data_url(url) or ("image/*",))[0]
            if media_type.startswith("image/"):
                return [file_part(url, media_type)]
        case {"type": "file", "file": {"file_data": str(url), **rest}} if len(part) == 2:
            found = data_url(url)
            if found and found[0].partition("/")[0] not in ("image", "audio") and rest.keys() <= {"filename"}:
                return [file_part(url, found[0], part["file"].get("filename"))]
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form), **rest}}:
            if form in _AUDIO and not rest and len(part) == 2:
                return [file_part(f"data:{_AUDIO[form]};base64,{data}", _AUDIO[form])]
    return [other(PROVIDER, part)]


def _to_one(message: Mapping[str, Any]) -> dict[str, Any]:
    role, sent, calls = message["role"], Sent.of(message, PROVIDER), message.get("tool_calls") or ()
    parts = [entry for entry in sent.entries if entry.call is None]
    content: Any = sent.text() if sent.as_text else [_to_part(entry, role) for entry in parts]
    written: dict[str, Any] = {"role": role, "content": content or (None if calls else "")}
    if role == "tool":
        written["tool_call_id"] = message["tool_call_id"]
    if calls:
        extra = {entry.call: entry.fields for entry in sent.entries if entry.call is not None}
        written["tool_calls"] = [_to_call(call, extra.get(index, {})) for index, call in enumerate(calls)]
    if role == "system" and sent.fields.get("role") == "developer":
        written["role"] = "developer"
    return {**sent.fields, **written}


def _to_call(call: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    name, text = call["name"], text_of_arguments(call.get("arguments"))
    if extra.get("type") == "custom":
        return {**extra, "id": call["id"], "custom": {"name": name, "input": text}}
    function = {**extra.get("function", {}), "name": name, "arguments": text}
    return {**extra, "id": call["id"], "type": "function", "function": function}


def _to_part(entry: Entry, role: str) -> Mapping[str, Any]:
    part = entry.part
    if part.get("type") == "text" or "media_type" not in part:
        return {**entry.fields, **part}
    media_type, url = part["media_type"], part["url"]
    found = data_url(url)
    if role == "user":
        if media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        if found and media_type in _AUDIO.values():
            form = next(form for form, each in _AUDIO.items() if each == media_type)
            return {"type": "input_audio", "input_audio": {"data": found[1], "format": form}}
        if found:
            name = {"filename": part["name"]} if "name" in part else {}
            return {"type": "file", "file": {"file_data": url, **name}}
    raise InvalidInput(
        f"OpenAI's chat completions take no {media_type} at {quote(url)} in a message with role {role!r}: images by "
        "any address and other files as a 'data:' address, both only from a user."
    )


class _Reply:
    """The message of a stream, as far as it has arrived."""

    def __init__(self, emit: Callable[[Delta], None]) -> None:
        self.message: dict[str, Any] = {}
        self.finish_reason: str | None = None
        self._emit = emit

    def add(self, choice: Mapping[str, Any]) -> None:
        """Add a chunk's choice."""
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get("delta") or {}
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value or ():
                    self._add_call(call)
            elif name != "role" and value is not None:
                _join(self.message, name, value)
        if delta.get("content"):
            self._emit({"text": delta["content"]})
        if reasoning := next((delta[name] for name in _REASONING if delta.get(name)), None):
            self._emit({"reasoning": reasoning})

    def _add_call(self, given: Mapping[str, Any]) -> None:
        calls = self.message.setdefault("tool_calls", [])
        index = given.get("index")
        if index is None:  # of some compatible servers: a new id is a new call
            index = len(calls) if given.get("id") or not calls else len(calls) - 1
        while len(calls) <= index:
            calls.append({})
        call, begins = calls[index], not calls[index]
        for name, value in given.items():
            if name in ("function", "custom"):
                inner = call.setdefault(name, {"arguments" if name == "function" else "input": ""})
                for field, text in value.items():
                    if field == "name":
                        inner[field] = text or inner.get(field)
                    elif text is not None:
                        _join(inner, field, text)
            elif name != "index" and value is not None:
                call[name] = value
        made = call.get("function") or call.get("custom") or {}
        piece = (given.get("function") or {}).get("arguments") or (given.get("custom") or {}).get("input") or ""
        named = {"id": call.get("id"), "name": made.get("name")} if begins else {}
        self._emit({"tool_call": {"index": index, **named, "arguments": piece}})


def _join(into: dict[str, Any], name: str, value: Any) -> None:
    """Add what arrived of a field: texts and lists continue, anything else is replaced."""
    before = into.get(name)
    continues = isinstance(before, str | list) and type(before) is type(value)
    into[name] = before + value if continues else value
