"""The nightly report, declared by the program itself and made by a worker when its time has come."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenuto import SessionRuntime, Turn, open_store, program
from tenuto.messages import text_of
from tenuto.testing.fake_clock import FakeClock
from tests.polling import until


@program
async def management(turn: Turn) -> None:
    """Read the reports."""


async def test_the_report_is_made_once_a_night_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nightly import main, report

    monkeypatch.chdir(tmp_path)
    working = asyncio.ensure_future(main())
    async with SessionRuntime("sqlite:///shop.db", [report, management]) as runtime:
        night = runtime.session("nightly")

        async def declared() -> bool:
            store = runtime.store
            return bool(store and await store.schedules.of_session("nightly"))

        await until(declared)
        working.cancel()
        await asyncio.wait([working])
        await runtime.create(management, session_id="management")
        (schedule,) = await night.schedules()
        assert (schedule.cron, schedule.tz) == ("0 3 * * *", "Europe/Vienna")
    for day in range(2):
        later = FakeClock(datetime.now(UTC) + timedelta(days=1 + day))
        async with (
            open_store("sqlite:///shop.db", clock=later) as store,
            SessionRuntime(store, [report, management]) as runtime,
        ):
            await runtime.drain()
            await runtime.drain()
            said = [text_of(each) for each in await runtime.session("nightly").messages()]
            assert said == ["Make the report."] * (day + 1)
            sent = [text_of(each) for each in await runtime.session("management").messages()]
            assert sent == ["Sales: 12"] * (day + 1)
