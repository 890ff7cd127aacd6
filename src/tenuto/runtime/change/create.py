"""Creates sessions: the request, the links to a parent, and the first value of a session."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from tenuto.argument import check_items, check_kind, check_map
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, SessionNotFound
from tenuto.ids import new_id
from tenuto.model.session import Key, Profile, SessionKey, SessionStatus, as_key
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.program.program import Programs, traits_of
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import Session
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A request to create a session; see `SessionRuntime.create`."""

    program: str | Definition
    seed: Mapping[str, JSON] | None = None
    session_id: Key | None = None
    tenant: str = ""
    user_id: str | None = None
    tags: Iterable[str] = ()
    metadata: Mapping[str, JSON] | None = None
    title: str | None = None
    expires_at: datetime | None = None
    parent: Key | None = None
    logs: Iterable[str] = ()
    operation_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("tags", "logs"):  # an iterator can be read only once
            object.__setattr__(self, name, check_items(getattr(self, name), name))
        if self.operation_id is not None:
            check_kind(self.operation_id, str, "operation_id")
        for name in ("metadata", "seed"):
            if (value := getattr(self, name)) is not None:
                check_map(value, name)

    def profile(self, links: Mapping[str, Any]) -> Profile:
        """Return the profile of the session, with its links to others."""
        return Profile(
            user_id=self.user_id,
            tags=tuple(self.tags),
            metadata=dict(self.metadata or {}),
            title=self.title,
            expires_at=self.expires_at,
            **links,
        )

    def value(
        self, key: SessionKey, definition: Definition, declared: ProgramTraits, links: Mapping[str, Any]
    ) -> Session:
        """Return the session to be stored; the logs of the seed become logs, everything else is the document."""
        state = dict(self.seed or {})
        prompt = state.pop("system_prompt", None)
        if prompt is not None and not (definition.system_prompt or "").strip():
            definition = definition.changed(system_prompt=prompt)
        names = declared.logs.union(check_kind(name, str, "a name in logs") for name in self.logs)
        for name in names:
            if not isinstance(state.get(name, []), list | tuple):
                raise InvalidInput(f"{name!r} is a log; seed it with a list, not with {type(state[name]).__name__}.")
        return Session(
            key=key,
            status=SessionStatus.ACTIVE,
            version=0,
            commit_number=0,
            definition=definition,
            profile=self.profile(links),
            document={name: value for name, value in state.items() if name not in names},
            logs={name: list(state.get(name, [])) for name in names},
            schema_version=declared.schema_version,
        )


class SessionCreator:
    """Creates sessions of registered programs."""

    def __init__(self, store: Store, programs: Programs, pipeline: Pipeline) -> None:
        self._store = store
        self._programs = programs
        self._pipeline = pipeline

    async def create(self, new: NewSession) -> Session:
        """Create a session, under its id or a minted one; see `SessionRuntime.create`."""
        definition = self._programs.definition(new.program)
        parent = None if new.parent is None else as_key(new.parent)
        minted = SessionKey(new_id(), tenant=parent.tenant if parent else new.tenant)
        key = minted if new.session_id is None else as_key(new.session_id)
        life = None
        if parent is None:
            links: dict[str, Any] = {"trace": {"trace_id": _trace_id(key, new.operation_id)}}
        else:
            links, life = await self._links(parent, key)
        declared = traits_of(self._programs.of(definition))
        session = new.value(key, definition, declared, links)
        operation_id = new_id() if new.operation_id is None else new.operation_id
        return await self._pipeline.create(
            session, operation_id, is_conversation=declared.is_conversation, parent_life=life
        )

    async def _links(self, parent: SessionKey, child: SessionKey) -> tuple[dict[str, Any], int]:
        """Return the links of a child to its parent (the root of their tree, the trace), and the parent's life."""
        if parent.tenant != child.tenant:
            raise InvalidInput(f"{child} and its parent {parent} must belong to the same tenant.")
        head = await self._store.head(parent)
        if head is None:
            raise SessionNotFound(f"The parent {parent} does not exist; create it first.", key=parent)
        root = head.profile.root or parent.session_id
        return {"parent": parent.session_id, "root": root, "trace": head.profile.trace}, head.life


def _trace_id(key: SessionKey, operation_id: str | None) -> str:
    """Return a new trace id: the same for each repeat of one create, so that the repeat is recognised."""
    if operation_id is None:
        return secrets.token_hex(16)
    return sha256(f"{key.tenant}\0{key.session_id}\0{operation_id}".encode(errors="surrogatepass")).hexdigest()[:32]
