"""Children: sessions that a turn sends a message to and waits for, started after the turn's commit."""

import secrets
from typing import Any

from tenuto.codec import JSON
from tenuto.ids import random_id
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitKind
from tenuto.runtime.calls.suspension import wait_all
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation_waits import WaitFor


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
