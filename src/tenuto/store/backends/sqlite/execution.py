"""Named statements, executed on a connection."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw

from tenuto.errors import TenutoError
from tenuto.store.backend import Reading
from tenuto.store.backends.signals import GuardMissed, Refused
from tenuto.store.backends.sql import queries
from tenuto.store.backends.sqlite.faults import unstorable
from tenuto.store.rules.plan import Plan, Row, Write

F = TypeVar("F")
T = TypeVar("T")

_ROWS_PER_INSERT = 32
_UNSTORABLE = (TypeError, ValueError, OverflowError)


class Execution:
    """Answers reads and applies writes by their names; `probe`, a test's, is called with each name first."""

    def __init__(self, path: str) -> None:
        self.probe: Callable[[str], None] | None = None
        self._path = path
        self._sql = Statements()

    def begins(self, name: str) -> None:
        """Call the probe, if there is one, with the name of the next statement."""
        if self.probe is not None:
            self.probe(name)

    def rows(self, connection: apsw.Connection, name: str, params: Sequence[object]) -> list[Row]:
        """Answer one named read."""
        try:
            return list(connection.execute(self._sql[name], params))
        except _UNSTORABLE as error:
            raise unstorable(error, self._path) from error

    def transact(self, read: Reading[F], decide: Callable[[F], Plan[T]], connection: apsw.Connection) -> Plan[T]:
        """Read, decide and write, inside the transaction that is open."""
        try:
            plan = decide(self._gather(read, connection))
        except TenutoError as error:
            raise Refused(error) from error
        self.apply(plan.writes, connection)
        return plan

    def apply(self, writes: list[Write], connection: apsw.Connection) -> None:
        """Apply a plan's writes; one that must hit and does not is `GuardMissed`."""
        for name, rows, must in writes:
            self.begins(name)
            before = connection.total_changes() if must else 0
            self._apply_one(connection, name, rows)
            if must and connection.total_changes() - before != len(rows):
                raise GuardMissed(name)

    def _gather(self, read: Reading[F], connection: apsw.Connection) -> F:
        script = read()
        try:
            name, params = next(script)
            while True:
                self.begins(name)
                name, params = script.send(self.rows(connection, name, params))
        except StopIteration as stop:
            found: F = stop.value
            return found

    def _apply_one(self, connection: apsw.Connection, name: str, rows: Sequence[Row]) -> None:
        try:
            if len(rows) == 1:
                connection.execute(self._sql[name], rows[0])
            elif self._sql.takes_many(name):
                for start in range(0, len(rows), _ROWS_PER_INSERT):
                    chunk = rows[start : start + _ROWS_PER_INSERT]
                    connection.execute(self._sql.many(name, len(chunk)), [value for row in chunk for value in row])
            else:
                connection.executemany(self._sql[name], rows)
        except _UNSTORABLE as error:
            raise unstorable(error, self._path) from error


class Statements(dict[str, str]):
    """The named statements, and the forms of an insert that takes several rows at once."""

    def __init__(self) -> None:
        super().__init__(queries("sqlite"))
        self._many: dict[tuple[str, int], str] = {}

    def __missing__(self, name: str) -> str:
        if not name.startswith("dump_"):
            raise KeyError(name)
        self[name] = f"SELECT * FROM {name.removeprefix('dump_')}"
        return self[name]

    def takes_many(self, name: str) -> bool:
        """Return whether a statement is an insert whose values may be repeated."""
        text = self[name]
        return text.startswith("INSERT") and text.endswith("?)")

    def many(self, name: str, rows: int) -> str:
        """Return an insert for several rows."""
        text = self._many.get((name, rows))
        if text is None:
            base = self[name]
            values = base[base.rindex("(") :]
            text = self._many[name, rows] = base + f",{values}" * (rows - 1)
        return text
