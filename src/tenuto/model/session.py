"""A session's values: its key, its head, its record, and its line in a list."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from tenuto.argument import check_kind
from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.ids import check_id, check_tenant
from tenuto.quote import quote

T = TypeVar("T")


class Kind(StrEnum):
    """What a key names: a session, or a bare run without one."""

    SESSION = "session"
    INVOCATION = "invocation"


class SessionStatus(StrEnum):
    """The status of a session in its life."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    DELETED = "deleted"


class AnyTenant(Enum):
    """The type of `ANY_TENANT`."""

    ANY_TENANT = "any tenant"


ANY_TENANT = AnyTenant.ANY_TENANT
"""Every tenant at once, for operators and workers; nothing else crosses tenants."""

Tenant: TypeAlias = str | AnyTenant
"""Which tenant a request is for: one by its name, which is empty for the default tenant, or any."""


@dataclass(frozen=True, slots=True, order=True)
class SessionKey:
    """The full name of a session; `session_id` is chosen by the caller."""

    session_id: str
    _: KW_ONLY
    tenant: str = ""
    kind: Kind = Kind.SESSION

    def __post_init__(self) -> None:
        check_id(self.session_id)
        check_tenant(self.tenant)
        if type(self.kind) is not Kind:
            if not isinstance(self.kind, str) or self.kind not in Kind._value2member_map_:
                raise InvalidInput(
                    f"Unknown kind {quote(self.kind)}; expected one of {', '.join(Kind)}.", kind=self.kind
                )
            object.__setattr__(self, "kind", Kind(self.kind))

    def __hash__(self) -> int:
        """Hash the id and the tenant; the kind seldom distinguishes keys, and hashing an enum is slow."""
        return hash((self.session_id, self.tenant))

    def __str__(self) -> str:
        """Return the name that errors and tables show."""
        tenant = f" of tenant {self.tenant!r}" if self.tenant else ""
        return f"{self.kind} {self.session_id!r}{tenant}"


def session_key(session_id: str, tenant: str = "") -> SessionKey:
    """Return a session's key, the same object as long as it is cached."""
    return _session_key(session_id, tenant) if type(session_id) is str else SessionKey(session_id, tenant=tenant)


@lru_cache(maxsize=4096)
def _session_key(session_id: str, tenant: str) -> SessionKey:
    return SessionKey(session_id, tenant=tenant)


Key: TypeAlias = str | SessionKey
"""A session's key, or just its id where tenant and kind are the defaults."""


def as_key(key: Key) -> SessionKey:
    """Return the full key; a plain id means the default tenant and kind."""
    return key if isinstance(key, SessionKey) else SessionKey(key)


class LogEnd(NamedTuple):
    """A point in a log: the first `position` entries as seen from `branch` of the session row `session`.

    The position is also the number of entries up to this point.
    """

    session: int
    branch: int
    position: int


Ends: TypeAlias = Mapping[str, LogEnd]
"""The end of each log, by the log's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One log entry as stored, with the schema version it was written under."""

    position: int
    commit_number: int
    schema_version: str
    value: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """Where a fork left its source."""

    session_id: str
    commit_number: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is stored about a session besides its state; changing it does not move the head.

    `mode` can be set once. `parent`, `root` and `forked_from` are set at creation and never change.
    """

    agent: str | None = None
    title: str | None = None
    preview: str | None = None
    user_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    definition: JSON = None
    policy: JSON = None
    mode: str | None = None
    workspace: str | None = None
    parent: str | None = None
    root: str | None = None
    forked_from: ForkPoint | None = None
    failure_reason: str | None = None
    trace: JSON = None
    expires_at: datetime | None = None


class Stamp(NamedTuple):
    """The numbers that show whether a session changed: a save raises the version, any commit the commit number.

    `has_input` says whether any input is open in its inbox, due or not, for a turn or for a run; `steers`, whether some
    of it is for a boundary of a run. `event_seq` is the stream's last number: anything queued later raises it.
    """

    life: int
    version: int
    commit_number: int
    generation: int
    schema_version: str
    has_input: bool = False
    steers: bool = False
    event_seq: int = 0
    status: SessionStatus = SessionStatus.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """A session's current head, without its history: one row, read at one instant.

    `life` counts how often the id was deleted; `event_seq` is the number of the last event at that instant.
    """

    key: SessionKey
    life: int
    status: SessionStatus
    version: int
    commit_number: int
    schema_version: str
    ends: Ends
    current_run: str | None
    resume_count: int
    generation: int
    event_seq: int
    event_floor: int
    profile: Profile
    created_at: datetime
    updated_at: datetime

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries in each log."""
        return {name: end.position for name, end in self.ends.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session's whole state under its schema version; `logs` names the fields that are logs.

    A record to be saved needs no `head`; a loaded one has the head it was read with, and its version and times. A
    user-defined session store sets them itself.
    """

    session_id: str
    state: Mapping[str, JSON]
    schema_version: str = ""
    logs: frozenset[str] = frozenset()
    head: SessionHead | None = None
    version: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def __post_init__(self) -> None:
        if (head := self.head) is not None:
            check_kind(head, SessionHead, "head")
            for name in ("version", "created_at", "updated_at"):
                object.__setattr__(self, name, getattr(head, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One line of a list: no state and no history, only the log lengths.

    `damage` says which part of it could not be read; a damaged session is listed, not left out.
    """

    key: SessionKey
    status: SessionStatus
    version: int
    commit_number: int
    schema_version: str
    counts: Mapping[str, int]
    agent: str | None
    title: str | None
    preview: str | None
    user_id: str | None
    tags: tuple[str, ...]
    parent: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    damage: str | None = None

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.key.session_id

    @property
    def tenant(self) -> str:
        """The tenant that the session belongs to."""
        return self.key.tenant

    @property
    def program(self) -> str | None:
        """The name of the session's program."""
        return self.agent


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions a list shows; every condition that is set must hold.

    `tenant=ANY_TENANT` means every tenant, `kind=None` every kind. Both times are exclusive.
    """

    tenant: Tenant = ""
    kind: Kind | None = Kind.SESSION
    updated_after: datetime | None = None
    created_after: datetime | None = None
    schema_version: str | None = None
    status: SessionStatus | None = None
    agent: str | None = None
    user_id: str | None = None
    tag: str | None = None
    parent: str | None = None


class Page(tuple[T, ...]):
    """Some items of a list, in its order; `next` continues after them, or is None at the end."""

    next: str | None = None


class SessionPage(Page[SessionSummary]):
    """Summaries, newest session first.

    `damaged` identifies sessions that had to be left out because not even their names can be read.
    """

    damaged: tuple[str, ...] = ()
