"""A report every night: set up again at each start, made once a night, and not ended by a night that fails."""

from typing import Any

import pytest

from apps import night
from tenuto.messages import text_of
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database

DAY = 86_400.0


async def test_each_night_has_one_report_and_a_failed_one_ends_nothing(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = [12, ValueError("the till is closed"), 14]

    async def sales() -> int:
        if isinstance(found[0], Exception):
            raise found.pop(0)
        return int(found.pop(0))

    monkeypatch.setattr(night, "sales", sales)
    database = Database(harness)
    for left in (2, 1, 0):
        runtime = await database.runtime(night.report, night.notes)
        await night.set_up(runtime)
        await runtime.drain()
        database.clock.advance(DAY)
        await runtime.drain()
        assert len(found) == left
    said = [text_of(each) for each in await runtime.session("management").messages()]
    assert said == ["Sales: 12", "Noted. Sales: 12", "Sales: 14", "Noted. Sales: 14"]
    assert [each.status for each in await runtime.session("nightly").runs()] == ["completed", "failed", "completed"]
