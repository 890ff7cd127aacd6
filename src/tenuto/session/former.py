"""The run before a turn: whom it was for, and what it left open, given up or taken back for a new message."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.outbox import NewOutgoing
from tenuto.model.run import Run, RunStatus
from tenuto.session.ending import given_up, is_answered_call, result_for_parent
from tenuto.session.forking import begin_point
from tenuto.session.history import not_executed, outcome_unknown
from tenuto.session.live import LiveTurn
from tenuto.session.rewinding import rewind
from tenuto.session.tools import answer_message
from tenuto.session.value import MESSAGES
from tenuto.store.port import Store


async def roll_back(store: Store, live: LiveTurn, run_id: str) -> None:
    """Go back to before a run that was stopped for this turn; a turn that was completed since stays."""
    run = await store.runs.get(run_id)
    last = live.copy.last_run
    if run is None or last is None or last[0] != run_id or run.status is RunStatus.COMPLETED:
        return
    found = await begin_point(store, run)
    if found is None:
        return
    if run.status is RunStatus.SUSPENDED:
        await give_up(store, live, run_id)
    await rewind(store, live.pending, found)
    live.first_entry = {name: len(items) for name, items in live.copy.logs.items()}
    live.pending.further["rolls_back"] = run_id


async def give_up(store: Store, live: LiveTurn, run_id: str) -> None:
    """Settle what a suspended run still waits for, and give each of its open calls a result."""
    waits = await store.waits.of_session(live.key, run_id=run_id, status=None)
    settled, owed = given_up(waits, live.key.tenant)
    live.pending.settled.extend(settled)
    live.pending.outgoing.extend(owed)
    run = await store.runs.get(run_id)
    if run is not None and (told := await _told_parent(store, run)) is not None:
        live.pending.outgoing.append(told)
    answered = {str(w.metadata["call_id"]): w for w in waits if is_answered_call(w)}
    doubtful = {str(w.metadata.get("call_id")) for w in waits if w.kind == "in_doubt"}
    begun = {each.call_id for each in await store.effects.list(live.key, in_doubt=True)}
    for call in list(live.copy.history.open):
        if call in answered:
            message = answer_message(answered[call])
        elif call in doubtful or call in begun:
            message = outcome_unknown(call)
        else:
            message = not_executed(call, "it was abandoned for a new message")
        live.pending.add(MESSAGES, [message])


async def _told_parent(store: Store, run: Run) -> NewOutgoing | None:
    """Return what tells a parent that the run it waits for is given up, if one does."""
    error = {"category": "child_abandoned", "message": "The child was told something else and gave this up."}
    return result_for_parent(await reply_to(store, run), run.key, status="abandoned", error=error)


async def reply_to(store: Store, run: Run) -> JSON:
    """Return whom a run is for, as it was noted when it began."""
    point = await begin_point(store, run)
    cursor: Any = point.cursor if point else None
    return cursor.get("for") if isinstance(cursor, Mapping) else None
