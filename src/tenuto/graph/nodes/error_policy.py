"""What a node that runs several things at once does when one of them fails."""

import asyncio
from collections.abc import Collection
from typing import Any

from tenuto.errors import GraphRunError, NodeException
from tenuto.graph.engine.cause import category_of
from tenuto.writing.error_record import clipped


def collected_error(error: Exception, **place: str) -> dict[str, str]:
    """Return an error as it is collected, with the instance or the branch it is of."""
    category = category_of(error) if isinstance(error, GraphRunError) else None
    return {**place, "category": category or NodeException.category, "message": clipped(error)}


async def outcomes_of(tasks: Collection["asyncio.Task[Any]"], until: str) -> list[Any]:
    """Wait for tasks, cancel those that are left, and return what each returned or raised."""
    try:
        await asyncio.wait(tasks, return_when=until)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return outcomes
