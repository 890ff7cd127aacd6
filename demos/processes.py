"""Functions run in separate processes: to their end, until they kill themselves, or until we kill them.

A target is "module:function" of an async function; its arguments and what it returns travel as JSON. Both sides of a
demonstration run this way, so neither has the other's memory, modules or open files.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


class Broken(Exception):
    """A process did not end the way its demonstration needs; the message has what it wrote to stderr."""


def call(target: str, *, cwd: Path = ROOT, **arguments: Any) -> Any:
    """Run a target to its end and return what it returned."""
    with _started(target, cwd, arguments) as process:
        said, complaint = process.communicate()
        if process.returncode != 0:
            raise Broken(f"{target} ended with {process.returncode}:\n{complaint}")
        return json.loads(said.splitlines()[-1])


def call_until_it_dies(target: str, *, cwd: Path = ROOT, **arguments: Any) -> None:
    """Run a target that kills its own process with SIGKILL, and make sure that it did."""
    with _started(target, cwd, arguments) as process:
        _, complaint = process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise Broken(f"{target} was to be killed but ended with {process.returncode}:\n{complaint}")


def call_and_kill(target: str, *, cwd: Path = ROOT, **arguments: Any) -> Any:
    """Run a target until it says something, kill it with SIGKILL and return what it said."""
    with _started(target, cwd, arguments) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
        _, complaint = process.communicate()
        if not said or process.returncode != -signal.SIGKILL:
            raise Broken(f"{target} ended with {process.returncode} before it could be killed:\n{complaint}")
        return json.loads(said)


async def say_and_wait_to_be_killed(said: Any) -> None:
    """Print `said` for the parent, then wait for `call_and_kill`."""
    print(json.dumps(said), flush=True)
    await asyncio.Event().wait()


def die_now() -> None:
    """Kill this process: no handler, no finally, no flush runs after it."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _started(target: str, cwd: Path, arguments: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "demos.processes", target, json.dumps(arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Be the process of one call."""
    target, arguments = sys.argv[1:]
    module, function = target.split(":")
    print(json.dumps(asyncio.run(getattr(import_module(module), function)(**json.loads(arguments)))))


if __name__ == "__main__":
    main()
