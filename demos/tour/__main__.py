"""A guided tour on a SQLite file, started by `make run`: it uses a real store and really kills processes."""

import asyncio
import sys
import tempfile
from pathlib import Path

from demos.tour import runtime_scenes, store_scenes
from demos.tour.stage import title

ROLES = {**runtime_scenes.ROLES, "write": store_scenes.write_until_killed}


async def tour(folder: Path) -> None:
    """Play every scene."""
    url = f"sqlite:///{folder / 'shop.db'}"
    title("1. Five messages at once to one session")
    await runtime_scenes.queue(url)
    title("2. An approval, answered after a restart")
    await runtime_scenes.approval(url)
    title("3. A process is killed in a turn, and another finishes it")
    await runtime_scenes.takeover(url)
    await store_scenes.underneath(url)


def main() -> None:
    """Run the tour or, given a role and a store address, one of its processes."""
    if len(sys.argv) > 1:
        asyncio.run(ROLES[sys.argv[1]](sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="tenuto-") as folder:
        asyncio.run(tour(Path(folder)))


if __name__ == "__main__":
    main()
