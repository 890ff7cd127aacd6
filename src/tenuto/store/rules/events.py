"""The stream's rules: batches outside a commit, and reading what is stored."""

from collections.abc import Iterable

from tenuto.clock import to_datetime
from tenuto.codec import loads
from tenuto.errors import VersionConflict
from tenuto.model.event import Event
from tenuto.model.run import RunRef
from tenuto.model.session import SessionKey
from tenuto.store.rules.found import Found, Moved, Plan, Write
from tenuto.store.rules.guards import check_run_live
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.rows import EventRow
from tenuto.store.rules.session_row import blank_row, check_life, lane_lost


def decide_events(
    key: SessionKey,
    life: int,
    generation: int,
    run: RunRef | None,
    after: int | None,
    body: str,
    count: int,
    found: Found,
) -> Plan[int]:
    """Append a batch under the lane and return the stream's new last number."""
    row = found.session or blank_row(key, found)
    check_life(key, life, row)
    if row.generation != generation or not row.armed:
        raise lane_lost(key, generation, row.generation)
    if run is not None:
        check_run_live(key, run, row, found.run, laned=True)
    if after is not None and after != row.event_seq:
        raise VersionConflict(
            f"The stream of {key} stands at {row.event_seq}, not {after}; read on from {after} before repeating.",
            key=key,
            expected=after,
            found=row.event_seq,
        )
    last = next_count(row.event_seq, "the event number", count)
    event = EventRow(row.sid, row.event_seq + 1, last, run.run_id if run else None, found.now, body)
    guard = (row.sid, row.life, row.generation, row.event_seq)
    writes = [Write("advance_events", [(last, *guard)], must=True), Write("insert_events", [event])]
    return Plan(last, writes, moved=Moved(key, row.life, row.event_seq, last))


def read_events(rows: Iterable[EventRow], after: int) -> list[Event]:
    """Unfold stored rows into the events after a cursor."""
    return [
        Event(seq=row.first_seq + index, type=kind, data=data, run_id=row.run_id, at=to_datetime(row.at))
        for row in rows
        for index, (kind, data) in enumerate(loads(row.body, f"events from {row.first_seq}"))
        if row.first_seq + index > after
    ]
