"""What sessions are, in dicts and lists: an account of the laws that shares nothing with the store's own code.

Tests drive it side by side with the databases. It knows whole sessions, lanes, versions, lives, receipts, checkpoints
and forks; runs, waits and inputs are not in it. A refusal is the name of the error that the store has for it.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The model refuses; its text is the name of the store's error."""


@dataclass
class Session:
    """One id, also while there is no session of it: its numbers only rise."""

    life: int = 1
    alive: bool = False
    status: str = "active"
    version: int = 0
    commits: int = 0
    generation: int = 0
    armed: bool = False
    nonce: str = ""
    lane_until: float = 0.0
    events: int = 0
    event_floor: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, list[Any]] = field(default_factory=dict)
    stream: list[tuple[str, Any]] = field(default_factory=list)
    receipts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    points: dict[int, tuple[dict[str, Any], dict[str, list[Any]]]] = field(default_factory=dict)

    @property
    def state(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """A copy of the fields and logs."""
        return deepcopy((self.fields, self.logs))

    def numbers(self) -> tuple[int, ...]:
        """Return what a receipt says."""
        return self.life, self.commits, self.version, self.generation, self.events


@dataclass(frozen=True, kw_only=True)
class Change:
    """A commit as the model takes it; `append` and `reset` are items by log, `keep` how many of a log stay."""

    life: int
    operation: str
    generation: int | None = None
    version: int | None = None
    commit: int | None = None
    stream_at: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    append: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    reset: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    keep: Mapping[str, int] = field(default_factory=dict)
    events: Sequence[tuple[str, Any]] = ()
    status: str | None = None
    point: bool = False


class Model:
    """Sessions by id, at a time that its driver sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sessions: dict[str, Session] = {}

    def of(self, session_id: str) -> Session:
        """Return an id's session; one that nobody knows is blank."""
        return self._sessions.setdefault(session_id, Session())

    def create(self, session_id: str, fields: dict[str, Any], logs: dict[str, list[Any]], operation: str) -> Any:
        """Begin a session."""
        session, meaning = self.of(session_id), ("create", deepcopy(fields), deepcopy(logs))
        if operation in session.receipts:
            return self._repeated(session, operation, meaning)
        self._check_vacant(session)
        return self._landed(session, operation, meaning, deepcopy(fields), deepcopy(logs))

    def save(self, session_id: str, fields: dict[str, Any], logs: dict[str, list[Any]], version: int | None) -> Any:
        """Write a whole record over what is there."""
        session = self.of(session_id)
        self._check_free(session)
        self._check_version(session, version)
        return self._landed(session, "", None, deepcopy(fields), deepcopy(logs))

    def commit(self, session_id: str, change: Change) -> Any:
        """Write one commit that saves."""
        session, meaning = self.of(session_id), ("commit", _meaning(change))
        if change.life != session.life:
            raise Refused("SessionDeleted")
        if change.operation in session.receipts:
            return self._repeated(session, change.operation, meaning)
        if change.generation is None:
            self._check_free(session)
        else:
            self._check_lane(session, change.generation)
        self._check_version(session, change.version)
        if change.commit not in (None, session.commits):
            raise Refused("CommitMoved")
        if change.stream_at not in (None, session.events):
            raise Refused("StreamMoved")
        before = session.state
        fields, logs = session.state
        for name, count in change.keep.items():
            del logs[name][count:]
        for name, items in change.reset.items():
            logs[name] = list(items)
        for name, items in change.append.items():
            logs.setdefault(name, []).extend(items)
        session.events += len(change.events)
        session.stream += change.events
        result = self._landed(session, change.operation, meaning, {**fields, **deepcopy(dict(change.fields))}, logs)
        if change.status is not None:
            session.status = change.status
        if change.point:
            session.points[session.commits] = before
        return result

    def fork(self, source_id: str, target_id: str, at: int | None, operation: str) -> Any:
        """Begin a session with another's state, now or before one of its commits."""
        source, target, meaning = self.of(source_id), self.of(target_id), ("fork", source_id, at)
        if operation in target.receipts:
            return self._repeated(target, operation, meaning)
        self._check_vacant(target)
        if not source.alive and at not in source.points:
            raise Refused("SessionNotFound")
        if at is not None and at not in source.points:
            raise Refused("ForkPointNotRetained")
        fields, logs = source.state if at is None else deepcopy(source.points[at])
        return self._landed(target, operation, meaning, fields, logs)

    def delete(self, session_id: str) -> int:
        """End a session; return how many there were to end."""
        old = self.of(session_id)
        if not (old.alive or old.armed or old.receipts or old.points):
            return 0
        self._sessions[session_id] = Session(
            life=old.life + 1,
            status="deleted",
            version=old.version,
            commits=old.commits + 1,
            generation=old.generation + 1,
            events=old.events + 1,
            event_floor=old.events + 1,
        )
        return 1

    def acquire(self, session_id: str, nonce: str, ttl: float) -> Any:
        """Take the lane, re-enter it, or be refused; return its generation and whom it displaced."""
        session, displaced = self.of(session_id), None
        if session.armed and session.nonce == nonce:
            session.lane_until = max(session.lane_until, self.now + ttl)
            return session.life, session.generation, None
        self._check_free(session)
        if session.armed:
            displaced = session.generation
        session.generation += 1
        session.armed, session.nonce, session.lane_until = True, nonce, self.now + ttl
        return session.life, session.generation, displaced

    def disarm(self, session_id: str, life: int, generation: int, nonce: str) -> None:
        """Free the lane."""
        session = self.of(session_id)
        if life != session.life:
            raise Refused("SessionDeleted")
        self._check_lane(session, generation, nonce)
        session.armed = False

    def tell(self, session_id: str, life: int, generation: int, events: Sequence[tuple[str, Any]]) -> int:
        """Add events under the lane; return the number of the last."""
        session = self.of(session_id)
        if life != session.life:
            raise Refused("SessionDeleted")
        self._check_lane(session, generation)
        session.events += len(events)
        session.stream += events
        return session.events

    def _check_vacant(self, session: Session) -> None:
        if session.alive:
            raise Refused("SessionExists")
        self._check_free(session)

    def _check_free(self, session: Session) -> None:
        if session.armed and session.lane_until > self.now:
            raise Refused("LaneBusy")

    def _check_lane(self, session: Session, generation: int, nonce: str | None = None) -> None:
        if not session.armed or session.generation != generation or nonce not in (None, session.nonce):
            raise Refused("LaneLost")

    def _check_version(self, session: Session, version: int | None) -> None:
        if version is not None and version != (session.version if session.alive else 0):
            raise Refused("VersionConflict")

    def _repeated(self, session: Session, operation: str, meaning: Any) -> Any:
        first, meant = session.receipts[operation]
        if meant != meaning:
            raise Refused("OperationConflict")
        return (*first, True)

    def _landed(self, session: Session, operation: str, meaning: Any, fields: Any, logs: Any) -> Any:
        if not session.alive:
            session.alive, session.status = True, "active"
        session.version += 1
        session.commits += 1
        session.fields, session.logs = fields, logs
        session.receipts[operation or f"save {session.commits}"] = session.numbers(), meaning
        return (*session.numbers(), False)


def _meaning(change: Change) -> Any:
    parts = (change.fields, change.append, change.reset, change.keep, change.events, change.status, change.point)
    return deepcopy(parts)
