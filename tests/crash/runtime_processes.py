"""Other processes with a runtime of their own on a shared store."""

import tempfile
from typing import Any

from tests.crash.processes import Database
from tests.crash.runtime_programs import Post, serve
from tests.crash.session_processes import FORKS, Mate, mates

FORKS.set_forkserver_preload(["asyncpg", "tests.crash.session_workers", "tests.crash.runtime_programs"])


class Colleague(Mate):
    """A process in a folder of its own that carries out the verbs of `runtime_programs`."""

    def __init__(self, database: Database, **post: Any) -> None:
        self._line, theirs = FORKS.Pipe()
        home = tempfile.mkdtemp(prefix="home-", dir=database.folder)
        told = Post(address=database.address, options=database.options, folder=database.folder, home=home, **post)
        self._process = FORKS.Process(target=serve, args=(theirs, told))
        self._process.start()
        theirs.close()

    def order(self, verb: str, plan: dict[str, Any] | None = None, **arguments: Any) -> None:
        """Tell it what to do, and do not wait for it."""
        assert plan is None
        self._line.send((verb, arguments))


__all__ = ["Colleague", "mates"]
