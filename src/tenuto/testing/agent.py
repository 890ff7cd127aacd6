"""A small scripted agent: an agent loop without a model, for tests of whatever holds its sessions.

It calls its model and its tools through the turn, as a real one does, so that every rule of the runtime is exercised.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tenuto.codec import JSON
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.tool_calls import run_tools
from tenuto.runtime.program.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the agent sends to its model: which one, the prompt, and the conversation as the program sees it."""

    model: JSON
    system_prompt: str | None
    messages: Sequence[Any]


Model: TypeAlias = Callable[[Request], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Answers a request with a message of the assistant; it may have `usage` beside it, which is counted."""


class Script:
    """A model that says what it was given, one reply after the other, counted by the replies in the conversation.

    A text is a message; past the end it repeats the last one. `requests` are what it was asked.
    """

    def __init__(self, *replies: "str | Mapping[str, Any]") -> None:
        self._replies = replies
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Mapping[str, Any]:
        """Say the next reply."""
        self.requests.append(request)
        said = sum(message.get("role") == "assistant" for message in request.messages)
        reply = self._replies[min(said, len(self._replies) - 1)]
        return {"role": "assistant", "content": reply} if isinstance(reply, str) else reply


def calls(*wanted: tuple[str, str, Mapping[str, Any]], content: str = "") -> dict[str, Any]:
    """Return a message that calls tools, each as call id, name and arguments."""
    made = [{"id": call_id, "name": name, "arguments": dict(arguments)} for call_id, name, arguments in wanted]
    return {"role": "assistant", "content": content, "tool_calls": made}


@dataclass(slots=True)
class ScriptedAgent:
    """An agent as a program: ask the model, carry out its calls, until it calls none.

    With `stream`, each word of a reply is emitted before the message is added.
    """

    model: Model
    tools: Sequence[Tool] = ()
    name: str = "agent"
    version: str = "1"
    stream: bool = False
    model_calls: int = field(default=0, init=False)

    async def run(self, turn: Turn) -> None:
        """See `Program.run`."""
        async for _ in turn.steps():
            if turn.open_calls:
                await run_tools(turn, self.tools)
                continue
            reply: Any = await turn.effect(
                "model",
                lambda: self._ask(turn),
                {"model": turn.definition.model, "upto": len(turn.messages)},
                kind="model",
            )
            message: Any = {name: value for name, value in reply.items() if name != "usage"}
            turn.append(message)
            if not message.get("tool_calls"):
                return
            await run_tools(turn, self.tools)

    async def _ask(self, turn: Turn) -> JSON:
        self.model_calls += 1
        definition = turn.definition
        request = Request(model=definition.model, system_prompt=definition.system_prompt, messages=turn.context)
        answer = self.model(request)
        reply: Any = await answer if inspect.isawaitable(answer) else answer
        if self.stream:
            for word in str(reply.get("content") or "").split(" "):
                turn.emit(word)
        turn.record_usage(str(definition.model or "scripted"), **reply.get("usage", {"input": 1, "output": 1}))
        return dict(reply)
