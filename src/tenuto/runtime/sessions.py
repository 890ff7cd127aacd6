"""The sessions of one tenant: create, find, list and answer them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from tenuto.errors import SessionExists
from tenuto.messages.message import Sendable
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopReply
from tenuto.model.schedule import Schedule
from tenuto.model.session import Page, SessionFilter, SessionSummary, session_key
from tenuto.model.session import SessionStatus as StoredStatus
from tenuto.model.wait import Wait
from tenuto.model.wait import WaitKind as StoredWaitKind
from tenuto.runtime.change.action import DeleteSession, ForkSession, RewindSession, SendMessage, StopRun
from tenuto.runtime.change.create import NewSession
from tenuto.runtime.handle import Forked, Session
from tenuto.runtime.lifetime import Lifetime
from tenuto.runtime.program.program import Program
from tenuto.runtime.session.action_protocol import Action
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.tree.answer import Answered
from tenuto.store.bounds import check_word
from tenuto.words import JSON, SessionStatus, WaitKind, WhenBusy

OutT = TypeVar("OutT")


class Sessions:
    """The sessions of one tenant. Every id is looked up in it: another tenant's is unknown, in the same words."""

    def __init__(self, lifetime: Lifetime, tenant: str) -> None:
        self._lifetime = lifetime
        self._tenant = tenant

    @property
    def tenant(self) -> str:
        """The tenant whose sessions these are; the default one has no name."""
        return self._tenant

    @overload
    async def create(
        self,
        program: Program[OutT],
        seed: Mapping[str, JSON] | BaseModel | None = None,
        session_id: str | None = None,
        *,
        exists_ok: bool = False,
        user_id: str | None = None,
        title: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, JSON] | None = None,
        expires_at: datetime | None = None,
        parent: str | None = None,
        logs: Iterable[str] = (),
        key: str | None = None,
    ) -> Session[OutT]: ...
    @overload
    async def create(
        self,
        program: str | Definition | SessionView,
        seed: Mapping[str, JSON] | BaseModel | None = None,
        session_id: str | None = None,
        *,
        exists_ok: bool = False,
        user_id: str | None = None,
        title: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, JSON] | None = None,
        expires_at: datetime | None = None,
        parent: str | None = None,
        logs: Iterable[str] = (),
        key: str | None = None,
    ) -> Session[JSON]: ...
    async def create(
        self,
        program: Program[Any] | str | Definition | SessionView,
        seed: Mapping[str, JSON] | BaseModel | None = None,
        session_id: str | None = None,
        *,
        exists_ok: bool = False,
        key: str | None = None,
        **given: Any,
    ) -> Session[Any]:
        """Create a session of a program, under the caller's id or a minted one, and return its handle.

        An id in use raises `SessionExists`; with `exists_ok`, the session there is returned unchanged if it belongs to
        the same program. `seed` is its first state, or an instance of the program's model: `messages`, and the fields
        named by `logs`, are logs; the others are the document. A prompt in the definition takes precedence over the
        seed's `system_prompt`. A child has its parent's root and trace. A draft is stored unchanged. Repeated with the
        same id and `key`, the call creates nothing and returns the session.
        """
        parts = self._lifetime.parts()
        new = NewSession(
            program=program, seed=seed, session_id=session_id, tenant=self._tenant, operation_id=key, **given
        )
        if exists_ok and (found := await parts.creator.existing(new)) is not None:
            return Session(self._lifetime, found)
        try:
            created = (await parts.creator.create(new)).key
        except SessionExists:
            if not exists_ok or (found := await parts.creator.existing(new)) is None:
                raise
            created = found
        return Session(self._lifetime, created)

    @overload
    def session(self, session_id: str, program: Program[OutT]) -> Session[OutT]: ...
    @overload
    def session(self, session_id: str, program: None = None) -> Session[JSON]: ...
    def session(self, session_id: str, program: Program[Any] | None = None) -> Session[Any]:  # noqa: ARG002
        """Return the handle of a session, without reading it; `program` is only for type checkers: its output."""
        return Session(self._lifetime, session_key(session_id, self._tenant))

    async def send(
        self, session_id: str, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None
    ) -> Outcome[JSON]:
        """Send a message to a session; see `Session.send`."""
        return await self.session(session_id).send(message, key, when_busy)

    @overload
    async def execute(self, session_id: str, action: SendMessage) -> Outcome[JSON]: ...
    @overload
    async def execute(self, session_id: str, action: ForkSession) -> Forked[JSON]: ...
    @overload
    async def execute(self, session_id: str, action: StopRun) -> StopReply: ...
    @overload
    async def execute(self, session_id: str, action: DeleteSession) -> DeleteReport: ...
    @overload
    async def execute(self, session_id: str, action: RewindSession | Action) -> SessionView: ...
    async def execute(self, session_id: str, action: Any) -> Any:
        """Execute an action on a session; see `Session.execute`."""
        return await self.session(session_id).execute(action)

    async def get(self, session_id: str) -> SessionView:
        """Return a session with its state; nothing changes."""
        return await self.session(session_id).get()

    async def outcome(self, input_or_run_id: str) -> Outcome[JSON]:
        """Return the status of an input or a run, or the outcome of its turn; any process may ask."""
        return await self._lifetime.parts().outcomes.of_input(input_or_run_id, self._tenant)

    async def answer(
        self,
        wait: str | Wait,
        value: JSON | BaseModel = None,
        *,
        error: JSON = None,
        key: str | None = None,
        run: bool = True,
    ) -> Answered[JSON]:
        """Answer what a run waits for; the answer is durable when this returns, and counts once.

        If no other wait is open, the session resumes: in this call, or, with `run=False` or if its program is not
        registered here, on a worker. The same `key` again, or an equal answer, is the same success. One that does not
        fit raises `AnswerInvalid`; one to an unknown wait `WaitUnknown`, another after the first `AlreadyAnswered`, one
        that comes too late `LateAnswer`, and one to a `Wait` whose kind or run is another, `AnswerMismatch`.
        """
        return await self._lifetime.parts().give_answer(
            wait, value, tenant=self._tenant, error=error, key=key, session=None, run=run
        )

    async def list(
        self,
        *,
        program: str | None = None,
        status: SessionStatus | None = None,
        user_id: str | None = None,
        tag: str | None = None,
        parent: str | None = None,
        created_after: datetime | None = None,
        updated_after: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[SessionSummary]:
        """Return a page of the tenant's sessions that fit every condition, newest first; see `Store.list`."""
        wanted = SessionFilter(
            tenant=self._tenant,
            agent=program,
            status=None if status is None else StoredStatus(check_word(status, StoredStatus, "status")),
            user_id=user_id,
            tag=tag,
            parent=parent,
            created_after=created_after,
            updated_after=updated_after,
        )
        return await self._lifetime.parts().store.list(wanted, limit=limit, after=after)

    async def waits(
        self,
        *,
        kind: WaitKind | None = None,
        user_id: str | None = None,
        opened_before: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Wait]:
        """Return a page of what the tenant's sessions and graphs wait for, in the order it was asked for.

        Its `next` is the `after` of the following page.
        """
        return await self._lifetime.parts().store.waits.open(
            tenant=self._tenant,
            kind=None if kind is None else check_word(kind, StoredWaitKind, "kind"),
            user_id=user_id,
            opened_before=opened_before,
            limit=limit,
            after=after,
        )

    async def schedules(
        self, *, paused: bool | None = None, limit: int = 50, after: str | None = None
    ) -> Page[Schedule]:
        """Return a page of the schedules of the tenant's sessions: the oldest session first, each session's by name.

        `paused=True` means only those that are paused, `paused=False` only the others. Its `next` is the `after` of the
        following page.
        """
        return await self._lifetime.parts().store.schedules.list(
            tenant=self._tenant, paused=paused, limit=limit, after=after
        )
