"""Checks of the arguments that a program passes to its turn, so that no later commit is refused because of them.

The refusal names the value's path. A refused value leaves nothing pending, so a program that handles it loses nothing
else.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import CommitTooLarge, InvalidInput
from tenuto.model.commit import Budget
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.session.json_schema import JsonSchema
from tenuto.runtime.turn.invocation_waits import WaitRequest
from tenuto.store.bounds import (
    check_delay,
    check_map,
    check_moment,
    check_name,
    check_new_usage,
    check_text,
    check_timeout,
    refuse,
)


def sized(text: str, what: str, most: int) -> str:
    """Return the JSON text of a value; raise `CommitTooLarge` if it is too big for a commit."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > most:
        raise CommitTooLarge(
            f"The {what} has {size:,} bytes as JSON; the limit is {most:,}. Store it elsewhere and keep a reference.",
            measure="bytes",
            size=size,
            budget=most,
        )
    return text


def check_values(values: Iterable[JSON], what: str, budget: Budget) -> None:
    """Refuse values that are not JSON, or too big for one commit."""
    for value in values:
        sized(dumps(value, what), what, budget.max_bytes)


def check_fields(fields: Mapping[str, JSON], logs: Iterable[str], budget: Budget) -> None:
    """Refuse document fields that cannot be stored; `logs` are the names of logs."""
    for name, value in fields.items():
        check_name(name, "a field's name")
        if "/" in name:
            raise InvalidInput(f"A session cannot have a field {name!r}: names with a '/' are reserved for runs.")
        if name in logs:
            raise InvalidInput(f"{name!r} is a log of the session, not a field; use turn.add().", field=name)
        sized(dumps(value, name), name, budget.max_bytes)


def check_log(name: str, document: Iterable[str], conversation: str) -> None:
    """Refuse a name that cannot be a log's; `document` are the names of fields."""
    check_name(name, "a log's name")
    if "/" in name or name == conversation:
        raise InvalidInput(f"{name!r} is not a log that add() can write; use turn.append() for messages.")
    if name in document:
        raise InvalidInput(f"{name!r} is a field of the session, not a log; set it in turn.state.", field=name)


def check_callable(call: Any, what: str) -> None:
    """Refuse a value that is not callable."""
    if not callable(call):
        refuse(what, "a function", call)


def check_once(once: str | None) -> None:
    """Refuse a value that cannot be a `once` key."""
    if once is not None:
        check_name(once, "once")


def usage_of(model: str, source: str, counted: Mapping[str, int]) -> NewUsage:
    """Return the usage of a call; refuse unknown or invalid counts."""
    try:
        usage = NewUsage(model=model, source=source, **counted)
    except TypeError as error:
        raise InvalidInput(
            f"Unknown token counts {', '.join(sorted(counted))}; expected input, output, cache_read, cache_write and "
            "reasoning."
        ) from error
    check_new_usage(usage)
    return usage


def check_sleep(seconds: float, name: str) -> None:
    """Refuse an invalid duration or name of a sleep."""
    check_delay(seconds, "seconds")
    if seconds:
        check_timeout(seconds, "seconds")
    check_name(name, "name")


def check_waits(wanted: Iterable[WaitRequest], budget: Budget) -> None:
    """Refuse waits that cannot be opened."""
    for each in wanted:
        check_name(each.signal_id, "signal_id")
        if each.timeout is not None:
            check_timeout(each.timeout)
        if each.deadline is not None:
            check_moment(each.deadline, "deadline")
        if each.schema is not None:
            plain = JsonSchema(check_map(each.schema, "schema"), f"schema of the wait {each.signal_id!r}").plain
            sized(dumps(plain, "schema"), "schema", budget.max_bytes // 4)
        sized(dumps(dict(check_map(each.metadata, "metadata")), "metadata"), "metadata", budget.max_bytes // 4)


def check_frame(summary: str | None, keep: int, budget: Budget) -> None:
    """Refuse an invalid summary or buffer of a frame."""
    if summary is not None:
        if type(summary) is not str:
            refuse("summary", "text", summary)
        check_values([summary], "summary", budget)
    if type(keep) is not int or keep < 0:
        refuse("keep", "a whole number from 0", keep)


def check_child(program: str, message: JSON, name: str, call_id: str | None, budget: Budget) -> None:
    """Refuse an invalid request to a child."""
    check_name(program, "program")
    check_name(name, "name")
    if call_id is not None:
        check_text(call_id, "call_id")
    # The message is part of the outgoing item and of the answer to it.
    sized(dumps({"body": {"message": message}}, "child"), "message", budget.max_bytes // 4)
