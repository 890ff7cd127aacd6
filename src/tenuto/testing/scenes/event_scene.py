"""Writers and readers of a stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from tenuto.model.event import Event, EventPage, NewEvent
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit


def news(*names: str) -> tuple[NewEvent, ...]:
    """Return one event for each name."""
    return tuple(NewEvent(type=f"type-{name}", data={"name": name}) for name in names)


async def write_events(store: Store, key: SessionKey, *names: str, **parts: Any) -> int:
    """Write events in one commit; return the stream's last number."""
    return (await store.commit(a_commit(key, events=news(*names), **parts))).event_seq


def names_of(events: tuple[Event, ...] | list[Event]) -> list[str]:
    """Return the names that `news` gave events."""
    return [event.data["name"] for event in events]


async def all_events(store: Store, key: SessionKey, **read: Any) -> list[Event]:
    """Read a stream page by page to its end."""
    found: list[Event] = []
    after = read.pop("after", 0)
    while True:
        page = await store.events.read(key, after=after, **read)
        found += page.events
        if page.next == page.tail:
            return found
        assert page.next > after
        after = page.next


class Subscriber:
    """A subscription that a test takes pages from."""

    def __init__(self, pages: AsyncIterator[EventPage]) -> None:
        self._pages = pages
        self.events: list[Event] = []

    async def page(self) -> EventPage:
        """Wait for the next page."""
        async with asyncio.timeout(10):
            page = await anext(self._pages)
        self.events += page.events
        return page

    async def upto(self, seq: int) -> list[Event]:
        """Return all events so far, waiting for the one with this number."""
        while not self.events or self.events[-1].seq < seq:
            await self.page()
        return self.events


@asynccontextmanager
async def subscribed(store: Store, key: SessionKey, **subscribe: Any) -> AsyncIterator[Subscriber]:
    """Subscribe to a session's stream for as long as the context lasts."""
    pages = store.events.subscribe(key, **subscribe)
    async with aclosing(pages):  # type: ignore[type-var]
        yield Subscriber(pages)
