"""Whole sessions: read at one instant, and written over what is stored; and the rows of a whole store."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from tenuto.codec import JSON, dumps, loads_many, loads_map
from tenuto.errors import InvalidInput
from tenuto.model.commit import Append, Commit, LogWrite, Reset
from tenuto.model.run import Run
from tenuto.model.session import SessionHead, SessionKey, SessionRecord
from tenuto.store.backend import Backend, View, columns_of
from tenuto.store.facets.logs import read_bodies, read_document
from tenuto.store.rules.records import ends_of, head_of, run_of
from tenuto.store.rules.rows import SESSION_COLUMNS, TABLES, ProfileRow, RunRow, SessionRow, first_row, split_row
from tenuto.store.store_context import StoreContext

_HEAD = SESSION_COLUMNS + len(ProfileRow._fields)

Dump: TypeAlias = dict[str, list[dict[str, Any]]]
"""Every row by table, each as a map of column to value."""

DUMPED = TABLES | {"holding": ("session", "tenant", "hash")}
"""The tables of a dump and their columns."""


async def find_session(view: View, key: SessionKey) -> SessionRow | None:
    """Return the row of a live session."""
    row = first_row(SessionRow, await view.read("session_by_key", *columns_of(key)))
    return row if row and row.alive else None


def read_head(columns: Sequence[Any]) -> SessionHead:
    """Read a head from the columns of a session and its profile."""
    return head_of(*split_row(columns, ProfileRow))


async def read_record(view: View, key: SessionKey) -> tuple[SessionRecord, Run | None] | None:
    """Return a live session with its logs and its current run."""
    rows = await view.read("record_by_key", *columns_of(key))
    if not rows:
        return None
    row, head, run = SessionRow(*rows[0][:SESSION_COLUMNS]), read_head(rows[0][:_HEAD]), rows[0][_HEAD:]
    state = await read_document(view, key, row.document, row.held, str(key))
    for name, end in head.ends.items():
        bodies = await read_bodies(view, end)
        state[name] = loads_many(bodies, f"log {name!r} of {key}")
    record = SessionRecord(
        session_id=key.session_id, state=state, schema_version=head.schema_version, logs=frozenset(head.ends), head=head
    )
    return record, None if run[0] is None else run_of(RunRow(*run), key)


async def whole_record(
    store: StoreContext, key: SessionKey, record: SessionRecord, operation_id: str, expected_version: int | None
) -> Commit:
    """Return the commit that writes a whole record over what is stored."""
    async with store.backend.view() as view:
        ((life,),) = await view.read("life_of", *columns_of(key))
        row = await find_session(view, key)
        ends = ends_of(row.heads, f"{key} heads") if row else {}
        names = frozenset(ends) | record.logs
        logs: dict[str, LogWrite] = {}
        for name in sorted(names & record.state.keys()):
            items = log_items(name, record.state[name])
            stored = await read_bodies(view, ends[name]) if name in ends else []
            texts = [dumps(item, f"{name}[{index}]") for index, item in enumerate(items[: len(stored)])]
            grew = stored == texts
            logs[name] = Append(items=items[len(stored) :]) if grew else Reset(items=items)
    known = set(loads_map(row.document, "document")) | set(loads_map(row.held or "{}", "held")) if row else set()
    if changed := known & record.logs:
        raise InvalidInput(f"{key}: {sorted(changed)} are document fields; making them logs needs a migration.")
    return Commit(
        key=key,
        operation_id=operation_id,
        life=life,
        expected_version=expected_version,
        expected_commit=row.commit_no if row else None,
        save=True,
        document={name: value for name, value in record.state.items() if name not in names},
        removed=frozenset((known | ends.keys()) - record.state.keys()),
        logs=logs,
        schema_version=record.schema_version,
    )


def log_items(name: str, value: JSON) -> tuple[JSON, ...]:
    """Return the entries of a log that was given as a field."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(
            f"{name!r} is a log and must be a list, got {type(value).__name__}; changing its kind needs a migration.",
            field=name,
        )
    return tuple(value)


async def read_dump(backend: Backend) -> Dump:
    """Read every table, each in the order of its first columns."""
    tables = {table: await backend.read(f"dump_{table}") for table in DUMPED}
    return {
        table: [dict(zip(DUMPED[table], row, strict=True)) for row in sorted(rows, key=lambda row: row[:3])]
        for table, rows in tables.items()
    }
