"""Sessions with something to clean up."""

from typing import Any

from tenuto.model.commit import Append, BeginRun, EndRun, NewCheckpoint, OpenWait, SettleWait
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, an_id
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness


async def a_timed_store(harness: Harness) -> tuple[Store, FakeClock]:
    """Open a store whose clock the test moves."""
    clock = FakeClock()
    return await harness.open(clock=clock), clock


async def a_left_run(store: Store, key: SessionKey, *items: Any, end: RunStatus | None = None, **parts: Any) -> RunRef:
    """Begin a run that leaves a checkpoint and a wait, and end it if a status is given."""
    run_id = an_id("run")
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    commit = a_commit(
        key,
        run=begin,
        logs={"messages": Append(items=items)} if items else {},
        checkpoint=NewCheckpoint(step=1),
        open_waits=(OpenWait(kind="signal"),),
        **parts,
    )
    receipt = await store.commit(commit)
    ref = RunRef(run_id=run_id)
    if end:
        fenced = {name: parts[name] for name in ("generation", "life") if name in parts}
        settle = tuple(SettleWait(wait_id=wait_id) for wait_id in receipt.wait_ids)
        await store.commit(a_commit(key, run=ref, end=EndRun(status=end), settle_waits=settle, **fenced))
    return ref
