"""Stops: a durable request on a run, which the first of it and the run's last commit wins."""

from dataclasses import replace

from tenuto.codec import JSON, encode
from tenuto.errors import RunNotLive
from tenuto.model.input import Enqueued, InputStatus
from tenuto.model.run import RunStatus, StopAnswer, StopKind, StopReply
from tenuto.model.session import SessionKey
from tenuto.store.rules.parts.input_rules import PackedInput
from tenuto.store.rules.plan import Found, Moved, Plan, Write
from tenuto.store.rules.records import stop_of
from tenuto.store.rules.rows import RunRow, SessionRow
from tenuto.store.rules.verbs.inbox_rules import decide_enqueue, take_number, with_event

STOP_REQUESTED = "stop_requested"
STOP_WITHDRAWN = "stop_withdrawn"


def decide_stop(key: SessionKey, run_id: str, kind: StopKind, reason: str | None, found: Found) -> Plan[StopReply]:
    """Record a stop on a running run; an abort takes the place of an interrupt."""
    row, run = _live(key, run_id, found)
    known = stop_of(run.stop, f"run {run.run_id} stop")
    status = RunStatus(run.status)
    if status is not RunStatus.RUNNING:
        return Plan(StopReply(answer=StopAnswer.ENDED, stop=known, status=status))
    if known and (known.kind is kind or known.kind is StopKind.ABORT):
        return Plan(StopReply(answer=StopAnswer.ALREADY, stop=known, status=status))
    text = encode({"kind": kind, "reason": reason, "at": found.now, "seen_at": None})
    told: dict[str, JSON] = {"run_id": run_id, "kind": str(kind), "reason": reason}
    reply = StopReply(answer=StopAnswer.RECORDED, stop=stop_of(text, f"run {run_id} stop"), status=status)
    plan = Plan(reply, [Write("stop_runs", [(text, run_id)], must=True)])
    return with_event(plan, key, row, found.now, STOP_REQUESTED, told, run_id)


def decide_interrupt(key: SessionKey, packed: PackedInput, reason: str, found: Found) -> Plan[Enqueued]:
    """Store an input, or return the first one of its key, and ask the run under way to make room for it.

    A run that began after the input came in is not its to stop, and one that was consumed has its room.
    """
    plan = decide_enqueue(key, packed, found)
    row, run, given = found.session, found.run, plan.result.input
    if row is None or run is None or (run.session, run.life) != (row.sid, row.life):
        return plan
    if run.status != RunStatus.RUNNING or given.status is not InputStatus.OPEN or run.start_seq >= given.seq:
        return plan
    after = row._replace(event_seq=max(row.event_seq, given.seq))
    asked = decide_stop(key, run.run_id, StopKind.INTERRUPT, reason, replace(found, session=after))
    result = replace(plan.result, stopped=run.run_id, stop=asked.result.stop)
    if not asked.writes:
        return Plan(result, plan.writes, moved=plan.moved)
    if not plan.writes:
        return Plan(result, asked.writes, moved=asked.moved)
    (_, events, *queued), (_, more_events, *stopped) = plan.writes, asked.writes
    number = after.event_seq + 1
    told = Write("insert_events", [*events.rows, *more_events.rows])
    moved = Moved(key, row.life, row.event_seq, number, run.run_id)
    return Plan(result, [take_number(row, number), told, *queued, *stopped], moved=moved)


def decide_withdraw(key: SessionKey, run_id: str, found: Found) -> Plan[StopReply]:
    """Take back a stop that its run has not seen."""
    row, run = _live(key, run_id, found)
    known, status = stop_of(run.stop, f"run {run.run_id} stop"), RunStatus(run.status)
    if status is not RunStatus.RUNNING:
        return Plan(StopReply(answer=StopAnswer.ENDED, stop=known, status=status))
    if known is None:
        return Plan(StopReply(answer=StopAnswer.NONE, stop=None, status=status))
    if known.seen_at is not None:
        return Plan(StopReply(answer=StopAnswer.SEEN, stop=known, status=status))
    reply = StopReply(answer=StopAnswer.WITHDRAWN, stop=None, status=status)
    plan = Plan(reply, [Write("stop_runs", [(None, run_id)], must=True)])
    return with_event(plan, key, row, found.now, STOP_WITHDRAWN, {"run_id": run_id}, run_id)


def _live(key: SessionKey, run_id: str, found: Found) -> tuple[SessionRow, RunRow]:
    row, run = found.session, found.run
    if row is None or run is None or (run.session, run.life) != (row.sid, row.life):
        raise unknown_run(run_id, key)
    return row, run


def unknown_run(run_id: str, key: SessionKey | None = None) -> RunNotLive:
    """Say that there is no such run."""
    return RunNotLive(f"There is no run {run_id}; it may have been deleted.", key=key, run_id=run_id, found="unknown")
