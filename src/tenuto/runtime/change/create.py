"""Creates sessions: the request, the links to a parent, and the first value of a session."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from tenuto.argument import check_items, check_kind, check_map
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, SessionExists, SessionNotFound
from tenuto.ids import check_id, new_id
from tenuto.model.session import Profile, SessionKey, SessionStatus, session_key
from tenuto.quote import quote
from tenuto.runtime.change.pipeline import Pipeline
from tenuto.runtime.program.program import Program, Programs, traits_of
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A request to create a session; see `SessionRuntime.create`."""

    program: Program[Any] | str | Definition | SessionView
    seed: Mapping[str, JSON] | BaseModel | None = None
    session_id: str | None = None
    tenant: str = ""
    user_id: str | None = None
    tags: Iterable[str] = ()
    metadata: Mapping[str, JSON] | None = None
    title: str | None = None
    expires_at: datetime | None = None
    parent: str | None = None
    logs: Iterable[str] = ()
    operation_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("tags", "logs"):  # an iterator can be read only once
            object.__setattr__(self, name, check_items(getattr(self, name), name))
        if isinstance(self.program, SessionView):
            others = ("session_id", "seed", "logs", "user_id", "tags", "metadata", "title", "expires_at")
            if twice := [name for name in others if getattr(self, name)]:
                raise InvalidInput(
                    f"A draft has its own {', '.join(twice)}: set them on the view before it is created."
                )
            if not self.program.is_draft or self.program.definition is None:
                raise InvalidInput(f"{self.program.key} is stored already; make a new one by SessionView.draft(...).")
        if self.operation_id is not None:
            check_kind(self.operation_id, str, "operation_id")
        for name in ("metadata", "seed"):
            if (value := getattr(self, name)) is not None and not (name == "seed" and isinstance(value, BaseModel)):
                check_map(value, name)

    @property
    def named(self) -> str | None:
        """The id that the request names: its own, or its draft's."""
        return self.program.session_id if isinstance(self.program, SessionView) else self.session_id

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
    ) -> SessionView:
        """Return the session to be stored; the logs of the seed become logs, everything else is the document."""
        if isinstance(self.program, SessionView):
            logs = dict.fromkeys(declared.logs, ()) | dict(self.program.logs)
            profile = replace(self.program.profile, **links)
            return replace(self.program, key=key, logs=logs, profile=profile, schema_version=declared.schema_version)
        state = _fields_of(self.seed, typed=declared.state is not None)
        prompt = state.pop("system_prompt", None)
        if prompt is not None and not (definition.system_prompt or "").strip():
            definition = definition.changed(system_prompt=prompt)
        names = declared.logs.union(check_kind(name, str, "a name in logs") for name in self.logs)
        for name in names:
            if not isinstance(state.get(name, []), list | tuple):
                raise InvalidInput(f"{name!r} is a log; seed it with a list, not with {type(state[name]).__name__}.")
        document = {name: value for name, value in state.items() if name not in names}
        return SessionView(
            key=key,
            status=SessionStatus.ACTIVE,
            version=0,
            commit_number=0,
            definition=definition,
            profile=self.profile(links),
            document=document if declared.state is None else declared.state.seeded(document),
            logs={name: list(state.get(name, [])) for name in names},
            schema_version=declared.schema_version,
        )


class SessionCreator:
    """Creates sessions of registered programs."""

    def __init__(self, store: Store, programs: Programs, pipeline: Pipeline) -> None:
        self._store = store
        self._programs = programs
        self._pipeline = pipeline

    async def create(self, new: NewSession) -> SessionView:
        """Create a session, under its id or a minted one; see `Sessions.create`."""
        definition = self._definition(new)
        key = session_key(new_id() if new.named is None else new.named, new.tenant)
        life = None
        if new.parent is None:
            links: dict[str, Any] = {"trace": {"trace_id": _trace_id(key, new.operation_id)}}
        else:
            links, life = await self._links(session_key(check_id(new.parent, "parent"), new.tenant))
        declared = traits_of(self._programs.of(definition))
        session = new.value(key, definition, declared, links)
        operation_id = new_id() if new.operation_id is None else new.operation_id
        return await self._pipeline.create(
            session, operation_id, is_conversation=declared.is_conversation, parent_life=life
        )

    async def existing(self, new: NewSession) -> SessionKey | None:
        """Return the session there is under a request's id; one of another program raises `SessionExists`."""
        head = None if new.named is None else await self._store.head(session_key(new.named, new.tenant))
        if head is None:
            return None
        if head.profile.agent != (wanted := self._definition(new).name):
            raise SessionExists(
                f"{head.key} exists already and belongs to the program {quote(head.profile.agent)}, not to "
                f"{quote(wanted)}; use another id.",
                key=head.key,
                found_version=head.version,
            )
        return head.key

    def _definition(self, new: NewSession) -> Definition:
        wanted: Any = new.program.definition if isinstance(new.program, SessionView) else new.program
        return self._programs.definition(wanted)

    async def _links(self, parent: SessionKey) -> tuple[dict[str, Any], int]:
        """Return the links of a child to its parent (the root of their tree, the trace), and the parent's life."""
        head = await self._store.head(parent)
        if head is None:
            raise SessionNotFound(f"The parent {parent} does not exist; create it first.", key=parent)
        root = head.profile.root or parent.session_id
        return {"parent": parent.session_id, "root": root, "trace": head.profile.trace}, head.life


def _fields_of(seed: Any, *, typed: bool) -> dict[str, Any]:
    """Return the fields of a seed; those of a model's instance as they are if the program's model writes them."""
    if not isinstance(seed, BaseModel):
        return dict(seed or {})
    return {name: getattr(seed, name) for name in type(seed).model_fields} if typed else seed.model_dump(mode="json")


def _trace_id(key: SessionKey, operation_id: str | None) -> str:
    """Return a new trace id: the same for each repeat of one create, so that the repeat is recognised."""
    if operation_id is None:
        return secrets.token_hex(16)
    return sha256(f"{key.tenant}\0{key.session_id}\0{operation_id}".encode(errors="surrogatepass")).hexdigest()[:32]
