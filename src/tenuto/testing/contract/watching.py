"""How a contract test watches a store: what changed, which statements ran, and what happens if one fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, TypeVar

from tenuto.errors import StoreUnavailable
from tenuto.model.session import Key, LogEnd
from tenuto.store.store import Store
from tenuto.testing.harness import Harness

T = TypeVar("T")


@asynccontextmanager
async def unchanged(store: Store) -> AsyncIterator[None]:
    """Check that what is done inside leaves every row of every table as it was."""
    before = await store.dump()
    yield
    assert await store.dump() == before


@contextmanager
def probed(store: Store, probe: Callable[[str], None]) -> Iterator[None]:
    """Call `probe` with the name of each statement before it runs."""
    backend: Any = store.backend
    former = backend.probe
    backend.probe = probe
    try:
        yield
    finally:
        backend.probe = former


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Collect the names of the statements that run inside."""
    names: list[str] = []
    with probed(store, names.append):
        yield names


async def fail_at_each_statement(store: Store, act: Callable[[], Awaitable[T]]) -> tuple[T, list[str]]:
    """Let the first, then the second, ... statement of `act` fail, and check that each time nothing changes.

    Return what `act` gave once no statement was left to fail, and the names of those that had failed.
    """
    before = await store.dump()
    failed: list[str] = []
    for nth in count(1):
        seen: list[str] = []

        def probe(name: str, seen: list[str] = seen, nth: int = nth) -> None:
            seen.append(name)
            if len(seen) == nth:
                raise StoreUnavailable(f"injected before {name}")

        with probed(store, probe):
            try:
                result = await act()
            except StoreUnavailable:
                if len(seen) < nth:
                    raise
                failed.append(seen[nth - 1])
            else:
                assert len(seen) < nth, f"the failure before {seen[nth - 1]} was swallowed"
                return result, failed
        assert await store.dump() == before, f"a failure before {failed[-1]} left something behind"
    raise AssertionError("unreachable")


async def damaged(harness: Harness, store: Store, *sql: str) -> Store:
    """Close a store, run statements behind its back, and open it again; skips where that cannot be done.

    Closed, because a second SQLite library in one process would undo the locks of an open file.
    """
    await store.aclose()
    for statement in sql:
        await harness.damage(statement)
    return await harness.open()


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
