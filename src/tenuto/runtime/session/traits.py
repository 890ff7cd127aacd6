"""How a program keeps its sessions."""

from collections.abc import Callable
from dataclasses import dataclass

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.runtime.session.session_view import MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTraits:
    """How a program keeps its sessions, if it says so by an attribute `declares`.

    Input goes to `input_log`, in the form `entry` gives it, which refuses what does not fit. `message_logs` are judged
    as conversations. A new session has `logs`, and is kept under `schema_version`; `reads` refuses another version of
    stored state if there is no way from it. A program that `resumes` goes on from checkpoints of its own, and decides
    by itself what of a turn is kept.
    """

    input_log: str = MESSAGES
    message_logs: frozenset[str] = frozenset({MESSAGES})
    logs: frozenset[str] = frozenset({MESSAGES})
    schema_version: str = ""
    entry: Callable[[JSON], JSON] | None = None
    reads: Callable[[str], None] | None = None
    resumes: bool = False

    @property
    def is_conversation(self) -> bool:
        """Whether the session's messages are a conversation, to be judged as one."""
        return MESSAGES in self.message_logs

    def item(self, message: JSON) -> JSON:
        """Return what a message is in the input log, or refuse it."""
        return message if self.entry is None else self.entry(message)

    def notice(self, message: JSON) -> JSON | None:
        """Return what tells the program of something in its conversation; None if it has none, or no form for it."""
        if not self.is_conversation:
            return None
        try:
            return self.item(message) if self.input_log == MESSAGES else message
        except InvalidInput:
            return None
