"""What failed in a turn, in the log: once, with its traceback and the ids to find it by."""

import logging
from collections.abc import Mapping
from typing import Any

from tenuto.errors import EffectFailed, NodeException, TenutoError, TurnError
from tenuto.runtime.turn.context import TurnContext
from tenuto.writing.error_record import category_of, causes_of, text_of

_log = logging.getLogger("tenuto.runtime")

_REPLAYED = "This call was not made again: its failure is recorded."


def log_failed_turn(turn: TurnContext, error: BaseException) -> None:
    """Log that a turn failed: with its traceback if that helps to find a mistake, otherwise as one line."""
    _write(logging.WARNING if is_expected(error) else logging.ERROR, "turn", turn, error, _places(error))


def log_failed_tool(turn: TurnContext, tool: str, call_id: str, error: BaseException) -> None:
    """Log what a tool raised; the model gets it as the call's result, and the turn continues."""
    _write(logging.WARNING, f"tool {tool}", turn, error, {"tool": tool, "effect": call_id}, traced=True)


def as_replayed(error: Exception) -> Exception:
    """Mark a failure that was recorded, and is raised again: it was logged when it happened, and has no traceback."""
    error.add_note(_REPLAYED)
    return error


def is_expected(error: BaseException) -> bool:
    """Return whether an error says what happened to the turn rather than where code is wrong.

    That are the turn's own limits and waits, failures that are replayed, transient failures of the store, and a process
    that is to end; not if other code raised the first of them.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return True
    return all(isinstance(each, TurnError) or _is_transient(each) or _is_replayed(each) for each in causes_of(error))


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, TenutoError) and error.retryable


def _is_replayed(error: BaseException) -> bool:
    return _REPLAYED in getattr(error, "__notes__", ())


def _places(error: BaseException) -> dict[str, Any]:
    """Return the innermost node and effect that an error passed through."""
    found: dict[str, Any] = {}
    for each in causes_of(error):
        if isinstance(each, NodeException):
            found["node"] = each.node_name
        elif isinstance(each, EffectFailed):
            found["effect"] = each.details().get("place", ("", 0, None))[2]
    return found


def _write(
    level: int, what: str, turn: TurnContext, error: BaseException, more: Mapping[str, Any], *, traced: bool = False
) -> None:
    extra = {**turn.ids._asdict(), **more}
    trace = error if traced or level >= logging.ERROR else None
    told = (what, turn.key, turn.run_id, category_of(error), text_of(error))
    _log.log(level, "The %s of %s failed (run %s): %s: %s", *told, exc_info=trace, extra=extra)
