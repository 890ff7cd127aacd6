"""Finding what an invocation left behind, and making sure that only one runner resumes it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    AlreadyAnswered,
    AnswerMismatch,
    CheckpointNotFound,
    LateAnswer,
    SuspensionRecordInvalid,
    WaitNotOpen,
    WaitUnknown,
)
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import Commit, SettleWait
from tenuto.model.run import Run, RunStatus
from tenuto.model.wait import Wait, WaitStatus
from tenuto.store.store import Store
from tenuto.writing.liveness import is_alive


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A checkpoint to resume from, with its logs, and the identities that stay."""

    checkpoint: Checkpoint
    logs: dict[str, list[JSON]]
    correlation_id: str
    origin_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedRun:
    """A suspended run, what it waits for, and the record to resume from.

    `taken` is a run that resumed it before and whose runner is gone; it is to be taken over. If that run left a
    checkpoint, that is the record and `overlay` is False: it contains the answer already.
    """

    run: Run
    wait: Wait
    found: StoredRun
    taken: Run | None = None
    overlay: bool = True


async def find_paused(store: Store, invocation_id: str, payload: JSON, tenant: str = "") -> PausedRun:
    """Return the paused run of an invocation, or refuse: only one that is suspended can be resumed.

    One that was resumed with the same payload by a runner that is gone is to be taken over.
    """
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    if not runs:
        raise _invalid(invocation_id, "is not known here; it was never suspended, or has been deleted or pruned")
    last = runs[-1]
    taken: Run | None = None
    if last.status == RunStatus.RUNNING and len(runs) > 1 and runs[-2].status == RunStatus.SUSPENDED:
        taken, last = last, runs[-2]
    if last.status != RunStatus.SUSPENDED:
        raise _invalid(invocation_id, f"is {last.status}, not suspended")
    waits = await store.waits.of_session(last.key, run_id=last.run_id, status=None)
    checkpoint = await store.checkpoints.latest(last.key, run_id=last.run_id)
    if checkpoint is None or not waits:
        raise _invalid(invocation_id, "has no record left to resume from")
    if taken is None:
        waits = [await end_if_over(store, wait, last) for wait in waits]
        open_waits = [wait for wait in waits if wait.status == WaitStatus.OPEN]
        if not open_waits and waits[-1].status == WaitStatus.EXPIRED:
            raise _invalid(invocation_id, f"can no longer be answered: it {expired(waits[-1])}")
        if not open_waits:
            raise _invalid(invocation_id, f"can no longer be answered: its wait is {waits[-1].status}")
        if len(open_waits) > 1:
            listed = ", ".join(f"{wait.wait_id} ({wait.signal_id or wait.kind})" for wait in open_waits)
            raise _invalid(invocation_id, f"waits for several things: {listed}; answer one of them by its id")
        return PausedRun(run=last, wait=open_waits[0], found=await stored_run(store, last, checkpoint))
    answered = [wait for wait in waits if wait.status == WaitStatus.ANSWERED]
    if not answered or answered[-1].answer != payload:
        raise _invalid(invocation_id, "was resumed before, with another payload")
    if await is_alive(store, taken):
        raise _invalid(invocation_id, "is being resumed by another runner")
    later = await store.checkpoints.latest(taken.key, run_id=taken.run_id)
    found = await stored_run(store, last, later or checkpoint)
    return PausedRun(run=last, wait=answered[-1], found=found, taken=taken, overlay=later is None)


async def invocation_of_wait(store: Store, wait_id: str, payload: JSON, graph: str, tenant: str) -> str:
    """Return the invocation that a payload for a wait of this graph resumes; one it cannot resume is refused.

    A wait that was answered with the same payload is resumed again if its runner is gone.
    """
    wait = await store.waits.get(wait_id, tenant=tenant)
    run = await store.runs.get(wait.run_id, tenant=tenant) if wait else None
    if wait is None or run is None:
        raise WaitUnknown(f"There is no wait {wait_id!r}; it may have been deleted.", wait_id=wait_id)
    await _check_graph(store, wait, run, graph)
    wait = await end_if_over(store, wait, run)
    if wait.status == WaitStatus.OPEN:
        return run.invocation_id
    last = (await store.runs.of_invocation(run.invocation_id, tenant=tenant))[-1]
    place = f"Wait {wait_id} of invocation {run.invocation_id!r}"
    if wait.status != WaitStatus.ANSWERED:
        state = expired(wait) if wait.status == WaitStatus.EXPIRED else f"is {wait.status}"
        raise LateAnswer(f"{place} {state}.", wait_id=wait_id, found=wait.status)
    if last.status == RunStatus.RUNNING and wait.answer == payload:
        return run.invocation_id
    again = "in the same way" if wait.answer == payload else "in another way"
    raise AlreadyAnswered(f"{place} was answered before, {again}; the invocation is {last.status}.", wait_id=wait_id)


async def _check_graph(store: Store, wait: Wait, run: Run, graph: str) -> None:
    """Refuse a wait that is not the pause of a graph that runs by itself, or of another one."""
    if wait.graph == graph:
        return
    if wait.graph is None:
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        cursor: Any = checkpoint.cursor if checkpoint else None
        program = cursor.get("program") if isinstance(cursor, Mapping) else None
        paused, verb = f"the program {program}" if program else "a turn of the runtime", "runtime.answer"
    else:
        paused, verb = f"the graph {wait.graph!r}, not of {graph!r}", "its own resume"
    raise AnswerMismatch(
        f"Wait {wait.wait_id} is of {paused}: answer it with {verb}. Nothing was stored.",
        wait_id=wait.wait_id,
        expected=verb,
        given=f"resume of the graph {graph!r}",
    )


async def end_if_over(store: Store, wait: Wait, run: Run) -> Wait:
    """Return an open pause; one whose deadline has passed is over, and is returned as it ends here."""
    now = await store.moment() if wait.deadline is not None else None
    if wait.status != WaitStatus.OPEN or wait.deadline is None or now is None or wait.deadline > now:
        return wait
    settled = SettleWait(wait_id=wait.wait_id, status=WaitStatus.EXPIRED)
    with suppress(WaitNotOpen):
        await store.commit(Commit(key=run.key, operation_id=new_id(), life=run.life, settle_waits=(settled,)))
    return await store.waits.get(wait.wait_id, tenant=wait.tenant) or wait


def expired(wait: Wait) -> str:
    """Return what happened to a pause that nobody answered in time."""
    return f"waited for {wait.signal_id or wait.kind!r} until {wait.deadline:%Y-%m-%d %H:%M:%S} UTC, and is over"


async def find_resumable(store: Store, invocation_id: str, tenant: str = "") -> tuple[Run, StoredRun, Any]:
    """Return the run of an invocation that left the last checkpoint, with that checkpoint.

    If that is a pause that was answered, but has no checkpoint after it, the answer comes third.
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
            return run, await stored_run(store, run, checkpoint), answers[-1] if answers else None
    raise no_checkpoint(invocation_id)


def no_checkpoint(invocation_id: str) -> CheckpointNotFound:
    """Return the error of an invocation that left no checkpoint."""
    return CheckpointNotFound(
        f"Invocation {invocation_id!r} left no checkpoint to resume from.", invocation_id=invocation_id
    )


async def cancel_paused(store: Store, invocation_id: str, tenant: str = "") -> list[Wait]:
    """Abandon a paused invocation: its waits are cancelled, and it can no longer be resumed."""
    runs = await store.runs.of_invocation(invocation_id, tenant=tenant)
    if not runs or runs[-1].status != RunStatus.SUSPENDED:
        state = f"is {runs[-1].status}, not suspended" if runs else "is not known here"
        raise _invalid(invocation_id, state)
    run = runs[-1]
    waits = await store.waits.of_session(run.key, run_id=run.run_id)
    if not waits:
        raise _invalid(invocation_id, "no longer waits for anything")
    settled = tuple(SettleWait(wait_id=wait.wait_id, status=WaitStatus.CANCELLED) for wait in waits)
    await store.commit(Commit(key=run.key, operation_id=new_id(), life=run.life, settle_waits=settled))
    return waits


def resumed_by_another(invocation_id: str, cause: Any) -> SuspensionRecordInvalid:
    """Return the error of a resume that came second."""
    return _invalid(invocation_id, f"was resumed or settled by another runner at the same time ({cause})")


def _invalid(invocation_id: str, what: str) -> SuspensionRecordInvalid:
    return SuspensionRecordInvalid(f"Invocation {invocation_id!r} {what}.", invocation_id=invocation_id)


async def stored_run(store: Store, run: Run, checkpoint: Checkpoint) -> StoredRun:
    """Return a run's checkpoint with its logs read."""
    logs = {}
    for name, end in checkpoint.ends.items():
        entries = await store.logs.read(checkpoint.key, name, end=end)
        logs[name] = [entry.value for entry in entries]
    return StoredRun(checkpoint=checkpoint, logs=logs, correlation_id=run.correlation_id, origin_id=run.origin_id)
