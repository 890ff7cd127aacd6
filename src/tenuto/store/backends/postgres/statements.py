"""One statement out of many: a plan's writes as a single round trip, undone together if a guarded one misses."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from tenuto.store.backends.sql import queries
from tenuto.store.rules.plan import Row, Write

_PARAMETER = re.compile(r"\$(\d+)")
_ROWS = re.compile(r"unnest\(([^)]*)\)")
_TYPE = re.compile(r"\$\d+::(\w+)\[\]")

VALUES_AT_MOST = 8
"""Up to this many rows are sent as plain parameters; more as one array per column, which costs the driver more."""

Shape = tuple[tuple[str, int, bool], ...]
"""The writes of a plan without their values: name, rows (0 for arrays), and whether each row must hit."""


def statement(name: str) -> str:
    """Return a named statement; a dump is named after its table."""
    if name.startswith("dump_"):
        return f"SELECT * FROM {name.removeprefix('dump_')}"
    return queries("postgres")[name]


def compose(writes: Sequence[Write]) -> tuple[str, list[Any]]:
    """Return one statement that does all writes, and its parameters."""
    shape: list[tuple[str, int, bool]] = []
    checks: list[int] = []
    parameters: list[Any] = []
    for name, rows, must in writes:
        for part in _parts(name, rows):
            as_values = len(part) <= VALUES_AT_MOST
            shape.append((name, len(part) if as_values else 0, must))
            parameters += chain.from_iterable(part) if as_values else map(list, zip(*part, strict=True))
            if must:
                checks.append(len(part))
    return _text(tuple(shape)), parameters + checks


def _parts(name: str, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return the rows as one part where the statement takes many, one by one where it does not."""
    return [rows] if _takes_many(name) else [[row] for row in rows]


@lru_cache(maxsize=512)
def _text(shape: Shape) -> str:
    parts, guarded, offset = [], [], 0
    for index, (name, rows, must) in enumerate(shape):
        text, width = _with_rows(name, rows)
        parts.append(f"w{index} AS (\n{_shifted(text, offset)}\n)")
        offset += width
        if must:
            guarded.append((index, name))
    checks = [
        f"require((SELECT count(*) FROM w{index}) = ${offset + place}::BIGINT, '{name}')"
        for place, (index, name) in enumerate(guarded, start=1)
    ]
    return "WITH " + ",\n".join(parts) + "\nSELECT " + (", ".join(checks) or "1")


def _with_rows(name: str, rows: int) -> tuple[str, int]:
    """Return a statement for a number of rows (0: for arrays) and the number of its parameters."""
    text = queries("postgres")[name]
    found = _ROWS.search(text)
    if found is None or rows == 0:
        return text, max(int(number) for number in _PARAMETER.findall(text))
    types = _TYPE.findall(found[1])
    width = len(types)
    values = ", ".join(
        "(" + ", ".join(f"${row * width + column}::{kind}" for column, kind in enumerate(types, start=1)) + ")"
        for row in range(rows)
    )
    return text.replace(found[0], f"(VALUES {values})"), width * rows


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + by}", text) if by else text


@lru_cache(maxsize=256)
def _takes_many(name: str) -> bool:
    return _ROWS.search(queries("postgres")[name]) is not None
