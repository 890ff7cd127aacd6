"""Streams: numbered without a gap, and every frame a reader was shown is what is stored."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.chaos.audit.evidence import Event, Evidence
from tests.chaos.audit.violation import Violation
from tests.chaos.ledger import Note
from tests.chaos.reader import digest

_REMARKS = ("caught_up", "truncated")


def judge_streams(evidence: Evidence) -> Iterator[Violation]:
    """Judge what is stored, then what was read."""
    for row in evidence.alive.values():
        yield from _gaps(row["session_id"], row, evidence)
    yield from _frames(evidence)
    yield from _readings(evidence)


def _gaps(session: str, row: dict[str, Any], evidence: Evidence) -> Iterator[Violation]:
    at = row["event_floor"]
    rows = [each for each in evidence.of_session["event"].get(row["sid"], ()) if each["last_seq"] > at]
    for each in sorted(rows, key=lambda each: int(each["first_seq"])):
        if each["first_seq"] != at + 1:
            yield Violation("stream", session, f"event {at + 1} is missing; the next is {each['first_seq']}")
        at = each["last_seq"]
    if at != row["event_seq"]:
        yield Violation("stream", session, f"the stream ends at {at}, not {row['event_seq']}")


def _shown(event: Event) -> tuple[str, str | None, str]:
    """Return a stored event as a reader notes it."""
    data = event.data
    if event.name == "chunk":
        data = data["chunk"]
    elif event.name == "rewound":
        data = {"from": data["from"]}
    return event.name, event.run, digest(data)


def _frames(evidence: Evidence) -> Iterator[Violation]:
    stored = {sid: {event.seq: event for event in events} for sid, events in evidence.streams.items()}
    seen: dict[tuple[str, int], tuple[str, Any, str]] = {}
    for note in evidence.notes:
        if note["note"] != "frame" or note["type"] in _REMARKS:
            continue
        shown = (note["name"], note["run"], note["digest"])
        place = (note["session"], note["seq"])
        before = seen.setdefault(place, shown)
        if before != shown and "elided" not in (before[0], shown[0]):
            yield Violation("stream", note["session"], f"two readers saw event {note['seq']} as {before} and {shown}")
        row = evidence.alive.get(note["session"])
        event = stored.get(row["sid"], {}).get(note["seq"]) if row is not None else None
        if event is None or "elided" in (event.name, note["name"]):
            continue
        if _shown(event) != shown:
            what = f"event {note['seq']} was read as {shown} and is stored as {_shown(event)}"
            yield Violation("stream", note["session"], what)


def _readings(evidence: Evidence) -> Iterator[Violation]:
    """Within a connection, each frame follows on the one before it."""
    readings: dict[tuple[str, int], list[Note]] = defaultdict(list)
    begun: dict[tuple[str, int], int] = {}
    for note in evidence.notes:
        if note["note"] == "connect":
            begun[note["who"], note["connection"]] = note["after"]
        elif note["note"] == "frame":
            readings[note["who"], note["connection"]].append(note)
    for connection, notes in readings.items():
        at = begun[connection]
        for note in notes:
            if note["type"] in _REMARKS:
                at = max(at, note["seq"])
                continue
            first = note["span"] if note["span"] is not None else note["seq"]
            if first > at + 1 or note["seq"] <= at:
                what = f"{connection[0]} was shown event {note['seq']} ({note['name']}) after {at}"
                yield Violation("stream", note["session"], what)
            at = note["seq"]
