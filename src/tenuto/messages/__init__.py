"""The one form of a message, and the ways into it and out of it: providers' own forms, and histories to repair."""

from tenuto.messages.anthropic_messages import from_anthropic, stream_anthropic, system_of, to_anthropic
from tenuto.messages.history_repair import Repaired, repair
from tenuto.messages.message import (
    AssistantMessage,
    Content,
    ContextMessage,
    Delta,
    FilePart,
    FrameMessage,
    Message,
    Metadata,
    OtherPart,
    Part,
    Sendable,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    assistant,
    system,
    text_of,
    user,
)
from tenuto.messages.openai_chat import from_openai, stream_openai, to_openai
from tenuto.messages.openai_responses import from_openai_responses, to_openai_responses
from tenuto.messages.tool_arguments import UNPARSED

__all__ = [
    "UNPARSED",
    "AssistantMessage",
    "Content",
    "ContextMessage",
    "Delta",
    "FilePart",
    "FrameMessage",
    "Message",
    "Metadata",
    "OtherPart",
    "Part",
    "Repaired",
    "Sendable",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
    "assistant",
    "from_anthropic",
    "from_openai",
    "from_openai_responses",
    "repair",
    "stream_anthropic",
    "stream_openai",
    "system",
    "system_of",
    "text_of",
    "to_anthropic",
    "to_openai",
    "to_openai_responses",
    "user",
]
