"""Our tables as the code expects them: rows are read by position, so every column has to be in its place."""

from collections.abc import Iterable

from tenuto.errors import StoreUnusable
from tenuto.store.rules import rows

_ROW = "Row"

COLUMNS: dict[str, tuple[str, ...]] = {
    name.removesuffix(_ROW).lower(): kind._fields
    for name, kind in vars(rows).items()
    if name.endswith(_ROW) and name != _ROW
}
"""The columns of each table that is read as rows of `rules.rows`, in order."""


def check_columns(found: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse tables that are not as our migrations make them; `found` has each table and column, in order."""
    present: dict[str, list[str]] = {}
    for table, column in found:
        present.setdefault(table, []).append(column)
    for table, columns in COLUMNS.items():
        if tuple(present.get(table, ())) != columns:
            raise StoreUnusable(
                f"{where}: the table {table} is not as we made it: {_difference(present.get(table), columns)}. "
                "Restore it from a backup, or open another place.",
                table=table,
            )


def _difference(found: list[str] | None, expected: tuple[str, ...]) -> str:
    if found is None:
        return "it is missing"
    missing, unknown = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    parts = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", unknown)) if names]
    return " and ".join(parts) or "its columns are in another order"
