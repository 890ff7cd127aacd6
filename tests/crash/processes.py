"""Other processes for the tests: started, talked to line by line, killed, and always reaped."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto import Store, open_store

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An empty database that several processes share."""

    name: str
    address: str
    options: dict[str, Any] = field(default_factory=dict)
    folder: Path

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Store]:
        async with open_store(self.address, **self.options, **options) as store:
            yield store


class Worker:
    """One process that runs a verb of `tests.crash.workers`."""

    def __init__(self, database: Database, verb: str, **arguments: Any) -> None:
        task = {"verb": verb, "address": database.address, "options": database.options, "arguments": arguments}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.crash.workers", json.dumps(task)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._in, self._out, self._err = self._process.stdin, self._process.stdout, self._process.stderr

    def hear(self) -> Any:
        """Return what it says next, or fail with what it died of."""
        line = self._out.readline()
        if not line:
            raise AssertionError(f"the worker ended with {self._process.wait()}:\n{self._err.read()}")
        return json.loads(line)

    def tell(self, line: str) -> None:
        self._in.write(line + "\n")
        self._in.flush()

    def hang_up(self) -> None:
        """Close its standard input."""
        self._in.close()

    def kill(self) -> list[Any]:
        """Kill it with SIGKILL and return what it had still said; it must not have ended by itself."""
        self._process.kill()
        said = self._out.read()
        assert self._process.wait() == -signal.SIGKILL, self._err.read()
        # The last line may be cut off; what was not said whole was not acknowledged.
        return [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]

    def runs(self) -> bool:
        """Tell whether it has not ended yet."""
        return self._process.poll() is None

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        self.hang_up()
        said = self._out.read()
        assert self._process.wait() == 0, self._err.read()
        assert said == ""

    def abandon(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._in, self._out, self._err):
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def workers(*started: Worker) -> Iterator[tuple[Worker, ...]]:
    """Reap them at the end, whatever happened."""
    try:
        yield started
    finally:
        for worker in started:
            worker.abandon()
