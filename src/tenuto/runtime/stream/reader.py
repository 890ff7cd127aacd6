"""A session's stream as its readers see it: every stored event as an item, once, in order, live and replayed.

Every reader gets the same raw stream; `fold` removes superseded chunks.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenuto.codec import JSON, encode
from tenuto.errors import StoreError, StreamDropped
from tenuto.model.event import Event, EventPage, EventType
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.session.info import head_of
from tenuto.store.store import Store
from tenuto.words import ItemType
from tenuto.writing.error_record import without_frames


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamItem:
    """One item of the stream: a stored event, or a remark to the reader; `seq` is the cursor to continue after it.

    `name` is the event's type and `data` its data; a chunk's data is the chunk, with `attempt` and `step` beside it. An
    `end` has the run's status, a `fail` its error; `truncated` names the number from which on events are stored.
    """

    type: ItemType
    seq: int
    name: str = ""
    run_id: str | None = None
    data: JSON = None
    attempt: int = 1
    step: int | None = None
    at: datetime | None = None

    @property
    def is_end(self) -> bool:
        """Whether this is the last item of a run."""
        return self.type in ("end", "fail")

    @property
    def text(self) -> str:
        """The text of a chunk: the chunk itself, or its `text`; empty for anything else."""
        found = self.data.get("text") if isinstance(self.data, Mapping) else self.data
        return found if self.type == "chunk" and isinstance(found, str) else ""

    def sse(self) -> str:
        """Return the item in the form of a server-sent event, with its cursor as the event's id."""
        data = {"name": self.name, "run_id": self.run_id, "attempt": self.attempt, "step": self.step, "data": self.data}
        at = {} if self.at is None else {"at": self.at.isoformat()}
        return f"id: {self.seq}\nevent: {self.type}\ndata: {encode({**data, **at})}\n\n"


def item_of(event: Event) -> StreamItem:
    """Return a stored event as a item."""
    data: Any = event.data
    common: dict[str, Any] = {"seq": event.seq, "name": event.type, "run_id": event.run_id, "at": event.at}
    if event.type == EventType.CHUNK:
        parts = {"data": data["chunk"], "attempt": data["attempt"], "step": data["step"]}
        return StreamItem(type="chunk", **common, **parts)
    if event.type == EventType.REWOUND:
        return StreamItem(type="rewound", **common, data={"from": data["from"]}, attempt=data["attempt"])
    if event.type == EventType.ELIDED:
        return StreamItem(type="elided", **common, data=data)
    if event.type == EventType.RUN_ENDED:
        return StreamItem(type=_ending(data["status"]), **common, data=data)
    return StreamItem(type="event", **common, data=data)


async def read_stream(
    store: Store, key: SessionKey, *, after: int = 0, run: str | None = None, live: bool = True
) -> AsyncGenerator[StreamItem, None]:
    """Yield the items after a cursor, of the whole session or of one run.

    Stored ones come first, then `caught_up`, then live ones. A run's stream ends with its end or fail item, even if
    the cursor is past it; if it stops without one, `StreamDropped` is raised. Without `live`, reading stops at the
    stream's current end.
    """
    if not live:
        async for item in _stored(store, key, after, run):
            yield item
        return
    try:
        async with aclosing(_followed(store, key, after, run)) as items:
            async for item in items:
                after = item.seq
                yield item
                if run is not None and item.is_end:
                    return
    except StoreError as error:
        raise _dropped(key, after) from error
    raise _dropped(key, after)


async def _followed(store: Store, key: SessionKey, after: int, run: str | None) -> AsyncGenerator[StreamItem, None]:
    async for item in _stored(store, key, after, run):
        after = item.seq
        yield item
    if run is not None:
        async for item in _rest(store, key, after, run):
            yield item
    async for page in store.events.subscribe(key, after=after, run_id=run):
        if page.truncated:
            yield _truncated(page)
        for event in page.events:
            yield item_of(event)
        if page.truncated and run is not None:
            async for item in _rest(store, key, page.next, run):
                yield item


async def _stored(store: Store, key: SessionKey, after: int, run: str | None) -> AsyncGenerator[StreamItem, None]:
    while True:
        page = await store.events.read(key, after=after, run_id=run)
        if page.truncated:
            yield _truncated(page)
        for event in page.events:
            yield item_of(event)
        if page.next >= page.tail or page.next == after:
            yield StreamItem(type="caught_up", seq=page.tail)
            return
        after = page.next


async def _rest(store: Store, key: SessionKey, after: int, run: str) -> AsyncGenerator[StreamItem, None]:
    """Yield the rest of a run that is over, and its end, from its record if the stream does not have it any more."""
    found = await store.runs.get(run, tenant=key.tenant)
    if found is None or found.key != key:
        raise _dropped(key, after)
    if found.status is RunStatus.RUNNING:
        return
    async for item in _stored(store, key, after, run):
        after = item.seq
        if item.type != "caught_up":
            yield item
        if item.is_end:
            return
    data: dict[str, JSON] = {"run_id": run, "status": str(found.status), "steps": found.steps}
    if found.error is not None:
        data["error"] = without_frames(found.error)
    yield StreamItem(
        type=_ending(found.status), seq=after, name="run_ended", run_id=run, data=data, attempt=found.attempt
    )


def _ending(status: str) -> ItemType:
    return "fail" if status == RunStatus.FAILED else "end"


def _truncated(page: EventPage) -> StreamItem:
    return StreamItem(type="truncated", seq=page.floor, data={"floor": page.floor})


def _dropped(key: SessionKey, after: int) -> StreamDropped:
    return StreamDropped(f"The stream of {key} stopped; continue reading after {after}.", cursor=after)


def fold(items: Iterable[StreamItem]) -> list[StreamItem]:
    """Return the items without superseded chunks, and without the marks that supersede them."""
    kept: list[StreamItem] = []
    for item in items:
        if item.type == "rewound":
            data: Any = item.data
            kept = [
                each
                for each in kept
                if not (each.type == "chunk" and each.run_id == item.run_id and each.seq > data["from"])
            ]
        else:
            kept.append(item)
    return kept


async def session_stream(
    store: Store, key: SessionKey, *, after: int, run: str | None, live: bool
) -> AsyncGenerator[StreamItem, None]:
    """Yield a session's stream, as `read_stream` does; a missing session raises `SessionNotFound`."""
    await head_of(store, key)
    async with aclosing(read_stream(store, key, after=after, run=run, live=live)) as items:
        async for item in items:
            yield item
