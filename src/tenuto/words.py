"""The words of closed sets, as types: a checker finds a misspelt one, and nobody has an enum to import."""

from typing import Literal, TypeAlias

Concurrency: TypeAlias = Literal["exclusive", "optimistic", "last_write_wins"]
"""What happens to runs on one session at the same time: each waits for the others, every save but the first is refused,
or the last save wins.
"""

ErrorPolicy: TypeAlias = Literal["fail_fast", "collect"]
"""What a node that runs several things does when one fails: cancel the others and fail, or let them finish and collect
the errors.
"""

GraphStatus: TypeAlias = Literal["completed", "suspended", "failed", "interrupted"]
"""How a run of a graph ended."""

OnEmpty: TypeAlias = Literal["raise", "noop"]
"""What a fan-out without items does."""

OnMoved: TypeAlias = Literal["overwrite", "rebase"]
"""How a run is resumed on a session that others changed: write its own state over theirs, or add what it had added to
theirs.
"""
