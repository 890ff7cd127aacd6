"""The rules of schedules: how they are declared and paused, and what an occurrence queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenuto.clock import SECOND, to_datetime
from tenuto.codec import JSON, dumps, encode, loads_map
from tenuto.errors import InvalidInput, ScheduleNotFound, SessionNotFound, StatusRefused, StoredDataCorrupt
from tenuto.model.event import EventType
from tenuto.model.input import InputKind, InputStatus, NewInput
from tenuto.model.schedule import Fired, Missed, NewSchedule, Schedule, WhenWaiting
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.quote import quote
from tenuto.store.rules.limits import check_name, check_text, check_timeout, check_word, next_count
from tenuto.store.rules.parts.input_rules import PackedInput, pack_input
from tenuto.store.rules.parts.occurrences import Times, check_times, times_of
from tenuto.store.rules.plan import Ask, Found, Moved, Plan, Script, Write, gather
from tenuto.store.rules.records import RecordReader, word_of
from tenuto.store.rules.rows import EventRow, InputRow, ScheduleRow, SessionRow, first_row
from tenuto.store.rules.verbs.inbox_rules import input_of, queued_row, take_number, told_of, with_event

T = TypeVar("T")

MOST_SCHEDULES = 100
"""How many schedules a session may have."""

MOST_AT_ONCE = 100
"""How many missed occurrences are made up for, the newest ones, where all are asked for."""

MAX_SCHEDULE_NAME = 255

_ON_TIME = 60 * SECOND
"""How late an occurrence may be fired without having been missed."""


@dataclass(slots=True)
class FoundSchedules:
    """A session with its schedules; for one that may fire, also what is open, and its inputs that are known already."""

    session: Found
    schedules: dict[str, ScheduleRow] = field(default_factory=dict)
    waits: bool = False
    last_open: bool = False
    due: Sequence[int] = ()
    known: frozenset[int] = frozenset()


def gather_schedules(key: SessionKey, now: int | None) -> Script[FoundSchedules]:
    """Read a session and all of its schedules."""
    found = FoundSchedules((yield from gather(Ask(key=key), now)))
    if (row := found.session.session) is not None:
        rows = yield "schedules_of", (row.sid, row.life)
        found.schedules = {each.name: each for each in (ScheduleRow(*columns) for columns in rows)}
    return found


def gather_firing(key: SessionKey, name: str, now: int | None) -> Script[FoundSchedules]:
    """Read a session, one of its schedules, and what decides whether it fires now."""
    found = yield from gather_schedules(key, now)
    row, schedule = found.session.session, found.schedules.get(name)
    if row is None or schedule is None or not _is_due(schedule, found.session.now):
        return found
    found.waits = bool((yield "waits_of_session", (key.tenant, str(key.kind), key.session_id, None, "open")))
    if schedule.input_id is not None:
        last = first_row(InputRow, (yield "bare_input", (schedule.input_id,)))
        found.last_open = last is not None and last.status == InputStatus.OPEN
    found.due = _made_up_for(schedule, found.session.now)
    known = set()
    for at in found.due:
        if (yield "input_by_key", (row.sid, row.life, _input_key(name, at))):
            known.add(at)
    found.known = frozenset(known)
    return found


def pack_schedule(new: NewSchedule) -> str:
    """Check a schedule to be declared, and return its words as text."""
    name = check_name(new.name, "name")
    check_text(name, "name", MAX_SCHEDULE_NAME)
    if not isinstance(new.body, Mapping):
        raise InvalidInput("The body of a schedule must be a mapping.", what="body")
    every = None if new.every is None else check_timeout(new.every, "every")
    cron = None if new.cron is None else check_name(new.cron, "cron")
    check_times(every, cron, check_name(new.tz, "tz"))
    missed = check_word(new.missed, Missed, "missed")
    check_word(new.when_waiting, WhenWaiting, "when_waiting")
    words = {"body": new.body, "every": every, "cron": cron, "tz": new.tz, "missed": missed}
    return dumps(words, "the schedule")


def decide_declare(key: SessionKey, new: NewSchedule, words: str, found: FoundSchedules) -> Plan[Schedule]:
    """Declare a schedule: one of the same words is unchanged, one of other words is replaced and counts from now."""
    row, now = _active(key, found.session), found.session.now
    known = found.schedules.get(new.name)
    if known is not None and (known.words, known.when_waiting) == (words, str(new.when_waiting)):
        return Plan(schedule_of(known, key))
    if known is None and len(found.schedules) >= MOST_SCHEDULES:
        raise InvalidInput(f"{key} has {MOST_SCHEDULES} schedules, which is as many as one may have; remove one first.")
    at = times_of(new.every, new.cron, new.tz, now).after(now)
    if at is None:
        raise InvalidInput(f"The schedule {quote(new.name)} has no occurrence.", what="cron")
    changed = ScheduleRow(
        session=row.sid,
        life=row.life,
        name=new.name,
        words=words,
        when_waiting=str(new.when_waiting),
        anchor=now,
        next_at=at,
        fired_at=None if known is None else known.fired_at,
        input_id=None if known is None else known.input_id,
        paused=None,
        tenant=key.tenant,
    )
    write = Write("insert_schedules", [changed]) if known is None else _move(known, changed)
    return _told(Plan(schedule_of(changed, key), [write]), key, row, now, changed)


def decide_remove(key: SessionKey, name: str, found: FoundSchedules) -> Plan[bool]:
    """Remove a schedule, and say whether there was one."""
    row, known = found.session.session, found.schedules.get(name)
    if row is None or not row.alive or known is None:
        return Plan(False)
    guard = (known.session, known.life, known.name, known.words, known.next_at)
    plan = Plan(True, [Write("delete_schedules", [guard], must=True)])
    told = {"name": name, "removed": True}
    return with_event(plan, key, row, found.session.now, EventType.SCHEDULE_CHANGED, told, None)


def decide_pause(key: SessionKey, name: str, reason: str, found: FoundSchedules) -> Plan[Schedule]:
    """Pause a schedule; one that is paused already keeps its reason."""
    row, known = _known(key, name, found)
    if known.paused is not None:
        return Plan(schedule_of(known, key))
    changed = known._replace(paused=reason)
    plan = Plan(schedule_of(changed, key), [_move(known, changed)])
    return _told(plan, key, row, found.session.now, changed)


def decide_continue(key: SessionKey, name: str, found: FoundSchedules) -> Plan[Schedule]:
    """Let a paused schedule fire again, from its next occurrence on; what it left out meanwhile was not missed."""
    row, known = _known(key, name, found)
    if known.paused is None:
        return Plan(schedule_of(known, key))
    _active(key, found.session)
    now = found.session.now
    at = known.next_at if known.next_at > now else _times(known).after(now)
    if at is None:
        raise InvalidInput(f"The schedule {quote(name)} of {key} has no further occurrence.", what="name")
    changed = known._replace(paused=None, next_at=at)
    plan = Plan(schedule_of(changed, key), [_move(known, changed)])
    return _told(plan, key, row, now, changed)


def decide_fire(key: SessionKey, name: str, found: FoundSchedules) -> Plan[Fired]:
    """Queue what a schedule has due and move it on, or pause it, or leave it if it is held."""
    row, known, now = found.session.session, found.schedules.get(name), found.session.now
    if row is None or not row.alive or known is None or not _is_due(known, now):
        return Plan(Fired())
    if row.status != SessionStatus.ACTIVE:
        return _paused(key, row, known, f"The session is {row.status}.", now)
    if found.last_open or (found.waits and known.when_waiting == WhenWaiting.HOLD):
        return Plan(Fired())
    after = _times(known).after(now)
    skips = found.waits and known.when_waiting == WhenWaiting.SKIP
    due = [] if skips else [at for at in found.due if at not in found.known]
    if after is None and not due:
        return _paused(key, row, known, "It has no further occurrence.", now)
    inputs, seq = [], row.event_seq
    for at in due:
        packed = _packed(known, at, _missed_before(known, at, found) if at == found.due[0] else 0)
        inputs.append(queued_row(packed, row._replace(event_seq=seq), now))
        seq = inputs[-1].seq
    changed = known._replace(next_at=now + 1 if after is None else after)
    if inputs:
        changed = changed._replace(fired_at=due[-1], input_id=inputs[-1].input_id)
    plan = Plan(Fired(inputs=tuple(input_of(each, key) for each in inputs)), [_move(known, changed)])
    if not inputs:
        return plan
    events: list[JSON] = [[EventType.INPUT_QUEUED, {**told_of(each), "schedule": name}] for each in inputs]
    event = EventRow(row.sid, next_count(row.event_seq, "the event number"), seq, None, now, encode(events))
    queue = [Write("insert_events", [event]), Write("insert_inputs", inputs)]
    plan.writes[:0] = [take_number(row, seq), *queue]
    plan.moved = Moved(key, row.life, row.event_seq, seq)
    return plan


def _is_due(row: ScheduleRow, now: int) -> bool:
    return row.paused is None and row.next_at <= now


def _made_up_for(row: ScheduleRow, now: int) -> list[int]:
    """Return the occurrences that are to be fired now, by what its words say about missed ones."""
    passed = _times(row).until(now, row.next_at)
    match word_of(Missed, _words(row).get("missed", ""), _what(row)):
        case Missed.ALL:
            return passed[-MOST_AT_ONCE:]
        case Missed.NONE:
            return [at for at in passed[-1:] if now - at <= _ON_TIME]
        case _:
            return passed[-1:]


def _missed_before(row: ScheduleRow, at: int, found: FoundSchedules) -> int:
    """Return how many occurrences before this one were never fired, as far back as they are counted."""
    return len(_times(row).until(at, row.next_at)) - 1 - len([each for each in found.due if each < at])


def _packed(row: ScheduleRow, at: int, missed: int) -> PackedInput:
    about = {"name": row.name, "at": _text(at), "missed": missed, "when_waiting": row.when_waiting}
    body = {**_words(row)["body"], "schedule": about}
    return pack_input(NewInput(kind=InputKind.MESSAGE, body=body, key=_input_key(row.name, at)), _what(row))


def _input_key(name: str, at: int) -> str:
    return f"schedule:{name}:{_text(at)}"


def _text(at: int) -> str:
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def _active(key: SessionKey, found: Found) -> SessionRow:
    row = found.session
    if row is None or not row.alive:
        raise SessionNotFound(f"There is no {key} to schedule messages for; create it first.", key=key)
    if row.status != SessionStatus.ACTIVE:
        raise StatusRefused(f"{key} is {row.status}; a schedule needs an active session.", key=key, found=row.status)
    return row


def _known(key: SessionKey, name: str, found: FoundSchedules) -> tuple[SessionRow, ScheduleRow]:
    row, known = found.session.session, found.schedules.get(name)
    if row is None or not row.alive:
        raise SessionNotFound(f"There is no {key}.", key=key)
    if known is None:
        raise ScheduleNotFound(f"{key} has no schedule {quote(name)}; list its schedules.", key=key, name=name)
    return row, known


def _paused(key: SessionKey, row: SessionRow, known: ScheduleRow, reason: str, now: int) -> Plan[Fired]:
    changed = known._replace(paused=reason)
    return _told(Plan(Fired(paused=reason), [_move(known, changed)]), key, row, now, changed)


def _told(plan: Plan[T], key: SessionKey, row: SessionRow, now: int, changed: ScheduleRow) -> Plan[T]:
    """Return a plan with the event that reports how a schedule stands; its number guards the session's row."""
    told: dict[str, JSON] = {"name": changed.name, "next_at": _text(changed.next_at), "paused": changed.paused}
    return with_event(plan, key, row, now, EventType.SCHEDULE_CHANGED, told, None)


def _move(old: ScheduleRow, new: ScheduleRow) -> Write:
    guard = (old.session, old.life, old.name, old.words, old.next_at, old.paused)
    return Write("move_schedules", [(*new.changes, *guard)], must=True)


def _what(row: ScheduleRow) -> str:
    return f"schedule {quote(row.name)}"


def _words(row: ScheduleRow) -> dict[str, Any]:
    return loads_map(row.words, f"{_what(row)} words")


def _times(row: ScheduleRow) -> Times:
    words = _words(row)
    try:
        check_times(words["every"], words["cron"], words["tz"])
        return times_of(words["every"], words["cron"], words["tz"], row.anchor)
    except (InvalidInput, KeyError, TypeError) as error:
        raise StoredDataCorrupt(f"{_what(row)} has no times that can be read: {error}", what=_what(row)) from error


_SCHEDULE = RecordReader(Schedule, ScheduleRow)


def schedule_of(row: ScheduleRow, key: SessionKey) -> Schedule:
    """Read a schedule."""
    words, what = _words(row), _what(row)
    try:
        given = {name: words[name] for name in ("body", "every", "cron", "tz")}
        missed = word_of(Missed, words["missed"], f"{what} missed")
    except KeyError as error:
        raise StoredDataCorrupt(f"{what} lacks {error}.", what=what) from error
    return _SCHEDULE(row, what, key=key, missed=missed, **given)
