"""The blocking face of the runtime: the same verbs for code without an event loop.

Written by `python -m tools.blocking_face`; change the async classes instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, overload

from pydantic import BaseModel

from tenuto.messages.message import Message, Sendable
from tenuto.model.effect import Effect
from tenuto.model.report import DeleteReport
from tenuto.model.run import StopReply
from tenuto.model.schedule import Schedule
from tenuto.model.session import Page, SessionHead, SessionSummary
from tenuto.model.token_usage import UsageReport
from tenuto.model.wait import Wait
from tenuto.runtime.change.action import DeleteSession, ForkSession, RewindSession, SendMessage, StopRun
from tenuto.runtime.handle import Forked, Session
from tenuto.runtime.operator import Operator
from tenuto.runtime.portal import Portal
from tenuto.runtime.program.program import Program
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.action_protocol import Action, Verb
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.info import RunView
from tenuto.runtime.session.outcome import Outcome, OutT_co
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.sessions import OutT, Sessions
from tenuto.runtime.stream.reader import StreamItem
from tenuto.runtime.tree.answer import Answered
from tenuto.store.open import Opening
from tenuto.store.store import Store
from tenuto.words import (
    JSON,
    Boundary,
    Cancelled,
    MissedOccurrences,
    Seconds,
    SessionStatus,
    StopKind,
    WaitKind,
    WhenBusy,
    WhenWaiting,
)


class BlockingRun(Generic[OutT_co]):
    """The blocking face of `RunHandle`."""

    def __init__(self, portal: Portal, wrapped: RunHandle[OutT_co]) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return "BlockingRun" + repr(self._wrapped).removeprefix("RunHandle")

    @property
    def input_id(self) -> str:
        """See `RunHandle.input_id`."""
        return self._wrapped.input_id

    @property
    def run_id(self) -> str | None:
        """See `RunHandle.run_id`."""
        return self._wrapped.run_id

    @property
    def session_id(self) -> str:
        """See `RunHandle.session_id`."""
        return self._wrapped.session_id

    def wait(self) -> Outcome[OutT_co]:
        """See `RunHandle.wait`."""
        return self._portal.call(self._wrapped.wait())

    def result(self) -> OutT_co:
        """See `RunHandle.result`."""
        return self._portal.call(self._wrapped.result())

    def events(self) -> Iterator[StreamItem]:
        """See `RunHandle.events`."""
        return self._portal.iterate(lambda: self._wrapped.events())

    def text(self) -> Iterator[str]:
        """See `RunHandle.text`."""
        return self._portal.iterate(lambda: self._wrapped.text())

    def stop(self, kind: StopKind = "interrupt", reason: str | None = None) -> StopReply:
        """See `RunHandle.stop`."""
        return self._portal.call(self._wrapped.stop(kind, reason))


class BlockingSession(Generic[OutT_co]):
    """The blocking face of `Session`."""

    def __init__(self, portal: Portal, wrapped: Session[OutT_co]) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return "BlockingSession" + repr(self._wrapped).removeprefix("Session")

    @property
    def session_id(self) -> str:
        """See `Session.session_id`."""
        return self._wrapped.session_id

    @property
    def tenant(self) -> str:
        """See `Session.tenant`."""
        return self._wrapped.tenant

    def send(self, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None) -> Outcome[OutT_co]:
        """See `Session.send`."""
        return self._portal.call(self._wrapped.send(message, key, when_busy))

    def start(
        self, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None
    ) -> BlockingRun[OutT_co]:
        """See `Session.start`."""
        return BlockingRun(self._portal, self._portal.call(self._wrapped.start(message, key, when_busy)))

    def enqueue(
        self,
        message: Sendable | Action | Verb,
        key: str | None = None,
        *,
        boundary: Boundary | None = None,
        due_at: datetime | None = None,
        delay: Seconds | None = None,
    ) -> str:
        """See `Session.enqueue`."""
        return self._portal.call(self._wrapped.enqueue(message, key, boundary=boundary, due_at=due_at, delay=delay))

    def cancel(self, *input_ids: str) -> dict[str, Cancelled]:
        """See `Session.cancel`."""
        return self._portal.call(self._wrapped.cancel(*input_ids))

    def schedule(
        self,
        name: str,
        message: Sendable,
        *,
        every: Seconds | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        missed: MissedOccurrences = "latest",
        when_waiting: WhenWaiting = "hold",
    ) -> Schedule:
        """See `Session.schedule`."""
        return self._portal.call(
            self._wrapped.schedule(
                name, message, every=every, cron=cron, tz=tz, missed=missed, when_waiting=when_waiting
            )
        )

    def unschedule(self, name: str) -> bool:
        """See `Session.unschedule`."""
        return self._portal.call(self._wrapped.unschedule(name))

    def schedules(self) -> Sequence[Schedule]:
        """See `Session.schedules`."""
        return self._portal.call(self._wrapped.schedules())

    def pause_schedule(self, name: str, reason: str = "It was paused.") -> Schedule:
        """See `Session.pause_schedule`."""
        return self._portal.call(self._wrapped.pause_schedule(name, reason))

    def resume_schedule(self, name: str) -> Schedule:
        """See `Session.resume_schedule`."""
        return self._portal.call(self._wrapped.resume_schedule(name))

    def resume(self) -> Outcome[OutT_co]:
        """See `Session.resume`."""
        return self._portal.call(self._wrapped.resume())

    def regenerate(
        self,
        run_id: str | None = None,
        key: str | None = None,
        *,
        fork: bool = False,
        when_busy: WhenBusy | None = None,
    ) -> Outcome[OutT_co]:
        """See `Session.regenerate`."""
        return self._portal.call(self._wrapped.regenerate(run_id, key, fork=fork, when_busy=when_busy))

    def stop(
        self, kind: StopKind = "interrupt", reason: str | None = None, run_id: str | None = None, *, tree: bool = False
    ) -> StopReply:
        """See `Session.stop`."""
        return self._portal.call(self._wrapped.stop(kind, reason, run_id, tree=tree))

    def withdraw_stop(self, run_id: str) -> StopReply:
        """See `Session.withdraw_stop`."""
        return self._portal.call(self._wrapped.withdraw_stop(run_id))

    def waits(self, *, children: bool = True) -> Sequence[Wait]:
        """See `Session.waits`."""
        return self._portal.call(self._wrapped.waits(children=children))

    def answer(
        self,
        wait: str | Wait,
        value: JSON | BaseModel = None,
        *,
        error: JSON = None,
        key: str | None = None,
        run: bool = True,
    ) -> Answered[OutT_co]:
        """See `Session.answer`."""
        return self._portal.call(self._wrapped.answer(wait, value, error=error, key=key, run=run))

    def abandon_waits(self) -> int:
        """See `Session.abandon_waits`."""
        return self._portal.call(self._wrapped.abandon_waits())

    @overload
    def execute(self, action: SendMessage) -> Outcome[OutT_co]: ...

    @overload
    def execute(self, action: ForkSession) -> BlockingFork[OutT_co]: ...

    @overload
    def execute(self, action: StopRun) -> StopReply: ...

    @overload
    def execute(self, action: DeleteSession) -> DeleteReport: ...

    @overload
    def execute(self, action: RewindSession | Action) -> SessionView: ...

    def execute(self, action: Any) -> Any:
        """See `Session.execute`."""
        return _wrapped(self._portal, self._portal.call(self._wrapped.execute(action)))

    def get(self) -> SessionView:
        """See `Session.get`."""
        return self._portal.call(self._wrapped.get())

    def info(self) -> SessionHead:
        """See `Session.info`."""
        return self._portal.call(self._wrapped.info())

    def messages(self, *, after: str | None = None, limit: int = 100) -> Page[Message]:
        """See `Session.messages`."""
        return self._portal.call(self._wrapped.messages(after=after, limit=limit))

    def runs(self, *, limit: int = 100, before: int | None = None) -> Sequence[RunView]:
        """See `Session.runs`."""
        return self._portal.call(self._wrapped.runs(limit=limit, before=before))

    def usage(self, *, cascade: bool = True) -> UsageReport:
        """See `Session.usage`."""
        return self._portal.call(self._wrapped.usage(cascade=cascade))

    def events(self, *, after: int = 0, run: str | None = None, live: bool = True) -> Iterator[StreamItem]:
        """See `Session.events`."""
        return self._portal.iterate(lambda: self._wrapped.events(after=after, run=run, live=live))

    def effects_in_doubt(self) -> Sequence[Effect]:
        """See `Session.effects_in_doubt`."""
        return self._portal.call(self._wrapped.effects_in_doubt())

    def settle_effect(self, effect: Effect, *, result: JSON = None, error: JSON = None) -> None:
        """See `Session.settle_effect`."""
        self._portal.call(self._wrapped.settle_effect(effect, result=result, error=error))

    def fork(
        self,
        *,
        at: str | int | None = None,
        session_id: str | None = None,
        message: Sendable | None = None,
        key: str | None = None,
    ) -> BlockingFork[OutT_co]:
        """See `Session.fork`."""
        return BlockingFork(
            self._portal, self._portal.call(self._wrapped.fork(at=at, session_id=session_id, message=message, key=key))
        )

    def rewind(self, to: str | int) -> SessionView:
        """See `Session.rewind`."""
        return self._portal.call(self._wrapped.rewind(to))

    def delete(self, *, cascade: bool = False) -> DeleteReport:
        """See `Session.delete`."""
        return self._portal.call(self._wrapped.delete(cascade=cascade))


class BlockingFork(BlockingSession[OutT_co]):
    """The blocking face of `Forked`."""

    _wrapped: Forked[OutT_co]

    @property
    def outcome(self) -> Outcome[OutT_co] | None:
        """See `Forked.outcome`."""
        return self._wrapped.outcome


class BlockingSessions:
    """The blocking face of `Sessions`."""

    def __init__(self, portal: Portal, wrapped: Sessions) -> None:
        self._portal = portal
        self._wrapped = wrapped

    @property
    def tenant(self) -> str:
        """See `Sessions.tenant`."""
        return self._wrapped.tenant

    @overload
    def create(
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
    ) -> BlockingSession[OutT]: ...

    @overload
    def create(
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
    ) -> BlockingSession[JSON]: ...

    def create(
        self,
        program: Program[Any] | str | Definition | SessionView,
        seed: Mapping[str, JSON] | BaseModel | None = None,
        session_id: str | None = None,
        *,
        exists_ok: bool = False,
        key: str | None = None,
        **given: Any,
    ) -> BlockingSession[Any]:
        """See `Sessions.create`."""
        return BlockingSession(
            self._portal,
            self._portal.call(self._wrapped.create(program, seed, session_id, exists_ok=exists_ok, key=key, **given)),
        )

    @overload
    def session(self, session_id: str, program: Program[OutT]) -> BlockingSession[OutT]: ...

    @overload
    def session(self, session_id: str, program: None = None) -> BlockingSession[JSON]: ...

    def session(self, session_id: str, program: Program[Any] | None = None) -> BlockingSession[Any]:
        """See `Sessions.session`."""
        return BlockingSession(self._portal, self._wrapped.session(session_id, program))

    def send(
        self, session_id: str, message: Sendable, key: str | None = None, when_busy: WhenBusy | None = None
    ) -> Outcome[JSON]:
        """See `Sessions.send`."""
        return self._portal.call(self._wrapped.send(session_id, message, key, when_busy))

    @overload
    def execute(self, session_id: str, action: SendMessage) -> Outcome[JSON]: ...

    @overload
    def execute(self, session_id: str, action: ForkSession) -> BlockingFork[JSON]: ...

    @overload
    def execute(self, session_id: str, action: StopRun) -> StopReply: ...

    @overload
    def execute(self, session_id: str, action: DeleteSession) -> DeleteReport: ...

    @overload
    def execute(self, session_id: str, action: RewindSession | Action) -> SessionView: ...

    def execute(self, session_id: str, action: Any) -> Any:
        """See `Sessions.execute`."""
        return _wrapped(self._portal, self._portal.call(self._wrapped.execute(session_id, action)))

    def get(self, session_id: str) -> SessionView:
        """See `Sessions.get`."""
        return self._portal.call(self._wrapped.get(session_id))

    def outcome(self, input_or_run_id: str) -> Outcome[JSON]:
        """See `Sessions.outcome`."""
        return self._portal.call(self._wrapped.outcome(input_or_run_id))

    def answer(
        self,
        wait: str | Wait,
        value: JSON | BaseModel = None,
        *,
        error: JSON = None,
        key: str | None = None,
        run: bool = True,
    ) -> Answered[JSON]:
        """See `Sessions.answer`."""
        return self._portal.call(self._wrapped.answer(wait, value, error=error, key=key, run=run))

    def list(
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
        """See `Sessions.list`."""
        return self._portal.call(
            self._wrapped.list(
                program=program,
                status=status,
                user_id=user_id,
                tag=tag,
                parent=parent,
                created_after=created_after,
                updated_after=updated_after,
                limit=limit,
                after=after,
            )
        )

    def waits(
        self,
        *,
        kind: WaitKind | None = None,
        user_id: str | None = None,
        opened_before: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Wait]:
        """See `Sessions.waits`."""
        return self._portal.call(
            self._wrapped.waits(kind=kind, user_id=user_id, opened_before=opened_before, limit=limit, after=after)
        )

    def schedules(self, *, paused: bool | None = None, limit: int = 50, after: str | None = None) -> Page[Schedule]:
        """See `Sessions.schedules`."""
        return self._portal.call(self._wrapped.schedules(paused=paused, limit=limit, after=after))


class BlockingOperator:
    """The blocking face of `Operator`."""

    def __init__(self, portal: Portal, wrapped: Operator) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def list(
        self,
        *,
        program: str | None = None,
        status: SessionStatus | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[SessionSummary]:
        """See `Operator.list`."""
        return self._portal.call(self._wrapped.list(program=program, status=status, limit=limit, after=after))

    def waits(
        self,
        *,
        kind: WaitKind | None = None,
        user_id: str | None = None,
        opened_before: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Wait]:
        """See `Operator.waits`."""
        return self._portal.call(
            self._wrapped.waits(kind=kind, user_id=user_id, opened_before=opened_before, limit=limit, after=after)
        )

    def schedules(self, *, paused: bool | None = None, limit: int = 50, after: str | None = None) -> Page[Schedule]:
        """See `Operator.schedules`."""
        return self._portal.call(self._wrapped.schedules(paused=paused, limit=limit, after=after))


class BlockingRuntime(BlockingSessions):
    """The blocking face of `SessionRuntime`."""

    _wrapped: SessionRuntime

    @property
    def programs(self) -> Mapping[str, Program[Any]]:
        """See `SessionRuntime.programs`."""
        return self._wrapped.programs

    @property
    def is_open(self) -> bool:
        """See `SessionRuntime.is_open`."""
        return self._wrapped.is_open

    @property
    def declared_store(self) -> Opening | Store | None:
        """See `SessionRuntime.declared_store`."""
        return self._wrapped.declared_store

    def for_tenant(self, tenant: str) -> BlockingSessions:
        """See `SessionRuntime.for_tenant`."""
        return BlockingSessions(self._portal, self._wrapped.for_tenant(tenant))

    def across_tenants(self) -> BlockingOperator:
        """See `SessionRuntime.across_tenants`."""
        return BlockingOperator(self._portal, self._wrapped.across_tenants())

    def drain(self, concurrency: int = 8) -> None:
        """See `SessionRuntime.drain`."""
        self._portal.call(self._wrapped.drain(concurrency))


def _wrapped(portal: Portal, result: Any) -> Any:
    """Return a result with a blocking face, if it is a handle."""
    match result:
        case Forked():
            return BlockingFork(portal, result)
        case Session():
            return BlockingSession(portal, result)
    return result


@contextmanager
def opened(runtime: SessionRuntime) -> Iterator[BlockingRuntime]:
    """Open a runtime in a dedicated event loop, in a thread, for code that has none."""
    portal = Portal()
    with portal.opened(runtime):
        yield BlockingRuntime(portal, runtime)
