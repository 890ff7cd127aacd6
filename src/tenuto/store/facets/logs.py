"""Reading logs: by range, the last few, or all, along the lineage, at one instant."""

from tenuto.codec import JSON, encode, loads, loads_many, loads_map
from tenuto.errors import InvalidInput, SessionNotFound, StoredDataCorrupt
from tenuto.model.session import Entry, Key, LogEnd, SessionKey, as_key
from tenuto.store.backend import View, columns_of
from tenuto.store.rules.commit.lineage import Segment, clip, segments
from tenuto.store.rules.fields import check_end
from tenuto.store.rules.limits import check_count, check_name, if_given
from tenuto.store.rules.records import ends_of
from tenuto.store.rules.rows import BranchRow, EntryRow, SessionRow, first_row
from tenuto.store.store_context import StoreContext


class Logs:
    """The logs of sessions. Entries come as stored; a migration of user state is the session layer's."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def read(
        self, key: Key, log: str, *, start: int = 0, stop: int | None = None, end: LogEnd | None = None
    ) -> list[Entry]:
        """Return the entries from `start` up to, not including, `stop`, in order.

        They are read up to the head's end, or up to `end` as a checkpoint, run or receipt names it. An unknown log is
        empty, an unknown session `SessionNotFound`. Damaged lineage is `StoredDataCorrupt`, never a shorter history.
        """
        check_name(log, "log")
        check_count(start, "start")
        if_given(check_count, stop, "stop")
        key = as_key(key)
        if_given(check_end, end, log)
        async with self._store.backend.view() as view:
            place = await _end(view, key, log, end)
            if place is None:
                return []
            upto = place.position if stop is None else min(stop, place.position)
            rows = await _entries(view, await _parts(view, place), start, upto, "entries_of")
        found = [EntryRow(*row) for row in rows]
        values = loads_many([row.body for row in found], f"log {log!r} of {key}")
        return [
            Entry(position=row.position, commit_number=row.commit_no, schema_version=row.schema_version, value=value)
            for row, value in zip(found, values, strict=True)
        ]

    async def tail(self, key: Key, log: str, count: int, *, end: LogEnd | None = None) -> list[Entry]:
        """Return the last `count` entries, in order, reading no others."""
        check_name(log, "log")
        check_count(count, "count")
        key = as_key(key)
        if end is None:
            async with self._store.backend.view() as view:
                end = await _end(view, key, log)
            if end is None:
                return []
        check_end(end, log)
        return await self.read(key, log, start=max(0, end.position - count), end=end)

    async def count(self, key: Key, log: str) -> int:
        """Return the number of entries without reading any; 0 for an unknown log."""
        check_name(log, "log")
        async with self._store.backend.view() as view:
            end = await _end(view, as_key(key), log)
        return end.position if end else 0


async def read_bodies(view: View, end: LogEnd) -> list[str]:
    """Return the texts of a whole log up to `end`."""
    rows = await _entries(view, await _parts(view, end), 0, end.position, "bodies_of")
    return [row[-1] for row in rows]


async def read_document(view: View, key: SessionKey, inline: str, held: str | None, what: str) -> dict[str, JSON]:
    """Put a document together from its inline fields and the values of its tenant that it holds by hash."""
    document = loads_map(inline, f"document of {what}")
    names = loads_map(held, f"held fields of {what}") if held else {}
    if not names:
        return document
    rows = await view.read("contents_by_hash", key.tenant, encode(sorted(set(names.values()))))
    bodies = {content: (encoding, body) for content, encoding, body in rows}
    for name, content in names.items():
        if content not in bodies:
            raise StoredDataCorrupt(f"Field {name!r} of {what}: its value {content} is missing.", what=what, field=name)
        encoding, body = bodies[content]
        if encoding != "json":
            raise StoredDataCorrupt(f"Field {name!r} of {what} is in the unknown encoding {encoding!r}.", field=name)
        document[name] = loads(body, f"field {name!r} of {what}")
    return document


async def _end(view: View, key: SessionKey, log: str, given: LogEnd | None = None) -> LogEnd | None:
    row = first_row(SessionRow, await view.read("session_by_key", *columns_of(key)))
    if row is None or not (row.alive or given):
        raise SessionNotFound(f"There is no {key}.", key=key)
    if given is not None and given.session != row.sid:
        raise InvalidInput(f"{given} is not a place in {key}.", key=key, end=given)
    return given or ends_of(row.heads, f"{key} heads").get(log)


async def _parts(view: View, end: LogEnd) -> list[Segment]:
    parts = segments(first_row(BranchRow, await view.read("branch_by_id", end.session, end.branch)), end)
    if any((part.session, part.branch) != (end.session, end.branch) for part in parts):
        places = encode([[part.session, part.branch] for part in parts])
        ((present,),) = await view.read("branches_present", places)
        if present != len(parts):
            raise StoredDataCorrupt(f"A parent of branch {end.branch} is missing; restore it from a backup.", end=end)
    return parts


async def _entries(view: View, parts: list[Segment], start: int, stop: int, query: str) -> list[tuple[JSON, ...]]:
    wanted = clip(parts, start, stop)
    if not wanted:
        return []
    rows = await view.read(query, encode([list(part) for part in wanted]))
    at = 0 if query == "bodies_of" else EntryRow._fields.index("position")
    expected = range(wanted[0].start, wanted[-1].stop)
    positions = [row[at] for row in rows]
    if positions != list(expected):
        rows.sort(key=lambda row: row[at])
        if [row[at] for row in rows] != list(expected):
            raise StoredDataCorrupt(
                f"Of the entries {expected.start} to {expected.stop - 1} only {len(rows)} are there; restore the rest.",
                expected=len(expected),
                found=len(rows),
            )
    return rows
