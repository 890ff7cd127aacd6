"""Valid message histories (law 6): every tool call has a result, or an open wait or effect that will provide one.

A message is a mapping with `role` (`system`, `user`, `assistant`, `tool`) and `content`; an assistant's may have
`tool_calls`, each with `id`, `name` and `arguments`; a tool's has the `tool_call_id` it answers. The mark of a frame
has the role `frame`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.argument import MAPPING
from tenuto.codec import JSON, dumps
from tenuto.errors import InvalidHistory, InvalidInput
from tenuto.messages.message import text_of
from tenuto.messages.message_form import calls_of, check_message, refuse_native
from tenuto.model.input import InputKind

Message = Mapping[str, Any]

MOST_SHOWN = 200
"""How many characters a preview or a title that the runtime sets has at most."""

_LOOKED_AT = 100
"""In how many messages a preview or a title is looked for."""


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


def as_message(message: Any) -> dict[str, Any]:
    """Return a message in the form stored in the log; a text becomes a user message."""
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    refuse_native(message)
    if not isinstance(message, MAPPING) or message.get("role") not in ("user", "system"):
        raise InvalidInput("A message to a session must be a text, or a mapping with the role 'user' or 'system'.")
    if not message.get("content"):
        raise InvalidInput("A message needs some content.")
    check_message(message)
    dumps(dict(message), "message")
    return dict(message)


def message_input(message: Any, key: str | None = None) -> tuple[InputKind, JSON, str | None]:
    """Return the kind, body and key of a message as queued input."""
    return InputKind.MESSAGE, {"message": as_message(message)}, key


def preview_of(messages: Sequence[Any]) -> str | None:
    """Return the beginning of what was said last in a conversation, on one line, for lists."""
    return _first_text(messages[at] for at in range(len(messages) - 1, max(-1, len(messages) - 1 - _LOOKED_AT), -1))


def title_of(messages: Sequence[Any]) -> str | None:
    """Return the beginning of what the user said first in a conversation, on one line, for lists."""
    first = (messages[at] for at in range(min(_LOOKED_AT, len(messages))))
    return _first_text(each for each in first if isinstance(each, MAPPING) and each.get("role") == "user")


def _first_text(messages: Iterable[Any]) -> str | None:
    for message in messages:
        if isinstance(message, MAPPING) and message.get("role") in ("user", "assistant"):
            text = text_of(message)[: 4 * MOST_SHOWN].replace("\0", " ")
            if not text.isascii():  # a lone surrogate cannot be stored as text
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if text := " ".join(text.split()):
                return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"
    return None
