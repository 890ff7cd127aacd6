"""Handles on a session, and on a run that was started."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.codec import JSON
from tenuto.errors import RunNotLive
from tenuto.model.effect import Effect
from tenuto.model.event import EventType
from tenuto.model.input import Input
from tenuto.model.run import StopKind, StopReply
from tenuto.model.session import SessionKey
from tenuto.model.token_usage import UsageReport
from tenuto.model.wait import Wait
from tenuto.runtime.session.info import RunInfo
from tenuto.runtime.session.outcome import Outcome, Outcomes
from tenuto.runtime.session.session_view import Session
from tenuto.runtime.stream.reader import StreamFrame
from tenuto.runtime.turn.context import TurnContext

if TYPE_CHECKING:
    from tenuto.runtime.runtime import SessionRuntime
    from tenuto.runtime.sessions import Sessions


class SessionHandle:
    """One session of a runtime: the runtime's verbs, bound to its key. It holds no resources."""

    __slots__ = ("_runtime", "key")

    def __init__(self, runtime: "SessionRuntime", key: SessionKey) -> None:
        self._runtime = runtime
        self.key = key

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.key.session_id

    async def send(self, message: Any, **options: Any) -> Outcome:
        """See `SessionRuntime.send`."""
        return await self._runtime.send(self.key, message, **options)

    async def start(self, message: Any, **options: Any) -> "RunHandle":
        """See `SessionRuntime.start`."""
        return await self._runtime.start(self.key, message, **options)

    async def execute(self, action: Any) -> Any:
        """See `SessionRuntime.execute`."""
        return await self._runtime.execute(self.key, action)

    async def get(self) -> Session:
        """See `SessionRuntime.get`."""
        return await self._runtime.get(self.key)

    async def runs(self, **options: Any) -> Sequence[RunInfo]:
        """See `SessionRuntime.runs`."""
        return await self._runtime.runs(self.key, **options)

    async def waits(self) -> Sequence[Wait]:
        """Return what the session waits for."""
        return await self._runtime.waits(self.key)

    async def effects_in_doubt(self) -> tuple[Effect, ...]:
        """Return the session's calls in doubt: it is unknown whether they were carried out."""
        return await self._runtime.effects_in_doubt(self.key)

    async def usage_report(self, *, cascade: bool = True) -> UsageReport:
        """Return what the session's model calls cost, its children's included."""
        return await self._runtime.usage_report(self.key, cascade=cascade)

    def events(self, *, after: int = 0, run: str | None = None, live: bool = True) -> AsyncIterator[StreamFrame]:
        """See `SessionRuntime.events`."""
        return self._runtime.events(self.key, after=after, run=run, live=live)


class RunHandle:
    """A turn that was started, or queued; it continues whether or not anybody waits for it."""

    def __init__(self, runtime: "Sessions", begun: TurnContext | Input, task: "asyncio.Task[Outcome]") -> None:
        self._runtime = runtime
        self._task = task
        self.key = begun.key
        self.run_id: str | None = begun.run_id
        if isinstance(begun, TurnContext):
            self.input_id, self._after = begun.invocation.input_id, begun.stream_start
        else:
            self.input_id, self._after = begun.input_id, begun.seq

    async def wait(self) -> Outcome:
        """Wait until the turn is over and return its outcome."""
        return await asyncio.shield(self._task)

    async def result(self) -> JSON:
        """Wait for the turn and return its output; raise `RunFailed` if it did not complete."""
        return (await self.wait()).result()

    async def events(self) -> AsyncIterator[StreamFrame]:
        """Yield the run's frames from its start to its end; for a queued message, wait until its turn begins."""
        if self.run_id is None:
            await self._begun()
        if self.run_id is None:
            return  # the message was refused and has no turn
        async for frame in self._runtime.events(self.key, after=self._after, run=self.run_id):
            yield frame

    async def _begun(self) -> None:
        """Wait until the turn of a queued message has begun, or it was refused."""
        async for frame in self._runtime.events(self.key, after=self._after):
            data: Any = frame.data
            if frame.name == EventType.RUN_STARTED and data.get("input_id") == self.input_id:
                self.run_id = frame.run_id
                return
            if frame.name == EventType.INPUT_REFUSED and data.get("input_id") == self.input_id:
                return

    async def stop(self, kind: StopKind = StopKind.INTERRUPT, reason: str | None = None) -> StopReply:
        """Ask the run to stop, and return at once; raise `RunNotLive` if the message is still queued."""
        if self.run_id is None and self.input_id is not None:
            self.run_id = (await Outcomes(self._runtime.store).of_input(self.input_id, self.key.tenant)).run_id
        if self.run_id is None:
            raise RunNotLive(
                f"Message {self.input_id} of {self.key} is still queued; cancel it instead.",
                key=self.key,
                run_id="",
                found="queued",
            )
        return await self._runtime.stop(self.key, kind=kind, reason=reason, run_id=self.run_id)
