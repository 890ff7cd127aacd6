"""The stream's rules: batches outside a commit, and reading what is stored."""

from collections.abc import Iterable
from typing import Any

from tenuto.clock import to_datetime
from tenuto.codec import encode, loads
from tenuto.errors import StoredDataCorrupt, StreamMoved
from tenuto.model.event import Event, EventType
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.store.rules.commit.guards import check_run_live
from tenuto.store.rules.lane_row import lane_lost
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.plan import Found, Moved, Plan, Script, Write
from tenuto.store.rules.rows import EventRow
from tenuto.store.rules.session_row import blank_row, check_life


def decide_events(lane: Lane, run: RunRef | None, after: int | None, body: str, count: int, found: Found) -> Plan[int]:
    """Append a batch under the lane and return the stream's new last number."""
    key = lane.key
    row = found.session or blank_row(key, found)
    check_life(key, lane.life, row)
    if row.generation != lane.generation or not row.armed:
        raise lane_lost(key, lane.generation, row.generation)
    if run is not None:
        check_run_live(key, run, row, found.run, laned=True)
    if after is not None and after != row.event_seq:
        raise StreamMoved(
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
    """Unfold stored rows into the events after a cursor; a mark for several has the number of the last."""
    found = []
    for row in rows:
        seq, at = row.first_seq - 1, to_datetime(row.at)
        for kind, data in _body(row):
            seq = data["to"] if kind == EventType.ELIDED else seq + 1
            if seq > after:
                found.append(Event(seq=seq, type=kind, data=data, run_id=row.run_id, at=at))
    return found


def _body(row: EventRow) -> list[Any]:
    """Return the pairs of type and data of a stored row; a mark has the numbers it stands for."""
    what = f"events from {row.first_seq}"
    events = loads(row.body, what)
    if type(events) is not list or not all(map(_is_event, events)):
        raise StoredDataCorrupt(f"{what} are not a list of events.", what=what)
    return events


def _is_event(event: Any) -> bool:
    if type(event) is not list or len(event) != 2 or type(event[0]) is not str:
        return False
    kind, data = event
    return kind != EventType.ELIDED or (type(data) is dict and type(data.get("from")) is type(data.get("to")) is int)


def gather_run_events(session: int, run_id: str) -> Script[list[EventRow]]:
    """Read the events of a run."""
    rows = yield "events_of_run", (session, run_id)
    return [EventRow(*row) for row in rows]


def decide_elide(rows: list[EventRow]) -> Plan[int]:
    """Let one mark stand for each stretch of a run's chunks; return how many went."""
    new: list[EventRow] = []
    count = 0
    for row in rows:
        body, seq = [], row.first_seq - 1
        for kind, data in _body(row):
            first = data["from"] if kind == EventType.ELIDED else seq + 1
            seq = data["to"] if kind == EventType.ELIDED else seq + 1
            count += kind == EventType.CHUNK
            if kind not in (EventType.CHUNK, EventType.ELIDED):
                body.append([kind, data])
            elif body and body[-1][0] == EventType.ELIDED:
                body[-1] = [EventType.ELIDED, {"from": body[-1][1]["from"], "to": seq}]
            else:
                body.append([EventType.ELIDED, {"from": first, "to": seq}])
        before = new[-1] if new else None
        if before and before.last_seq + 1 == row.first_seq and _is_mark(before) and body[0][0] == EventType.ELIDED:
            mark = [EventType.ELIDED, {"from": before.first_seq, "to": body[0][1]["to"]}]
            new[-1] = row._replace(first_seq=before.first_seq, body=encode([mark, *body[1:]]))
        else:
            new.append(row._replace(body=encode(body)))
    if not count:
        return Plan(0)
    gone = [row for row in rows if row not in new]
    writes = [
        Write("delete_events", [(row.session, row.first_seq, row.last_seq) for row in gone], must=True),
        Write("insert_events", [row for row in new if row not in rows]),
    ]
    return Plan(count, writes)


def _is_mark(row: EventRow) -> bool:
    body = _body(row)
    return len(body) == 1 and body[0][0] == EventType.ELIDED
