"""A session of a gated program, and a second runtime on its database."""

import pytest

from tenuto import Store
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.harness import Harness
from tests.runtime.gates import GatedProgram
from tests.runtime.runtimes import opened


@pytest.fixture
def gate() -> GatedProgram:
    return GatedProgram()


@pytest.fixture
async def runtime(store: Store, gate: GatedProgram) -> SessionRuntime:
    """A runtime with the gated program and a session `s` of it."""
    runtime = await opened(store, [gate])
    await runtime.create("gate", session_id="s")
    return runtime


@pytest.fixture
async def elsewhere(harness: Harness, gate: GatedProgram, runtime: SessionRuntime) -> SessionRuntime:
    """Another runtime that shares nothing with the first except the database and the program."""
    assert runtime.store is not None
    return await opened(await harness.open(), [gate])
