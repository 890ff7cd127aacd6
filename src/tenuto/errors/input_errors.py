"""What was given is not acceptable: refused before anything was written."""

from typing import Any

from tenuto.errors.base import Public, TenutoError


class InvalidInput(TenutoError):
    """What was given is not acceptable; nothing was written."""

    category = "invalid_input"


class InvalidId(InvalidInput):
    """An id breaks the id rules."""

    category = "invalid_session_id"


class NotJson(InvalidInput):
    """A value cannot be kept as JSON text; `path` names the offender."""

    category = "value_not_json"
    path: Public[str]


class StateInvalid(InvalidInput):
    """A value does not fit the state that the session's program declares; `path` says where."""

    category = "state_invalid"
    path: Public[str]


class CommitTooLarge(InvalidInput):
    """A commit is over its byte or row budget."""

    category = "commit_budget_exceeded"
    measure: Public[str]
    size: Public[int]
    budget: Public[int]


class CursorBeyondTail(InvalidInput):
    """An event cursor is ahead of the session's stream, so it belongs to another session or store."""

    category = "cursor_beyond_tail"
    cursor: Public[int]
    tail: Public[int]


class KeyRepeated(InvalidInput):
    """A program called an effect of one key twice in one step; `place` says which."""

    category = "key_repeated"
    place: Public[list[Any]]


class InvalidHistory(InvalidInput):
    """A message does not fit the history it is added to: a call without a result, or a result without a call."""

    category = "history_invalid"
    call_id: Public[str | None]


class MessageRefused(InvalidInput):
    """The session's program does not take this message, or it is in a provider's own form; nothing was added.

    `converter` names the function of `tenuto.messages` that converts it.
    """

    category = "message_refused"
    converter: Public[str]


class ActionNotRegistered(InvalidInput):
    """A queued action's class is not registered here, or not in that form; it waits for a process that has it."""

    category = "action_not_registered"
    action: Public[str]


class NotOpen(InvalidInput):
    """A verb was called on a runtime that is not open; nothing was done."""

    category = "runtime_not_open"


class WrongLoop(InvalidInput):
    """A runtime was used, or opened again, in another event loop, thread or process than the one it is open in."""

    category = "runtime_open_elsewhere"


class StoreMisused(InvalidInput):
    """A store was used outside the event loop or process that opened it; nothing was done."""

    category = "store_misused"


class Unsupported(InvalidInput):
    """The backend has no such verb."""

    category = "store_verb_unsupported"
