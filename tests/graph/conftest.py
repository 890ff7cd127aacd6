"""Stores that fail on request."""

from collections.abc import AsyncIterator

import pytest

from tenuto import Store
from tenuto.testing.faults import FaultyBackend
from tests.conftest import OurHarness


class FaultyStore(Store):
    """A store whose `faults` say what fails."""

    def __init__(self, faults: FaultyBackend) -> None:
        super().__init__(faults)
        self.faults = faults


@pytest.fixture
async def faulty(harness: OurHarness) -> AsyncIterator[FaultyStore]:
    store = FaultyStore(FaultyBackend((await harness.open()).backend))
    yield store
    store.faults.heal()
    await store.aclose()
