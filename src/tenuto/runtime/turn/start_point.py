"""The start point of a run: a checkpoint of the session before it, and the parent that waits for it.

Every run of the runtime writes one with its first commit, to be rewound to and forked from. A run without one belongs
to `graph.run`.
"""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run
from tenuto.store.store import Store


async def start_point(store: Store, run: Run) -> Checkpoint | None:
    """Return the checkpoint of the session before a run of the runtime; None if the run belongs to `graph.run`."""
    point = await store.checkpoints.get(run.key, run.commit_number)
    return point if point is not None and point.run_id is None else None


async def reply_to(store: Store, run: Run) -> JSON:
    """Return the parent and token that a run's result is for, as stored when it began; None if there is none."""
    point = await start_point(store, run)
    cursor: Any = point.cursor if point else None
    return cursor.get("for") if isinstance(cursor, Mapping) else None
