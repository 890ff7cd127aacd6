"""Valid message histories (law 6): every tool call has a result, or an open wait or effect that will provide one.

A message is a mapping with `role` (`system`, `user`, `assistant`, `tool`) and `content`; an assistant's may have
`tool_calls`, each with `id`, `name` and `arguments`; a tool's has the `tool_call_id` it answers. The mark of a frame
has the role `frame`.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.argument import MAPPING
from tenuto.codec import JSON, dumps, encode
from tenuto.errors import InvalidHistory, InvalidInput
from tenuto.quote import quote

Message = Mapping[str, Any]

FRAME = "frame"
ROLES = ("system", "user", "assistant", "tool", FRAME)

_NATIVE_BLOCKS = ("tool_use", "tool_result", "function_call", "function_call_output")
_FORM = (
    "Convert it first: an assistant's message has 'tool_calls': [{'id': ..., 'name': ..., 'arguments': {...}}], and a "
    "result is {'role': 'tool', 'tool_call_id': ..., 'content': ...}."
)
_LONGEST_ID = 256

NOT_EXECUTED = "not_executed"
"""The metadata field of a result whose call was never carried out."""

OUTCOME_UNKNOWN = "outcome_unknown"
"""The metadata field of a result whose call may have been carried out."""


class Judged(NamedTuple):
    """What a history will be once checked messages are added: the calls left open, and the call ids they add."""

    open: dict[str, None]
    made: set[str]


@dataclass(slots=True)
class History:
    """The index of a history that additions are checked against: its open calls and the call ids it has used."""

    open: dict[str, None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, messages: Iterable[Any]) -> "History":
        """Return the index of a stored history, which was checked when it was written."""
        history = cls()
        for message in messages:
            if not isinstance(message, Mapping):
                continue  # from a log that was not declared a conversation then
            for call in calls_of(message):
                history.open[call["id"]] = None
                history.used.add(call["id"])
            history.open.pop(message.get("tool_call_id", ""), None)
        return history

    def judged(self, messages: Sequence[Message], excused: Iterable[str] = ()) -> "Judged":
        """Check messages to be added, without adding them; refuse the first that does not fit.

        `excused` are the calls covered by an open wait or a started effect. They may stay open at the end, but nothing
        passes them: no user message and no model reply may precede their results.
        """
        opened, made = dict(self.open), set[str]()
        for index, message in enumerate(messages):
            self._judge(message, f"message {index}", opened, made)
        left = [call for call in opened if call not in set(excused)] if opened else []
        if left:
            raise InvalidHistory(
                f"Call {left[0]!r} has no result, and no open wait or effect covers it; append its result, or suspend.",
                call_id=left[0],
            )
        return Judged(opened, made)

    def accept(self, judged: "Judged") -> None:
        """Count checked messages as added."""
        self.open = judged.open
        self.used |= judged.made

    def _judge(self, message: Message, where: str, opened: dict[str, None], made: set[str]) -> None:
        role = check_message(message, where)
        if role == "tool":
            call = message["tool_call_id"]
            if call not in opened:
                state = "is answered already" if call in self.used or call in made else "was never made"
                raise InvalidHistory(f"{where}: the call {call!r} {state}.", call_id=call)
            del opened[call]
            return
        if opened and role != "system":
            first = next(iter(opened))
            raise InvalidHistory(
                f"{where}: a message with role {role!r} cannot precede the result of call {first!r}.", call_id=first
            )
        for call in calls_of(message):
            if call["id"] in self.used or call["id"] in made:
                raise InvalidHistory(f"{where}: the call id {call['id']!r} was used before.", call_id=call["id"])
            made.add(call["id"])
            opened[call["id"]] = None


def check_message(message: Any, where: str = "the message") -> str:
    """Refuse a value that is not a message; return the message's role."""
    if not isinstance(message, MAPPING):
        raise InvalidHistory(f"{where} is {type(message).__name__}, not a mapping with a role.")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidHistory(f"{where} has the role {quote(role)}; expected one of {', '.join(ROLES)}.")
    if role == "tool" and not (isinstance(message.get("tool_call_id"), str) and message["tool_call_id"]):
        raise InvalidHistory(f"{where} is a tool's result without a tool_call_id.")
    if calls := message.get("tool_calls"):
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise InvalidHistory(f"{where} has tool_calls that are not a list.")
        if role != "assistant":
            raise InvalidHistory(f"{where} has tool calls, but its role is {role!r}; only an assistant makes calls.")
        for call in calls:
            _check_call(call, where)
    content = message.get("content")
    for each in content if isinstance(content, list) else ():
        if isinstance(each, MAPPING) and (block := each.get("type")) in _NATIVE_BLOCKS:
            raise InvalidHistory(f"{where} has a block {block!r} in its content, a provider's own format. {_FORM}")
    if "function_call" in message:
        raise InvalidHistory(f"{where} has a 'function_call', a provider's own format. {_FORM}")
    return role


def _check_call(call: Any, where: str) -> None:
    """Refuse a malformed tool call; one in a provider's own format would be misread."""
    call_id = call.get("id") if isinstance(call, Mapping) else None
    if not isinstance(call_id, str) or not call_id:
        raise InvalidHistory(f"{where} has a tool call without an id. {_FORM}")
    if len(call_id) > _LONGEST_ID or "\0" in call_id:
        raise InvalidHistory(f"{where} has a tool call with the id {quote(call_id)}, which cannot be stored. {_FORM}")
    if "function" in call:
        raise InvalidHistory(
            f"{where} has the tool call {quote(call_id)} with a 'function', a provider's own format. {_FORM}"
        )
    if not isinstance(call.get("arguments"), Mapping | None):
        raise InvalidHistory(f"{where}: the arguments of the tool call {quote(call_id)} are not a mapping. {_FORM}")


def calls_of(message: Message) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of a message."""
    return message.get("tool_calls") or ()


def with_unique_calls(message: Message, used: Container[str], made: Container[str] = ()) -> dict[str, Any]:
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


def not_executed(call_id: str, reason: str) -> dict[str, Any]:
    """Return the result message of a call that was not carried out, with the reason."""
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": f"Not executed: {reason}.",
        "metadata": {NOT_EXECUTED: reason},
    }


def outcome_unknown(call_id: str) -> dict[str, Any]:
    """Return the result message of a call of which it is unknown whether it was carried out."""
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": "Outcome unknown: the call was started, but it is not known whether it was carried out.",
        "metadata": {OUTCOME_UNKNOWN: True},
    }


def result_message(call_id: str, result: JSON, error: JSON = None) -> dict[str, Any]:
    """Return the message that reports a call's result to the model; an error is also stored whole as metadata."""
    if error is None:
        content = result if isinstance(result, str) else encode(result)
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    record: Any = error if isinstance(error, Mapping) else {"category": "error", "message": str(error)}
    content = f"Error: {record.get('message')}"
    return {"role": "tool", "tool_call_id": call_id, "content": content, "metadata": {"error": dict(record)}}


def repaired(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return a history from elsewhere, made valid.

    A call without a result gets one that says so, before any message that would have passed it. Results move up to
    their calls, results without a call are dropped, and repeated call ids are made unique. A value that is not a
    message is refused.
    """
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        check_message(message, f"message {index}")
        found.append(dict(message))
    fixed: list[dict[str, Any]] = []
    used, placed = set[str](), set[int]()
    for index, message in enumerate(found):
        if message["role"] == "tool":
            continue  # added right after its call
        unique = with_unique_calls(message, used)
        fixed.append(unique)
        for old, new in zip(calls_of(message), calls_of(unique), strict=True):
            used.add(new["id"])
            at = _result_of(old["id"], found, index, placed)
            if at is None:
                fixed.append(not_executed(new["id"], "the result was lost"))
            else:
                placed.add(at)
                fixed.append({**found[at], "tool_call_id": new["id"]})
    return fixed


def _result_of(call_id: str, messages: Sequence[dict[str, Any]], made_at: int, placed: Container[int]) -> int | None:
    """Return the index of a call's result: the first after it that is not placed yet, before the id is used again."""
    for at in range(made_at + 1, len(messages)):
        message = messages[at]
        if message["role"] == "tool" and message["tool_call_id"] == call_id and at not in placed:
            return at
        if any(call["id"] == call_id for call in calls_of(message)):
            return None
    return None


def as_message(message: Any) -> dict[str, Any]:
    """Return a message in the form stored in the log; a text becomes a user message."""
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if not isinstance(message, MAPPING) or message.get("role") not in ("user", "system"):
        raise InvalidInput("A message to a session must be a text, or a mapping with the role 'user' or 'system'.")
    if not message.get("content"):
        raise InvalidInput("A message needs some content.")
    check_message(message)
    dumps(dict(message), "message")
    return dict(message)
