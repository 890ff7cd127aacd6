"""Fixtures of the adapter's own tests: written down there as text, and run as a file."""

from collections.abc import Sequence
from pathlib import Path

from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.loader import Fixture
from tests.conformance.adapter.running import Report, run_fixture


async def report_of(text: str, folder: Path, deviations: Sequence[tuple[str, str, Decision]] = ()) -> Report:
    """Return how a fixture goes, which is to have these deviations."""
    path = folder / "fixture.yaml"
    path.write_text(text)
    return await run_fixture(Fixture(path=path), deviations=deviations)
