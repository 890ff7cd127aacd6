"""A commit under way: its rows as they come together, to which each of its parts adds its writes."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenuto.model.commit import Commit
from tenuto.model.session import LogEnd
from tenuto.store.rules.plan import Found
from tenuto.store.rules.rows import RunRow, SessionRow


@dataclass(slots=True)
class Draft:
    """The session's row as it was and, like the run's, as it will be; `ends` are those of the logs it writes."""

    commit: Commit
    found: Found
    old: SessionRow
    row: SessionRow
    run: RunRow | None
    ends: Mapping[str, LogEnd]

    def position(self, log: str | None, item: int | None) -> int | None:
        """Return where an item that the commit writes to a log stands in it."""
        if log is None or item is None:
            return None
        return self.ends[log].position - len(self.commit.logs[log].items) + item
