"""A model that replies by a script, for tests of programs without a provider."""

from typing import Any

from tenuto.errors import InvalidInput
from tenuto.messages.message import AssistantMessage, assistant


class ScriptedModel:
    """Gives its replies in order, one per call: a text, a whole message, or an exception to raise.

    `calls` are the arguments of each call. A call past the end of the script is refused.
    """

    def __init__(self, *replies: str | AssistantMessage | Exception) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._replies = replies

    async def __call__(self, *args: Any, **kwargs: Any) -> AssistantMessage:
        """Return the next reply."""
        self.calls.append((args, kwargs))
        if len(self.calls) > len(self._replies):
            raise InvalidInput(f"The script has {len(self._replies)} replies, and this is call {len(self.calls)}.")
        reply = self._replies[len(self.calls) - 1]
        if isinstance(reply, Exception):
            raise reply
        return assistant(reply) if isinstance(reply, str) else reply
