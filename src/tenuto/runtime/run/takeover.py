"""Takes over a run whose runner is gone, as its next attempt."""

from tenuto.codec import JSON
from tenuto.model.commit import EndRun
from tenuto.model.event import EventType, NewEvent
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.run.begin import TurnFactory, run_started
from tenuto.runtime.run.resume import rebuild
from tenuto.runtime.stream.chunks import BOUNDARIES
from tenuto.runtime.stream.notices import RUN_ABANDONED, LaneTakenOver, Notice, SessionLoaded
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.writing.liveness import runner_is_gone
from tenuto.writing.run_writer import RunWriter

MAX_ATTEMPTS = 3
"""How many runners may try to finish one run."""


async def take_over_run(factory: TurnFactory, replica: Replica, lane: Lane, run: Run) -> TurnContext | None:
    """Take over a run as its next attempt; return None if it had used all attempts and was ended as failed."""
    writer = RunWriter.under(factory.store, lane)
    try:
        writer.stand(replica.base)
        writer.takes(run.run_id, run.attempt, run.ends, run.worker if runner_is_gone(run) else None)
        turn = await rebuild(factory, replica, writer, run, resumes=None)
        boundary = await _last_boundary(factory.store, run)
        turn.chunks.boundary, turn.stream_start = boundary, run.start_sequence
        notices: list[Notice] = [SessionLoaded(key=replica.key, version=replica.version, status=str(replica.status))]
        if lane.displaced is not None:
            gone = lane.displaced
            notices.append(LaneTakenOver(key=replica.key, owner=gone.owner.owner_id, generation=gone.generation))
        turn.pending.events.extend(notice.event() for notice in notices)
        rewound: dict[str, JSON] = {"from": boundary, "attempt": turn.attempt}
        turn.pending.events.append(NewEvent(type=EventType.REWOUND, data=rewound))
        replica.last_run = (run.run_id, RunStatus.RUNNING)
        if run.attempt >= MAX_ATTEMPTS:
            error = {
                "category": RUN_ABANDONED,
                "message": f"{run.attempt} runners tried to finish this run and were lost.",
            }
            end = EndRun(status=RunStatus.FAILED, error=error)
            await factory.ender.close(turn, end, "its run was abandoned", notices)
            return None
        notices.append(run_started(turn))
        turn.pending.events.append(notices[-1].event())
        receipt = await turn.commit()
        turn.chunks.boundary = receipt.event_seq
    except BaseException:
        await writer.abandon()
        raise
    await factory.listeners.tell(*notices)
    return turn


async def _last_boundary(store: Store, run: Run) -> int:
    """Return the number of a run's last boundary event; chunks after it belong to nothing that is stored."""
    after, found = run.start_sequence, run.start_sequence
    while True:
        page = await store.events.read(run.key, after=after, run_id=run.run_id)
        found = max([found, *(event.seq for event in page.events if event.type in BOUNDARIES)])
        if page.next == after or page.next >= page.tail:
            return found
        after = page.next
