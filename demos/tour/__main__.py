"""A guided tour on a SQLite file, started by `make run`: it uses a real store and really kills processes."""

import asyncio
import getpass
import shutil
import sys
import tempfile
from pathlib import Path

from demos.tour import runtime_scenes, store_scenes
from demos.tour.stage import say, title

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
    command = Path(sys.executable).parent / "tenuto"
    title("8. Now look for yourself: the file stays until the next tour")
    say(f"{command} session show refund-7 --store {url}")
    say(f"{command} session list --store {url} --limit 3")
    say("next: README.md for your first program, docs/runtime.md for everything else")


def main() -> None:
    """Run the tour or, given a role and a store address, one of its processes."""
    if len(sys.argv) > 1:
        asyncio.run(ROLES[sys.argv[1]](sys.argv[2]))
        return
    folder = Path(tempfile.gettempdir()) / f"tenuto-tour-{getpass.getuser()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    asyncio.run(tour(folder))


if __name__ == "__main__":
    main()
