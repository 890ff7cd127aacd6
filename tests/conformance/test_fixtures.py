"""The specification's fixtures, where they are at hand: in $TENUTO_CONFORMANCE, or in ../shared/conformance.

One that keeps anything runs on every SQL backend.
"""

import pytest

from tests.conformance.adapter.decisions import DEVIATIONS
from tests.conformance.adapter.loader import NOWHERE, Fixture, conformance_root, fixtures_in
from tests.conformance.adapter.running import run_fixture
from tests.conformance.adapter.stores import NEED_ONE, stores_in, stores_in_files

FOLDERS = ("graph-engine", "observability", "pipeline-utilities", "sessions", "suspension")


def _fixtures() -> list[Fixture]:
    root = conformance_root()
    if root is None:
        return []
    return list(fixtures_in(root / folder for folder in FOLDERS if (root / folder).is_dir()))


def _backends(fixture: Fixture) -> list[str]:
    text = fixture.path.read_text(encoding="utf-8")
    return ["sqlite", "postgres"] if any(word in text for word in NEED_ONE) else ["none"]


FIXTURES = _fixtures()
RUNS = [
    pytest.param(fixture, backend, id=fixture.name if backend == "none" else f"{fixture.name}-{backend}")
    for fixture in FIXTURES
    for backend in _backends(fixture)
]
NONE = [pytest.param(None, "none", id="none", marks=pytest.mark.skip(reason=NOWHERE))]


@pytest.mark.parametrize(("fixture", "backend"), RUNS or NONE)
async def test_a_fixture_holds(fixture: Fixture, backend: str, request: pytest.FixtureRequest) -> None:
    if backend == "postgres":
        report = await run_fixture(fixture, stores_in(request.getfixturevalue("fresh_postgres")))
    else:
        with stores_in_files() as stores:
            report = await run_fixture(fixture, stores)
    assert not report.problems, "\n".join(report.problems)
    if report.pending:
        pytest.skip("not run yet: " + "; ".join(report.pending))


@pytest.mark.skipif(not FIXTURES, reason=NOWHERE)
def test_every_fixture_that_is_known_to_deviate_is_there() -> None:
    assert DEVIATIONS.keys() <= {fixture.name for fixture in FIXTURES}
