"""A handle on a turn that was started or queued."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Generic

from tenuto.errors import RunNotLive, StreamRewound
from tenuto.model.event import EventType
from tenuto.model.input import Input
from tenuto.model.run import StopReply
from tenuto.runtime.lifetime import Lifetime
from tenuto.runtime.session.outcome import Outcome, OutT_co
from tenuto.runtime.stream.reader import StreamItem, read_stream
from tenuto.runtime.turn.context import TurnContext
from tenuto.words import StopKind


class RunHandle(Generic[OutT_co]):
    """A turn that was started, or queued; it continues whether or not anybody waits for it."""

    __slots__ = ("_after", "_key", "_lifetime", "_task", "input_id", "run_id")

    def __init__(self, lifetime: Lifetime, begun: TurnContext | Input, task: "asyncio.Task[Outcome[OutT_co]]") -> None:
        self._lifetime = lifetime
        self._task = task
        self._key = begun.key
        self.run_id: str | None = begun.run_id
        if isinstance(begun, TurnContext):
            self.input_id, self._after = begun.invocation.input_id or begun.run_id, begun.stream_start
        else:
            self.input_id, self._after = begun.input_id, begun.seq

    def __repr__(self) -> str:
        return f"RunHandle({self._key.session_id!r}, input_id={self.input_id!r})"

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self._key.session_id

    async def wait(self) -> Outcome[OutT_co]:
        """Wait until the turn is over and return its outcome."""
        return await asyncio.shield(self._task)

    async def result(self) -> OutT_co:
        """Wait for the turn and return what its program returned; raise `RunFailed` if it did not complete."""
        return (await self.wait()).result()

    async def events(self) -> AsyncGenerator[StreamItem, None]:
        """Yield the run's items from its start to its end; for a queued message, wait until its turn begins."""
        store = self._lifetime.parts().store
        if self.run_id is None:
            await self._begun()
        if self.run_id is None:
            return  # the message was refused and has no turn
        async with aclosing(read_stream(store, self._key, after=self._after, run=self.run_id)) as items:
            async for item in items:
                yield item

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the reply as it is emitted, or the whole reply at the end if nothing was emitted.

        If a takeover takes back what was shown, `StreamRewound` is raised: show the reply again from the start.
        """
        shown: list[str] = []
        async with aclosing(self.events()) as items:
            async for item in items:
                if item.type == "rewound" and shown:
                    raise StreamRewound(
                        f"The reply of run {self.run_id} begins again, since another runner took over; what was "
                        "shown of it no longer counts.",
                        shown="".join(shown),
                    )
                if item.text:
                    shown.append(item.text)
                    yield item.text
        if not shown and (text := (await self.wait()).text):
            yield text

    async def _begun(self) -> None:
        """Wait until the turn of a queued message has begun, or it was refused."""
        async with aclosing(read_stream(self._lifetime.parts().store, self._key, after=self._after)) as items:
            async for item in items:
                data: Any = item.data
                if item.name == EventType.RUN_STARTED and data.get("input_id") == self.input_id:
                    self.run_id = item.run_id
                    return
                if item.name == EventType.INPUT_REFUSED and data.get("input_id") == self.input_id:
                    return

    async def stop(self, kind: StopKind = "interrupt", reason: str | None = None) -> StopReply:
        """Ask the run to stop, and return at once; raise `RunNotLive` if the message is still queued."""
        parts = self._lifetime.parts()
        if self.run_id is None:
            self.run_id = (await parts.outcomes.of_input(self.input_id, self._key.tenant)).run_id
        if self.run_id is None:
            raise RunNotLive(
                f"Message {self.input_id} of {self._key} is still queued; cancel it instead.",
                key=self._key,
                run_id="",
                found="queued",
            )
        return await parts.live.request_stop(self._key, self.run_id, kind, reason)
