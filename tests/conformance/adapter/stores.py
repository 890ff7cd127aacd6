"""Where cases keep their checkpoints, sessions and pauses: for each a fresh store, on one of the SQL backends."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenuto import Store, open_store
from tests.servers import MEMORY, SCHEMA

NEED_ONE = ("checkpointer", "session_store", "suspend")
"""What stands in every fixture of which a case has a store."""


class Stores:
    """Opens stores, each on a place of its own that `place` makes."""

    def __init__(self, place: Callable[[], str], **options: Any) -> None:
        self._place = place
        self._options = options

    async def open(self) -> Store:
        """Open an empty store; whoever asked for it closes it."""
        return await open_store(self._place(), **self._options)


@contextmanager
def stores_in_files() -> Iterator[Stores]:
    """Keep every store in an SQLite file, for as long as this lasts."""
    with tempfile.TemporaryDirectory(prefix="tenuto-fixture-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        numbers = itertools.count()
        yield Stores(lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.db'}", synchronous="OFF")


def stores_in(fresh: Callable[[], str]) -> Stores:
    """Keep every store in a PostgreSQL database that `fresh` makes."""
    return Stores(fresh, schema=SCHEMA, pool_size=4)
