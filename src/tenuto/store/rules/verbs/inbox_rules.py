"""The inbox's own verbs: enqueue, cancel, and what a runner may take next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tenuto.clock import to_datetime, to_duration
from tenuto.codec import JSON, encode
from tenuto.errors import RunNotLive, SessionNotFound, StatusRefused, StoredDataCorrupt
from tenuto.model.event import EventType
from tenuto.model.input import Boundary, Cancelled, Enqueued, Input, InputKind, InputStatus, Nothing, Takeable
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.store.rules.lane_row import view_of
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.input_rules import HOLDS_INPUT, PackedInput, check_same_content, input_row
from tenuto.store.rules.plan import Found, Moved, Plan, Write
from tenuto.store.rules.records import RecordReader, json_of, word_of
from tenuto.store.rules.rows import EventRow, InputRow, RunRow, SessionRow

T = TypeVar("T")


def decide_enqueue(key: SessionKey, packed: PackedInput, found: Found) -> Plan[Enqueued]:
    """Store an input, or return the first one of its key."""
    row, given = found.session, packed.given
    if row is None or not row.alive:
        raise SessionNotFound(f"There is no {key} to send to; create it first.", key=key)
    lane = view_of(row, found.lease)
    known = found.input_keys.get(given.key) if given.key is not None else None
    if known:
        check_same_content(known, packed)
        return Plan(Enqueued(input=input_of(known, key), lane=lane, replayed=True))
    if row.status != SessionStatus.ACTIVE:
        raise StatusRefused(f"{key} is {row.status}; input needs an active session.", key=key, found=row.status)
    run = _run_meant(key, packed, row, found.run)
    new = queued_row(packed, row, found.now, run)
    plan = Plan(Enqueued(input=input_of(new, key), lane=lane), [Write("insert_inputs", [new])])
    if run:
        plan.writes.append(Write("hold_runs", [(HOLDS_INPUT, run.run_id)], must=True))
    return with_event(plan, key, row, found.now, EventType.INPUT_QUEUED, told_of(new), new.run_id)


def queued_row(packed: PackedInput, row: SessionRow, now: int, run: RunRow | None = None) -> InputRow:
    """Return the row of an input that takes the session's next event number and waits for a turn, or for a run."""
    given = packed.given
    return input_row(
        packed,
        row,
        next_count(row.event_seq, "the event number"),
        now,
        body=packed.body,
        boundary=str(given.boundary) if given.boundary and run else None,
        due_at=now + to_duration(given.delay) if given.delay is not None else packed.due_at,
        status=str(InputStatus.OPEN),
        run_id=run.run_id if run else None,
        log=None,
        position=None,
        settled_at=None,
    )


def told_of(new: InputRow) -> dict[str, JSON]:
    """Return what the event of a queued input says."""
    return {"input_id": new.input_id, "kind": new.kind}


def _run_meant(key: SessionKey, packed: PackedInput, row: SessionRow, run: RunRow | None) -> RunRow | None:
    """Return the live run an input is meant for; where that has ended, or there is none, the next turn takes it."""
    given = packed.given
    if given.boundary is None:
        return None
    mine = run is not None and (run.session, run.life) == (row.sid, row.life)
    if given.run_id is not None and not mine:
        raise RunNotLive(
            f"Run {given.run_id} is unknown in {key}.", key=key, run_id=given.run_id, found="unknown in this session"
        )
    return run if run and mine and run.status == RunStatus.RUNNING else None


def with_event(
    plan: Plan[T], key: SessionKey, row: SessionRow, now: int, kind: str, data: Mapping[str, JSON], run_id: str | None
) -> Plan[T]:
    """Return a plan with one event before its writes, outside a commit and without a lane.

    Its number is taken on the session's row, so every commit notices it.
    """
    event = event_row(row, now, kind, data, run_id)
    writes = [take_number(row, event.last_seq), Write("insert_events", [event]), *plan.writes]
    return Plan(plan.result, writes, moved=Moved(key, row.life, row.event_seq, event.last_seq, run_id))


def take_number(row: SessionRow, number: int) -> Write:
    """Return the write that gives out a session's event numbers up to this one, if the session is as it was found."""
    guard = (row.sid, row.life, row.event_seq, row.alive, row.status)
    return Write("take_number", [(number, *guard)], must=True)


def event_row(row: SessionRow, now: int, kind: str, data: Mapping[str, JSON], run_id: str | None) -> EventRow:
    """Return the row of one event that takes the session's next number."""
    number = next_count(row.event_seq, "the event number")
    return EventRow(row.sid, number, number, run_id, now, encode([[kind, dict(data)]]))


def decide_cancel(ids: Sequence[str], found: Found) -> Plan[dict[str, Cancelled]]:
    """Cancel what is open of the named inputs and say for each what happened to it."""
    row, rows = found.session, found.inputs or {}
    outcomes: dict[str, Cancelled] = {}
    for input_id in ids:
        known = rows.get(input_id)
        if row is None or known is None or (known.session, known.life) != (row.sid, row.life):
            outcomes[input_id] = Cancelled.UNKNOWN
        else:
            outcomes[input_id] = _CANCELLED[InputStatus(known.status)]
    open_ids = [input_id for input_id, outcome in outcomes.items() if outcome is Cancelled.CANCELLED]
    if not open_ids:
        return Plan(outcomes)
    return Plan(outcomes, [Write("cancel_inputs", [(found.now, input_id) for input_id in open_ids], must=True)])


_CANCELLED = {
    InputStatus.OPEN: Cancelled.CANCELLED,
    InputStatus.CONSUMED: Cancelled.CONSUMED,
    InputStatus.CANCELLED: Cancelled.ALREADY,
    InputStatus.REFUSED: Cancelled.REFUSED,
}


def decide_refuse(key: SessionKey, input_id: str, error: JSON, found: Found) -> Plan[bool]:
    """Settle an open input as refused, and keep why in the place of its body; any other is left unchanged."""
    row, known = found.session, (found.inputs or {}).get(input_id)
    if row is None or known is None or (known.session, known.life) != (row.sid, row.life):
        return Plan(False)
    if known.status != InputStatus.OPEN:
        return Plan(False)
    plan = Plan(True, [Write("refuse_inputs", [(encode(error), found.now, input_id)], must=True)])
    return with_event(plan, key, row, found.now, EventType.INPUT_REFUSED, {**told_of(known), "error": error}, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxLook:
    """What decides what may be taken at a place: whether anything is open, when the place's next input is due, and
    the oldest command that is due.
    """

    open: bool
    next_due: int | None
    command: tuple[int, str] | None


def decide_take(boundary: Boundary | None, look: InboxLook, due: Sequence[InputRow], key: SessionKey) -> Takeable:
    """Say which of the place's due inputs may be taken now.

    Between turns it is the oldest, one at a time. At a boundary it is everything meant for it, but nothing behind an
    older command, which waits for the turn's end.
    """
    if not due:
        if look.next_due is not None:
            return Takeable(reason=Nothing.NOT_DUE, due_at=to_datetime(look.next_due))
        return Takeable(reason=Nothing.NOT_HERE if look.open else Nothing.EMPTY)
    if boundary is None:
        return Takeable(inputs=(input_of(due[0], key),))
    command = look.command
    free = [row for row in due if command is None or row.seq < command[0]]
    if command is not None and not free:
        return Takeable(reason=Nothing.BLOCKED, blocked_by=command[1])
    return Takeable(inputs=tuple(input_of(row, key) for row in free))


REGENERATED = 2
"""The mark of an input whose message was answered again: its run is the one that did."""

_INPUT = RecordReader(Input, InputRow, input_key="key")


def input_of(row: InputRow, key: SessionKey) -> Input:
    """Read an input; what cannot be read of an open one is said, so that it can be refused by whoever would take it."""
    what = f"input {row.input_id}"
    refused = row.status == InputStatus.REFUSED
    error = json_of(row.body, f"{what} error") if refused else None
    try:
        kind = word_of(InputKind, row.kind, f"{what} kind")
        body = None if refused else json_of(row.body, f"{what} body")
        boundary = None if row.boundary is None else word_of(Boundary, row.boundary, f"{what} boundary")
        unreadable = None
    except StoredDataCorrupt as damage:
        kind, body, boundary, unreadable = InputKind.WAKE, None, None, damage.message
    return _INPUT(
        row,
        what,
        key=key,
        kind=kind,
        body=body,
        has_body=row.body is not None and not refused and unreadable is None,
        boundary=boundary,
        rolled_back=row.rolled_back not in (0, REGENERATED),
        regenerated=row.rolled_back == REGENERATED,
        error=error,
        unreadable=unreadable,
    )
