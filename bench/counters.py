"""Counters of what SQLite does: syncs through a custom VFS, statements through its trace."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw


class SyncCounter(apsw.VFS):
    """Passes everything on to the system's VFS and counts the syncs of all files: database, WAL and journal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs = 0
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "_CountedFile":  # noqa: N802 - SQLite's name
        return _CountedFile(self, name, flags)


class _CountedFile(apsw.VFSFile):
    def __init__(self, counter: SyncCounter, name: Any, flags: list[int]) -> None:
        self._counter = counter
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._counter.syncs += 1
        super().xSync(flags)


@contextmanager
def counting_syncs(name: str = "bench-counter") -> Iterator[SyncCounter]:
    """Register the counting VFS under its name for as long as the block lasts."""
    counter = SyncCounter(name)
    try:
        yield counter
    finally:
        counter.unregister()


class StatementCounter:
    """How many statements the connections opened in the block have begun."""

    def __init__(self) -> None:
        self.statements = 0

    def watch(self, connection: apsw.Connection) -> None:
        """Count the statements of a connection, BEGIN and COMMIT among them."""
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._count)

    def _count(self, event: dict[str, Any]) -> None:
        self.statements += not event["trigger"]


@contextmanager
def counting_statements() -> Iterator[StatementCounter]:
    """Count the statements of every connection opened within the block, readers too."""
    counter = StatementCounter()
    apsw.connection_hooks.append(counter.watch)
    try:
        yield counter
    finally:
        apsw.connection_hooks.remove(counter.watch)
