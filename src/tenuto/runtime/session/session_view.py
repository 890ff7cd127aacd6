"""A session as actions and controllers see it: a frozen value, and what changed between two of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, overload

from tenuto.argument import check_kind
from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.model.session import LogEnd, Profile, SessionKey, SessionStatus
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.status import check_transition
from tenuto.writing.changes import LogChange

MESSAGES = "messages"
"""The log that is a conversation."""


class LogView(Sequence[Any]):
    """The first entries of a list that is only ever added to: what a log was at one instant, without copying it."""

    __slots__ = ("_count", "_items")

    def __init__(self, items: list[Any], count: int | None = None) -> None:
        self._items = items
        self._count = len(items) if count is None else count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._items[at] for at in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._items[index % self._count]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((id(self._items), self._count))

    def __repr__(self) -> str:
        return repr(list(self))

    def grew_to(self, other: object) -> list[Any] | None:
        """Return what another view of the same log has more, or None if it is another log."""
        if isinstance(other, LogView) and other._items is self._items and len(other) >= len(self):
            return other[len(self) :]
        return None


class KeptLog(list[Any]):
    """What a log was at an end of it that is not its present one; to write it is to name that end."""

    __slots__ = ("end",)

    def __init__(self, items: Iterable[JSON], end: LogEnd) -> None:
        super().__init__(items)
        self.end = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session at one instant. Every change gives a new value and leaves this one as it is.

    A change of state keeps status, version and times: the store gives those. `logs` are whole; what an action adds to
    one is all that is written of it. Lists and mappings in it are not copied: to change one, set another, since what is
    changed in place is not seen as a change. `event_seq` is where its stream stood: read on after it, and nothing is
    missed or seen twice. A session that no runtime created has no definition.
    """

    key: SessionKey
    status: SessionStatus
    version: int
    commit_number: int
    definition: Definition | None
    profile: Profile
    document: Mapping[str, JSON] = field(default_factory=dict)
    logs: Mapping[str, Sequence[JSON]] = field(default_factory=dict)
    schema_version: str = ""
    resume_count: int = 0
    event_seq: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.key.session_id

    @property
    def messages(self) -> Sequence[JSON]:
        """The conversation."""
        return self.logs.get(MESSAGES, ())

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """What was noted about the session besides its state."""
        return self.profile.metadata

    def with_fields(self, **fields: JSON) -> "Session":
        """Return the session with document fields set."""
        return replace(self, document=MappingProxyType({**self.document, **fields}))

    def without_fields(self, *names: str) -> "Session":
        """Return the session without these document fields."""
        left = {name: value for name, value in self.document.items() if name not in names}
        return replace(self, document=MappingProxyType(left))

    def appended(self, log: str, *items: JSON) -> "Session":
        """Return the session with items added to a log."""
        return replace(self, logs=MappingProxyType({**self.logs, log: [*self.logs.get(log, ()), *items]}))

    def replaced(self, log: str, items: Iterable[JSON] = ()) -> "Session":
        """Return the session with a log that begins anew."""
        return replace(self, logs=MappingProxyType({**self.logs, log: list(items)}))

    def with_status(self, status: SessionStatus) -> "Session":
        """Return the session with another status, if the one table allows it from here."""
        check_transition(self.key, self.status, status, self.version)
        return replace(self, status=status)

    def with_definition(self, **changes: Any) -> "Session":
        """Return the session with another definition: what the next turn runs.

        One that no runtime created needs the name of a program first.
        """
        if self.definition is None and "name" not in changes:
            raise InvalidInput(f"{self.key} has no program; name one with its definition.", key=self.key)
        definition = Definition(**changes) if self.definition is None else self.definition.changed(**changes)
        return replace(self, definition=definition)

    def with_metadata(self, /, **values: JSON) -> "Session":
        """Return the session with metadata added."""
        return replace(self, profile=replace(self.profile, metadata={**self.profile.metadata, **values}))

    def with_profile(self, /, **changes: Any) -> "Session":
        """Return the session with another title, tags, expiry or other part of its profile."""
        return replace(self, profile=replace(self.profile, **changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What has to be written to get from one session value to another."""

    document: Mapping[str, JSON] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    logs: Mapping[str, LogChange] = field(default_factory=dict)
    profile: Mapping[str, JSON] = field(default_factory=dict)
    status: SessionStatus | None = None

    @property
    def moves_head(self) -> bool:
        """Whether the session's state itself changes, and with it the version."""
        return bool(self.document or self.removed or self.logs)


_FIXED = frozenset({"parent", "root", "forked_from"})
_OF_DEFINITION = frozenset({"definition", "agent"})
_PARTS = fields(Profile)
_NOTHING: Any = object()


def changes_between(before: Session, after: Session) -> Changes:
    """Return what is to be written; a log that only grew is appended to, any other is written anew where it differs."""
    document = {n: v for n, v in after.document.items() if not _is_same(before.document.get(n, _NOTHING), v)}
    check_names(document)
    logs = {name: write for name, items in after.logs.items() if (write := _log_write(before.logs.get(name), items))}
    gone = (before.document.keys() - after.document.keys()) | (before.logs.keys() - after.logs.keys())
    profile: dict[str, JSON] = {}
    if after.profile is not before.profile:
        pairs = ((each.name, getattr(before.profile, each.name), getattr(after.profile, each.name)) for each in _PARTS)
        profile = {name: new for name, old, new in pairs if old != new and name not in _OF_DEFINITION}
        if fixed := profile.keys() & _FIXED:
            raise InvalidInput(f"The {min(fixed)} of a session was fixed when it was created.", key=after.key)
    if after.definition != before.definition and after.definition is not None:
        profile |= definition_profile(after.definition)
    return Changes(
        document=document,
        removed=frozenset(gone),
        logs=logs,
        profile=profile,
        status=after.status if after.status is not before.status else None,
    )


def check_names(fields: Iterable[str]) -> None:
    """Refuse names of fields that are a run's own, and never a session's."""
    for name in fields:
        if "/" in check_kind(name, str, "the name of a field"):
            raise InvalidInput(f"A session cannot have a field {name!r}: names with a '/' are a run's own.")


def _is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are one; lists and mappings are not looked into."""
    return one is other or (type(one) is type(other) and isinstance(one, str | int | float) and one == other)


def trace_id_of(profile: Profile) -> str | None:
    """Return the trace that all turns of a session belong to; a store takes whatever it is given for one."""
    found = profile.trace.get("trace_id") if isinstance(profile.trace, Mapping) else None
    return found if isinstance(found, str) else None


def definition_profile(definition: Definition) -> dict[str, JSON]:
    """Return the parts of a session's profile that its definition gives."""
    return {"definition": definition.record(), "agent": definition.name}


def profile_after(changes: Changes, after: Session) -> Profile:
    """Return the profile of a session once its changes are written."""
    known = {name: changes.profile[name] for name in _OF_DEFINITION if name in changes.profile}
    return replace(after.profile, **known) if known else after.profile


def _log_write(before: Sequence[JSON] | None, after: Sequence[JSON]) -> LogChange | None:
    if before is after:
        return None
    if isinstance(after, KeptLog):
        return LogChange(items=[], anew=True, kept=len(after), keep=after.end)
    if isinstance(before, LogView) and (more := before.grew_to(after)) is not None:
        return LogChange(items=more) if more else None
    old = before or ()
    kept = next((n for n, (one, other) in enumerate(zip(old, after, strict=False)) if one is not other), None)
    if kept is None:
        kept = min(len(old), len(after))
    if kept < len(old):
        return LogChange(items=list(after[kept:]), anew=True, kept=kept)
    return LogChange(items=list(after[kept:])) if len(after) > kept or before is None else None
