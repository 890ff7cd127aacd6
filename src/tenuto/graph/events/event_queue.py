"""Delivering events: one strictly serial queue per invocation that the engine never waits for.

Inline observers have no queue: they are called where an event happens, in the running code's context, so the code that
follows sees what they put there. They get ends in reverse order, so that they nest.
"""

import asyncio
import math
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from tenuto.errors import InvalidInput
from tenuto.graph.events.node_event import FrameEvent, InvocationEvent, NodeEvent, Phase

R = TypeVar("R")


class InlineObserver(Protocol):
    """An observer that is called in place. It must be quick; an error it raises becomes a warning.

    Besides what others get, it gets the events of invocations (`InvocationEvent`) and of graphs inside nodes
    (`FrameEvent`). One that has `trace_context() -> str | None` names the running invocation to whoever resumes it.
    """

    inline: bool

    def __call__(self, event: Any, /) -> None:
        """Take an event."""


Observer = Callable[[Any], Awaitable[None]] | InlineObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSummary:
    """How a drain ended."""

    undelivered_count: int
    timeout_reached: bool


class Subscription(NamedTuple):
    """An observer and the phases it wants; None means all of them."""

    observer: Any
    phases: frozenset[Phase] | None
    inline: bool = False

    def wants(self, event: Any) -> bool:
        """Return whether the event is to be delivered; only node events have phases."""
        return self.phases is None or not isinstance(event, NodeEvent) or event.phase in self.phases


class Attachment:
    """An observer attached to a graph, until it is removed."""

    def __init__(self, observers: list[Subscription], subscription: Subscription) -> None:
        self._observers = observers
        self._subscription = subscription

    def remove(self) -> None:
        """Detach the observer; a second call does nothing."""
        self._observers[:] = [each for each in self._observers if each is not self._subscription]


def subscription(observer: Observer, phases: Iterable[str] | None = None) -> Subscription:
    """Return a subscription; an empty or unknown set of phases is refused."""
    inline = getattr(observer, "inline", False) is True
    if phases is None:
        return Subscription(observer, None, inline)
    try:
        wanted = frozenset(Phase(phase) for phase in phases)
    except ValueError as error:
        raise InvalidInput(f"Unknown phase: {error}.") from error
    if not wanted:
        raise InvalidInput("An observer without a phase would never get an event; leave phases out for all.")
    return Subscription(observer, wanted, inline)


def trace_context(observers: Iterable[Subscription]) -> str | None:
    """Return the running invocation's trace context from the first inline observer that keeps one."""
    for each in observers:
        if each.inline and (ask := getattr(each.observer, "trace_context", None)) is not None:
            try:
                found: str | None = ask()
            except Exception as error:
                _warn(error)
            else:
                if found is not None:
                    return found
    return None


class Delivery:
    """The events of one invocation and the task that delivers them."""

    def __init__(self, invocation_id: str) -> None:
        self.invocation_id = invocation_id
        self.emitted = 0
        self.delivered = 0
        self._queue: deque[tuple[Any, tuple[Subscription, ...]]] = deque()
        self._more = asyncio.Event()
        self._moved: set[asyncio.Event] = set()
        self._closed = False
        self._plain: tuple[Subscription, ...] | None = None
        self.task = asyncio.get_running_loop().create_task(self._work())

    def emit(self, event: Any, observers: tuple[Subscription, ...]) -> None:
        """Deliver an event to inline observers, and queue it for the others."""
        if observers is not self._plain:  # usually it is: a frame's observers do not change
            if any(each.inline for each in observers):
                self.notify(event, observers)
                observers = tuple(each for each in observers if not each.inline)
                if not observers:
                    return
            else:
                self._plain = observers
        self.emitted += 1
        self._queue.append((event, observers))
        self._more.set()

    def notify(self, event: Any, observers: tuple[Subscription, ...]) -> None:
        """Call the inline ones of these observers with an event."""
        begins = getattr(event, "phase", Phase.STARTED) == Phase.STARTED
        for each in observers if begins else reversed(observers):
            if each.inline and each.wants(event):
                try:
                    each.observer(event)
                except Exception as error:
                    _warn(error)

    async def around(
        self, work: Awaitable[R], begun: InvocationEvent | FrameEvent, observers: tuple[Subscription, ...]
    ) -> R:
        """Await some work between two events for inline observers, the second of which says how it ended."""
        self.notify(begun, observers)
        try:
            result = await work
        except BaseException as error:
            self.notify(begun.raised(error), observers)
            raise
        self.notify(begun.returned(result), observers)
        return result

    def close(self) -> None:
        """Accept no more events; those in the queue are still delivered."""
        self._closed = True
        self._more.set()

    async def wait_for(self, count: int) -> None:
        """Wait until this many events have been delivered, or the delivery has ended."""
        moved = asyncio.Event()
        self._moved.add(moved)
        try:
            while self.delivered < count and not self.task.done():
                moved.clear()
                waiting = asyncio.ensure_future(moved.wait())
                try:
                    await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
        finally:
            self._moved.discard(moved)

    async def _work(self) -> None:
        while True:
            while self._queue:
                event, observers = self._queue.popleft()
                for each in observers:
                    if each.phases is None or each.wants(event):
                        try:
                            await each.observer(event)
                        except Exception as error:
                            _warn(error)
                self.delivered += 1
                for moved in self._moved:
                    moved.set()
            if self._closed:
                return
            self._more.clear()
            await self._more.wait()


class EventQueues:
    """The deliveries of a graph's invocations that have not ended."""

    def __init__(self) -> None:
        self._live: set[Delivery] = set()

    def begin(self, invocation_id: str) -> Delivery:
        """Start delivering for an invocation."""
        delivery = Delivery(invocation_id)
        self._live.add(delivery)
        delivery.task.add_done_callback(lambda _: self._live.discard(delivery))
        return delivery

    async def drain(self, timeout: float | None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until all queued events are delivered; at the timeout the rest is dropped and counted."""
        check_timeout(timeout)
        live = {delivery.task: delivery for delivery in self._live if not delivery.task.done()}
        late = (await asyncio.wait(live, timeout=timeout))[1] if live else set()
        left = sum(live[task].emitted - live[task].delivered for task in late)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return DrainSummary(undelivered_count=left, timeout_reached=bool(late))

    async def drain_for(self, invocation_id: str, timeout: float | None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until what one invocation has emitted so far is delivered; nothing is dropped."""
        check_timeout(timeout)
        mine = [delivery for delivery in self._live if delivery.invocation_id == invocation_id]
        wanted = [(delivery, delivery.emitted) for delivery in mine]
        try:
            async with asyncio.timeout(timeout):
                for delivery, count in wanted:
                    await delivery.wait_for(count)
        except TimeoutError:
            left = sum(max(0, count - delivery.delivered) for delivery, count in wanted)
            return DrainSummary(undelivered_count=left, timeout_reached=True)
        return DrainSummary(undelivered_count=0, timeout_reached=False)


def check_timeout(timeout: float | None) -> None:
    """Reject a negative or NaN timeout."""
    if timeout is not None and (math.isnan(timeout) or timeout < 0):
        raise ValueError(f"A timeout must be 0 or more seconds, got {timeout}.")


def _warn(error: Exception) -> None:
    # An observer never disturbs the run or the other observers, not even where warnings are errors.
    with suppress(RuntimeWarning):
        warnings.warn(f"An observer raised {error!r}.", RuntimeWarning, stacklevel=2)
