"""Why an input cannot be taken: no process ever can, only this process cannot, or it can be retried.

An input is settled as refused only for a reason that lies in it, or in the stored session, and that no other process,
later deploy or retry can fix. For any other error it stays queued.
"""

from collections.abc import Mapping
from typing import Any

from tenuto.errors import (
    ActionNotRegistered,
    InvalidInput,
    MessageRefused,
    ProgramNotRegistered,
    StateMigrationError,
    StoreError,
    TenutoError,
    Unsupported,
)
from tenuto.model.input import Input
from tenuto.store.store import Store
from tenuto.writing.error_record import error_record, text_of

NOT_HERE = (ProgramNotRegistered, ActionNotRegistered, StateMigrationError)
"""The errors for what this process lacks and another may have: a program, its version, an action, a migration."""


class Declined(Exception):
    """A hook refused a session, or a program refused a message; `error` is what it raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(text_of(error))
        self.error = error


def declines(error: Exception) -> bool:
    """Return whether an error of a hook, or of a program's `entry`, is a refusal and not a transient failure."""
    if isinstance(error, TenutoError):
        return not (error.retryable or isinstance(error, (*NOT_HERE, StoreError)))
    return not (isinstance(error, ConnectionError | TimeoutError) or getattr(error, "transient", False))


def refusal_in(error: Exception) -> Exception | None:
    """Return the refusal in an error; None if it is any other error, and the input has to stay queued."""
    if isinstance(error, Declined):
        return error.error
    return error if isinstance(error, InvalidInput) and not isinstance(error, (*NOT_HERE, Unsupported)) else None


def as_raised(record: Any, input_id: str) -> TenutoError:
    """Return the error of a refused input from its record: its own class if that is Tenuto's, or `MessageRefused`."""
    fields = record if isinstance(record, Mapping) else {}
    kind = next((each for each in _refusals() if each.category == fields.get("category")), MessageRefused)
    details = {**(fields.get("details") or {}), "input_id": input_id, "error": record}
    return kind(str(fields.get("message", "The message was refused.")), **details)


def _refusals() -> list[type[InvalidInput]]:
    found: list[type[InvalidInput]] = [InvalidInput]
    for each in found:
        found += each.__subclasses__()
    return found


async def refuse(store: Store, queued: Input, error: Exception) -> bool:
    """Settle an input as refused, with the error as its reason; details that cannot be stored are left out."""
    return await store.inbox.refuse(queued.key, queued.input_id, error_record(error))
