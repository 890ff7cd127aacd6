"""Why an input cannot be taken: nobody ever could, only this process cannot, or it may be tried again.

An input is settled as refused only for a reason that lies in it, or in the stored session, and that no other process,
later deploy or repeat could cure. Whatever else comes up, it stays queued.
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
"""What this process lacks and another may have: the program, its version, an action's class, a migration."""


class Declined(Exception):
    """A controller refused a session, or a program the form of a message; `error` is what it raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(text_of(error))
        self.error = error


def declines(error: Exception) -> bool:
    """Tell whether what a controller, or a program's `entry`, raised is its refusal, and not a passing trouble."""
    if isinstance(error, TenutoError):
        return not (error.retryable or isinstance(error, (*NOT_HERE, StoreError)))
    return not (isinstance(error, ConnectionError | TimeoutError) or getattr(error, "transient", False))


def refusal_in(error: Exception) -> Exception | None:
    """Return the refusal that an error is, None if it is any other trouble and the input has to stay queued."""
    if isinstance(error, Declined):
        return error.error
    return error if isinstance(error, InvalidInput) and not isinstance(error, (*NOT_HERE, Unsupported)) else None


def as_raised(record: Any, input_id: str) -> TenutoError:
    """Return the error of a refused input from its record: of its own class if that is ours, else `MessageRefused`."""
    told = record if isinstance(record, Mapping) else {}
    kind = next((each for each in _refusals() if each.category == told.get("category")), MessageRefused)
    details = {**(told.get("details") or {}), "input_id": input_id, "error": record}
    return kind(str(told.get("message", "It was refused.")), **details)


def _refusals() -> list[type[InvalidInput]]:
    found: list[type[InvalidInput]] = [InvalidInput]
    for each in found:
        found += each.__subclasses__()
    return found


async def refuse(store: Store, given: Input, error: Exception) -> bool:
    """Settle an input as refused; whatever the error contains, its reason is kept as far as that can be."""
    return await store.inbox.refuse(given.key, given.input_id, error_record(error))
