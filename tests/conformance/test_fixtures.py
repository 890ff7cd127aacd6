"""The specification's fixtures, where they are at hand: in $TENUTO_CONFORMANCE, or in ../shared/conformance."""

import pytest

from tests.conformance.adapter.loader import Fixture, conformance_root, fixtures_in
from tests.conformance.adapter.running import run_fixture

FOLDERS = ("graph-engine", "observability", "pipeline-utilities", "sessions", "suspension")


def _fixtures() -> list[Fixture]:
    root = conformance_root()
    if root is None:
        return []
    return list(fixtures_in(root / folder for folder in FOLDERS if (root / folder).is_dir()))


FIXTURES = [pytest.param(fixture, id=fixture.name) for fixture in _fixtures()]
NOWHERE = "the specification's fixtures are neither in $TENUTO_CONFORMANCE nor in ../shared/conformance: none was run"


@pytest.mark.parametrize("fixture", FIXTURES or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=NOWHERE))])
async def test_a_fixture_holds(fixture: Fixture) -> None:
    report = await run_fixture(fixture)
    assert not report.problems, "\n".join(report.problems)
    if report.pending:
        pytest.skip("not run yet: " + "; ".join(report.pending))
