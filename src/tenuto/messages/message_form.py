"""Which values are messages; one in a provider's own form is refused with the name of its converter."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from tenuto.argument import MAPPING
from tenuto.errors import InvalidHistory, MessageRefused
from tenuto.quote import quote

FRAME = "frame"
ROLES = ("system", "user", "assistant", "tool", FRAME)

_SPEAKERS = ("user", "assistant", "system")
"""The roles whose content a model reads; a tool's result may be any JSON."""

_FORM = (
    "An assistant's message has 'tool_calls': [{'id': ..., 'name': ..., 'arguments': {...}}], and a result is "
    "{'role': 'tool', 'tool_call_id': ..., 'content': ...}."
)
_LONGEST_ID = 256

_CHAT, _RESPONSES, _ANTHROPIC = "from_openai", "from_openai_responses", "from_anthropic"
_PARTS = {
    **dict.fromkeys(("image_url", "input_audio", "refusal"), _CHAT),
    **dict.fromkeys(("input_text", "input_image", "input_file", "output_text"), _RESPONSES),
    **dict.fromkeys(("tool_use", "tool_result", "thinking", "redacted_thinking"), _ANTHROPIC),
    **dict.fromkeys(("image", "document", "server_tool_use"), _ANTHROPIC),
    **dict.fromkeys(("function_call", "function_call_output"), _RESPONSES),
}
"""The types of parts that only one provider has."""

_FIELDS = {"function_call": _CHAT, "refusal": _CHAT}
_LIBRARIES = {"openai.types.responses": _RESPONSES, "openai.": _CHAT, "anthropic.": _ANTHROPIC}


def check_message(message: Any, where: str = "the message") -> str:
    """Refuse a value that is not a message; return the message's role."""
    refuse_native(message, where)
    if not isinstance(message, MAPPING):
        raise InvalidHistory(f"{where} is {type(message).__name__}, not a mapping with a role.")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidHistory(f"{where} has the role {quote(role)}; expected one of {', '.join(ROLES)}.")
    if role == "tool" and not (isinstance(message.get("tool_call_id"), str) and message["tool_call_id"]):
        raise InvalidHistory(f"{where} is a tool's result without a tool_call_id.")
    content = message.get("content")
    if content is not None and not isinstance(content, str) and role in _SPEAKERS and not _are_parts(content):
        raise InvalidHistory(f"{where} has the content {quote(content)}; expected a text, or a list of parts.")
    if calls := message.get("tool_calls"):
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise InvalidHistory(f"{where} has tool_calls that are not a list.")
        if role != "assistant":
            raise InvalidHistory(f"{where} has tool calls, but its role is {role!r}; only an assistant makes calls.")
        for call in calls:
            _check_call(call, where)
    return role


def _are_parts(content: Any) -> bool:
    return isinstance(content, Sequence) and all(isinstance(each, MAPPING) for each in content)


def refuse_native(message: Any, where: str = "the message") -> None:
    """Refuse a message in a provider's own form: it would be misread."""
    if not isinstance(message, MAPPING):
        library = str(type(message).__module__)
        for prefix, converter in _LIBRARIES.items():
            if library.startswith(prefix):
                _refuse(f"{where} is a {type(message).__name__} of {library.partition('.')[0]}", converter)
        return
    for name, converter in _FIELDS.items():
        if name in message:
            _refuse(f"{where} has a {name!r}", converter)
    if message.get("role") == "developer":
        _refuse(f"{where} has the role 'developer'", _CHAT)
    if "role" not in message and "choices" in message:
        _refuse(f"{where} is a chat completion", _CHAT)
    if message.get("type") == "message" and "stop_reason" in message:
        _refuse(f"{where} has a 'stop_reason'", _ANTHROPIC)
    if "role" not in message and message.get("type") in ("message", "reasoning", "function_call", *_PARTS):
        _refuse(f"{where} is an item of type {message['type']!r}", _RESPONSES)
    content = message.get("content")
    for each in content if isinstance(content, list) else ():
        kind = each.get("type") if isinstance(each, MAPPING) else None
        if isinstance(kind, str) and (kind in _PARTS or (kind == "file" and "file" in each)):
            _refuse(f"{where} has a part of type {kind!r}", _PARTS.get(kind, _CHAT))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, MAPPING) and ("function" in call or "custom" in call):
            _refuse(f"{where} has a tool call with a {'function' if 'function' in call else 'custom'!r}", _CHAT)


def _refuse(what: str, converter: str) -> None:
    raise MessageRefused(
        f"{what}, which is a provider's own form. Convert it by `tenuto.messages.{converter}`.", converter=converter
    )


def _check_call(call: Any, where: str) -> None:
    """Refuse a malformed tool call."""
    call_id = call.get("id") if isinstance(call, Mapping) else None
    if not isinstance(call_id, str) or not call_id:
        raise InvalidHistory(f"{where} has a tool call without an id. {_FORM}")
    if len(call_id) > _LONGEST_ID or "\0" in call_id:
        raise InvalidHistory(f"{where} has a tool call with the id {quote(call_id)}, which cannot be stored. {_FORM}")
    if not isinstance(call.get("arguments"), Mapping | None):
        raise InvalidHistory(f"{where}: the arguments of the tool call {quote(call_id)} are not a mapping. {_FORM}")


def calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of a message."""
    return message.get("tool_calls") or ()


def with_unique_calls(message: Mapping[str, Any], used: Container[str], made: Container[str] = ()) -> dict[str, Any]:
    """Return the message with call ids that are in use replaced by unique ones: `<id>_<n>`, the smallest free n."""
    check_message(message)
    taken, calls = set[str](), []
    for call in calls_of(message):
        call_id, number = call["id"], 2
        while call_id in taken or call_id in used or call_id in made:
            call_id, number = f"{call['id']}_{number}", number + 1
        taken.add(call_id)
        calls.append({**call, "id": call_id})
    return {**message, "tool_calls": calls} if calls else dict(message)
