"""SQL kept as SQL: named queries and numbered migrations, read from their files.

Public, for backends of others too: one whose database speaks a dialect of ours, `sqlite` or `postgres`, runs our text.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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
