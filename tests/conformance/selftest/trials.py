"""Fixtures of the adapter's own tests: written down there as text, and run as a file."""

from pathlib import Path

from tests.conformance.adapter.loader import Fixture
from tests.conformance.adapter.running import Report, run_fixture


async def report_of(text: str, folder: Path) -> Report:
    """Return how a fixture goes."""
    path = folder / "fixture.yaml"
    path.write_text(text)
    return await run_fixture(Fixture(path=path))
