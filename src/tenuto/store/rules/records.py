"""What rows mean: the records a caller gets. Whatever cannot be read as it should is `StoredDataCorrupt`, by name."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from tenuto.clock import to_datetime
from tenuto.codec import JSON, loads, loads_map
from tenuto.errors import InvalidInput, StoredDataCorrupt
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.lane import HostProof, Owner
from tenuto.model.run import Run, Stop, StopKind
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
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.store.rules.rows import CheckpointRow, ProfileRow, RunRow, SessionRow, WaitRow, split_row

R = TypeVar("R")

ROLLED_BACK = 4
"""The mark of a run that a later turn took back."""


def key_of(row: SessionRow) -> SessionKey:
    """Return the key a row stands under."""
    return stored_key(row.tenant, row.kind, row.session_id)


def joined(kind: Callable[..., R], row: tuple[Any, ...]) -> tuple[R, SessionKey]:
    """Return a row whose columns follow those of its session, and the session's key."""
    session, other = split_row(row, kind)
    return other, key_of(session)


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


def texts_of(text: str | None, what: str) -> tuple[str, ...]:
    """Read a stored list of texts that may be absent."""
    texts = json_of(text, what) or []
    if type(texts) is not list or not all(type(each) is str for each in texts):
        raise StoredDataCorrupt(f"{what} are not a list of texts.", what=what)
    return tuple(texts)


def _map_of(text: str | None, what: str) -> dict[str, JSON]:
    return loads_map(text, what) if text else {}


def stop_of(text: str | None, what: str) -> Stop | None:
    """Read the stop on a run."""
    if text is None:
        return None
    values = loads_map(text, what)
    return Stop(
        kind=word_of(StopKind, values.get("kind", ""), f"{what} kind"),
        reason=values.get("reason"),
        at=time_of(values.get("at"), f"{what} at"),
        seen_at=maybe_time(values.get("seen_at"), f"{what} seen_at"),
    )


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


_READS: dict[Any, Callable[[Any, str], Any]] = {
    bool: lambda number, _: bool(number),
    datetime: time_of,
    datetime | None: maybe_time,
    JSON: json_of,
    tuple[str, ...]: texts_of,
    frozenset[str]: lambda text, what: frozenset(texts_of(text, what)),
    Mapping[str, JSON]: _map_of,
    Ends: ends_of,
    Stop | None: stop_of,
    ForkPoint | None: _fork_point,
}
"""How a column is read, by the annotation of its field."""

_KEEP_NONE = frozenset({maybe_time, json_of, stop_of, _fork_point})


class RecordReader(Generic[R]):
    """How rows become records of a class: each field is read from the column of its name, as its annotation says.

    Words are read by their enum, numbers and texts are taken over. `renamed` has the columns with another name. Fields
    without a column are given by the caller, and a field that is given is not read.
    """

    def __init__(self, kind: type[R], row: type[Any], /, **renamed: str) -> None:
        self._kind: Callable[..., R] = kind
        columns = {each: renamed.get(each.name, each.name) for each in fields(cast("Any", kind))}
        stored = {each: name for each, name in columns.items() if name in row._fields and each.type is not SessionKey}
        self._names = [each.name for each in stored]
        self._values = attrgetter(*stored.values())
        reads = [(each.name, name, _read_of(each.type)) for each, name in stored.items()]
        self._reads = [(field, name, read, read in _KEEP_NONE) for field, name, read in reads if read]

    def __call__(self, row: tuple[Any, ...], what: str, /, **given: Any) -> R:
        """Read a row; an error calls it `what`."""
        found = dict(zip(self._names, self._values(row), strict=True))
        found.update(given)
        for name, column, read, keeps_none in self._reads:
            if name not in given and not (keeps_none and found[name] is None):
                found[name] = read(found[name], f"{what} {column}")
        return self._kind(**found)


def _read_of(hint: Any) -> Callable[[Any, str], Any] | None:
    is_word = isinstance(hint, type) and issubclass(hint, StrEnum)
    return partial(word_of, hint) if is_word else _READS.get(hint)


_HEAD = RecordReader(SessionHead, SessionRow, commit_number="commit_no", ends="heads")
_PROFILE = RecordReader(Profile, ProfileRow)
_RUN = RecordReader(Run, RunRow, commit_number="commit_no", start_sequence="start_seq")
_CHECKPOINT = RecordReader(Checkpoint, CheckpointRow, commit_number="commit_no")
_WAIT = RecordReader(Wait, WaitRow, commit_number="commit_no")


def head_of(row: SessionRow, profile: ProfileRow) -> SessionHead:
    """Read a session's head from its two rows."""
    key = key_of(row)
    return _HEAD(row, str(key), key=key, profile=profile_of(profile, key, row.preview))


def profile_of(row: ProfileRow, key: SessionKey, preview: str | None) -> Profile:
    """Read a session's profile; its preview is in the session's row."""
    if row.session is None:
        raise StoredDataCorrupt(f"The profile of {key} is missing; restore it from a backup.", what=f"{key} profile")
    return _PROFILE(row, str(key), preview=preview)


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
        preview=row.preview,
        user_id=profile.user_id,
        tags=sound(lambda: texts_of(profile.tags, f"{key} tags"), ()),
        parent=profile.parent,
        created_at=sound(lambda: time_of(row.created_at, f"{key} created_at"), epoch),
        updated_at=sound(lambda: time_of(row.updated_at, f"{key} updated_at"), epoch),
        expires_at=sound(lambda: maybe_time(profile.expires_at, f"{key} expires_at"), None),
        damage=" ".join(dict.fromkeys(damage)) or None,
    )


def run_of(row: RunRow, key: SessionKey) -> Run:
    """Read a run."""
    return _RUN(
        row,
        f"run {row.run_id}",
        key=key,
        origin_id=row.origin_id or row.invocation_id,
        correlation_id=row.correlation_id or row.invocation_id,
        rolled_back=bool(row.holds & ROLLED_BACK),
    )


def checkpoint_of(row: CheckpointRow, key: SessionKey, document: Mapping[str, JSON]) -> Checkpoint:
    """Read a checkpoint whose document was put together."""
    return _CHECKPOINT(row, f"checkpoint {row.commit_no} of {key}", key=key, document=document)


def wait_of(row: WaitRow, key: SessionKey, invocation_id: str | None) -> Wait:
    """Read a wait of an invocation."""
    return _WAIT(row, f"wait {row.wait_id}", key=key, invocation_id=invocation_id or "")
