"""The run before a turn: whom it was for, and what it left open, given up or taken back for a new message."""

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.codec import JSON
from tenuto.model.outgoing import NewOutgoing
from tenuto.model.run import Run, RunStatus
from tenuto.model.wait import Wait, WaitKind
from tenuto.runtime.change.fork import begin_point
from tenuto.runtime.change.rewind import rewind
from tenuto.runtime.conversation.history import not_executed, outcome_unknown
from tenuto.runtime.program.tools import answer_message
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.remains import given_up, is_answered_call, result_for_parent
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.store.store import Store
from tenuto.writing.pages import all_effects


async def roll_back(store: Store, live: Turn, run_id: str) -> None:
    """Go back to before the invocation of a run that was stopped for this turn; one that completed since stays.

    What it waits for is void, and its children are stopped. Calls that were open before it have the results they got
    since: whatever stood for them was given up when it began.
    """
    run = await store.runs.get(run_id, tenant=live.key.tenant)
    last = live.copy.last_run
    if run is None or last is None or last[0] != run_id or run.status is RunStatus.COMPLETED:
        return
    runs = await store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)
    if not runs:
        return  # deleted at this very moment: the commit is refused
    found = await begin_point(store, runs[0])
    if found is None:
        if run.status is RunStatus.SUSPENDED:
            await give_up(store, live, run_id)
        return
    if run.status is RunStatus.SUSPENDED:
        await _void(store, live, run, await store.waits.of_session(live.key, run_id=run_id, status=None))
    since = list(live.copy.messages)
    await rewind(store, live.pending, found)
    _close(live, {message["tool_call_id"]: message for message in since if _is_result(message)})
    live.first_entry = {name: len(items) for name, items in live.copy.logs.items()}
    live.pending.further["rolls_back"] = run_id


async def give_up(store: Store, live: Turn, run_id: str) -> None:
    """Settle what a suspended run still waits for, and give each of its open calls a result."""
    waits = await store.waits.of_session(live.key, run_id=run_id, status=None)
    run = await store.runs.get(run_id, tenant=live.key.tenant)
    if run is not None and not run.rolled_back:
        await _void(store, live, run, waits)
    known = {str(w.metadata["call_id"]): answer_message(w) for w in waits if is_answered_call(w)}
    doubtful = {str(w.metadata.get("call_id")) for w in waits if w.kind == WaitKind.IN_DOUBT}
    doubtful |= {str(each.call_id) for each in await all_effects(store, live.key, in_doubt=True)}
    _close(live, {call: outcome_unknown(call) for call in doubtful} | known)


async def _void(store: Store, live: Turn, run: Run, waits: Sequence[Wait]) -> None:
    """Settle what nobody waits for any more; children are told to stop, and a parent that this was given up."""
    settled, owed = given_up(waits, live.key.tenant)
    live.pending.settled.extend(settled)
    live.pending.outgoing.extend(owed)
    if (told := await told_parent(store, run)) is not None:
        live.pending.outgoing.append(told)


def _close(live: Turn, known: Mapping[str, Any]) -> None:
    """Give each open call its known result, or say that it was abandoned."""
    for call in list(live.copy.history.open):
        result = known.get(call) or not_executed(call, "it was abandoned for a new message")
        live.pending.add(MESSAGES, [result])


def _is_result(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "tool"


async def told_parent(store: Store, run: Run) -> NewOutgoing | None:
    """Return what tells a parent that the run it waits for is given up, if one does."""
    error = {"category": "child_abandoned", "message": "The child was told something else and gave this up."}
    return result_for_parent(await reply_to(store, run), run.key, status="abandoned", error=error)


async def reply_to(store: Store, run: Run) -> JSON:
    """Return whom a run is for, as it was noted when it began."""
    point = await begin_point(store, run)
    cursor: Any = point.cursor if point else None
    return cursor.get("for") if isinstance(cursor, Mapping) else None
