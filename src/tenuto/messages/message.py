"""The one form of a message, as types, and functions that make and read messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from tenuto.words import JSON


class TextPart(TypedDict):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str


class FilePart(TypedDict):
    """A part of a message that is a file, by its address."""

    type: Literal["file"]
    url: str
    media_type: str
    name: NotRequired[str]


class OtherPart(TypedDict):
    """A part of a message in a provider's own form, which is passed through whole."""

    type: Literal["other"]
    provider: str
    data: JSON


Part: TypeAlias = TextPart | FilePart | OtherPart
Content: TypeAlias = str | Sequence[Part]
"""The content of a message: text, or parts."""

Metadata: TypeAlias = Mapping[str, JSON]
"""What the application notes beside a message; a model does not see it."""


class ToolCall(TypedDict):
    """A tool that a model calls; its result is the tool message with this id."""

    id: str
    name: str
    arguments: Mapping[str, JSON]


class SystemMessage(TypedDict):
    """An instruction or a notice to the model."""

    role: Literal["system"]
    content: Content
    metadata: NotRequired[Metadata]


class UserMessage(TypedDict):
    """What a user says."""

    role: Literal["user"]
    content: Content
    metadata: NotRequired[Metadata]


class AssistantMessage(TypedDict):
    """What a model says, and the tools it calls."""

    role: Literal["assistant"]
    content: Content
    tool_calls: NotRequired[Sequence[ToolCall]]
    metadata: NotRequired[Metadata]


class ToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content
    metadata: NotRequired[Metadata]


class FrameMessage(TypedDict):
    """The mark at which a frame of the conversation begins; models see its summary and buffer instead."""

    role: Literal["frame"]
    frame: Literal["start", "compaction", "handoff"]
    summary: NotRequired[str]
    buffer: NotRequired[int]
    program: NotRequired[str]


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage | FrameMessage
"""One entry of a conversation."""

ContextMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""One message as a model sees it."""

Sendable: TypeAlias = str | UserMessage | SystemMessage
"""What can be sent to a session; a text is a user message."""


class Delta(TypedDict, total=False):
    """A part of a reply in progress; only `text` is text of the reply.

    Of a tool call it is the call's `index`, its `id` and `name` when it begins, and the next piece of its `arguments`.
    """

    text: str
    reasoning: str
    tool_call: Mapping[str, JSON]
    data: JSON


def user(content: Content, **metadata: JSON) -> UserMessage:
    """Return a user's message."""
    message: UserMessage = {"role": "user", "content": content}
    return {**message, "metadata": metadata} if metadata else message


def assistant(content: Content, **metadata: JSON) -> AssistantMessage:
    """Return an assistant's message."""
    message: AssistantMessage = {"role": "assistant", "content": content}
    return {**message, "metadata": metadata} if metadata else message


def system(content: Content, **metadata: JSON) -> SystemMessage:
    """Return a system message."""
    message: SystemMessage = {"role": "system", "content": content}
    return {**message, "metadata": metadata} if metadata else message


def text_of(message: Message | Mapping[str, Any] | None) -> str:
    """Return the text of a message: its content, or its text parts one after the other; empty if it has none."""
    content: Any = (message or {}).get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))
