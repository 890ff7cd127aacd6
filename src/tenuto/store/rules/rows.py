"""Rows as the backends keep them, column for column.

Every backend stores exactly these tuples, so a rule is written once, over rows. Times are microseconds, structured
columns JSON text; `records` says what they mean.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

R = TypeVar("R")


class SessionRow(NamedTuple):
    """One session id: its numbers, head, lane and stream position.

    `alive` is 0 for a tombstone and for an id that was never saved; such a row keeps its numbers and shows nowhere.
    """

    sid: int
    tenant: str
    kind: str
    session_id: str
    life: int
    family: int
    alive: int
    status: str
    version: int
    commit_no: int
    schema_version: str
    branch_seq: int
    run_seq: int
    resume_count: int
    heads: str
    document: str
    held: str | None
    event_seq: int
    event_floor: int
    current_run: str | None
    generation: int
    armed: int
    nonce: str | None
    holder: str | None
    lane_expires_at: int | None
    created_at: int
    updated_at: int
    preview: str | None

    @property
    def changes(self) -> tuple[Any, ...]:
        """What `move_session` sets, in the order of the table; the columns before never change."""
        return _columns(self, "life")


class ProfileRow(NamedTuple):
    """The cold half of a session: rewritten only when it changes. Without a session it is the row of a missing one."""

    session: int | None
    agent: str | None
    title: str | None
    preview: str | None
    user_id: str | None
    tags: str | None
    metadata: str | None
    definition: str | None
    policy: str | None
    mode: str | None
    workspace: str | None
    parent: str | None
    root: str | None
    forked_from: str | None
    forked_sid: int | None
    failure_reason: str | None
    trace: str | None
    expires_at: int | None
    parent_life: int | None = None


class ReceiptRow(NamedTuple):
    """The first result of an operation id; `minted` has the ids of everything it brought but waits, by part."""

    session: int
    life: int
    operation_id: str
    intent: str
    commit_no: int
    version: int
    generation: int
    event_seq: int
    ends: str
    wait_ids: str | None
    at: int
    minted: str | None = None


class RunRow(NamedTuple):
    """One run. A null origin or correlation id means the invocation's own id.

    `holds` says what the commit that ends it has to look after: 1 for input, 2 for effects; 4 marks one that was taken
    back. `commit_no` is the commit that began it. `additions` says where the entries are that the program added in its
    open step, and `budget` how many steps it may take.
    """

    run_id: str
    session: int
    life: int
    tenant: str
    invocation_id: str
    chain: int
    number: int
    origin_id: str | None
    correlation_id: str | None
    attempt: int
    status: str
    generation: int | None
    steps: int
    partial: int
    start_seq: int
    base_version: int | None
    base_ends: str | None
    ends: str | None
    own_logs: str | None
    worker: str | None
    error: str | None
    outcome: str | None
    started_at: int
    ended_at: int | None
    expires_at: int | None
    holds: int = 0
    stop: str | None = None
    commit_no: int = 0
    additions: str | None = None
    budget: int | None = None

    @property
    def changes(self) -> tuple[Any, ...]:
        """What `update_runs` sets, in the order of the table; the columns before never change."""
        return _columns(self, "attempt")


class BranchRow(NamedTuple):
    """A stretch of one log.

    Its entries begin at `start`, what lies before is in `lineage` ([session, branch, upto] each).
    """

    session: int
    branch: int
    life: int
    log: str
    start: int
    lineage: str
    shared: int
    loose_from: int | None
    loose_at: int | None


class EntryRow(NamedTuple):
    """One log entry."""

    session: int
    branch: int
    position: int
    commit_no: int
    schema_version: str
    body: str


class CheckpointRow(NamedTuple):
    """One checkpoint, ordered by its commit number."""

    session: int
    commit_no: int
    life: int
    run_id: str | None
    step: int
    cursor: str | None
    document: str
    held: str | None
    ends: str
    schema_version: str
    created_at: int


class WaitRow(NamedTuple):
    """One wait."""

    wait_id: str
    session: int
    life: int
    run_id: str
    kind: str
    signal_id: str | None
    status: str
    deadline: int | None
    schema: str | None
    metadata: str | None
    answer: str | None
    commit_no: int
    created_at: int
    settled_at: int | None
    tenant: str
    graph: str | None


class InputRow(NamedTuple):
    """One input of a session's inbox."""

    input_id: str
    session: int
    life: int
    seq: int
    kind: str
    key: str | None
    digest: str
    body: str | None
    boundary: str | None
    due_at: int | None
    status: str
    run_id: str | None
    log: str | None
    position: int | None
    rolled_back: int
    created_at: int
    settled_at: int | None


class EffectRow(NamedTuple):
    """One effect: a call to the outside."""

    session: int
    life: int
    origin_id: str
    namespace: str
    step: int
    key: str
    kind: str
    digest: str
    request: str | None
    result: str | None
    status: str
    idempotent: int
    error: str | None
    call_id: str | None
    run_id: str
    attempt: int
    started_at: int
    ended_at: int | None
    making: int = 1

    @property
    def place(self) -> tuple[Any, ...]:
        """What an effect is named by."""
        return _columns(self, "session", "key")

    @property
    def changes(self) -> tuple[Any, ...]:
        """What `restart_effects` sets, in the order of the table."""
        return _columns(self, "request")


class UsageRow(NamedTuple):
    """The tokens of one call."""

    session: int
    life: int
    operation_id: str
    ordinal: int
    run_id: str | None
    source: str
    model: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class OutgoingRow(NamedTuple):
    """One item of a session's outbox."""

    outbox_id: str
    session: int
    life: int
    kind: str
    target_tenant: str
    target_kind: str
    target_id: str
    body: str
    status: str
    attempts: int
    due_at: int
    created_at: int


class DeletionRow(NamedTuple):
    """One session that a cascading delete of `root` ends, in the life it had then; `report` once it is ended.

    `at` is when it was found, and when it was done.
    """

    root: int
    root_life: int
    session: int
    life: int
    status: str
    report: str | None
    at: int

    @property
    def target(self) -> tuple[Any, ...]:
        """What the session that is to be ended is named by."""
        return _columns(self, "root", "life")


class ScheduleRow(NamedTuple):
    """One schedule of a session.

    `words` are those it was declared with, and the body of its inputs; `paused` is why it does not fire, if so.
    """

    session: int
    life: int
    name: str
    words: str
    when_waiting: str
    anchor: int
    next_at: int
    fired_at: int | None
    input_id: str | None
    paused: str | None
    tenant: str

    @property
    def changes(self) -> tuple[Any, ...]:
        """What `move_schedules` sets, in the order of the table; the other columns never change."""
        return _columns(self, "words", "paused")


class EventRow(NamedTuple):
    """The events one transaction wrote.

    `body` is a JSON list of [type, data], numbered from `first_seq` to `last_seq`.
    """

    session: int
    first_seq: int
    last_seq: int
    run_id: str | None
    at: int
    body: str


class ContentRow(NamedTuple):
    """A tenant's big value, held once by the hash of its JSON text."""

    tenant: str
    hash: str
    encoding: str
    body: str
    loose_at: int | None


SESSION_COLUMNS = len(SessionRow._fields)


def first_row(kind: Callable[..., R], rows: Sequence[tuple[Any, ...]]) -> R | None:
    """Return the first of the rows that were read, or None."""
    return kind(*rows[0]) if rows else None


def split_row(row: Sequence[Any], kind: Callable[..., R]) -> tuple[SessionRow, R]:
    """Return the session's row that these columns begin with, and the row of another kind that follows."""
    return SessionRow(*row[:SESSION_COLUMNS]), kind(*row[SESSION_COLUMNS:])


def _columns(row: tuple[Any, ...], first: str, last: str | None = None) -> tuple[Any, ...]:
    """Return a row's columns from one to another, or to its end, by their names."""
    names: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    return row[names.index(first) : None if last is None else names.index(last) + 1]


TABLES: dict[str, tuple[str, ...]] = {
    name.removesuffix("Row").lower(): kind._fields for name, kind in list(vars().items()) if name.endswith("Row")
}
"""The columns of each table, in order."""
