"""Frames: marked boundaries in a conversation. The program sees the current frame; the log keeps everything.

A frame's mark is an entry of the conversation with the role `frame`: its kind, perhaps a summary of the messages before
it, and the start of the buffer: the last messages before the mark that the program still sees unchanged.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.messages.message_form import FRAME, calls_of
from tenuto.words import FrameKind


def frame_mark(
    kind: FrameKind, messages: Sequence[Any], *, summary: str | None, keep: int, program: str | None = None
) -> dict[str, Any]:
    """Return the mark of a frame that begins after these messages.

    The last `keep` of them stay visible, and as many before them as needed to keep each result with its call.
    """
    mark: dict[str, Any] = {"role": FRAME, "frame": kind}
    if summary is not None:
        mark["summary"] = summary
    if keep > 0:
        mark["buffer"] = _whole_from(messages, max(0, len(messages) - keep))
    if program is not None:
        mark["program"] = program
    return mark


def seen_since(messages: Sequence[Any], frame_at: int | None) -> list[Any]:
    """Return what a program sees of a conversation: the frame's summary, its buffer, then the messages since."""
    if frame_at is None:
        return list(messages)
    mark = messages[frame_at]
    seen: list[Any] = []
    if mark.get("summary") is not None:
        seen.append({"role": "system", "content": mark["summary"], "metadata": {"summary": True}})
    if "buffer" in mark:
        seen += [each for each in messages[mark["buffer"] : frame_at] if not _is_mark(each)]
    return seen + list(messages[frame_at + 1 :])


def _is_mark(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == FRAME


def _whole_from(messages: Sequence[Any], start: int) -> int:
    """Return the nearest index at or before `start` from which every result follows its call."""
    results = {message.get("tool_call_id") for message in messages[start:] if message.get("role") == "tool"}
    while results and start > 0:
        made = {call["id"] for message in messages[start:] for call in calls_of(message)}
        if results <= made:
            break
        start -= 1
        if messages[start].get("role") == "tool":
            results.add(messages[start].get("tool_call_id"))
    return start
