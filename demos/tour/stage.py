"""What the tour prints, and the other processes it starts."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

console = Console(highlight=False)


def title(text: str) -> None:
    """Print the heading of a scene."""
    console.print(f"[bold]{text}[/bold]", soft_wrap=True)


def say(text: str) -> None:
    """Print a line of a scene."""
    console.print(f"   {text}", soft_wrap=True)


def check(what: str, found: object, wanted: object) -> None:
    """Print what this scene shows; a difference ends the tour with an error."""
    if found != wanted:
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}")
    console.print(f"   [green]{what}[/green]", soft_wrap=True)


@asynccontextmanager
async def _started(role: str, url: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    arguments = ("-m", "demos.tour", role, url)
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        yield child, child.stdout
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def run_to_its_end(role: str, url: str) -> None:
    """Play a role in a separate process and print its output."""
    async with _started(role, url) as (child, lines):
        async for line in lines:
            say(f"process {child.pid}: {line.decode().strip()}")
        code = await child.wait()
        if code != 0:
            raise SystemExit(f"the process for {role!r} exited with {code}")
        say(f"process {child.pid}: ended")


async def run_and_kill(role: str, url: str) -> None:
    """Play a role in a separate process and kill it once it reports that it is in the middle of something."""
    async with _started(role, url) as (child, lines):
        async for line in lines:
            say(f"process {child.pid}: {line.decode().strip()}")
            if line.startswith(b"in the middle"):
                break
        child.send_signal(signal.SIGKILL)
        code = await child.wait()
        say(f"process {child.pid}: [red]killed[/red] (exit {code})")
