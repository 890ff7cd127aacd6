"""A session with something in every table."""

from typing import Any

from tenuto.model.commit import Append, BeginRun, Commit, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_key, a_session, an_id, an_owner


class FullSession:
    """A session with something in every table, and what a runner of it holds."""

    def __init__(self, key: SessionKey, lane: Lane, run: RunRef, wait_id: str, checkpoint: int, landed: Commit) -> None:
        self.key = key
        self.lane = lane
        self.run = run
        self.wait_id = wait_id
        self.checkpoint = checkpoint
        self.landed = landed


async def a_full_session(store: Store, key: SessionKey | None = None, **create: Any) -> FullSession:
    """Create a session with a lane, a live run, a checkpoint, a wait, events and a big value."""
    key = key or a_key()
    text = f"of {key.session_id} "
    await a_session(store, None, text + "one", key=key, state={"big": text + "x" * 2000}, **create)
    lane = await store.lanes.acquire(key, an_owner(text))
    run_id = an_id("run")
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    landed = a_commit(
        key,
        life=lane.life,
        generation=lane.generation,
        run=begin,
        logs={"messages": Append(items=(text + "two",))},
        checkpoint=NewCheckpoint(step=1, document={"big": text + "y" * 2000}),
        open_waits=(OpenWait(kind="signal", signal_id=text),),
        events=(NewEvent(type="a", data=text), NewEvent(type="b", data=text)),
    )
    receipt = await store.commit(landed)
    return FullSession(key, lane, RunRef(run_id=run_id), receipt.wait_ids[0], receipt.commit_number, landed)
