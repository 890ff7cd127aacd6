"""Rows that cannot be read: whoever looks at many sessions passes over them, and each is reported once by name."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tenuto.errors import StoredDataCorrupt
from tenuto.quote import quote
from tenuto.store.rules.plan import Row
from tenuto.store.rules.rows import SESSION_COLUMNS, SessionRow

T = TypeVar("T")

_log = logging.getLogger("tenuto.store")

_MOST_REMEMBERED = 10_000
_reported: set[str] = set()


def report(where: str, error: StoredDataCorrupt) -> str:
    """Log once in this process that something is damaged and was passed over; return the sentence that says so."""
    said = f"{where}: {error.message}"
    if said not in _reported:
        if len(_reported) >= _MOST_REMEMBERED:
            _reported.clear()
        _reported.add(said)
        _log.warning("Passed over, since it cannot be read: %s", said)
    return said


def name_of(row: Row) -> str:
    """Name the session whose row the columns begin with, also one whose name cannot be read."""
    session = SessionRow(*row[:SESSION_COLUMNS])
    tenant = f" of tenant {quote(session.tenant)}" if session.tenant else ""
    return f"{session.kind} {quote(session.session_id)}{tenant}"


def sound(rows: Iterable[Row], read: Callable[[Row], T]) -> tuple[list[T], list[str]]:
    """Return what the rows mean, and a sentence for each that cannot be read; they begin with their session's."""
    found: list[T] = []
    damage: list[str] = []
    for row in rows:
        try:
            found.append(read(row))
        except StoredDataCorrupt as error:
            damage.append(report(name_of(row), error))
    return found, damage


async def read_sound(ask: Callable[[int], Awaitable[list[Row]]], limit: int, read: Callable[[Row], T]) -> list[T]:
    """Return the first `limit` rows that can be read; those that cannot are passed over."""
    most = limit
    while True:
        rows = await ask(most)
        found, damage = sound(rows, read)
        if len(found) >= limit or len(rows) < most:
            return found[:limit]
        most = limit + len(damage)
