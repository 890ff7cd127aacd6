"""Waiting for what happens elsewhere and is announced nowhere: always with a limit."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

PATIENCE = 20.0
"""How long a test waits for something that has to happen, in seconds."""


async def until(condition: Callable[[], Any], *, seconds: float = PATIENCE, pause: float = 0.002) -> Any:
    """Ask again and again, awaiting what has to be, until the answer is true, and return it; past the limit, fail."""
    async with asyncio.timeout(seconds):
        while True:
            asked = condition()
            found = await asked if inspect.isawaitable(asked) else asked
            if found:
                return found
            await asyncio.sleep(pause)
