"""A process that calls a verb, and is killed at one of its store calls."""

import asyncio
import pickle
import sys
from pathlib import Path

from tenuto import Store, open_store
from tenuto.testing.fake_clock import FakeClock
from tests.cuts.cutting import Cutting, World
from tests.cuts.entries import ENTRIES


async def main(path: str, facts: str, verb: str, how: str, nth: str) -> None:
    """Set the scene, leave what is known of it, and call the verb."""
    store = await open_store(f"sqlite:///{path}")
    world = await World.begun(Store(Cutting(store.backend), clock=FakeClock()), "w")
    await ENTRIES[verb].scene(world)
    Path(facts).write_bytes(pickle.dumps(world.facts))
    world.faults.cut_at(how, int(nth))
    await ENTRIES[verb].call(world)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
