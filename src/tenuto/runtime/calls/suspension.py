"""Waits within a turn: answers that are stored are returned, otherwise the turn suspends."""

import secrets
from collections.abc import Sequence
from typing import Any, NoReturn

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.ids import random_id
from tenuto.model.commit import OpenWait
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.session import SessionKey
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


def spawning(
    turn: TurnContext,
    program: str,
    message: JSON,
    *,
    session_id: str | None = None,
    seconds: float | None = None,
    call_id: str | None = None,
    name: str = "child",
) -> tuple[WaitFor, NewOutgoing]:
    """Return the wait for a child and the outgoing item that starts it; both belong in one commit.

    The child's id, unless passed, is minted and cannot be guessed; the token binds its result to this wait.
    """
    target = SessionKey(session_id or random_id(), tenant=turn.key.tenant)
    token = secrets.token_urlsafe(24)
    metadata: dict[str, Any] = {"child": target.session_id, "token": token}
    if call_id is not None:
        metadata["call_id"] = call_id
    wanted = WaitFor(signal_id=call_id or name, kind=WaitKind.CHILD, timeout=seconds, metadata=metadata)
    body = {"program": program, "message": message, "parent": turn.key.session_id, "token": token}
    if session_id is not None:
        body["again"] = True
    if turn.inline is not None and (trace := turn.inline.trace_context()) is not None:
        body["trace"] = trace
    return wanted, NewOutgoing(kind=OutboxKind.CHILD, target=target, body=body)


def ask(turn: TurnContext, wanted: WaitFor, sent: NewOutgoing) -> JSON:
    """Return the outcome of a child's turn; if it is not started yet, start it and suspend this turn."""
    wait = turn.waits.peek(wanted, turn.step)
    if wait is None:
        turn.pending.outgoing.append(sent)
        wait_all(turn, [wanted])
    assert wait is not None
    (answer,) = wait_all(turn, [wanted])
    return {**answer, "session_id": wait.metadata["child"]}
