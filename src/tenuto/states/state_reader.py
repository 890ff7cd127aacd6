"""What decides whether stored states fit: a graph, or a program, of the code at hand."""

from typing import Protocol

from tenuto.errors import TenutoError
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.run import Run
from tenuto.model.session import SessionKey

TRIES = 5
"""How often a session that others change meanwhile is migrated again."""


class StateReader(Protocol):
    """One graph or program, which knows how its sessions are stored."""

    @property
    def name(self) -> str:
        """What it is called in a report."""
        ...

    @property
    def target(self) -> str:
        """The version that its sessions are stored under."""
        ...

    @property
    def run_target(self) -> str:
        """The version that its paused runs and checkpoints are stored under."""
        ...

    def blocked(self, version: str) -> TenutoError | None:
        """Return why no session of a version can be read, so that it is not looked for in every session."""
        ...

    async def check(self, key: SessionKey) -> frozenset[str] | None:
        """Read a session as a turn would; write nothing, and return the stored fields that the code does not name.

        Return None if the session has been deleted since; raise what a turn would raise.
        """
        ...

    async def migrate(self, key: SessionKey) -> bool:
        """Write a session as its migrations leave it, in one commit; return False if nothing was left to do."""
        ...

    async def check_run(self, run: Run, checkpoint: Checkpoint | None) -> str:
        """Restore a run as a resume would, write nothing, and return the version it is stored under."""
        ...
