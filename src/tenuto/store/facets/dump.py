"""Every row of every table, for tests, exports and repair."""

from typing import Any, TypeAlias

from tenuto.store.backend import Backend
from tenuto.store.rules.rows import (
    BranchRow,
    CheckpointRow,
    ContentRow,
    DeletionRow,
    EffectRow,
    EntryRow,
    EventRow,
    InputRow,
    OutgoingRow,
    ProfileRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    UsageRow,
    WaitRow,
)

Dump: TypeAlias = dict[str, list[dict[str, Any]]]
"""Every row by table, each as a map of column to value."""

DUMPED: dict[str, tuple[str, ...]] = {
    "session": SessionRow._fields,
    "profile": ProfileRow._fields,
    "receipt": ReceiptRow._fields,
    "run": RunRow._fields,
    "branch": BranchRow._fields,
    "entry": EntryRow._fields,
    "checkpoint": CheckpointRow._fields,
    "wait": WaitRow._fields,
    "input": InputRow._fields,
    "effect": EffectRow._fields,
    "usage": UsageRow._fields,
    "outgoing": OutgoingRow._fields,
    "deletion": DeletionRow._fields,
    "event": EventRow._fields,
    "content": ContentRow._fields,
    "holding": ("session", "tenant", "hash"),
}
"""The tables of a dump and their columns."""


async def read_dump(backend: Backend) -> Dump:
    """Read every table, each in the order of its first columns."""
    tables = {table: await backend.read(f"dump_{table}") for table in DUMPED}
    return {
        table: [dict(zip(DUMPED[table], row, strict=True)) for row in sorted(rows, key=lambda row: row[:3])]
        for table, rows in tables.items()
    }
