"""A runtime in memory, for tests of programs."""

from collections.abc import Iterable
from typing import Any

from tenuto.clock import Clock
from tenuto.runtime.program.program import Program
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.open import open_store


def memory_runtime(
    programs: Program[Any] | Iterable[Program[Any]], *, clock: Clock | None = None, **options: Any
) -> SessionRuntime:
    """Return a runtime whose sessions last as long as it is open; with a `FakeClock`, time passes as the test says."""
    return SessionRuntime(open_store("memory://", clock=clock), programs, **options)
