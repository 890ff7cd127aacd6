"""Rows as the backends keep them, column for column, and what they mean as records.

Every backend stores exactly these tuples, so a rule is written once, over rows. Times are microseconds, structured
columns JSON text.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto.clock import to_datetime
from tenuto.codec import JSON, loads, loads_map
from tenuto.errors import StoredDataCorrupt
from tenuto.model.lane import HostProof, Owner
from tenuto.model.run import Checkpoint, Run, RunStatus, Wait, WaitStatus
from tenuto.model.session import (
    Ends,
    ForkPoint,
    Kind,
    LogEnd,
    Profile,
    SessionHead,
    SessionKey,
    SessionStatus,
    SessionSummary,
)


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


class ReceiptRow(NamedTuple):
    """The first result of an operation id."""

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


class RunRow(NamedTuple):
    """One run. A null origin or correlation id means the invocation's own id."""

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
    """A big value, held once by the hash of its JSON text."""

    hash: str
    encoding: str
    body: str
    loose_at: int | None


def key_of(row: SessionRow) -> SessionKey:
    """Return the key a row stands under."""
    return SessionKey(row.session_id, tenant=row.tenant, kind=Kind(row.kind))


def ends_of(text: str | None, what: str) -> dict[str, LogEnd]:
    """Read stored log ends."""
    if not text or text == "{}":
        return {}
    try:
        ends = {name: LogEnd(*end) for name, end in loads_map(text, what).items()}
    except TypeError as error:
        raise StoredDataCorrupt(f"{what} is not a map of log ends.", what=what) from error
    for end in ends.values():
        if not (type(end.session) is type(end.branch) is type(end.position) is int):
            raise StoredDataCorrupt(f"{what} has an end that is not three numbers: {end}.", what=what)
    return ends


def owner_of(text: str) -> tuple[Owner, int]:
    """Read a stored lane holder: the owner, and when it claimed."""
    data = loads(text, "lane holder")
    host = data.get("host")
    owner = Owner(owner_id=data["owner_id"], incarnation=data["incarnation"], host=HostProof(**host) if host else None)
    return owner, data["claimed_at"]


def head_of(row: SessionRow, profile: ProfileRow) -> SessionHead:
    """Read a session's head from its two rows."""
    key = key_of(row)
    return SessionHead(
        key=key,
        life=row.life,
        status=_word(SessionStatus, row.status, f"{key} status"),
        version=row.version,
        commit_number=row.commit_no,
        schema_version=row.schema_version,
        ends=ends_of(row.heads, f"{key} heads"),
        current_run=row.current_run,
        resume_count=row.resume_count,
        generation=row.generation,
        event_seq=row.event_seq,
        event_floor=row.event_floor,
        profile=profile_of(profile, key),
        created_at=time_of(row.created_at, f"{key} created_at"),
        updated_at=time_of(row.updated_at, f"{key} updated_at"),
    )


def profile_of(row: ProfileRow, key: SessionKey) -> Profile:
    """Read a session's profile."""
    if row.session is None:
        raise StoredDataCorrupt(f"The profile of {key} is missing; restore it from a backup.", what=f"{key} profile")
    return Profile(
        agent=row.agent,
        title=row.title,
        preview=row.preview,
        user_id=row.user_id,
        tags=_tags(row, key),
        metadata=loads_map(row.metadata, f"{key} metadata") if row.metadata else {},
        definition=_optional(row.definition, f"{key} definition"),
        policy=_optional(row.policy, f"{key} policy"),
        mode=row.mode,
        workspace=row.workspace,
        parent=row.parent,
        root=row.root,
        forked_from=_fork_point(row.forked_from, f"{key} forked_from"),
        failure_reason=row.failure_reason,
        trace=_optional(row.trace, f"{key} trace"),
        expires_at=_time(row.expires_at, f"{key} expires_at"),
    )


def summary_of(row: SessionRow, profile: ProfileRow) -> SessionSummary:
    """Read one line of a list; what cannot be read is named, so that one damaged session hides no other."""
    key = key_of(row)
    damage: list[str] = []

    def sound(read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except StoredDataCorrupt as error:
            damage.append(error.message)
            return otherwise

    epoch = to_datetime(0)
    ends = sound(lambda: ends_of(row.heads, f"{key} heads"), {})
    if profile.session is None:
        damage.append(f"The profile of {key} is missing.")
    return SessionSummary(
        key=key,
        status=sound(lambda: _word(SessionStatus, row.status, f"{key} status"), SessionStatus.FAILED),
        version=row.version,
        commit_number=row.commit_no,
        schema_version=row.schema_version,
        counts={name: end.position for name, end in ends.items()},
        agent=profile.agent,
        title=profile.title,
        preview=profile.preview,
        user_id=profile.user_id,
        tags=sound(lambda: _tags(profile, key), ()),
        parent=profile.parent,
        created_at=sound(lambda: time_of(row.created_at, f"{key} created_at"), epoch),
        updated_at=sound(lambda: time_of(row.updated_at, f"{key} updated_at"), epoch),
        expires_at=sound(lambda: _time(profile.expires_at, f"{key} expires_at"), None),
        damage=" ".join(dict.fromkeys(damage)) or None,
    )


def run_of(row: RunRow, key: SessionKey) -> Run:
    """Read a run."""
    what = f"run {row.run_id}"
    return Run(
        run_id=row.run_id,
        key=key,
        life=row.life,
        number=row.number,
        invocation_id=row.invocation_id,
        origin_id=row.origin_id or row.invocation_id,
        correlation_id=row.correlation_id or row.invocation_id,
        attempt=row.attempt,
        status=_word(RunStatus, row.status, f"{what} status"),
        generation=row.generation,
        steps=row.steps,
        partial=bool(row.partial),
        start_sequence=row.start_seq,
        base_version=row.base_version,
        base_ends=ends_of(row.base_ends, what),
        ends=ends_of(row.ends, what),
        own_logs=frozenset(_optional(row.own_logs, what) or ()),
        worker=row.worker,
        error=_optional(row.error, f"{what} error"),
        outcome=_optional(row.outcome, f"{what} outcome"),
        started_at=time_of(row.started_at, f"{what} started_at"),
        ended_at=_time(row.ended_at, f"{what} ended_at"),
        expires_at=_time(row.expires_at, f"{what} expires_at"),
    )


def checkpoint_of(row: CheckpointRow, key: SessionKey, document: Mapping[str, JSON]) -> Checkpoint:
    """Read a checkpoint whose document was put together."""
    what = f"checkpoint {row.commit_no} of {key}"
    return Checkpoint(
        key=key,
        commit_number=row.commit_no,
        run_id=row.run_id,
        step=row.step,
        cursor=_optional(row.cursor, f"{what} cursor"),
        document=document,
        ends=ends_of(row.ends, f"{what} ends"),
        schema_version=row.schema_version,
        created_at=time_of(row.created_at, f"{what} created_at"),
    )


def wait_of(row: WaitRow, key: SessionKey) -> Wait:
    """Read a wait."""
    what = f"wait {row.wait_id}"
    return Wait(
        wait_id=row.wait_id,
        key=key,
        run_id=row.run_id,
        kind=row.kind,
        signal_id=row.signal_id,
        status=_word(WaitStatus, row.status, f"{what} status"),
        deadline=_time(row.deadline, f"{what} deadline"),
        schema=_optional(row.schema, f"{what} schema"),
        metadata=_optional(row.metadata, f"{what} metadata") or {},
        answer=_optional(row.answer, f"{what} answer"),
        commit_number=row.commit_no,
        created_at=time_of(row.created_at, f"{what} created_at"),
        settled_at=_time(row.settled_at, f"{what} settled_at"),
    )


def time_of(micros: Any, what: str) -> Any:
    """Read a stored time; anything but a number of microseconds is corrupt."""
    if type(micros) is not int:
        raise StoredDataCorrupt(f"{what} is {micros!r}, not a time in microseconds.", what=what)
    try:
        return to_datetime(micros)
    except OverflowError as error:
        raise StoredDataCorrupt(f"{what} is {micros}, which is no date.", what=what) from error


def _time(micros: Any, what: str) -> Any:
    return None if micros is None else time_of(micros, what)


def _optional(text: str | None, what: str) -> JSON:
    return None if text is None else loads(text, what)


def _tags(row: ProfileRow, key: SessionKey) -> tuple[str, ...]:
    tags = _optional(row.tags, f"{key} tags") or []
    if type(tags) is not list or not all(type(tag) is str for tag in tags):
        raise StoredDataCorrupt(f"{key} tags are not a list of texts.", what=f"{key} tags")
    return tuple(tags)


def _fork_point(text: str | None, what: str) -> ForkPoint | None:
    if text is None:
        return None
    try:
        return ForkPoint(**loads_map(text, what))
    except TypeError as error:
        raise StoredDataCorrupt(f"{what} is not a fork point.", what=what) from error


def _word(words: Any, value: str, what: str) -> Any:
    try:
        return words(value)
    except ValueError as error:
        raise StoredDataCorrupt(f"{what} is the unknown word {value!r}.", what=what) from error


def ends_text(ends: Ends) -> Mapping[str, list[int]]:
    """Return log ends as the JSON value they are stored as."""
    return {name: list(end) for name, end in ends.items()}
