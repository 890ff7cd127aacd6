"""What a program gives its turn, checked where it is given: what no commit would take is refused by its path.

Nothing is pending of what was refused here, so a program that goes on has lost nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import CommitTooLarge, InvalidInput
from tenuto.model.commit import Budget
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.turn.invocation_waits import WaitFor
from tenuto.store.bounds import (
    check_delay,
    check_items,
    check_map,
    check_moment,
    check_name,
    check_text,
    check_timeout,
    refuse,
)
from tenuto.store.facets.usage import check_new_usage


def sized(text: str, what: str, most: int) -> str:
    """Return the JSON text of a value, if a commit has room for it."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > most:
        raise CommitTooLarge(
            f"The {what} has {size:,} bytes as JSON, and {most:,} are the most; keep it elsewhere, and its name here.",
            measure="bytes",
            size=size,
            budget=most,
        )
    return text


def check_values(values: Iterable[JSON], what: str, budget: Budget) -> None:
    """Refuse values that are not JSON, or too big for a commit of their own."""
    for value in values:
        sized(dumps(value, what), what, budget.max_bytes)


def check_fields(fields: Mapping[str, JSON], logs: Iterable[str], budget: Budget) -> None:
    """Refuse fields of a document that cannot be kept; `logs` are the names that are logs."""
    for name, value in fields.items():
        check_name(name, "a field's name")
        if "/" in name:
            raise InvalidInput(f"A session cannot have a field {name!r}: names with a '/' are a run's own.")
        if name in logs:
            raise InvalidInput(f"{name!r} is a log of the session, not a field; add to it.", field=name)
        sized(dumps(value, name), name, budget.max_bytes)


def check_log(name: str, document: Iterable[str], conversation: str) -> None:
    """Refuse a name under which no log can be added to; `document` are the names that are fields."""
    check_name(name, "a log's name")
    if "/" in name or name == conversation:
        raise InvalidInput(f"{name!r} cannot be added to this way; messages are appended.")
    if name in document:
        raise InvalidInput(f"{name!r} is a field of the session, not a log; set it.", field=name)


def check_callable(call: Any, what: str) -> None:
    """Refuse what cannot be called."""
    if not callable(call):
        refuse(what, "a function", call)


def check_once(once: str | None) -> None:
    """Refuse what cannot be the key of something done once."""
    if once is not None:
        check_name(once, "once")


def usage_of(model: str, source: str, counted: Mapping[str, int]) -> NewUsage:
    """Return the tokens of a call, if they can be counted."""
    try:
        usage = NewUsage(model=model, source=source, **counted)
    except TypeError as error:
        raise InvalidInput(
            f"Tokens are counted as input, output, cache_read, cache_write and reasoning, not as "
            f"{', '.join(sorted(counted))}."
        ) from error
    check_new_usage(usage)
    return usage


def check_sleep(seconds: float, name: str) -> None:
    """Refuse a time nobody can sleep."""
    check_delay(seconds, "seconds")
    if seconds:
        check_timeout(seconds, "seconds")
    check_name(name, "name")


def check_waits(wanted: Any, budget: Budget) -> list[WaitFor]:
    """Return what a program wants to wait for, if that can be opened."""
    waits = list(check_items(wanted, "what is waited for"))
    for each in waits:
        if not isinstance(each, WaitFor):
            refuse("what is waited for", "a WaitFor", each)
        check_name(each.kind, "kind")
        check_name(each.signal_id, "signal_id")
        if each.timeout is not None:
            check_timeout(each.timeout)
        if each.deadline is not None:
            check_moment(each.deadline, "deadline")
        sized(dumps(each.schema, "schema"), "schema", budget.max_bytes // 4)
        sized(dumps(dict(check_map(each.metadata, "metadata")), "metadata"), "metadata", budget.max_bytes // 4)
    return waits


def check_frame(summary: str | None, keep: int, budget: Budget) -> None:
    """Refuse what cannot be a frame's."""
    if summary is not None:
        if type(summary) is not str:
            refuse("summary", "text", summary)
        check_values([summary], "summary", budget)
    if type(keep) is not int or keep < 0:
        refuse("keep", "a whole number from 0", keep)


def check_child(program: str, message: JSON, name: str, call_id: str | None, budget: Budget) -> None:
    """Refuse what cannot be asked of a child."""
    check_name(program, "program")
    check_name(name, "name")
    if call_id is not None:
        check_text(call_id, "call_id")
    # It comes to stand in what is sent, and in what that is answered with.
    sized(dumps({"body": {"message": message}}, "child"), "message", budget.max_bytes // 4)
