"""Messages from and to the items of OpenAI's Responses."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tenuto.errors import InvalidInput
from tenuto.messages.context_order import in_order, quoted_data
from tenuto.messages.message import ContextMessage
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
from tenuto.messages.provider_object import Native, ProviderObject, plain, understood_as
from tenuto.messages.tool_arguments import UNPARSED, arguments_of, text_of_arguments
from tenuto.quote import quote

if TYPE_CHECKING:
    from openai.types.responses import ResponseInputItemParam

PROVIDER = "openai_responses"
_FORM = "an item of OpenAI's Responses"
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


def from_openai_responses(items: ProviderObject | Mapping[str, object] | Iterable[Native]) -> list[ContextMessage]:
    """Return a `Response`, an item, or a list of items in our form.

    The items of one reply, such as its reasoning, its text and its calls, are one assistant message. What only OpenAI
    understands becomes `other` parts.
    """
    given = plain(items)
    with understood_as(_FORM, given):
        if isinstance(given, dict):
            given = given["output"] if given.get("object") == "response" else [given]
        return _from_items(given)


def to_openai_responses(messages: Iterable[ContextMessage]) -> list["ResponseInputItemParam"]:
    """Return messages as input items: without metadata, each result right after its call.

    The value that a notice is about follows it as a user's message, quoted.
    """
    found: list[Mapping[str, Any]] = []
    for message in in_order(messages):
        with understood_as("a message that can be sent", message):
            found += _to_items(message)
        if (quoted := quoted_data(message)) is not None:
            found.append({"type": "message", "role": "user", "content": quoted})
    return cast("list[ResponseInputItemParam]", found)


def _from_items(items: Iterable[Any]) -> list[ContextMessage]:
    found: list[ContextMessage] = []
    reply: _Reply | None = None
    for item in items:
        kind = item.get("type", "message")
        if kind in _RESULTS or (kind == "message" and not _is_output(item)):
            found += [] if reply is None else [reply.message()]
            reply = None
            found.append(_from_result(item) if kind in _RESULTS else _from_input(item))
        else:
            reply = reply or _Reply()
            reply.add(kind, item)
    return found + ([] if reply is None else [reply.message()])


def _is_output(item: Mapping[str, Any]) -> bool:
    """Return whether a message item is one of a reply, with a list of parts, and not in the easy form of input."""
    content = item.get("content")
    return item.get("role") == "assistant" and isinstance(content, list)


class _Reply:
    """The assistant message that following items of a reply make."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._calls: list[Any] = []

    def add(self, kind: str, item: Mapping[str, Any]) -> None:
        """Add an item."""
        if kind == "message":
            own = without(item, "type", "role", "content")
            for part in item["content"]:
                more = without(part, "type", "text")
                is_text = part.get("type") == "output_text"
                self._parts.append(text_part(part["text"]) if is_text else other(PROVIDER, {"content": part}))
                self._parts.append(fields(PROVIDER, "part", {"item": own, **({"part": more} if is_text else {})}))
        elif kind in _CALLS:
            text = item.get(_CALLS[kind]) or ""
            arguments = arguments_of(text) if kind == "function_call" else {UNPARSED: text}
            extra = without(item, "type", "call_id", "name", _CALLS[kind])
            extra |= {} if kind == "function_call" else {"type": kind}
            self._parts.append(fields(PROVIDER, "tool_call", extra, index=len(self._calls)))
            self._calls.append({"id": item["call_id"], "name": item["name"], "arguments": arguments})
        else:
            self._parts.append(other(PROVIDER, item))

    def message(self) -> ContextMessage:
        """Return the message."""
        message: dict[str, Any] = {"role": "assistant", "content": self._parts}
        return cast("ContextMessage", message | ({"tool_calls": self._calls} if self._calls else {}))


def _from_input(item: Mapping[str, Any]) -> ContextMessage:
    role = item.get("role")
    content: Any = item.get("content")
    if role not in ("user", "system", "developer", "assistant") or not isinstance(content, str | list):
        raise InvalidInput(f"This is not a message item of OpenAI's Responses: {quote(item)}.")
    own = without(item, "type", "role", "content") | ({"role": role} if role == "developer" else {})
    parts: Any = content if isinstance(content, str) else [part for each in content for part in _from_part(each)]
    ours = {"role": "system" if role == "developer" else role, "content": with_fields(PROVIDER, parts, own)}
    return cast("ContextMessage", ours)


def _from_result(item: Mapping[str, Any]) -> ContextMessage:
    content: Any = item.get("output") or ""
    own = without(item, "type", "call_id", "output")
    own |= {} if item["type"] == _RESULTS[0] else {"type": item["type"]}
    parts: Any = content if isinstance(content, str) else [part for each in content for part in _from_part(each)]
    return {"role": "tool", "tool_call_id": item["call_id"], "content": with_fields(PROVIDER, parts, own)}


def _from_part(part: Mapping[str, Any]) -> list[Any]:
    match part:
        case {"type": "input_text", "text": str(text)}:
            more = without(part, "type", "text")
            return [text_part(text), *([fields(PROVIDER, "part", more)] if more else [])]
        case {"type": "input_image", "image_url": str(url)} if part.get("detail") in (None, "auto"):
            media_type = (data_url(url) or ("image/*",))[0]
            if media_type.startswith("image/") and not without(part, "type", "image_url", "detail"):
                return [file_part(url, media_type)]
        case {"type": "input_file", "file_data": str(url)}:
            found = data_url(url)
            if found and not found[0].startswith("image/") and not without(part, "type", "file_data", "filename"):
                return [file_part(url, found[0], part.get("filename"))]
    return [other(PROVIDER, part)]


def _to_items(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    match message["role"]:
        case "tool":
            return [_to_result(message)]
        case "assistant":
            return _to_output(message)
        case role:
            sent = Sent.of(message, PROVIDER)
            content = sent.text() if sent.as_text else [_to_part(each) for each in sent.entries]
            if role == "system" and sent.fields.get("role") == "developer":
                role = "developer"
            return [{**sent.fields, "type": "message", "role": role, "content": content}]


def _to_part(entry: Entry) -> Mapping[str, Any]:
    part = entry.part
    if part.get("type") == "text":
        return {**entry.fields, "type": "input_text", "text": part["text"]}
    if "media_type" not in part:
        return part
    url = part["url"]
    if part["media_type"].startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    name = {"filename": part["name"]} if "name" in part else {}
    return {"type": "input_file", ("file_data" if data_url(url) else "file_url"): url, **name}


def _to_result(message: Mapping[str, Any]) -> dict[str, Any]:
    sent = Sent.of(message, PROVIDER)
    output = sent.text() if sent.as_text else [_to_part(each) for each in sent.entries]
    kind = _RESULTS[1] if sent.fields.get("type") == _RESULTS[1] else _RESULTS[0]
    return {**sent.fields, "type": kind, "call_id": message["tool_call_id"], "output": output}


def _to_output(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the items of a reply; parts that came from one message item are one again."""
    sent, found = Sent.of(message, PROVIDER), list[Any]()
    latest: Any = None
    for entry, call in sent.with_calls(message.get("tool_calls") or ()):
        part, own = entry.part, entry.fields.get("item")
        before, latest = latest, None
        if call is not None:
            found.append(_to_call(call, entry.fields))
        elif own is not None:
            is_text = part.get("type") == "text"
            own_fields = {"annotations": [], **entry.fields.get("part", {})}
            text = {**own_fields, "type": "output_text", "text": part.get("text")}
            content = text if is_text else part["content"]
            if before == own:
                found[-1]["content"].append(content)
            else:
                found.append({**own, "type": "message", "role": "assistant", "content": [content]})
            latest = own
        elif part.get("type") == "text":
            if part["text"]:
                found.append({**sent.fields, "type": "message", "role": "assistant", "content": part["text"]})
        elif "media_type" in part:
            raise InvalidInput(f"OpenAI's Responses take no file from an assistant: {quote(part['url'])}.")
        else:
            found.append(part)
    return found


def _to_call(call: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    text = text_of_arguments(call.get("arguments"))
    kind = "custom_tool_call" if extra.get("type") == "custom_tool_call" else "function_call"
    return {**extra, "type": kind, "call_id": call["id"], "name": call["name"], _CALLS[kind]: text}
