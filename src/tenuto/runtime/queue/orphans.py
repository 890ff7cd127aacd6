"""Runs whose runner was lost and that no runtime resumes: ended as interrupted, so that their own engine can."""

from tenuto.errors import LaneBusy, LaneLost, RunNotLive, SessionDeleted
from tenuto.ids import new_id
from tenuto.model.commit import Commit, EndRun, TakeRun
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.stream.notices import RunEnded
from tenuto.store.store import Store
from tenuto.writing.lane_claim import free_lane, this_owner
from tenuto.writing.liveness import RUN_LOST, runner_is_gone


async def end_orphan(store: Store, run: Run, lane: Lane | None) -> bool:
    """End a lost run and free the lane; return False if it is not lost: ended, taken over, or still alive."""
    status = RunStatus.INTERRUPTED
    notice = RunEnded(key=run.key, run_id=run.run_id, status=str(status), steps=run.steps, error=RUN_LOST)
    commit = Commit(
        key=run.key,
        operation_id=new_id(),
        life=run.life,
        generation=None if lane is None else lane.generation,
        run=TakeRun(run_id=run.run_id, attempt=run.attempt, gone=run.worker if runner_is_gone(run) else None),
        end=EndRun(status=status, error=RUN_LOST),
        events=(notice.event(),),
        disarm=lane is not None,
    )
    try:
        await store.commit(commit)
    except SessionDeleted:
        return False  # the run was deleted with its session
    except (RunNotLive, LaneLost):
        if lane is not None:
            await free_lane(store, lane)
        return False
    return True


async def end_orphan_without_session(store: Store, run: Run) -> bool:
    """End a lost run without a loadable session, acquiring the lane first if the run had one."""
    if run.generation is None:
        return await end_orphan(store, run, None)
    try:
        lane = await store.lanes.acquire(run.key, this_owner(), ttl=store.keeper.ttl)
    except LaneBusy:
        return False
    return await end_orphan(store, run, lane)
