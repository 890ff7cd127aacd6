"""The point before a run: the session as it was when the run began, and whom the run is for.

Every run of the runtime leaves one with its first commit, to be rewound to and forked from. A run without one is a
graph's own.
"""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run
from tenuto.store.store import Store


async def start_point(store: Store, run: Run) -> Checkpoint | None:
    """Return the session as it was before a run of the runtime; None means that the run is a graph's own."""
    point = await store.checkpoints.get(run.key, run.commit_number)
    return point if point is not None and point.run_id is None else None


async def reply_to(store: Store, run: Run) -> JSON:
    """Return whom a run is for, as it was noted when it began."""
    point = await start_point(store, run)
    cursor: Any = point.cursor if point else None
    return cursor.get("for") if isinstance(cursor, Mapping) else None
