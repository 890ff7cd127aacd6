"""How turns go on with a former run: one that stopped, as a new run, or one that was lost, as its next attempt."""

from collections.abc import Mapping, Sequence

from tenuto.codec import JSON
from tenuto.errors import StatusRefused
from tenuto.model.commit import EndRun
from tenuto.model.event import EventType, NewEvent
from tenuto.model.input import Consume, Input
from tenuto.model.lane import Lane
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitStatus
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.program.tools import ANSWERS_CALLS, answer_message
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.abandon import reply_to
from tenuto.runtime.run.begin import TAKES_TURNS, TurnFactory, leave_point, note_live, started_notice
from tenuto.runtime.run.first_message import is_notice, notice_message
from tenuto.runtime.run.remains import MAX_ATTEMPTS, RUN_ABANDONED, given_up
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.stream.chunks import BOUNDARIES
from tenuto.runtime.stream.notices import LaneTakenOver, Notice, SessionLoaded
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.runtime.turn.invocation import Invocation
from tenuto.runtime.turn.invocation_waits import STEP
from tenuto.store.store import Store
from tenuto.writing.liveness import runner_is_gone
from tenuto.writing.pages import all_effects
from tenuto.writing.run_writer import RunWriter


async def find_stopped(store: Store, key: SessionKey) -> Run:
    """Return the last run of a session if it was interrupted or failed; any other cannot be gone on with."""
    run = await store.runs.current(key)
    if run is None or run.status not in (RunStatus.INTERRUPTED, RunStatus.FAILED):
        state = "has never run" if run is None else f"is {run.status}"
        raise StatusRefused(f"The last run of {key} {state}; there is nothing to go on with.", key=key, found=state)
    return run


async def is_resumable(store: Store, run: Run) -> bool:
    """Tell whether a suspended run waits for nothing any more: all is settled, or overdue; one taken back stays so."""
    if run.rolled_back:
        return False
    waits = await store.waits.of_session(run.key, run_id=run.run_id, status=None)
    open_waits = [wait for wait in waits if wait.status is WaitStatus.OPEN]
    if not waits or any(wait.status in (WaitStatus.ABANDONED, WaitStatus.CANCELLED) for wait in waits):
        return False
    now = (await store.moment()) if open_waits else None
    return all(wait.deadline is not None and now is not None and wait.deadline <= now for wait in open_waits)


async def resume_run(beginnings: TurnFactory, copy: Replica, lane: Lane, run: Run, wakes: Sequence[Input] = ()) -> Turn:
    """Go on with a suspended, interrupted or failed run as a new run of its invocation, in one commit."""
    writer = RunWriter.under(beginnings.store, lane)
    live: Turn | None = None
    try:
        beginnings.check_takes_turns(copy)
        writer.stand(copy.base)
        live = await _put_up(beginnings, copy, writer, run, resumes=run.run_id)
        writer.begins(
            invocation_id=run.invocation_id,
            correlation_id=run.correlation_id,
            origin_id=run.origin_id,
            fresh=False,
        )
        notices: list[Notice] = [await beginnings.told_load(live)]
        _settle(live, run.run_id, wakes)
        live.pending.further |= {"statuses": TAKES_TURNS, "count_resume": True}
        leave_point(live)
        notices.append(started_notice(live))
        live.pending.events.extend(notice.event() for notice in notices)
        receipt = await live.commit()
        copy.resume_count += 1
        note_live(live, receipt)
    except BaseException as error:
        await beginnings.let_go(live, writer, error)
        raise
    await beginnings.listeners.tell(*notices)
    return live


def _settle(live: Turn, run_id: str, wakes: Sequence[Input]) -> None:
    """Expire what is overdue, give each call that was answered its result, and take the wakes in.

    A step whose last call is answered here is over.
    """
    overdue = [wait for wait in live.invocation.waits if wait.run_id == run_id]
    settled, owed = given_up(overdue, live.key.tenant, WaitStatus.EXPIRED)
    live.pending.settled.extend(settled)
    live.pending.outgoing.extend(owed)
    live.waits.expire(run_id)
    open_calls, answered = set(live.copy.history.open), []
    for wait in live.waits.of_run(run_id):
        call = str(wait.metadata.get("call_id"))
        if wait.kind in ANSWERS_CALLS and call in open_calls:
            live.pending.add(MESSAGES, [answer_message(wait)])
            open_calls.discard(call)
            answered.append(wait)
    if answered and not open_calls and any(wait.metadata.get(STEP) == live.step for wait in answered):
        live.count_step()
    takes_notices = not open_calls and not live.declared.resumes  # an engine goes on where it stood
    _take_wakes(live, [each for each in wakes if takes_notices or not is_notice(each)])


def _take_wakes(live: Turn, wakes: Sequence[Input]) -> None:
    for each in wakes:
        told = notice_message(each, live.declared)
        if told is not None:
            item = live.pending.add(MESSAGES, [told])
            live.pending.consume.append(Consume(input_id=each.input_id, log=MESSAGES, item=item))
        else:
            live.pending.consume.append(Consume(input_id=each.input_id))


async def take_over_run(beginnings: TurnFactory, copy: Replica, lane: Lane, run: Run) -> Turn | None:
    """Go on with a run whose runner is gone, as its next attempt; None if it had all its attempts and was ended."""
    writer = RunWriter.under(beginnings.store, lane)
    try:
        writer.stand(copy.base)
        writer.takes(run.run_id, run.attempt, run.ends, run.worker if runner_is_gone(run) else None)
        live = await _put_up(beginnings, copy, writer, run, resumes=None)
        boundary = await _last_boundary(beginnings.store, run)
        live.chunks.boundary = boundary
        notices: list[Notice] = [SessionLoaded(key=copy.key, version=copy.version, status=str(copy.status))]
        if lane.displaced is not None:
            gone = lane.displaced
            notices.append(LaneTakenOver(key=copy.key, owner=gone.owner.owner_id, generation=gone.generation))
        live.pending.events.extend(notice.event() for notice in notices)
        rewound: dict[str, JSON] = {"from": boundary, "attempt": live.attempt}
        live.pending.events.append(NewEvent(type=EventType.REWOUND, data=rewound))
        copy.last_run = (run.run_id, RunStatus.RUNNING)
        if run.attempt >= MAX_ATTEMPTS:
            error = {
                "category": RUN_ABANDONED,
                "message": f"{run.attempt} runners tried to finish this run and were lost.",
            }
            end = EndRun(status=RunStatus.FAILED, error=error)
            await beginnings.ending.close(live, end, "its run was abandoned", notices)
            return None
        notices.append(started_notice(live))
        live.pending.events.append(notices[-1].event())
        receipt = await live.commit()
        live.chunks.boundary = receipt.event_seq
    except BaseException:
        await writer.abandon()
        raise
    await beginnings.listeners.tell(*notices)
    return live


async def _put_up(beginnings: TurnFactory, copy: Replica, writer: RunWriter, run: Run, *, resumes: str | None) -> Turn:
    """Put up a turn with everything former runs of its invocation left."""
    effects = await all_effects(beginnings.store, copy.key, origin_id=run.origin_id)
    waits = await beginnings.store.waits.of_invocation(copy.key, run.origin_id)
    runs = await beginnings.store.runs.of_invocation(run.invocation_id, tenant=copy.key.tenant)
    before = sum(each.steps for each in runs if each.run_id != run.run_id)
    invocation = Invocation(
        invocation_id=run.invocation_id,
        origin_id=run.origin_id,
        correlation_id=run.correlation_id,
        input=_last_said(copy),
        resumes=resumes,
        steps_before=before + run.steps if resumes else before,
        waits=tuple(waits),
        reply_to=await reply_to(beginnings.store, run),
    )
    journal = EffectJournal(effects, run_id=writer.run_id, attempt=writer.attempt)
    live = beginnings.put_up(copy, writer, invocation, journal)
    if resumes is None:
        live.steps, live.stop = run.steps, run.stop
    return live


def _last_said(copy: Replica) -> JSON:
    return next(
        (each for each in reversed(copy.messages) if isinstance(each, Mapping) and each.get("role") == "user"), None
    )


async def _last_boundary(store: Store, run: Run) -> int:
    """Return up to where a run's chunks stand for something written; what was emitted after it never was."""
    after, found = run.start_sequence, run.start_sequence
    while True:
        page = await store.events.read(run.key, after=after, run_id=run.run_id)
        found = max([found, *(event.seq for event in page.events if event.type in BOUNDARIES)])
        if page.next == after or page.next >= page.tail:
            return found
        after = page.next
