"""SQL kept as SQL: named queries and numbered migrations, read from their files, and the tables they make.

Public, for backends of others too: one whose database speaks a dialect of ours, `sqlite` or `postgres`, runs our text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tenuto.errors import SchemaMismatch, StoreUnusable
from tenuto.store.rules.rows import TABLES

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of a backend's tables."""

    number: int
    name: str
    sql: str


@cache
def queries(backend: str) -> dict[str, str]:
    """Return the statements of a dialect by name; the sentence under each name is for the reader."""
    text = files(f"tenuto.store.backends.{backend}").joinpath("queries.sql").read_text()
    _, *parts = _NAME.split(text)
    blocks = zip(parts[::2], parts[1::2], strict=True)
    return {name: block.strip().split("\n", 1)[1].strip() for name, block in blocks}


@cache
def migrations(backend: str) -> tuple[Migration, ...]:
    """Return the migrations of a dialect in order; their numbers count from 1 without gaps."""
    folder = files(f"tenuto.store.backends.{backend}").joinpath("migrations")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    steps = tuple(
        Migration(int(name[:3]), name.removesuffix(".sql"), folder.joinpath(name).read_text()) for name in found
    )
    assert [step.number for step in steps] == list(range(1, len(steps) + 1)), found
    return steps


def check_version(version: int, dialect: str, where: str, *, ready: bool = False) -> int:
    """Return the version of the tables; refuse those newer than this code and, if they must be `ready`, older ones."""
    expected = len(migrations(dialect))
    if version > expected:
        told = f"newer than this code's {expected}; upgrade tenuto"
    elif ready and version < expected:
        told = f"this code needs {expected}; migrate it first"
    else:
        return version
    raise SchemaMismatch(f"{where} has tables of version {version}, {told}.", found=version, expected=expected)


def check_columns(found: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse tables that are not as our migrations make them; `found` has each table and column, in order.

    Rows are read by position, so every column has to be in its place.
    """
    present: dict[str, list[str]] = {}
    for table, column in found:
        present.setdefault(table, []).append(column)
    for table, columns in TABLES.items():
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
