"""A connection of a keeper that a test can cut, and watch."""

import asyncio

from tenuto.testing.faults import FaultyBackend


class Line(FaultyBackend):
    """A backend that shows its keeper's own connection."""

    kept: "FaultyBackend | None" = None

    async def sibling(self) -> FaultyBackend:
        self.kept = await super().sibling()
        return self.kept

    async def tried(self) -> None:
        """Wait until the keeper has asked once more."""
        calls = self.kept.calls if self.kept else 0
        async with asyncio.timeout(30):
            while self.kept is None or self.kept.calls == calls:
                await asyncio.sleep(0.02)
