"""The steps of a program that loops: each is written when its body is done, then takes the input sent for it."""

from tenuto.errors import StepBudgetExceeded
from tenuto.model.input import Boundary
from tenuto.runtime.calls.steer import steer
from tenuto.runtime.turn.context import TurnContext


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
