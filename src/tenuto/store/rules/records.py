"""What rows mean: the records a caller gets. Whatever cannot be read as it should is `StoredDataCorrupt`, by name."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tenuto.clock import to_datetime
from tenuto.codec import JSON, loads, loads_map
from tenuto.errors import InvalidInput, StoredDataCorrupt
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.lane import HostProof, Owner
from tenuto.model.run import Run, RunStatus, Stop, StopKind
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
from tenuto.model.wait import Wait, WaitStatus
from tenuto.quote import quote
from tenuto.store.rules.rows import CheckpointRow, ProfileRow, RunRow, SessionRow, WaitRow

ROLLED_BACK = 4
"""The mark of a run that a later turn took back."""


def key_of(row: SessionRow) -> SessionKey:
    """Return the key a row stands under."""
    return stored_key(row.tenant, row.kind, row.session_id)


def stored_key(tenant: str, kind: str, session_id: str) -> SessionKey:
    """Read a stored key."""
    try:
        return SessionKey(session_id, tenant=tenant, kind=word_of(Kind, kind, f"the kind of {quote(session_id)}"))
    except InvalidInput as error:
        raise StoredDataCorrupt(f"A stored key cannot be one: {error.message}", what="key") from error


def ends_of(text: str | None, what: str) -> dict[str, LogEnd]:
    """Read stored log ends."""
    if not text or text == "{}":
        return {}
    try:
        return dict(_known_ends(text))
    except (TypeError, StoredDataCorrupt) as error:
        raise StoredDataCorrupt(f"{what} is not a map of log ends, each of three numbers.", what=what) from error


@lru_cache(maxsize=256)
def _known_ends(text: str) -> dict[str, LogEnd]:
    """Read a text of log ends once: that of a run, and of its base, mostly is its session's."""
    ends = {name: LogEnd(*end) for name, end in loads_map(text, "log ends").items()}
    for end in ends.values():
        if not (type(end.session) is type(end.branch) is type(end.position) is int):
            raise TypeError(end)
    return ends


def owner_of(text: str) -> tuple[Owner, int]:
    """Read a stored lane holder: the owner, and when it claimed."""
    data = loads_map(text, "lane holder")
    try:
        host = None if data["host"] is None else HostProof(**data["host"])
        return Owner(owner_id=data["owner_id"], incarnation=data["incarnation"], host=host), data["claimed_at"]
    except (KeyError, TypeError) as error:
        raise StoredDataCorrupt("The holder of a lane is not described as it should be.", what="lane holder") from error


def head_of(row: SessionRow, profile: ProfileRow) -> SessionHead:
    """Read a session's head from its two rows."""
    key = key_of(row)
    return SessionHead(
        key=key,
        life=row.life,
        status=word_of(SessionStatus, row.status, f"{key} status"),
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
        definition=json_of(row.definition, f"{key} definition"),
        policy=json_of(row.policy, f"{key} policy"),
        mode=row.mode,
        workspace=row.workspace,
        parent=row.parent,
        root=row.root,
        forked_from=_fork_point(row.forked_from, f"{key} forked_from"),
        failure_reason=row.failure_reason,
        trace=json_of(row.trace, f"{key} trace"),
        expires_at=maybe_time(row.expires_at, f"{key} expires_at"),
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
        status=sound(lambda: word_of(SessionStatus, row.status, f"{key} status"), SessionStatus.FAILED),
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
        expires_at=sound(lambda: maybe_time(profile.expires_at, f"{key} expires_at"), None),
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
        status=word_of(RunStatus, row.status, f"{what} status"),
        generation=row.generation,
        steps=row.steps,
        partial=bool(row.partial),
        start_sequence=row.start_seq,
        base_version=row.base_version,
        base_ends=ends_of(row.base_ends, what),
        ends=ends_of(row.ends, what),
        own_logs=frozenset(texts_of(row.own_logs, f"{what} own logs")),
        worker=row.worker,
        error=json_of(row.error, f"{what} error"),
        outcome=json_of(row.outcome, f"{what} outcome"),
        started_at=time_of(row.started_at, f"{what} started_at"),
        ended_at=maybe_time(row.ended_at, f"{what} ended_at"),
        expires_at=maybe_time(row.expires_at, f"{what} expires_at"),
        stop=stop_of(row.stop, what),
        commit_number=row.commit_no,
        rolled_back=bool(row.holds & ROLLED_BACK),
    )


def stop_of(text: str | None, what: str) -> Stop | None:
    """Read the stop on a run."""
    if text is None:
        return None
    values = loads_map(text, f"{what} stop")
    return Stop(
        kind=word_of(StopKind, values.get("kind", ""), f"{what} stop kind"),
        reason=values.get("reason"),
        at=time_of(values.get("at"), f"{what} stop at"),
        seen_at=maybe_time(values.get("seen_at"), f"{what} stop seen_at"),
    )


def checkpoint_of(row: CheckpointRow, key: SessionKey, document: Mapping[str, JSON]) -> Checkpoint:
    """Read a checkpoint whose document was put together."""
    what = f"checkpoint {row.commit_no} of {key}"
    return Checkpoint(
        key=key,
        commit_number=row.commit_no,
        run_id=row.run_id,
        step=row.step,
        cursor=json_of(row.cursor, f"{what} cursor"),
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
        status=word_of(WaitStatus, row.status, f"{what} status"),
        deadline=maybe_time(row.deadline, f"{what} deadline"),
        schema=json_of(row.schema, f"{what} schema"),
        metadata=loads_map(row.metadata, f"{what} metadata") if row.metadata else {},
        answer=json_of(row.answer, f"{what} answer"),
        commit_number=row.commit_no,
        created_at=time_of(row.created_at, f"{what} created_at"),
        settled_at=maybe_time(row.settled_at, f"{what} settled_at"),
    )


def time_of(micros: Any, what: str) -> Any:
    """Read a stored time; anything but a number of microseconds is corrupt."""
    if type(micros) is not int:
        raise StoredDataCorrupt(f"{what} is {micros!r}, not a time in microseconds.", what=what)
    try:
        return to_datetime(micros)
    except OverflowError as error:
        raise StoredDataCorrupt(f"{what} is {micros}, which is not a date.", what=what) from error


def maybe_time(micros: Any, what: str) -> Any:
    """Read a stored time that may be absent."""
    return None if micros is None else time_of(micros, what)


def json_of(text: str | None, what: str) -> JSON:
    """Read stored JSON text that may be absent."""
    return None if text is None else loads(text, what)


def _tags(row: ProfileRow, key: SessionKey) -> tuple[str, ...]:
    return texts_of(row.tags, f"{key} tags")


def texts_of(text: str | None, what: str) -> tuple[str, ...]:
    """Read a stored list of texts that may be absent."""
    texts = json_of(text, what) or []
    if type(texts) is not list or not all(type(each) is str for each in texts):
        raise StoredDataCorrupt(f"{what} are not a list of texts.", what=what)
    return tuple(texts)


def _fork_point(text: str | None, what: str) -> ForkPoint | None:
    if text is None:
        return None
    try:
        return ForkPoint(**loads_map(text, what))
    except TypeError as error:
        raise StoredDataCorrupt(f"{what} is not a fork point.", what=what) from error


def word_of(words: Any, value: str, what: str) -> Any:
    """Read a stored word of a closed set."""
    try:
        return words(value)
    except ValueError as error:
        raise StoredDataCorrupt(f"{what} is the unknown word {value!r}.", what=what) from error


def ends_text(ends: Ends) -> Mapping[str, list[int]]:
    """Return log ends as the JSON value they are stored as."""
    return {name: list(end) for name, end in ends.items()}
