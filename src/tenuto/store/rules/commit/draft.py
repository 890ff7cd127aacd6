"""A commit under way: its rows as they come together, which each of its parts adds its writes to."""

from dataclasses import dataclass

from tenuto.model.commit import Commit
from tenuto.store.rules.commit.log_rows import LogWriter
from tenuto.store.rules.commit.pack import PackedCommit
from tenuto.store.rules.plan import Found
from tenuto.store.rules.rows import RunRow, SessionRow


@dataclass(slots=True)
class Draft:
    """The rows of a commit as they come together: the session's and the run's as they will be."""

    packed: PackedCommit
    found: Found
    old: SessionRow
    row: SessionRow
    run: RunRow | None
    log: LogWriter

    @property
    def commit(self) -> Commit:
        """The commit itself."""
        return self.packed.commit
