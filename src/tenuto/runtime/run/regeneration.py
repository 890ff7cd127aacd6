"""Turns that are made again: the message of a turn, and where the session stood before it."""

from dataclasses import replace
from typing import NamedTuple

from tenuto.codec import JSON
from tenuto.errors import ForkPointNotRetained, InvalidInput, StatusRefused
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.runtime.run.first_message import FirstMessage
from tenuto.runtime.run.refusal import Declined
from tenuto.runtime.turn.invocation import base_point
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store


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
