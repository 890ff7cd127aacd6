"""One statement out of many: a plan's writes as a single round trip, undone together if a guarded one misses."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tenuto.store.backends.sql import queries
from tenuto.store.rules.found import Row, Write

_PARAMETER = re.compile(r"\$(\d+)")


def statement(name: str) -> str:
    """Return a named statement; a dump is named after its table."""
    if name.startswith("dump_"):
        return f"SELECT * FROM {name.removeprefix('dump_')}"
    return queries("postgres")[name]


def compose(writes: Sequence[Write]) -> tuple[str, list[Any]]:
    """Return one statement that does all writes, and its parameters."""
    shape = tuple((write.name, len(write.rows) if write.must else None) for write in expanded(writes))
    parameters: list[Any] = []
    for write in expanded(writes):
        parameters.extend(_columns(write.name, write.rows))
    return _text(shape), parameters


def expanded(writes: Sequence[Write]) -> list[Write]:
    """Return the writes, those that take one row at a time as one write per row."""
    found: list[Write] = []
    for write in writes:
        if len(write.rows) == 1 or _takes_many(write.name):
            found.append(write)
        else:
            found.extend(Write(write.name, [row], write.must) for row in write.rows)
    return found


@lru_cache(maxsize=512)
def _text(shape: tuple[tuple[str, int | None], ...]) -> str:
    parts, checks, offset = [], [], 0
    for index, (name, rows) in enumerate(shape):
        text = queries("postgres")[name]
        numbers = [int(number) for number in _PARAMETER.findall(text)]
        shift = offset
        parts.append(f"w{index} AS (\n{_PARAMETER.sub(lambda m, by=shift: f'${int(m[1]) + by}', text)}\n)")  # type: ignore[misc]
        offset += max(numbers)
        if rows is not None:
            checks.append(f"require((SELECT count(*) FROM w{index}) = {rows}, '{name}')")
    return "WITH " + ",\n".join(parts) + "\nSELECT " + (", ".join(checks) or "1")


@lru_cache(maxsize=256)
def _takes_many(name: str) -> bool:
    return "unnest($1" in "".join(queries("postgres")[name].split())


def _columns(name: str, rows: Sequence[Row]) -> Sequence[Any]:
    if _takes_many(name):
        return [list(column) for column in zip(*rows, strict=True)]
    return rows[0]
