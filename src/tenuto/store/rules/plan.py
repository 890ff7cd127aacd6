"""The meeting point of rules and backends: what a rule asks to see, what was found, and the writes it decides on.

A rule is a pure function from `Found` to `Plan`. A backend gathers what `Ask` names, runs the rule, and applies the
plan's writes, all or none, only if what was found still stands. `gather` is the one reading script; a backend merely
answers its reads.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from tenuto.model.commit import Commit
from tenuto.model.session import LogEnd, SessionKey
from tenuto.store.rules.records import ends_of
from tenuto.store.rules.rows import (
    SESSION_COLUMNS,
    BranchRow,
    CheckpointRow,
    EffectRow,
    InputRow,
    OutgoingRow,
    ProfileRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    WaitRow,
    first_row,
)

T = TypeVar("T")

Row = tuple[Any, ...]
Script = Generator[tuple[str, Row], list[Row], T]
"""A reading script: it yields a read's name and parameters, is sent the rows, and returns what it made of them."""


class Write(NamedTuple):
    """A named write with one parameter row per row it touches; with `must`, each has to hit exactly one."""

    name: str
    rows: Sequence[Row]
    must: bool = False


class Moved(NamedTuple):
    """A session whose stream grew outside a commit, from one number to another; the row of `run_id` changed too."""

    key: SessionKey
    life: int
    before: int
    event_seq: int
    run_id: str | None = None


@dataclass(slots=True)
class Plan(Generic[T]):
    """What a rule decided: the writes, and the answer to give once they stand. No writes: the answer alone.

    `after` is what a plain read will find once they stand, or `moved` what changed of it, for a backend that remembers.
    """

    result: T
    writes: list[Write] = field(default_factory=list)
    after: "Left | None" = None
    moved: Moved | None = None


class EffectPlace(NamedTuple):
    """How an effect is known in its session."""

    origin_id: str
    namespace: str
    step: int
    key: str


class Ask(NamedTuple):
    """What a rule needs to see of one session."""

    key: SessionKey
    operation_id: str = ""
    run_id: str = ""
    profile: bool = False
    lineage: bool = False
    saves: bool = False
    points: tuple[LogEnd, ...] = ()
    waits: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    invocation_id: str | None = None
    source: SessionKey | None = None
    checkpoint: int | None = None
    relatives: bool = False
    parent: SessionKey | None = None
    current_run: bool = False
    next_run: str | None = None
    inputs: tuple[str, ...] = ()
    input_keys: tuple[str, ...] = ()
    effects: tuple[EffectPlace, ...] = ()


@dataclass(slots=True)
class Found:
    """What stood in the store at one instant; `lease` is the time that leases are measured by.

    `inputs` and `effects` are None where nobody looked: then the guard of the write that names one decides.
    """

    now: int
    lease: int
    life_floor: int
    event_floor: int
    next_sid: int
    session: SessionRow | None
    run: RunRow | None = None
    receipt: ReceiptRow | None = None
    next_run: RunRow | None = None
    profile: ProfileRow | None = None
    branches: dict[tuple[int, int], BranchRow] = field(default_factory=dict)
    points: set[LogEnd] = field(default_factory=set)
    waits: dict[str, WaitRow] = field(default_factory=dict)
    hashes: set[str] = field(default_factory=set)
    chain: list[RunRow] = field(default_factory=list)
    source: SessionRow | None = None
    source_profile: ProfileRow | None = None
    checkpoint: CheckpointRow | None = None
    nearest: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    children: list[SessionRow] = field(default_factory=list)
    forks: list[SessionRow] = field(default_factory=list)
    kin: int = 0
    parent: SessionRow | None = None
    waited_for: list[WaitRow] = field(default_factory=list)
    debts: list[OutgoingRow] = field(default_factory=list)
    inputs: dict[str, InputRow] | None = None
    input_keys: dict[str, InputRow] = field(default_factory=dict)
    effects: "dict[EffectPlace, EffectRow] | None" = None


class Left(NamedTuple):
    """What a plan's writes leave for a plain read to find: the first fields of `Found`."""

    now: int
    lease: int
    life_floor: int
    event_floor: int
    next_sid: int
    session: SessionRow
    run: RunRow | None

    def found(self, now: int, lease: int) -> Found:
        """Return it as what was found at a later time."""
        return Found(now, lease, *self[2:])


@dataclass(slots=True)
class Draft:
    """A commit under way, to which each of its parts adds its writes.

    It has the session's row as it was and, like the run's, as it will be; `ends` are those of the logs it writes.
    """

    commit: Commit
    found: Found
    old: SessionRow
    row: SessionRow
    run: RunRow | None
    ends: Mapping[str, LogEnd]

    def position(self, log: str | None, item: int | None) -> int | None:
        """Return where an item that the commit writes to a log stands in it."""
        if log is None or item is None:
            return None
        return self.ends[log].position - len(self.commit.logs[log].items) + item


COUNTED = ("runs", "checkpoints", "waits", "receipts", "inputs", "effects", "usage", "outgoing", "schedules")
"""What is counted of a session before it goes, and removed with it."""

_TO_RUN = SESSION_COLUMNS + len(ReceiptRow._fields)


def gather(ask: Ask, now: int | None) -> Script[Found]:
    """Read everything `ask` names. A backend whose clock does not jump gives no separate time for leases."""
    key = ask.key
    (row,) = yield "find_session", (now, key.tenant, key.kind, key.session_id, ask.operation_id, ask.run_id)
    moment, lease, life_floor, event_floor, next_sid, *columns = row
    session = _present(SessionRow, columns[:SESSION_COLUMNS])
    receipt, run = _present(ReceiptRow, columns[SESSION_COLUMNS:_TO_RUN]), _present(RunRow, columns[_TO_RUN:])
    lease = moment if lease is None else lease
    found = Found(moment, lease, life_floor, event_floor, next_sid, session, run, receipt)
    yield from _parts(ask, found)
    if ask.inputs or ask.input_keys or ask.current_run:
        yield from _inbox_parts(ask, found)
    if ask.effects:
        yield from _effect_parts(ask, found)
    return found


def _present(kind: Callable[..., T], columns: Sequence[Any]) -> T | None:
    """Return the row of an outer join, or None where nothing was joined."""
    return kind(*columns) if columns[0] is not None else None


def _parts(ask: Ask, found: Found) -> Script[None]:
    session = found.session
    if ask.profile and session:
        found.profile = first_row(ProfileRow, (yield "profile_by_session", (session.sid,)))
    if ask.source:
        source = ask.source
        found.source = first_row(SessionRow, (yield "session_by_key", (source.tenant, source.kind, source.session_id)))
        if found.source:
            yield from _source_parts(ask, found, found.source)
    wanted = {(end.session, end.branch) for end in ask.points}
    if ask.lineage or (ask.saves and not stands_on_head(found)):
        wanted |= _branches_in_use(found)
    for session_id, branch in sorted(wanted):
        for row in (yield "branch_by_id", (session_id, branch)):
            found.branches[session_id, branch] = BranchRow(*row)
    for end in ask.points:
        if (yield "entry_exists", (end.session, end.branch, end.position - 1)):
            found.points.add(end)
    for wait_id in ask.waits:
        for row in (yield "wait_by_id", (wait_id,)):
            found.waits[wait_id] = WaitRow(*row)
    for content in ask.hashes:
        if (yield "content_exists", (ask.key.tenant, content)):
            found.hashes.add(content)
    if ask.invocation_id is not None:
        rows = yield "runs_by_invocation", (ask.key.tenant, ask.invocation_id)
        found.chain = [RunRow(*row) for row in rows]
    if ask.next_run is not None:
        for row in (yield "bare_run", (ask.next_run,)):
            found.next_run = RunRow(*row)
    if ask.parent:
        parent = ask.parent
        found.parent = first_row(SessionRow, (yield "session_by_key", (parent.tenant, parent.kind, parent.session_id)))
    if ask.relatives and session:
        yield from _relatives(ask.key, session, found)


def _relatives(key: SessionKey, session: SessionRow, found: Found) -> Script[None]:
    """Read whom the end of a session concerns.

    What its parent waits for is read after the session's own row: whatever came to it from there took an event number
    on that row, so that a write guarded by it has seen every wait it could be for.
    """
    rows = yield "counts_of_session", (session.sid,)
    found.counts = dict(zip(COUNTED, rows[0], strict=True))
    rows = yield "children_of", (key.tenant, key.kind, key.session_id, session.life, 1)
    found.children = [SessionRow(*row) for row in rows]
    rows = yield "forks_of", (session.sid,)
    found.forks = [SessionRow(*row) for row in rows]
    ((found.kin,),) = yield "count_kin", (session.family, session.sid)
    found.profile = first_row(ProfileRow, (yield "profile_by_session", (session.sid,)))
    if found.profile is not None and found.profile.parent is not None:
        rows = yield "waits_of_session", (key.tenant, key.kind, found.profile.parent, None, "open")
        found.waited_for = [WaitRow(*row[SESSION_COLUMNS:-1]) for row in rows]
        rows = yield "debts_of_session", (session.sid,)
        found.debts = [OutgoingRow(*row) for row in rows]


def _inbox_parts(ask: Ask, found: Found) -> Script[None]:
    session = found.session
    found.inputs = {}
    for input_id in ask.inputs:
        for row in (yield "bare_input", (input_id,)):
            found.inputs[input_id] = InputRow(*row)
    if session is None:
        return
    for key in ask.input_keys:
        for row in (yield "input_by_key", (session.sid, session.life, key)):
            found.input_keys[key] = InputRow(*row)
    if ask.current_run and session.current_run:
        for row in (yield "bare_run", (session.current_run,)):
            found.run = RunRow(*row)


def _effect_parts(ask: Ask, found: Found) -> Script[None]:
    session, run = found.session, found.run
    found.effects = {}
    for place in ask.effects:
        if not place.origin_id and run:
            place = place._replace(origin_id=run.origin_id or run.invocation_id)
        if session:
            for row in (yield "effect_by_place", (session.sid, session.life, *place)):
                found.effects[place] = EffectRow(*row)


def _source_parts(ask: Ask, found: Found, source: SessionRow) -> Script[None]:
    found.source_profile = first_row(ProfileRow, (yield "profile_by_session", (source.sid,)))
    ends = source.heads
    if ask.checkpoint is not None:
        found.checkpoint = first_row(CheckpointRow, (yield "checkpoint_by_commit", (source.sid, ask.checkpoint)))
        if found.checkpoint:
            ends = found.checkpoint.ends
        else:
            rows = yield "checkpoints_near", (source.sid, ask.checkpoint)
            found.nearest = [row[0] for row in rows]
    for end in ends_of(ends, "heads").values():
        for row in (yield "branch_by_id", (end.session, end.branch)):
            found.branches[end.session, end.branch] = BranchRow(*row)


def found_after(found: Found, row: SessionRow, run: RunRow | None = None) -> Left:
    """Return what the next plain read will find; the numbers for new rows do not matter, since this one is there."""
    return Left(found.now, found.lease, found.life_floor, found.event_floor, found.next_sid, row, run)


def stands_on_head(found: Found) -> bool:
    """Return whether the run, if there is one, wrote nothing on its own branches and has the session's own ends."""
    run, session = found.run, found.session
    return run is None or session is None or (run.own_logs is None and run.ends == session.heads)


def _branches_in_use(found: Found) -> set[tuple[int, int]]:
    texts = [found.session.heads if found.session else None, found.run.ends if found.run else None]
    return {(end.session, end.branch) for text in texts for end in ends_of(text, "heads").values()}
