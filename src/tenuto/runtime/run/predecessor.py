"""The run before a turn: its waits and calls are abandoned, or it is rolled back, for a new message or its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.errors import ForkPointNotRetained, InvalidInput, StatusRefused
from tenuto.messages.tool_result import not_executed, outcome_unknown
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitKind
from tenuto.runtime.change.rewind import rewind
from tenuto.runtime.run.first_message import FirstMessage
from tenuto.runtime.run.refusal import Declined
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.debts import Abandoned, abandon_run
from tenuto.runtime.turn.invocation import base_point
from tenuto.runtime.turn.invocation_waits import answer_message, is_answered_call
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.writing.pages import all_effects


async def roll_back(store: Store, turn: TurnContext, run_id: str, *, regenerates: bool = False) -> None:
    """Rewind to before the invocation of a run that was stopped for this turn, or that this turn regenerates.

    One that has completed stays, unless it is regenerated. Its waits are abandoned and its children stopped. Calls that
    were open before it keep the results they received since, because their waits were abandoned when it began.
    """
    run = await store.runs.get(run_id, tenant=turn.key.tenant)
    last = turn.replica.last_run
    if run is None or last is None or last[0] != run_id:
        return
    if run.status is RunStatus.COMPLETED and not regenerates:
        return
    runs = await store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)
    if not runs:
        return  # deleted meanwhile: the commit will be refused
    point = await base_point(store, runs[0])
    if point is None:
        if run.status is RunStatus.SUSPENDED:
            await abandon_former(store, turn, run_id)
        return
    if run.status is RunStatus.SUSPENDED:
        waits = await store.waits.of_session(turn.key, run_id=run_id, status=None)
        _write_with(turn, await abandon_run(store, run, waits))
    since = list(turn.replica.messages)
    await rewind(store, turn.pending, point)
    _close(turn, {message["tool_call_id"]: message for message in since if _is_result(message)})
    turn.mark_start()
    turn.invocation = replace(turn.invocation, base=point.commit_number)
    turn.pending.extras |= {"rolls_back": run_id, "regenerates": regenerates}


async def abandon_former(store: Store, turn: TurnContext, run_id: str) -> None:
    """Abandon the open waits of a suspended run, and give each of its open calls a result."""
    waits = await store.waits.of_session(turn.key, run_id=run_id, status=None)
    run = await store.runs.get(run_id, tenant=turn.key.tenant)
    if run is not None and not run.rolled_back:
        _write_with(turn, await abandon_run(store, run, waits))
    known = {str(w.metadata["call_id"]): answer_message(w) for w in waits if is_answered_call(w)}
    doubtful = {str(w.metadata.get("call_id")) for w in waits if w.kind == WaitKind.IN_DOUBT}
    doubtful |= {str(each.call_id) for each in await all_effects(store, turn.key, in_doubt=True)}
    _close(turn, {call: outcome_unknown(call) for call in doubtful} | known)


def _write_with(turn: TurnContext, abandoned: Abandoned) -> None:
    turn.pending.settled.extend(abandoned.settled)
    turn.pending.outgoing.extend(abandoned.owed)


def _close(turn: TurnContext, known: Mapping[str, Any]) -> None:
    """Give each open call its known result, or say that it was abandoned."""
    for call in list(turn.replica.history.open):
        result = known.get(call) or not_executed(call, "it was abandoned for a new message")
        turn.pending.add(MESSAGES, [result])


def _is_result(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "tool"


class Beginning(NamedTuple):
    """How a turn began: the session before it, and its message as it is in the input log."""

    point: Checkpoint
    message: JSON


async def regenerated(store: Store, replica: Replica, first: FirstMessage, log: str) -> FirstMessage:
    """Return the message of the session's last turn, to begin another turn in place of that.

    A run of an earlier turn, or of another session, is declined; so is a turn whose message is not there any more.
    """
    key, last = replica.key, replica.last_run and replica.last_run[0]
    try:
        if last is None:
            raise StatusRefused(f"{key} has never run; there is nothing to regenerate.", key=key, found="has never run")
        found, wanted = await _run_of(store, key, last), await _run_of(store, key, first.rolls_back or last)
        if found.invocation_id != wanted.invocation_id or found.rolled_back:
            raise InvalidInput(
                f"Run {wanted.run_id} is not of the last turn of {key}; pass `fork=True` to regenerate it on a fork.",
                run_id=wanted.run_id,
            )
        message = (await beginning_of(store, wanted, log)).message
    except (InvalidInput, StatusRefused, ForkPointNotRetained) as error:
        raise Declined(error) from error
    return replace(first, message=message, rolls_back=last)


async def turn_to_fork(store: Store, key: SessionKey, run_id: str | None, log: str) -> Beginning:
    """Return how the turn of a run, or the last turn, of a session began."""
    run = await store.runs.current(key) if run_id is None else await _run_of(store, key, run_id)
    if run is None:
        raise StatusRefused(f"{key} has never run; there is nothing to regenerate.", key=key, found="has never run")
    return await beginning_of(store, run, log)


async def beginning_of(store: Store, run: Run, log: str) -> Beginning:
    """Return how the invocation of a run began: its first commit added its message last."""
    first, *_ = await store.runs.of_invocation(run.invocation_id, tenant=run.key.tenant)
    point = await base_point(store, first)
    if point is None:
        raise ForkPointNotRetained(f"Nothing is kept of {run.key} before run {first.run_id}.", key=run.key, nearest=[])
    end = point.ends.get(log)
    entries = await store.logs.read(run.key, log, start=0 if end is None else end.position)
    added = [entry for entry in entries if entry.commit_number == first.commit_number]
    if not added:
        raise InvalidInput(f"The message of run {first.run_id} is not part of {run.key} any more.", run_id=run.run_id)
    return Beginning(point, added[-1].value)


async def _run_of(store: Store, key: SessionKey, run_id: str) -> Run:
    run = await store.runs.get(run_id, tenant=key.tenant)
    if run is None or run.key != key:
        raise InvalidInput(f"{key} has no run {run_id!r}.", run_id=run_id)
    return run
