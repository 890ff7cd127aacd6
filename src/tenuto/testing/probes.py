"""How a test watches a backend's statements, and makes one of them fail.

Only for backends with a `probe`: a test that uses this names `Capability.PROBES`.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol, TypeVar

from tenuto.errors import StoreUnavailable
from tenuto.store.store import Store

T = TypeVar("T")


class Probed(Protocol):
    """A backend whose statements can be watched; a harness says so by `Capability.PROBES`.

    The backend calls `probe`, unless it is None, with the name of every read and write right before it runs it, on
    whatever thread that is. An error that the probe raises is the statement's own failure: the transaction leaves
    nothing behind, and the caller gets that error.
    """

    probe: Callable[[str], None] | None


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


@contextmanager
def failing(store: Store, nth: int) -> Iterator[list[str]]:
    """Let the n-th statement inside fail; collect the names of all that ran."""
    names: list[str] = []

    def probe(name: str) -> None:
        names.append(name)
        if len(names) == nth:
            raise StoreUnavailable(f"injected before {name}")

    with probed(store, probe):
        yield names


async def fail_at_each_statement(store: Store, act: Callable[[], Awaitable[T]]) -> tuple[T, list[str]]:
    """Let the first, then the second, ... statement of `act` fail, and check that each time nothing changes.

    Return what `act` gave once no statement was left to fail, and the names of those that had failed.
    """
    before = await store.dump()
    failed: list[str] = []
    for nth in count(1):
        with failing(store, nth) as seen:
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
