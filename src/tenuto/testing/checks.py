"""How a contract test looks at a store: what changed, what was refused, and what its tables hold."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tenuto.model.session import Key, LogEnd
from tenuto.store.store import Store
from tenuto.testing.harness import Harness

T = TypeVar("T")


@asynccontextmanager
async def unchanged(store: Store) -> AsyncIterator[None]:
    """Check that the body of the block leaves every row of every table unchanged."""
    before = await store.dump()
    yield
    assert await store.dump() == before


async def damaged(harness: Harness, store: Store, *sql: str, **options: Any) -> Store:
    """Close a store, run statements behind its back, and open it again.

    Closed, because a second SQLite library in one process would undo the locks of an open file.
    """
    await store.aclose()
    for statement in sql:
        await harness.damage(statement)
    return await harness.open(**options)


async def outcomes(*tasks: Awaitable[T]) -> tuple[list[T], list[BaseException]]:
    """Run everything at once; return the results, and the errors of those that failed."""
    found = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [item for item in found if isinstance(item, BaseException)]
    return [item for item in found if not isinstance(item, BaseException)], errors


async def not_refused(
    error: type[BaseException], calls: Mapping[str, Callable[[], Awaitable[object]]]
) -> dict[str, object]:
    """Make every call and return, by name, what those gave or raised that did not raise `error`."""
    wrong: dict[str, object] = {}
    for name, call in calls.items():
        try:
            wrong[name] = await call()
        except error:
            continue
        except Exception as other:  # an untyped error is what this looks for
            wrong[name] = other
    return wrong


async def rows(store: Store, table: str, *columns: str) -> list[Any]:
    """Return a table's rows as maps, or, with columns named, as tuples of those."""
    found = (await store.dump())[table]
    return [tuple(row[name] for name in columns) for row in found] if columns else list(found)


def values(entries: Sequence[Any]) -> list[Any]:
    """Return the values of log entries."""
    return [entry.value for entry in entries]


async def messages_of(store: Store, key: Key, end: LogEnd | None = None) -> list[Any]:
    """Return the values of the `messages` log, up to the head's end or another one."""
    return values(await store.logs.read(key, "messages", end=end))
