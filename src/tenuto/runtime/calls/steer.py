"""Steering: input that was sent for a run under way is taken in at one of its boundaries."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import StoreError
from tenuto.model.input import Boundary, Consume
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext


async def steer(turn: TurnContext, boundary: Boundary) -> list[Any]:
    """Take in the input that was sent for this boundary, in one commit with what is pending, and return it."""
    try:
        return await _taken_in(turn, boundary)
    except StoreError as error:
        turn.note_store_failure(error)
        raise


async def _taken_in(turn: TurnContext, boundary: Boundary) -> list[Any]:
    store = turn.writer.store
    stamp = await store.stamp(turn.key)
    if stamp is not None:
        turn.replica.note_stamp(stamp)
    if stamp is None or not stamp.steers:
        return []
    pending, log, messages = turn.pending, turn.traits.input_log, []
    found = await store.inbox.next(turn.key, boundary=boundary, run_id=turn.run_id)
    for each in found.inputs:
        body: Any = each.body
        message = body["message"] if isinstance(body, Mapping) and "message" in body else body
        try:
            entry = turn.traits.item(message)
            _check_fits(turn, entry)
        except Exception:
            continue  # it is for the next turn, which refuses it by itself: this one is not to fail for it
        pending.add(log, [entry])
        item = len(pending.run_logs(pending.logs())[log].items) - 1
        pending.consume.append(Consume(input_id=each.input_id, log=log, item=item))
        messages.append(message)
    if messages:
        if boundary is Boundary.BEFORE_COMPLETION:
            turn.count_step()  # the program runs again: what it calls then is no repeat
        await turn.commit()
        turn.invocation = replace(turn.invocation, input=messages[-1])
    return messages


def _check_fits(turn: TurnContext, entry: JSON) -> None:
    """Refuse an entry that cannot be stored, or does not fit the conversation with what is not written yet."""
    dumps(entry, "message")
    pending, log = turn.pending, turn.traits.input_log
    if log == MESSAGES and log in pending.message_logs:
        fresh = turn.replica.messages[pending.written(MESSAGES) :]
        turn.replica.history.judged([*fresh, entry], pending.calls() | pending.covered_calls)
