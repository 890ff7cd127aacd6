"""Moments of a turn as a whole, made from what is known of it; only for runtimes that an inline listener follows."""

import asyncio
from typing import Any

from tenuto.argument import MAPPING
from tenuto.model.wait import WaitStatus
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import trace_id_of
from tenuto.runtime.stream.moments import SettledWait, TurnAhead, TurnBegan, TurnOver
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation import Invocation
from tenuto.writing.error_record import category_of
from tenuto.writing.run_ids import RunIds

_SETTLED = (WaitStatus.ANSWERED, WaitStatus.EXPIRED)


def ahead(turn: TurnContext) -> TurnAhead:
    """Return the moment before the commit that begins a turn."""
    return TurnAhead(ids=turn.ids, trace_id=trace_id_of(turn.replica.profile), asked_by=_asked_by(turn.invocation))


def ahead_after(turn: TurnContext, run_id: str, invocation: Invocation) -> TurnAhead:
    """Return the moment before the commit that ends a turn and begins another."""
    ids = turn.ids._replace(
        run_id=run_id, invocation_id=invocation.invocation_id, correlation_id=invocation.correlation_id, attempt=1
    )
    trace_id = trace_id_of(turn.replica.profile)
    return TurnAhead(ids=ids, trace_id=trace_id, asked_by=_asked_by(invocation), after=turn.ids)


def began(turn: TurnContext, ids: RunIds) -> TurnBegan:
    """Return the moment before a turn's program runs."""
    invocation, replica = turn.invocation, turn.replica
    waited = None if invocation.queued_at is None else (replica.updated_at - invocation.queued_at).total_seconds()
    return TurnBegan(
        ids=ids,
        trace_id=trace_id_of(replica.profile),
        asked_by=_asked_by(invocation),
        origin_id=invocation.origin_id,
        input_id=invocation.input_id,
        resumes=invocation.resumes,
        follows=invocation.follows,
        settled=_settled(turn) if invocation.resumes is not None else (),
        model=None if replica.definition is None else replica.definition.model,
        waited=None if waited is None else max(0.0, waited),
    )


def left(ids: RunIds, error: BaseException) -> TurnOver:
    """Return the moment at which a runner leaves a turn by an exception."""
    cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
    status = "cancelled" if cancelled else "lost"
    return TurnOver(ids=ids, status=status, category=category_of(error), exception=error)


def over(ids: RunIds, outcome: Outcome[Any]) -> TurnOver:
    """Return the moment after a turn's last commit."""
    category = outcome.error.get("category") if outcome.status == "failed" else None
    return TurnOver(ids=ids, status=outcome.status, category=category, exception=outcome.exception)


def _asked_by(invocation: Invocation) -> str | None:
    asker = invocation.reply_to
    found = asker.get("trace") if isinstance(asker, MAPPING) else None
    return found if isinstance(found, str) else None


def _settled(turn: TurnContext) -> list[SettledWait]:
    """Return the waits of the run that a turn resumes that are settled; the open ones are this turn's now."""
    found, now = [], turn.replica.updated_at
    for wait in turn.waits.of_run(turn.invocation.resumes or ""):
        if wait.status in _SETTLED:
            seconds = ((wait.settled_at or now) - wait.created_at).total_seconds()
            found.append(SettledWait(wait.wait_id, wait.kind, wait.signal_id, str(wait.status), max(0.0, seconds)))
    return found
