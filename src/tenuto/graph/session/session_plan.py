"""How a graph keeps sessions: load, migrate, project into the state, project out of it."""

import warnings
from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from tenuto.codec import JSON, encode
from tenuto.errors import InvalidInput, SessionLoadFailed, StateValidationError, TenutoError
from tenuto.graph.session.foreign_store import can_lock, check_session_store, default_concurrency
from tenuto.graph.session.process_locks import ProcessLocks
from tenuto.graph.session.state_cache import StateCache, WarmState
from tenuto.graph.state import Schema, SessionState, State, rebuilt
from tenuto.graph.warnings import SessionStateDoubled, outside
from tenuto.migration import MigrationRegistry
from tenuto.model.session import SessionKey, SessionRecord, SessionStatus
from tenuto.plain_data import common
from tenuto.store.store import Store
from tenuto.words import Concurrency
from tenuto.writing.changes import Base


class Rewrite(NamedTuple):
    """What a migration has to write: fields to remove, and logs to rewrite after a beginning that is kept."""

    removed: frozenset[str]
    logs: dict[str, int]


class LoadedSession(NamedTuple):
    """A session as a run finds it: its valid values by the state's fields, and how many entries of each log are stored.

    `owned` says that its profile names its owner; `unnamed` are fields that the graph does not keep. In a store of the
    user's own every session is active.
    """

    life: int
    base: Base
    existed: bool
    values: dict[str, Any]
    counts: dict[str, int]
    size: int = 0
    rewrite: Rewrite | None = None
    record: JSON = None
    owned: bool = True
    unnamed: frozenset[str] = frozenset()
    status: SessionStatus = SessionStatus.ACTIVE


class SessionPlan:
    """How a graph keeps sessions, fixed when it is compiled. Its fields have the record's names, not the state's."""

    def __init__(
        self,
        store: Any,
        schema: Schema,
        *,
        state: type[SessionState] | None,
        mapping: Mapping[str, str] | None,
        auto_save: bool,
        concurrency: Concurrency | None,
        lane_wait: float,
        migrations: MigrationRegistry,
        declared: bool,
        checkpoints: Store | None,
        owner: str,
    ) -> None:
        self.store = store
        self.owner = owner
        self.declared = declared
        # A session in another store than the checkpoints is saved beside them, as in a store of the user's own.
        self.own = store if isinstance(store, Store) and checkpoints in (None, store) else None
        beside = self.own is None and store is not None
        if beside:
            check_session_store(store, concurrency)
        self.concurrency: Concurrency = concurrency or (default_concurrency(store) if beside else "exclusive")
        self.locks: Any = store if can_lock(store) else ProcessLocks(store)
        self._asked = concurrency
        self.is_whole = state is None
        self.fields = _fields(schema, state, mapping)
        self.names = {field: name for name, field in self.fields.items()}
        self.logs = frozenset(name for name, field in self.fields.items() if schema.fields[field].reducer.is_log)
        self.schema_version = schema.kind.schema_version if state is None else state.schema_version
        self.auto_save = auto_save
        self.lane_wait = lane_wait
        self.migrations = migrations
        self.cache = StateCache(fields=self.fields)
        self._caches: WeakKeyDictionary[Store, StateCache] = WeakKeyDictionary()
        self._schema = schema
        self._blank = schema.kind.model_construct()

    @property
    def is_guarded_here(self) -> bool:
        """Whether the store cannot guard a session, so that only runs of this process wait for each other."""
        return self.own is None and self.concurrency == "exclusive" and isinstance(self.locks, ProcessLocks)

    def bound_to(self, store: Store, *, cache: StateCache | None = None, owner: str | None = None) -> "SessionPlan":
        """Return this plan for sessions in another store, by default under the same owner.

        What it was bound to the same store before shares its cache, unless it gets one.
        """
        plan = copy(self)
        plan.store = plan.own = store
        plan.concurrency = self._asked or "exclusive"
        if cache is None:
            cache = self._caches.get(store)
        if cache is None:
            cache = self._caches[store] = StateCache(fields=self.fields)
        plan.cache = cache
        plan.owner = self.owner if owner is None else owner
        return plan

    def note(self, state_version: str) -> dict[str, Any]:
        """Return what a checkpoint notes of a session in it: the state's version, and the session's names."""
        mapping = {name: field for name, field in self.fields.items() if name != field}
        return {"state_version": state_version, "logs": sorted(self.logs), "mapping": mapping}

    async def load(self, key: SessionKey) -> LoadedSession:
        """Return the session, migrated in memory and validated; an id without a session has no values."""
        try:
            return await (self._load_own(self.own, key) if self.own else self._load_foreign(key))
        except TenutoError as error:
            if isinstance(error, SessionLoadFailed) or error.category.startswith("session_state_migration"):
                raise
            raise SessionLoadFailed(f"{key} could not be loaded: {error.message}", key=key) from error
        except Exception as error:
            raise SessionLoadFailed(f"{key} could not be loaded: {error!r}", key=key) from error

    async def _load_own(self, store: Store, key: SessionKey) -> LoadedSession:
        while True:
            stamp = await store.stamp(key)
            if stamp is None:
                return LoadedSession(await store.life(key), Base(), False, {}, {}, owned=False)
            if warm := self.cache.get(key, stamp):
                return LoadedSession(
                    warm.life, warm.base, True, warm.values, warm.counts, warm.size, status=stamp.status
                )
            record = await store.load(key)
            if record is None or record.head is None:
                continue  # deleted in between
            found = self.read(key, record, Base(version=record.version, ends=record.head.ends), record.head.life)
            if found.rewrite is None and found.owned:
                self.remember(key, found.life, found.base, found.values, found.size)
            return found._replace(status=record.head.status)

    def address(self, key: SessionKey) -> Any:
        """Return what identifies the session in the store; a store of the user's own has no tenants."""
        return key if isinstance(self.store, Store) else key.session_id

    async def _load_foreign(self, key: SessionKey) -> LoadedSession:
        record = await self.store.load(self.address(key))
        if record is None:
            return LoadedSession(0, Base(), False, {}, {})
        return self.read(key, record, Base(version=getattr(record, "version", 0) or 0), 0)

    def remember(self, key: SessionKey, life: int, base: Base, values: dict[str, Any], size: int) -> None:
        """Keep a session's values for the next turn."""
        counts = {name: len(values[self.fields[name]]) for name in self.logs if self.fields[name] in values}
        self.cache.put(key, WarmState(life, self.schema_version, base, values, counts, size))

    def read(self, key: SessionKey, record: Any, base: Base, life: int) -> LoadedSession:
        """Return a record's values, migrated and validated."""
        stored = dict(record.state)
        found, version = record.schema_version, self.schema_version
        fields = self.migrations.apply(found, version, [stored])[0]
        changed = found != version
        logs = getattr(record, "logs", frozenset()) if self.own else self.logs
        self.check(key, fields, None if changed else logs)
        values = self.valid(key, fields)
        rewrite = self._rewrite(stored, fields, logs) if changed else None
        counts = {name: len(stored[name]) for name in self.logs & stored.keys() & set(logs)}
        size = len(encode(stored))
        head = getattr(record, "head", None)
        owned = head is None or head.profile.agent is not None
        unnamed = frozenset(name for name in fields if name not in self.fields and "/" not in name)
        return LoadedSession(
            life, base, True, values, counts, size, rewrite, stored if self.own is None else None, owned, unnamed
        )

    def check(self, key: SessionKey, fields: Mapping[str, Any], logs: frozenset[str] | None) -> None:
        """Refuse a record with undeclared fields, or, with `logs`, one that keeps other fields as logs."""
        unknown = sorted(fields.keys() - self.fields.keys()) if self.is_whole else []
        if unknown:
            raise SessionLoadFailed(
                f"{key} has {', '.join(unknown)} stored, which {self._schema.kind.__name__} (version "
                f"{self.schema_version!r}) does not declare; register a session migration, or declare the fields.",
                key=key,
                fields=unknown,
            )
        if logs is not None:
            self._check_kinds(key, fields, logs)

    def _check_kinds(self, key: SessionKey, fields: Mapping[str, Any], logs: frozenset[str]) -> None:
        wrong = sorted(name for name in self.fields.keys() & fields.keys() if (name in logs) != (name in self.logs))
        if wrong:
            raise SessionLoadFailed(
                f"{key} keeps {', '.join(wrong)} in another way (log or document) than the reducers of "
                f"{self._schema.kind.__name__} say; raise schema_version and register a session migration.",
                key=key,
                fields=wrong,
            )

    def valid(self, key: SessionKey, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the valid values of a record's fields, by the state's names."""
        values = {}
        for name, field in self.fields.items():
            if name in fields:
                try:
                    values[field] = self._schema.fields[field].check(fields[name])
                except ValidationError as error:
                    raise SessionLoadFailed(
                        f"{key} has a {name!r} that does not fit {self._schema.kind.__name__}: {error}",
                        key=key,
                        field=name,
                    ) from error
        return values

    def _rewrite(self, stored: Mapping[str, Any], fields: Mapping[str, Any], logs: frozenset[str]) -> Rewrite:
        removed = {name for name in stored if name not in fields}
        anew: dict[str, int] = {}
        for name in self.fields.keys() & fields.keys():
            if name not in stored:
                anew[name] = 0
            elif (name in logs) != (name in self.logs):
                removed.add(name)
                anew[name] = 0
            elif name in self.logs and stored[name] != fields[name]:
                anew[name] = common(stored[name], fields[name])
        return Rewrite(frozenset(removed), {name: kept for name, kept in anew.items() if name in self.logs})

    def entry(self, loaded: LoadedSession, given: State | Mapping[str, Any] | None, graph: str) -> State:
        """Return the state a run begins with.

        These are the record's values, or defaults; fields the caller set are then merged through their reducers.
        """
        kind = self._schema.kind
        explicit = _given(given)
        values = {}
        for name, info in kind.model_fields.items():
            if name in loaded.values:
                values[name] = loaded.values[name]
            elif not info.is_required():
                values[name] = info.get_default(call_default_factory=True)
            elif name in explicit:
                values[name] = self._begin_with(name, explicit.pop(name))
            else:
                raise StateValidationError(
                    f"The initial {kind.__name__} needs {name!r}, which neither the session nor the caller gives.",
                    graph=graph,
                    field=name,
                )
        state = rebuilt(self._blank, values)
        if not explicit:
            return state
        if loaded.values:
            self._warn_of_doubling(loaded, explicit)
        return self._schema.merge(state, explicit, graph, "(initial state)")

    def _begin_with(self, name: str, value: Any) -> Any:
        try:
            return self._schema.fields[name].check(value)
        except ValidationError as error:
            raise StateValidationError(
                f"The initial state of {self._schema.kind.__name__} is not valid: {error}", field=name
            ) from error

    def _warn_of_doubling(self, loaded: LoadedSession, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            held = loaded.values.get(name)
            if not held or not isinstance(value, list):
                continue
            reducer = self._schema.fields[name].reducer
            if reducer.idempotent and not reducer.is_log:
                continue
            # A mapping is merged from a list of parts, of which one may be all that was loaded.
            if value[: len(held)] == held or (isinstance(held, Mapping) and held in value):
                twice = "" if isinstance(held, Mapping) else ", which now has it twice"
                warnings.warn(
                    SessionStateDoubled(
                        f"The initial state repeats all that the session has in {name!r}{twice}; give only what is "
                        "new, since the session is loaded automatically."
                    ),
                    stacklevel=outside(),
                )

    def document(self, state: State, loaded: Mapping[str, Any] | None = None) -> dict[str, JSON]:
        """Return the session's document fields as plain data; with `loaded`, only those that changed."""
        values = state.__dict__
        return self.plain(
            values if loaded is None else {f: v for f, v in values.items() if f not in loaded or loaded[f] is not v}
        )

    def plain(self, values: Mapping[str, Any]) -> dict[str, JSON]:
        """Return the session's document fields among these values, as plain data."""
        return {
            name: self._schema.fields[field].dump(values[field])
            for name, field in self.fields.items()
            if name not in self.logs and field in values
        }

    def plain_log(self, name: str, values: Mapping[str, Any]) -> list[JSON]:
        """Return a log's entries among these values, as plain data."""
        field = self.fields[name]
        entries: list[JSON] = self._schema.fields[field].dump(values.get(field, []))
        return entries

    def record(self, session_id: str, state: State, version: int) -> SessionRecord:
        """Return the whole record, for a store of the user's own; `version` is the one the save gives the session."""
        values = {name: self._schema.fields[field].dump(state.__dict__[field]) for name, field in self.fields.items()}
        return SessionRecord(
            session_id=session_id, state=values, schema_version=self.schema_version, logs=self.logs, version=version
        )

    def values(self, state: State) -> dict[str, Any]:
        """Return the values of the session's fields, by the state's names."""
        return {field: state.__dict__[field] for field in self.fields.values()}


def _fields(schema: Schema, state: type[SessionState] | None, mapping: Mapping[str, str] | None) -> dict[str, str]:
    """Return the session's fields, as record name to state name."""
    if state is None:
        if mapping:
            raise InvalidInput("A mapping needs a SessionState whose fields it maps.")
        return {name: name for name in schema.fields}
    if not (isinstance(state, type) and issubclass(state, SessionState)):
        raise InvalidInput(f"state must be a SessionState class, got {state!r}.")
    stray = sorted((mapping or {}).keys() - state.model_fields.keys())
    if stray:
        raise InvalidInput(
            f"The mapping names {', '.join(stray)}, which {state.__name__} does not declare.", fields=stray
        )
    fields = {name: (mapping or {}).get(name, name) for name in state.model_fields}
    absent = sorted(f"{name} (as {field})" for name, field in fields.items() if field not in schema.fields)
    if absent:
        raise InvalidInput(
            f"{state.__name__} keeps {', '.join(absent)}, which {schema.kind.__name__} does not declare; "
            "add the field, or map it.",
            fields=absent,
        )
    twice = sorted({field for field in fields.values() if list(fields.values()).count(field) > 1})
    if twice:
        raise InvalidInput(f"{state.__name__} keeps {', '.join(twice)} under two names.", fields=twice)
    if odd := [name for name in fields if "/" in name]:
        raise InvalidInput(f"A session field's name cannot have a slash: {odd[0]!r}.", fields=odd)
    return fields


def _given(given: State | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields the caller set; of a state, those it was made with and those that differ from the default."""
    if isinstance(given, State):
        fields = type(given).model_fields.items()
        defaults = {name: info.get_default(call_default_factory=True) for name, info in fields}
        made_with = given.model_fields_set
        return {name: v for name, v in given.__dict__.items() if name in made_with or v != defaults.get(name)}
    return dict(given or {})
