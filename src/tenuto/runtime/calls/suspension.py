"""Waits within a turn: answers that are stored are returned, otherwise the turn suspends."""

from collections.abc import Sequence
from typing import NoReturn

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.model.commit import OpenWait
from tenuto.model.wait import WaitKind, WaitStatus
from tenuto.runtime.calls.arguments import check_sleep, check_waits
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation import TurnSuspended
from tenuto.runtime.turn.invocation_waits import WaitFor, answer_of


def wait_all(turn: TurnContext, wanted: Sequence[WaitFor], *, partial: bool = False) -> list[JSON]:
    """Return the answers to several waits; until all are settled, the turn suspends here."""
    turn.check_open()
    step, waits = turn.step, check_waits(wanted, turn.writer.store.budget)
    found = [turn.waits.next(each, step) for each in waits]
    missing = [each.opening(step) for each, wait in zip(waits, found, strict=True) if wait is None]
    if missing or any(wait is not None and wait.status is WaitStatus.OPEN for wait in found):
        suspend(turn, missing, partial=partial)
    return [answer_of(wait) for wait in found if wait is not None]


def sleep(turn: TurnContext, seconds: float, name: str) -> None:
    """Return once the time has passed; until then, the turn suspends here."""
    check_sleep(seconds, name)
    if seconds == 0:
        return
    wanted = WaitFor(signal_id=name, kind=WaitKind.TIME, timeout=seconds)
    wait = turn.waits.next(wanted, turn.step)
    if wait is None or wait.status is WaitStatus.OPEN:
        suspend(turn, [] if wait else [wanted.opening(turn.step)])


def suspend(turn: TurnContext, waits: Sequence[OpenWait], *, partial: bool = False) -> NoReturn:
    """End the turn here as suspended, with these waits open; another turn continues once they are settled."""
    if (call := turn.call_under_way()) is not None:
        raise InvalidInput(f"The effect {call} cannot wait inside its call: wait before it is called, or after.")
    raise TurnSuspended(waits, partial=partial)
