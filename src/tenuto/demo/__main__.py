"""A guided tour on a SQLite file. `make run` runs it: the store is the real one, and processes are really killed."""

import asyncio
import sys
import tempfile
from pathlib import Path

from tenuto.demo import scenes, turns
from tenuto.demo.showing import title

ROLES = {**scenes.ROLES, "write": turns.write_until_killed}


async def tour(folder: Path) -> None:
    """Walk through the demonstration."""
    url = f"sqlite:///{folder / 'shop.db'}"
    title("1. Five messages at once to one session")
    await scenes.queue(url)
    title("2. An approval, answered after a restart")
    await scenes.approval(url)
    title("3. A process killed in a turn, and another that finishes it")
    await scenes.takeover(url)
    await turns.underneath(url)


def main() -> None:
    """Run the tour, or, given a role and an address, be one of its processes."""
    if len(sys.argv) > 1:
        asyncio.run(ROLES[sys.argv[1]](sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="tenuto-") as folder:
        asyncio.run(tour(Path(folder)))


if __name__ == "__main__":
    main()
