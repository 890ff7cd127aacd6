"""The same program on SQLite and on PostgreSQL."""

import pytest

from apps.moved import main
from tests.conftest import OurHarness


@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_only_the_address_differs(harness: OurHarness, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        await main(await harness.open())
    assert capsys.readouterr().out == "1\n2\n"
