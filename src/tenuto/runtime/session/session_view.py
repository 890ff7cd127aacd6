"""A session as actions and hooks see it: a frozen value, and the changes between two of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, overload

from pydantic import BaseModel

from tenuto.argument import check_items, check_kind, check_map
from tenuto.codec import JSON, encode
from tenuto.errors import InvalidInput, StateInvalid
from tenuto.ids import new_id
from tenuto.model.commit import MetadataChange
from tenuto.model.session import LogEnd, Profile, SessionKey, SessionStatus, session_key
from tenuto.quote import quote
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.state_shape import shape_of
from tenuto.runtime.session.status import check_transition
from tenuto.writing.changes import LogChange

ModelT = TypeVar("ModelT", bound=BaseModel)

MESSAGES = "messages"
"""The name of the log that holds the conversation."""


class LogView(Sequence[Any]):
    """The first entries of a list that only grows: a log at one instant, without copying it."""

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
        """Return the entries that a later view of the same log adds, or None if it is a different log."""
        if isinstance(other, LogView) and other._items is self._items and len(other) >= len(self):
            return other[len(self) :]
        return None


class KeptLog(list[Any]):
    """A log at an end that is not its current one; writing it only names that end."""

    __slots__ = ("end",)

    def __init__(self, items: Iterable[JSON], end: LogEnd) -> None:
        super().__init__(items)
        self.end = end


class DeclaredState(NamedTuple):
    """The state that a program declares: the document of a new session, and the version it is stored under."""

    document: Callable[[], Mapping[str, JSON]]
    schema_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session at one instant. Every change returns another value and leaves this one unchanged.

    A change of state keeps status, version and times; the store sets version and times. `logs` are whole, but only what
    an action adds to one is written. Lists and mappings in it are not copied: to change one, set another, since a
    change in place is not detected. `event_seq` is the position of its stream: continue reading after it, and nothing
    is missed or seen twice. A session that was not created by a runtime has no definition.
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
    _declared: DeclaredState | None = field(default=None, repr=False, compare=False)

    @classmethod
    def draft(cls, definition: Definition, session_id: str | None = None) -> "SessionView":
        """Return a session that is not saved yet; change it like any other, and pass it to `create`."""
        key = session_key(new_id() if session_id is None else session_id)
        check_kind(definition, Definition, "definition")
        return cls(
            key=key,
            status=SessionStatus.ACTIVE,
            version=0,
            commit_number=0,
            definition=definition,
            profile=Profile(),
            logs={MESSAGES: ()},
        )

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.key.session_id

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self.key.tenant

    @property
    def is_draft(self) -> bool:
        """Whether it is not saved yet."""
        return self.version == 0

    @property
    def messages(self) -> Sequence[JSON]:
        """The conversation."""
        return self.logs.get(MESSAGES, ())

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """The metadata of the session, which is not part of its state."""
        return self.profile.metadata

    def state(self, model: type[ModelT]) -> ModelT:
        """Return the document as an instance of a model; raise `StateInvalid` if it does not fit."""
        shape = shape_of(model)
        if shape.version != self.schema_version:
            raise StateInvalid(
                f"The state of {self.key} is stored as version {self.schema_version!r}, but {model.__name__} is "
                f"version {shape.version!r}; its program migrates it.",
                path="state",
            )
        found: ModelT = shape.load(self.document, str(self.key))
        return found

    def with_fields(self, **fields: JSON) -> "SessionView":
        """Return the session with document fields set."""
        return replace(self, document=MappingProxyType({**self.document, **fields}))

    def without_fields(self, *names: str) -> "SessionView":
        """Return the session without these document fields."""
        left = {name: value for name, value in self.document.items() if name not in names}
        return replace(self, document=MappingProxyType(left))

    def appended(self, log: str, *items: JSON) -> "SessionView":
        """Return the session with items added to a log."""
        return replace(self, logs=MappingProxyType({**self.logs, log: [*self.logs.get(log, ()), *items]}))

    def replaced(self, log: str, items: Iterable[JSON] = ()) -> "SessionView":
        """Return the session with a log replaced by these items."""
        return replace(self, logs=MappingProxyType({**self.logs, log: list(items)}))

    def cleared(self, keep: Iterable[str] = ()) -> "SessionView":
        """Return the session with empty logs and, if its program declares a state, the document of a new session.

        `keep` names the logs and fields that stay unchanged.
        """
        kept = frozenset(check_kind(name, str, "a name in keep") for name in check_items(keep, "keep"))
        fresh = self._declared.document() if self._declared is not None else self.document
        if unknown := sorted(kept - self.logs.keys() - self.document.keys() - fresh.keys()):
            known = ", ".join(sorted({*self.logs, *self.document, *fresh})) or "none"
            raise InvalidInput(f"{self.key} has no {quote(unknown[0])} to keep. Its logs and fields: {known}.")
        version = self.schema_version if self._declared is None else self._declared.schema_version
        if kept and version != self.schema_version:
            raise InvalidInput(
                f"{self.key} is stored under version {self.schema_version!r} of its state, and its program is at "
                f"{version!r}: send it a message, which migrates it, before you clear only a part of it.",
                key=self.key,
            )
        document = {name: value for name, value in fresh.items() if name not in kept}
        document |= {name: value for name, value in self.document.items() if name in kept}
        logs = {name: items if name in kept else [] for name, items in self.logs.items()}
        return replace(self, document=MappingProxyType(document), logs=MappingProxyType(logs), schema_version=version)

    def with_status(self, status: SessionStatus) -> "SessionView":
        """Return the session with another status; raise `StatusRefused` if `TRANSITIONS` does not allow it."""
        check_transition(self.key, self.status, status, self.version)
        return replace(self, status=status)

    def with_definition(self, **changes: Any) -> "SessionView":
        """Return the session with a changed definition, which the next turn runs.

        A session that was not created by a runtime needs the name of a program first.
        """
        if self.definition is None and "name" not in changes:
            raise InvalidInput(f"{self.key} has no program; pass `name` to set one.", key=self.key)
        definition = Definition(**changes) if self.definition is None else self.definition.changed(**changes)
        return replace(self, definition=definition)

    def with_metadata(self, /, **values: JSON) -> "SessionView":
        """Return the session with metadata added."""
        return replace(self, profile=replace(self.profile, metadata={**self.profile.metadata, **values}))

    def with_profile(self, /, **changes: Any) -> "SessionView":
        """Return the session with parts of its profile changed, such as title, tags or expiry."""
        return replace(self, profile=replace(self.profile, **changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The writes that turn one session value into another."""

    document: Mapping[str, JSON] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    logs: Mapping[str, LogChange] = field(default_factory=dict)
    profile: Mapping[str, JSON] = field(default_factory=dict)
    metadata: MetadataChange | None = None
    status: SessionStatus | None = None
    schema_version: str | None = None

    @property
    def moves_head(self) -> bool:
        """Whether the session's state itself changes, and with it the version."""
        return bool(self.document or self.removed or self.logs or self.schema_version is not None)

    @property
    def needs_lane(self) -> bool:
        """Whether they may be written under the session's lane only: all but metadata, which is merged."""
        return bool(self.moves_head or self.profile or self.status is not None)


_FIXED = frozenset({"parent", "root", "forked_from"})
_OF_DEFINITION = frozenset({"definition", "agent"})
_COMPARED_APART = _OF_DEFINITION | {"metadata"}
_PARTS = fields(Profile)
_NOTHING: Any = object()


def changes_between(before: SessionView, after: SessionView) -> Changes:
    """Return the writes that turn one value into the other: a log that only grew is appended to, others are rewritten.

    A rewritten log keeps the entries before the first difference.
    """
    document = {n: v for n, v in after.document.items() if not _is_same(before.document.get(n, _NOTHING), v)}
    check_names(document)
    logs = {name: write for name, items in after.logs.items() if (write := _log_write(before.logs.get(name), items))}
    gone = (before.document.keys() - after.document.keys()) | (before.logs.keys() - after.logs.keys())
    profile: dict[str, JSON] = {}
    if after.profile is not before.profile:
        pairs = ((each.name, getattr(before.profile, each.name), getattr(after.profile, each.name)) for each in _PARTS)
        profile = {name: new for name, old, new in pairs if old != new and name not in _COMPARED_APART}
        if fixed := profile.keys() & _FIXED:
            raise InvalidInput(f"The {min(fixed)} of a session is set at creation and cannot change.", key=after.key)
    if after.definition != before.definition and after.definition is not None:
        profile |= definition_profile(after.definition)
    return Changes(
        document=document,
        removed=frozenset(gone),
        logs=logs,
        profile=profile,
        metadata=_metadata_between(before.metadata, after.metadata),
        status=after.status if after.status is not before.status else None,
        schema_version=after.schema_version if after.schema_version != before.schema_version else None,
    )


def check_names(fields: Iterable[str]) -> None:
    """Refuse field names that are reserved for runs."""
    for name in fields:
        if "/" in check_kind(name, str, "the name of a field"):
            raise InvalidInput(f"A session cannot have a field {name!r}: names with a '/' are reserved for runs.")


def _metadata_between(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> MetadataChange | None:
    """Return the change of the keys that differ, so that keys which somebody else writes meanwhile are left alone."""
    if after is before:
        return None
    after = check_map(after, "metadata")
    values = {name: value for name, value in after.items() if not _is_equal(before.get(name, _NOTHING), value)}
    removed = frozenset(before.keys() - after.keys())
    return MetadataChange(values=values, removed=removed) if values or removed else None


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are stored as the same text; 1 and True are equal otherwise."""
    return one is other or (one == other and encode(one) == encode(other))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same; lists and mappings are compared by identity."""
    return one is other or (type(one) is type(other) and isinstance(one, str | int | float) and one == other)


def trace_id_of(profile: Profile) -> str | None:
    """Return the trace that all turns of a session belong to; None if the stored value is not one."""
    found = profile.trace.get("trace_id") if isinstance(profile.trace, Mapping) else None
    return found if isinstance(found, str) else None


def definition_profile(definition: Definition) -> dict[str, JSON]:
    """Return the parts of a session's profile that follow from its definition."""
    return {"definition": definition.record(), "agent": definition.name}


def profile_after(changes: Changes, after: SessionView) -> Profile:
    """Return the profile of a session after its changes are written."""
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
