"""How a program stores its sessions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.runtime.session.session_view import MESSAGES, DeclaredState
from tenuto.runtime.session.state_shape import StateShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTraits:
    """How a program stores its sessions; a program declares it with an attribute `declares`.

    Input is appended to `input_log` in the form that `entry` returns; `entry` refuses input that does not fit.
    `message_logs` are checked as conversations. A new session has `logs`, and is stored under `schema_version`; `reads`
    refuses another version of stored state if there is no migration from it. A program that declares its state has
    `first_document`, which returns the document of a new session, and, if it declares a model, its shape as `state`. A
    program that `resumes` continues from its own checkpoints, and decides itself which changes of a turn are kept. A
    turn of it may take so many `steps`; by default, as many as the runtime says.
    """

    input_log: str = MESSAGES
    message_logs: frozenset[str] = frozenset({MESSAGES})
    logs: frozenset[str] = frozenset({MESSAGES})
    schema_version: str = ""
    entry: Callable[[JSON], JSON] | None = None
    reads: Callable[[str], None] | None = None
    first_document: Callable[[], Mapping[str, JSON]] | None = None
    resumes: bool = False
    state: StateShape | None = None
    steps: int | None = None

    @property
    def is_conversation(self) -> bool:
        """Whether the session's messages are a conversation, and checked as one."""
        return MESSAGES in self.message_logs

    @property
    def declared(self) -> DeclaredState | None:
        """The state that the program declares, if it does."""
        return None if self.first_document is None else DeclaredState(self.first_document, self.schema_version)

    def item(self, message: JSON) -> JSON:
        """Return a message in the form of the input log, or refuse it."""
        return message if self.entry is None else self.entry(message)

    def notice(self, message: JSON) -> JSON | None:
        """Return a notice in the form of the conversation; None if the program has none, or does not accept it."""
        if not self.is_conversation:
            return None
        try:
            return self.item(message) if self.input_log == MESSAGES else message
        except InvalidInput:
            return None
