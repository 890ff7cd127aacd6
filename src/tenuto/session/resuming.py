"""Finding what an invocation left behind, and making sure that only one runner goes on with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    AnswerMismatch,
    CheckpointNotFound,
    LaneBusy,
    RunNotLive,
    StatusRefused,
    SuspensionRecordInvalid,
    SuspensionResumePayloadInvalid,
)
from tenuto.ids import new_id
from tenuto.model.commit import Commit, EndRun, SettleWait, TakeRun
from tenuto.model.lane import Lane
from tenuto.model.run import Checkpoint, Run, RunStatus, Wait, WaitStatus
from tenuto.model.session import Kind, SessionKey
from tenuto.session.lanes import under
from tenuto.session.pages import all_runs
from tenuto.session.running import is_let_go
from tenuto.store.host import is_dead
from tenuto.store.port import Store

RUN_LOST = {"category": "run_lost", "message": "The runner was lost; the run can be resumed from its last checkpoint."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint to go on from, with its logs, and the identities that stay."""

    checkpoint: Checkpoint
    logs: dict[str, list[JSON]]
    correlation_id: str
    origin_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A suspended run, what it waits for, and the record to go on from.

    `taken` is a run that was resumed from it before and whose runner is gone; it is to be taken over. If it left a
    checkpoint of its own, that is the record and `overlay` is False: the answer is in it already.
    """

    run: Run
    wait: Wait
    found: Found
    taken: Run | None = None
    overlay: bool = True


async def find_paused(store: Store, invocation_id: str, payload: JSON, tenant: str = "") -> Paused:
    """Return the paused run of an invocation, or refuse: only one that is suspended now can be resumed.

    One that was resumed with the same payload by a runner that is gone is to be taken over.
    """
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    if not runs:
        raise _invalid(invocation_id, "is not known here; it never was suspended, or was deleted or pruned since")
    last = runs[-1]
    taken: Run | None = None
    if last.status == RunStatus.RUNNING and len(runs) > 1 and runs[-2].status == RunStatus.SUSPENDED:
        taken, last = last, runs[-2]
    if last.status != RunStatus.SUSPENDED:
        raise _invalid(invocation_id, f"is {last.status}, not suspended")
    waits = await store.waits.of_session(last.key, run_id=last.run_id, status=None)
    checkpoint = await store.checkpoints.latest(last.key, run_id=last.run_id)
    if checkpoint is None or not waits:
        raise _invalid(invocation_id, "has no record left to go on from")
    if taken is None:
        open_waits = [wait for wait in waits if wait.status == WaitStatus.OPEN]
        if not open_waits:
            raise _invalid(invocation_id, f"cannot be answered any more: its wait is {waits[-1].status}")
        if len(open_waits) > 1:
            listed = ", ".join(f"{wait.wait_id} ({wait.signal_id or wait.kind})" for wait in open_waits)
            raise _invalid(invocation_id, f"waits for several things: {listed}; answer one of them by its id")
        return Paused(run=last, wait=open_waits[0], found=await _found(store, last, checkpoint))
    answered = [wait for wait in waits if wait.status == WaitStatus.ANSWERED]
    if not answered or answered[-1].answer != payload:
        raise _invalid(invocation_id, "was resumed before, with another payload")
    if await is_alive(store, taken):
        raise _invalid(invocation_id, "is being resumed by another runner")
    later = await store.checkpoints.latest(taken.key, run_id=taken.run_id)
    found = await _found(store, last, later or checkpoint)
    return Paused(run=last, wait=answered[-1], found=found, taken=taken, overlay=later is None)


async def find_resumable(store: Store, invocation_id: str, tenant: str = "") -> tuple[Run, Found, Any]:
    """Return the run of an invocation that left the last checkpoint, with that checkpoint.

    If that is a pause which was answered since, but left no checkpoint after it, the answer comes third.
    """
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    if runs and runs[-1].status == RunStatus.SUSPENDED:
        raise CheckpointNotFound(
            f"Invocation {invocation_id!r} is suspended; resume it with a signal_payload.", invocation_id=invocation_id
        )
    for run in reversed(runs):
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        if checkpoint is not None:
            answers = [
                wait.answer
                for wait in await store.waits.of_session(run.key, run_id=run.run_id, status=WaitStatus.ANSWERED)
            ]
            return run, await _found(store, run, checkpoint), answers[-1] if answers else None
    raise CheckpointNotFound(
        f"Invocation {invocation_id!r} left no checkpoint to go on from.", invocation_id=invocation_id
    )


async def find_stopped(store: Store, key: SessionKey) -> Run:
    """Return the last run of a session if it was interrupted or failed; any other cannot be gone on with."""
    run = await store.runs.current(key)
    if run is None or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
        state = "has never run" if run is None else f"is {run.status}"
        raise StatusRefused(f"The last run of {key} {state}; there is nothing to go on with.", key=key, found=state)
    return run


async def is_alive(store: Store, run: Run) -> bool:
    """Tell whether a running run's runner may still be there."""
    if run.generation is None:
        return not is_let_go(run) and run.expires_at is not None and run.expires_at > await store.moment()
    lane = await store.lanes.inspect(run.key)
    if is_let_go(run) or lane is None or lane.generation != run.generation or lane.state != "held":
        return False
    return lane.owner is None or not is_dead(lane.owner.host)


async def end_former(store: Store, lane: Lane, origin_id: str) -> None:
    """End the runs of an origin whose runners are gone; a live one refuses whoever wants to go on in its place."""
    async for run in all_runs(store, lane.key):
        if run.origin_id != origin_id or run.status != RunStatus.RUNNING:
            continue
        gone = run.worker if is_let_go(run) else None
        take = TakeRun(run_id=run.run_id, attempt=run.attempt, gone=gone)
        ending = EndRun(status=RunStatus.INTERRUPTED, error=RUN_LOST)
        try:
            await store.commit(under(lane, run=take, end=ending))
        except RunNotLive as refused:
            raise LaneBusy(
                f"The run {run.run_id} of {lane.key} is {refused.found}; nobody else can go on with it meanwhile.",
                key=lane.key,
                owner=run.worker or "",
                generation=lane.generation,
                expires_at=run.expires_at,
            ) from refused


async def cancel_paused(store: Store, invocation_id: str, tenant: str = "") -> list[Wait]:
    """Give up on a paused invocation: its waits are cancelled, and it cannot be resumed any more."""
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    if not runs or runs[-1].status != RunStatus.SUSPENDED:
        state = f"is {runs[-1].status}, not suspended" if runs else "is not known here"
        raise _invalid(invocation_id, state)
    run = runs[-1]
    waits = await store.waits.of_session(run.key, run_id=run.run_id)
    if not waits:
        raise _invalid(invocation_id, "waits for nothing any more")
    settled = tuple(SettleWait(wait_id=wait.wait_id, status=WaitStatus.CANCELLED) for wait in waits)
    await store.commit(Commit(key=run.key, operation_id=new_id(), life=run.life, settle_waits=settled))
    return waits


async def refuse_pause_of_graph(store: Store, run: Run, wait: Wait) -> None:
    """Refuse an answer to what `graph.run` paused for: only the graph itself can go on with it, by its invocation."""
    if wait.kind != "signal":
        return
    if run.key.kind is Kind.SESSION:
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        cursor: Any = checkpoint.cursor if checkpoint else None
        if not isinstance(cursor, Mapping) or "frames" not in cursor or "program" in cursor:
            return
    resume = f"graph.run(resume_invocation={run.invocation_id!r}, signal_payload=...)"
    raise AnswerMismatch(
        f"Wait {wait.wait_id} is a pause of a graph that was run by itself, which no runtime can go on with: answer it "
        f"with {resume}. Nothing was stored, and it is still paused.",
        wait_id=wait.wait_id,
        expected=resume,
        given="an answer",
    )


def declared_names(schema: JSON) -> list[str] | None:
    """Return the names a paused graph takes in an answer, if its wait says so."""
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return None
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else None


def refuse_unknown(given: Mapping[str, Any], declared: Iterable[str], invocation_id: str) -> None:
    """Refuse an answer with names that nobody declared: one that is misspelt would be dropped, and the run go on."""
    known = list(dict.fromkeys(declared))
    if unknown := [name for name in given if name not in known]:
        raise SuspensionResumePayloadInvalid(
            f"Invocation {invocation_id!r}, which is still paused, does not know {', '.join(map(repr, unknown))}; it "
            f"takes {', '.join(map(repr, known))}.",
            invocation_id=invocation_id,
            unknown=unknown,
            declared=known,
        )


def not_suspended_any_more(invocation_id: str, cause: Any) -> SuspensionRecordInvalid:
    """Say that someone else was first."""
    return _invalid(invocation_id, f"was resumed or settled by another at the same time ({cause})")


def _invalid(invocation_id: str, what: str) -> SuspensionRecordInvalid:
    return SuspensionRecordInvalid(f"Invocation {invocation_id!r} {what}.", invocation_id=invocation_id)


async def _found(store: Store, run: Run, checkpoint: Checkpoint) -> Found:
    logs = await read_logs(store, checkpoint)
    return Found(checkpoint=checkpoint, logs=logs, correlation_id=run.correlation_id, origin_id=run.origin_id)


async def read_logs(store: Store, checkpoint: Checkpoint) -> dict[str, list[JSON]]:
    """Return the entries of a checkpoint's logs, by name."""
    logs = {}
    for name, end in checkpoint.ends.items():
        entries = await store.logs.read(checkpoint.key, name, end=end)
        logs[name] = [entry.value for entry in entries]
    return logs
