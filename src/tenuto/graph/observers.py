"""Delivering events: one strictly serial queue per invocation that the engine never waits for."""

import asyncio
import math
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput
from tenuto.graph.events import NodeEvent, Phase

Observer = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSummary:
    """How a drain ended."""

    undelivered_count: int
    timeout_reached: bool


class Subscription(NamedTuple):
    """An observer and the phases it wants; None means all of them."""

    observer: Observer
    phases: frozenset[Phase] | None

    def wants(self, event: Any) -> bool:
        """Tell whether the event is to be delivered; only node events have phases."""
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
    if phases is None:
        return Subscription(observer, None)
    try:
        wanted = frozenset(Phase(phase) for phase in phases)
    except ValueError as error:
        raise InvalidInput(f"Unknown phase: {error}.") from error
    if not wanted:
        raise InvalidInput("An observer without a phase would never hear anything; leave phases out for all.")
    return Subscription(observer, wanted)


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
        self.task = asyncio.get_running_loop().create_task(self._work())

    def emit(self, event: Any, observers: tuple[Subscription, ...]) -> None:
        """Queue an event for these observers."""
        self.emitted += 1
        self._queue.append((event, observers))
        self._more.set()

    def close(self) -> None:
        """Say that no more events will come; the rest is still delivered."""
        self._closed = True
        self._more.set()

    async def wait_for(self, count: int) -> None:
        """Wait until so many events have been delivered, or the delivery has ended."""
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
                            # An observer never disturbs the run or the other observers.
                            with suppress(RuntimeWarning):  # also where warnings are errors
                                warnings.warn(f"An observer raised {error!r}.", RuntimeWarning, stacklevel=1)
                self.delivered += 1
                for moved in self._moved:
                    moved.set()
            if self._closed:
                return
            self._more.clear()
            await self._more.wait()


class Deliveries:
    """The deliveries of a graph's invocations that are not done yet."""

    def __init__(self) -> None:
        self._live: set[Delivery] = set()

    def begin(self, invocation_id: str) -> Delivery:
        """Start delivering for an invocation."""
        delivery = Delivery(invocation_id)
        self._live.add(delivery)
        delivery.task.add_done_callback(lambda _: self._live.discard(delivery))
        return delivery

    async def drain(self, timeout: float | None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until everything under way is delivered; at the timeout, what is left is dropped and counted."""
        check_timeout(timeout)
        live = [delivery for delivery in self._live if not delivery.task.done()]
        if not live:
            return DrainSummary(undelivered_count=0, timeout_reached=False)
        _, late = await asyncio.wait({delivery.task for delivery in live}, timeout=timeout)
        if not late:
            return DrainSummary(undelivered_count=0, timeout_reached=False)
        left = sum(delivery.emitted - delivery.delivered for delivery in live if delivery.task in late)
        for task in late:
            task.cancel()
        await asyncio.wait(late)
        return DrainSummary(undelivered_count=left, timeout_reached=True)

    async def drain_for(self, invocation_id: str, timeout: float | None) -> DrainSummary:  # noqa: ASYNC109
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
    """Refuse a timeout that is no time."""
    if timeout is not None and (math.isnan(timeout) or timeout < 0):
        raise ValueError(f"A timeout must be 0 or more seconds, got {timeout}.")
