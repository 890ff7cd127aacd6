"""A case's session store: the engine's own, with every call on it written down.

What a load gave and a save left is read back from the store at that moment, past the counting.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import create_model

from tenuto import Store
from tenuto.errors import SessionLoadFailed
from tenuto.graph import CompiledGraph, GraphBuilder, SessionState, State
from tenuto.model.commit import Commit, Receipt
from tenuto.model.session import Key, Kind, SessionRecord, as_key
from tests.conformance.adapter.migrations import migrations_of
from tests.conformance.adapter.mocks import mock_error
from tests.conformance.adapter.records import Record, plain
from tests.conformance.adapter.vocabulary import (
    DirectiveUnknown,
    FixtureProblem,
    PrimitiveMissing,
    known,
    listing,
    mapping,
)

SESSION_KEYS = ("auto_save", "seeded_session", "session_migrations", "session_state")
"""What a case may say of its sessions only if it has a store for them."""

READS = ("head", "load", "stamp")
"""The store's verbs that look at a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The store was asked for a session, in a run; `state` is what it then held, or None."""

    run: int
    session_id: str
    state: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A session was saved, in a run. `carries` only puts the same state into other words, as a migration does."""

    run: int
    session_id: str
    state: dict[str, Any]
    schema_version: str
    carries: bool
    pauses: bool


class Sessions:
    """A case's session store. `calls` has, of every call on it, the run it was made in."""

    def __init__(self, spec: dict[str, Any], store: Store, record: Record) -> None:
        self.store = store
        self.loads: list[Loaded] = []
        self.saves: list[Saved] = []
        self.calls: list[int] = []
        self._record = record
        self._spec = spec
        self._raises = _behavior(spec["session_store"])
        self._load = store.load
        self._moment: tuple[Any, ...] = ()

    @classmethod
    async def open(cls, spec: dict[str, Any], record: Record) -> "Sessions":
        """Open the store a case asks for, which is that of its checkpoints too."""
        return cls(spec, record.checkpoints.store if record.checkpoints else await record.stores.open(), record)

    async def close(self) -> None:
        """Close the store."""
        await self.store.aclose()

    def register(self, builder: GraphBuilder[Any], kind: type[State]) -> None:
        """Give the graph its session store, and the fields that it keeps there."""
        auto_save = self._spec.get("auto_save", True)
        kept = _projection(self._spec.get("session_state"), kind)
        # The fixtures were written for a default that lets the last save win.
        builder.with_session_store(self.store, kept, auto_save=auto_save, concurrency="last_write_wins")
        for source, target, migrate in migrations_of(self._spec.get("session_migrations"), self._record):
            builder.with_session_migration(source, target, migrate)

    async def begin(self, graph: CompiledGraph[Any]) -> None:
        """Write the session the case begins with, and count from then on."""
        if "seeded_session" in self._spec:
            await self._seed(graph)
        self._count()

    async def _seed(self, graph: CompiledGraph[Any]) -> None:
        given = known(self._spec["seeded_session"], ("state", "schema_version"), "seeded_session")
        state = mapping(given["state"], "seeded_session.state")
        version = str(given.get("schema_version", graph.session.schema_version))
        logs = frozenset(graph.session.logs & state.keys())
        await self.store.create(_the_id(self._spec), state=state, logs=logs, schema_version=version)

    async def found(self, session_id: str) -> SessionRecord | None:
        """Return what the store holds now, without counting that as a call."""
        counted = len(self.calls)
        record = await self._load(session_id)
        del self.calls[counted:]
        return record

    def loads_of(self, run: int) -> list[Loaded]:
        """Return what a run was given."""
        return [each for each in self.loads if each.run == run]

    def saves_of(self, run: int) -> list[Saved]:
        """Return what a run saved, in order."""
        return [each for each in self.saves if each.run == run]

    def _count(self) -> None:
        store = self.store
        for name in READS:
            setattr(store, name, self._counted_read(getattr(store, name)))
        store.commit = self._counted_commit(store.commit)  # type: ignore[method-assign]
        backend: Any = store.backend
        backend.view = self._counted_view(backend.view)
        for name in ("transact", "write", "read"):
            setattr(backend, name, self._counted_call(getattr(backend, name)))

    def _counted_read(self, read: Callable[[Key], Awaitable[Any]]) -> Callable[[Key], Awaitable[Any]]:
        async def counted(key: Key) -> Any:
            found = await read(key)
            if as_key(key).kind is Kind.SESSION:
                await self._asked(as_key(key).session_id)
            return found

        return counted

    async def _asked(self, session_id: str) -> None:
        record = await self.found(session_id)
        state = plain(dict(record.state)) if record else None
        moment = (self._record.run_number, session_id, len(self._record.entries), len(self.saves))
        if moment != self._moment:
            # Several reads before a node runs or a save is made are one load: the engine looks first if it must read.
            self.loads.append(Loaded(run=self._record.run_number, session_id=session_id, state=state))
            self._moment = moment
        if self._raises == SessionLoadFailed.category:
            raise SessionLoadFailed(f"session {session_id!r} cannot be loaded, on purpose", key=session_id)
        if self._raises is not None:
            raise mock_error(f"session {session_id!r} cannot be loaded, on purpose", self._raises)

    def _counted_commit(self, commit_to: Callable[[Commit], Awaitable[Receipt]]) -> Any:
        async def counted(commit: Commit) -> Receipt:
            receipt = await commit_to(commit)
            if commit.save and commit.key.kind is Kind.SESSION:
                record = await self.found(commit.key.session_id)
                assert record is not None
                self.saves.append(
                    Saved(
                        run=self._record.run_number,
                        session_id=commit.key.session_id,
                        state=plain(dict(record.state)),
                        schema_version=record.schema_version,
                        carries=commit.carries,
                        pauses=bool(commit.open_waits),
                    )
                )
            return receipt

        return counted

    def _counted_call(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            self.calls.append(self._record.run_number)
            return await call(*arguments, **options)

        return counted

    def _counted_view(
        self, view: Callable[..., AbstractAsyncContextManager[Any]]
    ) -> Callable[..., AbstractAsyncContextManager[Any]]:
        @asynccontextmanager
        async def counted(**options: Any) -> AsyncIterator[Any]:
            self.calls.append(self._record.run_number)
            async with view(**options) as opened:
                yield opened

        return counted


def _behavior(spec: Any) -> str | None:
    """Return the category with which every load is to fail, if it is."""
    given = known(spec if isinstance(spec, dict) else {"type": spec}, ("type", "behavior"), "session_store")
    if given.get("type") != "in_memory":
        raise PrimitiveMissing(f"session_store {given.get('type')}")
    raises = known(given.get("behavior") or {}, ("load_raises",), "session_store.behavior").get("load_raises")
    return None if raises is None else str(raises)


def _projection(spec: Any, kind: type[State]) -> type[SessionState] | None:
    """Return the class that names the fields a session keeps; None if it keeps them all."""
    if spec is None:
        return None
    names = listing(known(spec, ("fields",), "session_state")["fields"], "session_state.fields")
    fields: dict[str, Any] = dict.fromkeys(names, (Any, None))
    projection: type[SessionState] = create_model("SessionFields", __base__=SessionState, **fields)
    projection.schema_version = kind.schema_version
    return projection


def _the_id(spec: Mapping[str, Any]) -> str:
    """Return the session that a case is about: the one it names, or the one all its invocations do."""
    entries = spec.get("invocations")
    named = (
        [entry.get("session_id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    ids = {str(each) for each in (spec.get("session_id"), *named) if each is not None}
    if len(ids) != 1:
        raise FixtureProblem(f"seeded_session belongs to one session, and the case names {sorted(ids)}")
    return ids.pop()


def refuse_without_store(spec: Mapping[str, Any]) -> None:
    """Refuse what is said of sessions in a case that has no store for them."""
    if strange := sorted(set(SESSION_KEYS) & spec.keys()):
        raise DirectiveUnknown(f"{', '.join(strange)} without session_store")
