"""Waits within a turn: answers that are stored are returned, otherwise the turn suspends."""

import secrets
from collections.abc import Sequence
from typing import Any, NoReturn

from tenuto.argument import check_kind
from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.ids import random_id
from tenuto.model.commit import OpenWait
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.runtime.calls.arguments import check_sleep, check_waits
from tenuto.runtime.calls.wait_for import WaitFor, read_answer, request_of
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation import TurnSuspended
from tenuto.runtime.turn.invocation_waits import WaitRequest


def wait_all(turn: TurnContext, wanted: Sequence[WaitFor[Any]]) -> tuple[Any, ...]:
    """Return the answers to several waits; until all are settled, the turn suspends here."""
    turn.check_open()
    each_wanted = [check_kind(each, WaitFor, "what is waited for") for each in wanted]
    asked = [request_of(each, turn) for each in each_wanted]
    waits = settled(turn, asked)
    return tuple(read_answer(each, wait) for each, wait in zip(each_wanted, waits, strict=True))


def settled(turn: TurnContext, asked: Sequence[tuple[WaitRequest, NewOutgoing | None]]) -> list[Wait]:
    """Return the waits that requests mean, once all are settled; until then, the turn suspends here.

    What goes with a wait is sent in the commit that opens it.
    """
    check_waits([request for request, _ in asked], turn.writer.store.budget)
    step, waits = turn.step, list[Wait]()
    missing, outgoing = list[OpenWait](), list[NewOutgoing]()
    for request, sent in asked:
        wait = turn.waits.next(request, step)
        if wait is not None:
            waits.append(wait)
            continue
        missing.append(request.opening(step))
        if sent is not None:
            outgoing.append(sent)
    if missing or any(wait.status is WaitStatus.OPEN for wait in waits):
        suspend(turn, missing, outgoing)
    turn.journal.went_past()
    return waits


def sleep(turn: TurnContext, seconds: Any, name: str) -> None:
    """Return once the time has passed; until then, the turn suspends here."""
    check_sleep(seconds, name)
    if seconds == 0:
        return
    wanted = WaitRequest(signal_id=name, kind=WaitKind.TIME, timeout=seconds)
    wait = turn.waits.next(wanted, turn.step)
    if wait is None or wait.status is WaitStatus.OPEN:
        suspend(turn, [] if wait else [wanted.opening(turn.step)])
    turn.journal.went_past()


def suspend(
    turn: TurnContext, waits: Sequence[OpenWait], sent: Sequence[NewOutgoing] = (), *, partial: bool = False
) -> NoReturn:
    """End the turn here as suspended, with these waits open; another turn continues once they are settled."""
    if (call := turn.call_under_way()) is not None:
        raise InvalidInput(f"The effect {call} cannot wait inside its call: wait before it is called, or after.")
    turn.pending.outgoing.extend(sent)
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
) -> tuple[WaitRequest, NewOutgoing]:
    """Return the wait for a child and the outgoing item that starts it; both belong in one commit.

    The child's id, unless passed, is minted and cannot be guessed; the token binds its result to this wait.
    """
    target = SessionKey(session_id or random_id(), tenant=turn.key.tenant)
    token = secrets.token_urlsafe(24)
    metadata: dict[str, Any] = {"child": target.session_id, "token": token}
    if call_id is not None:
        metadata["call_id"] = call_id
    wanted = WaitRequest(signal_id=call_id or name, kind=WaitKind.CHILD, timeout=seconds, metadata=metadata)
    body = {"program": program, "message": message, "parent": turn.key.session_id, "token": token}
    if session_id is not None:
        body["again"] = True
    if turn.inline is not None and (trace := turn.inline.trace_context()) is not None:
        body["trace"] = trace
    return wanted, NewOutgoing(kind=OutboxKind.CHILD, target=target, body=body)
