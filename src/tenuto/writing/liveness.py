"""Which runs are alive: those of this process, those whose runner may be alive, and how to end the others."""

from tenuto.errors import LaneBusy, RunNotLive
from tenuto.model.commit import EndRun, TakeRun
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.store.host import is_dead, worker_is_dead, worker_name
from tenuto.store.store import Store
from tenuto.writing.lane_claim import under
from tenuto.writing.pages import all_runs

RUN_LOST = {"category": "run_lost", "message": "The runner was lost; the run can be resumed from its last checkpoint."}

live_run_ids: set[str] = set()
"""The runs that turns of this process are about to begin, or have begun and not released."""


def runner_is_gone(run: Run) -> bool:
    """Return whether a running run's runner is proven gone: its process is, or this process has released the run."""
    return worker_is_dead(run.worker) or (run.worker == worker_name() and run.run_id not in live_run_ids)


async def is_alive(store: Store, run: Run) -> bool:
    """Return whether a running run's runner may still be alive."""
    if run.generation is None:
        return not runner_is_gone(run) and run.expires_at is not None and run.expires_at > await store.moment()
    lane = await store.lanes.inspect(run.key)
    if runner_is_gone(run) or lane is None or lane.generation != run.generation or lane.state != "held":
        return False
    return lane.owner is None or not is_dead(lane.owner.host)


async def end_former(store: Store, lane: Lane, origin_id: str) -> None:
    """End the runs of an origin as interrupted if their runners are gone; `LaneBusy` if one may still be alive."""
    async for run in all_runs(store, lane.key):
        if run.origin_id != origin_id or run.status != RunStatus.RUNNING:
            continue
        gone = run.worker if runner_is_gone(run) else None
        take = TakeRun(run_id=run.run_id, attempt=run.attempt, gone=gone)
        ending = EndRun(status=RunStatus.INTERRUPTED, error=RUN_LOST)
        try:
            await store.commit(under(lane, run=take, end=ending))
        except RunNotLive as refused:
            raise LaneBusy(
                f"Run {run.run_id} of {lane.key} is {refused.found}; it can be resumed elsewhere only after it ends.",
                key=lane.key,
                owner=run.worker or "",
                generation=lane.generation,
                expires_at=run.expires_at,
            ) from refused
