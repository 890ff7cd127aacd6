"""The file a session leaves: how much of it is not the messages themselves."""

import json
from typing import Any

from bench.harness import Measure, Scene
from bench.workload import WarmSession, messages
from tenuto import open_store


async def size(scene: Scene) -> float:
    """Return the closed file after 500 turns against the JSON of its messages."""
    said: list[dict[str, Any]] = []
    async with open_store(scene.url(), synchronous="OFF") as store:
        session = await WarmSession.begin(store)
        for _ in scene.rounds(500):
            items = messages()
            said.extend(items)
            await session.turn(items)
    file, raw = (scene.folder / "store.db").stat().st_size, len(json.dumps(said, separators=(",", ":")))
    scene.note(f"{file / 1024:,.0f} KiB against {raw / 1024:,.0f} KiB")
    return file / raw


MEASURES = (Measure(name="file after 500 turns against the raw JSON of its messages", unit="x", run=size),)
