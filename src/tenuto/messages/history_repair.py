"""Repair of histories from elsewhere, or of an earlier program's: every call with its result, each id once."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast

from tenuto.messages.message import Message
from tenuto.messages.message_form import FRAME, calls_of, check_message, with_unique_calls
from tenuto.messages.tool_result import not_executed

_LOST = "the result was lost"


class Repaired(tuple[Message, ...]):
    """A valid history; `changes` says in sentences what was changed, and is empty if nothing was."""

    changes: tuple[str, ...]

    def __new__(cls, messages: Iterable[Message], changes: Iterable[str] = ()) -> Self:
        """Make it of the messages and what was changed."""
        made = super().__new__(cls, messages)
        made.changes = tuple(changes)
        return made


def repair(messages: Iterable[Message]) -> Repaired:
    """Return a history with each tool call answered before anything passes it; a valid one is returned unchanged.

    A result that comes too late moves up to before the message that passed its call. A call without a result gets one
    that says so. Results without a call are dropped, and repeated call ids are made unique. What is not a message is
    refused, as is one in a provider's own form.
    """
    found: list[Mapping[str, Any]] = []
    for index, message in enumerate(messages):
        check_message(message, f"message {index}")
        found.append(message)
    work = _Repair(found)
    for index, each in enumerate(found):
        work.take(index, each)
    work.close(len(found))
    for index in sorted(work.unplaced):
        work.note(index, f"dropped the result of {_id(found[index])!r}, which answers no open call")
    return Repaired(cast("list[Message]", work.fixed), work.changes)


class _Repair:
    """A repair under way: what is fixed so far, and the calls of its last message that are still open."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        self.fixed: list[Mapping[str, Any]] = []
        self.changes: list[str] = []
        self.unplaced: set[int] = set()
        self._found = found
        self._at = 0  # of the message whose calls are open
        self._open: list[tuple[str, str]] = []  # the id before, and now
        self._used: set[str] = set()
        self._places: dict[int, int] = {}  # of the messages that keep their order, the index in `fixed`
        self._results: dict[str, list[int]] = {}
        self._made: dict[str, list[int]] = {}
        for index, message in enumerate(found):
            if message["role"] == "tool":
                self._results.setdefault(_id(message), []).append(index)
                self.unplaced.add(index)
            for call in calls_of(message):
                self._made.setdefault(call["id"], []).append(index)

    def take(self, index: int, message: Mapping[str, Any]) -> None:
        """Add the next message."""
        if message["role"] == "tool":
            at = next((at for at, (before, _) in enumerate(self._open) if before == _id(message)), None)
            if at is not None and index in self.unplaced:
                self._places[index] = len(self.fixed)
                self._place(index, self._open.pop(at)[1])
            return
        if message["role"] != "system":
            self.close(index)
            self._at = index
        self._places[index] = len(self.fixed)
        if message["role"] == FRAME:
            message = self._with_its_buffer(index, message)
        unique = with_unique_calls(message, self._used) if calls_of(message) else message
        for old, new in zip(calls_of(message), calls_of(unique), strict=True):
            if old["id"] != new["id"]:
                self.note(index, f"the call id {old['id']!r} was used before and is now {new['id']!r}")
            self._open.append((old["id"], new["id"]))
            self._used.add(new["id"])
        self.fixed.append(unique if any(a != b for a, b in self._open) else message)

    def close(self, index: int) -> None:
        """Answer the calls that are still open before this message passes them."""
        for before, now in self._open:
            late = self._late_result(before, index)
            if late is None:
                self.fixed.append(not_executed(now, _LOST))
                self.note(self._at, f"the call {now!r} had no result; added one that says so")
            else:
                self._place(late, now)
                self.note(late, f"moved the result of the call {now!r} up, before message {index}")
        self._open = []

    def _with_its_buffer(self, index: int, mark: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a frame's mark whose buffer begins at the message at which it began before."""
        before = mark.get("buffer")
        if not isinstance(before, int) or not 0 <= before <= index:
            return mark
        now = next(self._places[at] for at in range(before, index + 1) if at in self._places)
        if now == before:
            return mark
        self.note(index, f"its buffer now begins at message {now}, not {before}")
        return {**mark, "buffer": now}

    def note(self, index: int, change: str) -> None:
        """Note what was changed of a message."""
        self.changes.append(f"Message {index}: {change}.")

    def _place(self, index: int, call_id: str) -> None:
        message = self._found[index]
        self.unplaced.discard(index)
        self.fixed.append(message if _id(message) == call_id else {**message, "tool_call_id": call_id})

    def _late_result(self, call_id: str, index: int) -> int | None:
        """Return where the result of a call is: the first from here on, unless a later call of that id comes first."""
        made, results = self._made[call_id], self._results.get(call_id, [])
        again = bisect_right(made, index - 1)
        end = made[again] if again < len(made) else len(self._found)
        at = bisect_right(results, index - 1)
        while at < len(results) and results[at] < end and results[at] not in self.unplaced:
            at += 1
        return results[at] if at < len(results) and results[at] < end else None


def _id(message: Mapping[str, Any]) -> str:
    return str(message["tool_call_id"])
