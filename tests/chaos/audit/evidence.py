"""What there is to judge by: the tables, the ledger and the tools' own log, put in order and not interpreted."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.chaos.ledger import ACK, INTENT, REFUSED, Note
from tests.chaos.programs import marker_of
from tests.chaos.tables import Row, Tables

ROLLED_BACK = 4
"""What a run that was taken back has in `holds`."""

_TOLD = ("ack", "refused", "unknown", "cut", "untyped")


class Entry(NamedTuple):
    """A message of a session's head: the row that holds it, and what it says."""

    session: int
    branch: int
    position: int
    body: Any


class Event(NamedTuple):
    """One stored event."""

    seq: int
    name: str
    data: Any
    run: str | None


@dataclass(slots=True)
class Try:
    """One try of a deed: what was meant, and what was heard of it, if anything was."""

    intent: Note
    told: Note | None = None

    @property
    def acked(self) -> bool:
        """Whether it was acknowledged."""
        return self.told is not None and self.told["note"] == ACK

    @property
    def refused(self) -> bool:
        """Whether it was refused, with nothing written."""
        return self.told is not None and self.told["note"] == REFUSED


@dataclass(slots=True)
class Story:
    """A message, told by whoever sent it: all tries under its key."""

    key: str
    session: str
    tries: list[Try] = field(default_factory=list)

    @property
    def acks(self) -> list[Try]:
        """The tries that were acknowledged."""
        return [each for each in self.tries if each.acked]

    @property
    def begun_at(self) -> float:
        """When it was meant first."""
        return float(self.tries[0].intent["at"])


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Everything that is known of a run."""

    tables: Tables
    notes: list[Note]
    acts: list[Note]
    by_sid: dict[int, Row]
    alive: dict[str, Row]
    heads: dict[int, list[Entry]]
    streams: dict[int, list[Event]]
    of_session: dict[str, dict[int, list[Row]]]
    by_deed: dict[str, list[Try]]
    stories: dict[str, Story]

    @classmethod
    def of(cls, tables: Tables, notes: list[Note], acts: list[Note]) -> "Evidence":
        """Put what was read in order."""
        by_sid = {row["sid"]: row for row in tables["session"]}
        tries = _tries(notes)
        return cls(
            tables=tables,
            notes=notes,
            acts=acts,
            by_sid=by_sid,
            alive={row["session_id"]: row for row in tables["session"] if row["alive"]},
            heads=dict(_heads(tables)),
            streams=_streams(tables["event"]),
            of_session={name: _by_session(rows) for name, rows in tables.items()},
            by_deed=_by_deed(tries),
            stories=_stories(tries),
        )

    @property
    def accepted(self) -> list[Story]:
        """The messages somebody was told to be accepted."""
        return [story for story in self.stories.values() if story.acks]

    @property
    def said(self) -> dict[int, list[str]]:
        """The markers of the users' messages in each head, in order."""
        return {
            sid: [marker_of(entry.body["content"]) for entry in entries if entry.body["role"] == "user"]
            for sid, entries in self.heads.items()
        }

    def rows(self, table: str, sid: int) -> list[Row]:
        """Return a session's rows of a table that belong to its present life."""
        life = self.by_sid[sid]["life"]
        return [row for row in self.of_session[table].get(sid, ()) if row["life"] == life]

    def name(self, sid: int) -> str:
        """Return the id of a session row."""
        row = self.by_sid.get(sid)
        return str(row["session_id"]) if row else f"row {sid}"

    def done(self, deed: str) -> list[Try]:
        """Return all tries of a deed."""
        return self.by_deed.get(deed, [])


def seconds(stamp: int) -> float:
    """Return a stored time as the ledger counts."""
    return stamp / 1e6


def _by_session(rows: Iterable[Row]) -> dict[int, list[Row]]:
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if "session" in row:
            grouped[row["session"]].append(row)
    return grouped


def _tries(notes: Iterable[Note]) -> list[Try]:
    tries: dict[tuple[str, int], Try] = {}
    for note in notes:
        if note["note"] == INTENT:
            tries[note["who"], note["n"]] = Try(note)
        elif note["note"] in _TOLD and "n" in note:
            tries[note["who"], note["n"]].told = note
    return list(tries.values())


def _by_deed(tries: Iterable[Try]) -> dict[str, list[Try]]:
    grouped: dict[str, list[Try]] = defaultdict(list)
    for each in tries:
        grouped[each.intent["deed"]].append(each)
    return grouped


def _stories(tries: list[Try]) -> dict[str, Story]:
    stories: dict[str, Story] = {}
    for each in tries:
        intent = each.intent
        if intent["deed"] == "message":
            key, session = intent["key"], intent["session"]
        elif intent["deed"] == "fork" and "text" in intent:
            key, session = intent["target"], intent["target"]
        else:
            continue
        stories.setdefault(key, Story(key, session)).tries.append(each)
    return stories


def _heads(tables: Tables) -> Iterator[tuple[int, list[Entry]]]:
    branches = {(row["session"], row["branch"]): row for row in tables["branch"]}
    entries: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for row in tables["entry"]:
        entries[row["session"], row["branch"]][row["position"]] = row["body"]
    for session in tables["session"]:
        if not session["alive"]:
            continue
        end = json.loads(session["heads"]).get("messages")
        if end is None:
            yield session["sid"], []
            continue
        home, number, stop = end
        branch = branches[home, number]
        parts, start = [], 0
        for part, named, upto in json.loads(branch["lineage"]):
            parts.append((part, named, start, min(upto, stop)))
            start = upto
        parts.append((home, number, start, stop))
        yield (
            session["sid"],
            [
                Entry(part, named, at, json.loads(entries[part, named].get(at, '{"role":"missing"}')))
                for part, named, first, last in parts
                for at in range(first, last)
            ],
        )


def _streams(rows: Iterable[Row]) -> dict[int, list[Event]]:
    streams: dict[int, list[Event]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["session"], row["first_seq"])):
        seq = row["first_seq"] - 1
        for name, data in json.loads(row["body"]):
            seq = data["to"] if name == "elided" else seq + 1
            streams[row["session"]].append(Event(seq, name, data, row["run_id"]))
    return streams


def twice(values: Iterable[Any]) -> list[Any]:
    """Return what is there more than once."""
    return [value for value, count in Counter(values).items() if count > 1]
