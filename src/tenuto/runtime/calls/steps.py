"""The steps of a program that loops: each is written when its body is done, then takes the input sent for it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import StepBudgetExceeded, StoreError
from tenuto.model.input import Boundary, Consume
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Place


async def begin_step(turn: TurnContext) -> int:
    """Begin a step, if the turn's budget has one left, and return its number."""
    turn.check_stop()
    if turn.steps == 0 and turn.invocation.resumes is not None and _is_answered(turn):
        turn.count_step()
    if turn.steps >= turn.budget:
        raise StepBudgetExceeded(
            f"This turn of {turn.key} used all of its {turn.budget} steps; the next message gets a fresh budget.",
            limit=turn.budget,
        )
    turn.in_step, turn.step_over = True, False
    return turn.step


def check_model_call(turn: TurnContext, place: Place) -> None:
    """Refuse a model call if the turn's budget has none left, however the program loops."""
    if turn.journal.models_besides(place) >= turn.budget:
        raise StepBudgetExceeded(
            f"This turn of {turn.key} made {turn.budget} model calls, its whole budget of steps; the next message gets "
            "a fresh budget.",
            limit=turn.budget,
        )


async def finish_step(turn: TurnContext) -> bool:
    """Write a finished step and take the input sent for after it; return whether there was any."""
    turn.check_open()
    turn.count_step()
    turn.is_boundary = True
    await turn.commit()
    return turn.may_be_steered(Boundary.AFTER_STEP) and bool(await steer(turn, Boundary.AFTER_STEP))


def _is_answered(turn: TurnContext) -> bool:
    """Return whether this step's calls were answered when a run without a runner was ended.

    Ending such a run does not execute the program, so it cannot count the steps of a loop.
    """
    called = turn.journal.called(turn.step) or turn.waits.called(turn.step)
    return called and not turn.open_calls


async def steer(turn: TurnContext, boundary: Boundary) -> list[Any]:
    """Take the input that was sent for this boundary, in one commit with pending changes, and return it."""
    try:
        return await _take(turn, boundary)
    except StoreError as error:
        turn.note_store_failure(error)
        raise


async def _take(turn: TurnContext, boundary: Boundary) -> list[Any]:
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
            continue  # left to the next turn, which refuses it: this turn must not fail because of it
        pending.add(log, [entry])
        item = len(pending.run_logs(pending.logs())[log].items) - 1
        pending.consume.append(Consume(input_id=each.input_id, log=log, item=item))
        messages.append(message)
    if messages:
        if boundary is Boundary.BEFORE_COMPLETION:
            turn.count_step()  # the program runs again: its calls then are not repeats
        await turn.commit()
        turn.invocation = replace(turn.invocation, input=messages[-1])
    return messages


def _check_fits(turn: TurnContext, entry: JSON) -> None:
    """Refuse an entry that cannot be stored, or does not fit the conversation, including unwritten messages."""
    dumps(entry, "message")
    pending, log = turn.pending, turn.traits.input_log
    if log == MESSAGES and log in pending.message_logs:
        fresh = turn.replica.messages[pending.written(MESSAGES) :]
        turn.replica.history.judged([*fresh, entry], pending.calls() | pending.covered_calls)
