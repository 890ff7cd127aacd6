"""A session's stream as its readers see it: every stored event as a frame, once, in order, live and replayed.

Every reader gets the same raw stream; `fold` removes superseded chunks.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import StoreError, StreamDropped
from tenuto.model.event import Event, EventPage, EventType
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store


class FrameType(StrEnum):
    """The types of frames in a stream."""

    CHUNK = "chunk"
    EVENT = "event"
    END = "end"
    FAIL = "fail"
    TRUNCATED = "truncated"
    REWOUND = "rewound"
    ELIDED = "elided"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFrame:
    """One frame: a stored event, or a remark to the reader. `seq` is the cursor to continue reading after it.

    `name` is the event's type and `data` its data; a chunk's data is the chunk, with `attempt` and `step` beside it. An
    `end` has the run's status, a `fail` its error; `truncated` names the number from which on events are stored.
    """

    type: FrameType
    seq: int
    name: str = ""
    run_id: str | None = None
    data: JSON = None
    attempt: int = 1
    step: int | None = None
    at: datetime | None = None

    @property
    def is_end(self) -> bool:
        """Whether this is the last frame of a run."""
        return self.type in (FrameType.END, FrameType.FAIL)


def frame_of(event: Event) -> StreamFrame:
    """Return a stored event as a frame."""
    data: Any = event.data
    common: dict[str, Any] = {"seq": event.seq, "name": event.type, "run_id": event.run_id, "at": event.at}
    if event.type == EventType.CHUNK:
        parts = {"data": data["chunk"], "attempt": data["attempt"], "step": data["step"]}
        return StreamFrame(type=FrameType.CHUNK, **common, **parts)
    if event.type == EventType.REWOUND:
        return StreamFrame(type=FrameType.REWOUND, **common, data={"from": data["from"]}, attempt=data["attempt"])
    if event.type == EventType.ELIDED:
        return StreamFrame(type=FrameType.ELIDED, **common, data=data)
    if event.type == EventType.RUN_ENDED:
        failed = data["status"] == RunStatus.FAILED
        return StreamFrame(type=FrameType.FAIL if failed else FrameType.END, **common, data=data)
    return StreamFrame(type=FrameType.EVENT, **common, data=data)


async def read_stream(
    store: Store, key: SessionKey, *, after: int = 0, run: str | None = None, live: bool = True
) -> AsyncIterator[StreamFrame]:
    """Yield the frames after a cursor, of the whole session or of one run.

    Stored ones come first, then `caught_up`, then live ones. A run's stream ends with its end or fail frame, even if
    the cursor is past it; if it stops without one, `StreamDropped` is raised. Without `live`, reading stops at the
    stream's current end.
    """
    if not live:
        async for frame in _stored(store, key, after, run):
            yield frame
        return
    try:
        async with aclosing(_followed(store, key, after, run)) as frames:
            async for frame in frames:
                after = frame.seq
                yield frame
                if run is not None and frame.is_end:
                    return
    except StoreError as error:
        raise _dropped(key, after) from error
    raise _dropped(key, after)


async def _followed(store: Store, key: SessionKey, after: int, run: str | None) -> AsyncGenerator[StreamFrame, None]:
    async for frame in _stored(store, key, after, run):
        after = frame.seq
        yield frame
    if run is not None:
        async for frame in _rest(store, key, after, run):
            yield frame
    async for page in store.events.subscribe(key, after=after, run_id=run):
        if page.truncated:
            yield _truncated(page)
        for event in page.events:
            yield frame_of(event)
        if page.truncated and run is not None:
            async for frame in _rest(store, key, page.next, run):
                yield frame


async def _stored(store: Store, key: SessionKey, after: int, run: str | None) -> AsyncIterator[StreamFrame]:
    while True:
        page = await store.events.read(key, after=after, run_id=run)
        if page.truncated:
            yield _truncated(page)
        for event in page.events:
            yield frame_of(event)
        if page.next >= page.tail or page.next == after:
            yield StreamFrame(type=FrameType.CAUGHT_UP, seq=page.tail)
            return
        after = page.next


async def _rest(store: Store, key: SessionKey, after: int, run: str) -> AsyncIterator[StreamFrame]:
    """Yield the rest of a run that is over, and its end, from its record if the stream does not have it any more."""
    found = await store.runs.get(run, tenant=key.tenant)
    if found is None or found.key != key:
        raise _dropped(key, after)
    if found.status is RunStatus.RUNNING:
        return
    async for frame in _stored(store, key, after, run):
        after = frame.seq
        if frame.type is not FrameType.CAUGHT_UP:
            yield frame
        if frame.is_end:
            return
    data: dict[str, JSON] = {"run_id": run, "status": str(found.status), "steps": found.steps}
    if found.error is not None:
        data["error"] = found.error
    failed = found.status is RunStatus.FAILED
    kind = FrameType.FAIL if failed else FrameType.END
    yield StreamFrame(type=kind, seq=after, name="run_ended", run_id=run, data=data, attempt=found.attempt)


def _truncated(page: EventPage) -> StreamFrame:
    return StreamFrame(type=FrameType.TRUNCATED, seq=page.floor, data={"floor": page.floor})


def _dropped(key: SessionKey, after: int) -> StreamDropped:
    return StreamDropped(f"The stream of {key} stopped; continue reading after {after}.", cursor=after)


def fold(frames: Iterable[StreamFrame]) -> list[StreamFrame]:
    """Return the frames without superseded chunks, and without the marks that supersede them."""
    kept: list[StreamFrame] = []
    for frame in frames:
        if frame.type is FrameType.REWOUND:
            data: Any = frame.data
            kept = [
                each
                for each in kept
                if not (each.type is FrameType.CHUNK and each.run_id == frame.run_id and each.seq > data["from"])
            ]
        else:
            kept.append(frame)
    return kept
