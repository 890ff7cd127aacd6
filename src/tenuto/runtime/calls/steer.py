"""Steering: input that was sent for a run under way is taken in at one of its boundaries."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenuto.codec import JSON, dumps
from tenuto.errors import StoreError
from tenuto.model.input import Boundary, Consume
from tenuto.runtime.session.session_view import MESSAGES

if TYPE_CHECKING:
    from tenuto.runtime.program.turn import Turn


async def take_in(turn: "Turn", boundary: Boundary) -> list[Any]:
    """Look for what was sent for this boundary, write it in one commit with what is pending, and return it."""
    try:
        return await _taken_in(turn, boundary)
    except StoreError as error:
        turn.note_store(error)
        raise


async def _taken_in(turn: "Turn", boundary: Boundary) -> list[Any]:
    store = turn.writer.store
    stamp = await store.stamp(turn.key)
    if stamp is not None:
        turn.copy.seen(stamp)
    if stamp is None or not stamp.steers:
        return []
    pending, log, messages = turn.pending, turn.declared.input_log, []
    found = await store.inbox.next(turn.key, boundary=boundary, run_id=turn.run_id)
    for each in found.inputs:
        body: Any = each.body
        message = body["message"] if isinstance(body, Mapping) and "message" in body else body
        try:
            entry = turn.declared.item(message)
            _check_fits(turn, entry)
        except Exception:
            continue  # it is for the next turn, which refuses it by itself: this one is not to fail for it
        item = pending.add(log, [entry])
        if pending.ahead is not None:
            item = len(pending.ahead.stored({}, turn.copy.logs)[log].items) - 1
        pending.consume.append(Consume(input_id=each.input_id, log=log, item=item))
        messages.append(message)
    if messages:
        if boundary is Boundary.BEFORE_COMPLETION:
            turn.count_step()  # the program runs again: what it calls then is no repeat
        await turn.commit()
        turn.invocation = replace(turn.invocation, input=messages[-1])
    return messages


def _check_fits(turn: "Turn", entry: JSON) -> None:
    """Refuse an entry that cannot be stored, or does not fit the conversation with what is not written yet."""
    dumps(entry, "message")
    pending, log = turn.pending, turn.declared.input_log
    if log == MESSAGES and log in pending.message_logs:
        fresh = turn.copy.messages[pending.written(MESSAGES) :]
        turn.copy.history.judged([*fresh, entry], pending.calls() | pending.excused)
