"""What the nodes of a graph give, as they end: as a stream of events, and as parts of a session's stream."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from tenuto.codec import JSON, dumps
from tenuto.errors import TenutoError
from tenuto.graph.events.node_event import NodeEvent, Phase
from tenuto.messages.message import Delta

MOST_SHOWN = 1024 * 1024
"""The bytes of JSON of a field that is shown; readers find a longer one in the session."""


class Updates:
    """An inline observer that passes on the completed events of nodes that gave an update."""

    def __init__(self, take: Callable[[NodeEvent], None]) -> None:
        self.inline = True
        self._take = take

    def __call__(self, event: Any) -> None:
        """Take an event."""
        if isinstance(event, NodeEvent) and event.phase is Phase.COMPLETED and event.update is not None:
            self._take(event)


async def updates_of(run: Callable[[Updates], Awaitable[object]]) -> AsyncGenerator[NodeEvent, None]:
    """Yield the events of a run with this observer as they come; raise what it raises, and leave no task behind."""
    events: asyncio.Queue[NodeEvent | None] = asyncio.Queue()
    task = asyncio.ensure_future(run(Updates(events.put_nowait)))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


def delta_of(event: NodeEvent) -> Delta:
    """Return what a node gave as a part of a stream; a field that cannot be shown there is named in `left_out`."""
    shown, left_out = _plain(event.update or {})
    data: dict[str, JSON] = {"node": event.node_name, "path": list(event.namespace), "update": shown}
    if event.fan_out_index is not None:
        data["index"] = event.fan_out_index
    if event.branch_name is not None:
        data["branch"] = event.branch_name
    if left_out:
        data["left_out"] = left_out
    return {"data": data}


def _plain(update: Mapping[str, Any]) -> tuple[dict[str, JSON], list[JSON]]:
    shown: dict[str, JSON] = {}
    left_out: list[JSON] = []
    room = MOST_SHOWN
    for name, value in update.items():
        try:
            plain = to_jsonable_python(value)
            size = len(dumps(plain, name))
        except (TenutoError, ValueError, TypeError):
            left_out.append(name)
            continue
        if size > room:
            left_out.append(name)
            continue
        room -= size
        shown[name] = plain
    return shown, left_out
