"""`tenuto schedule`: list, pause, resume and remove, on a real file and a real server."""

import asyncio
from datetime import datetime

import pytest

from tenuto import SessionRuntime, Turn, program
from tests.cli.commands import Place, refused, reported, tenuto

pytestmark = pytest.mark.usefixtures("folder")


@program
async def desk(turn: Turn) -> None:
    raise AssertionError("no test sends it anything")


async def scheduled(place: Place, tenant: str) -> None:
    """Leave a session of a tenant with two schedules."""
    async with SessionRuntime(place.open(), desk) as runtime:
        session = await runtime.for_tenant(tenant).create(desk, session_id="night")
        await session.schedule("nightly", "report", cron="0 3 * * *", tz="Europe/Vienna", missed="all")
        await session.schedule("pulse", "anything new?", every=600)


def test_schedules_are_listed_paused_resumed_and_removed(place: Place) -> None:
    asyncio.run(scheduled(place, "acme"))
    named = [*place.arguments, "--tenant", "acme"]
    nightly, pulse = reported("schedule", "list", "night", *named)["schedules"]
    assert (nightly["name"], nightly["cron"], nightly["tz"], nightly["every"]) == (
        "nightly",
        "0 3 * * *",
        "Europe/Vienna",
        None,
    )
    assert (nightly["session_id"], nightly["tenant"], nightly["missed"]) == ("night", "acme", "all")
    assert (nightly["message"], nightly["paused"]) == ({"role": "user", "content": "report"}, None)
    assert (pulse["name"], pulse["every"], pulse["when_waiting"], pulse["fired_at"]) == ("pulse", 600.0, "hold", None)
    paused = reported("schedule", "pause", "night", "pulse", *named, "--reason", "holidays")
    assert paused["paused"] == "holidays"
    columns, first, second = tenuto("schedule", "list", "night", *named)[1].splitlines()
    assert columns.split() == ["schedule", "when", "next", "last", "sent", "paused"]
    assert first.split()[:7] == ["nightly", "0", "3", "*", "*", "*", "Europe/Vienna"]
    assert second.startswith("pulse     every 600 s")
    assert second.endswith("holidays")
    resumed = reported("schedule", "resume", "night", "pulse", *named)
    assert resumed["paused"] is None
    assert datetime.fromisoformat(resumed["next_at"]) >= datetime.fromisoformat(pulse["next_at"])
    assert tenuto("schedule", "pause", "night", "pulse", *named)[:2] == (0, "'pulse' is paused: It was paused.\n")
    assert tenuto("schedule", "resume", "night", "pulse", *named)[1].startswith("'pulse' is sent next at 20")
    assert reported("schedule", "remove", "night", "pulse", *named) == {"removed": True}
    assert tenuto("schedule", "remove", "night", "pulse", *named)[1] == "Session 'night' has no schedule 'pulse'.\n"
    assert tenuto("schedule", "remove", "night", "nightly", *named)[1] == "'nightly' is removed.\n"
    assert reported("schedule", "list", "night", *named) == {"schedules": []}


def test_what_is_not_there_is_an_error_in_words(place: Place) -> None:
    asyncio.run(scheduled(place, ""))
    code, category, message = refused("schedule", "pause", "night", "weekly", *place.arguments)
    assert (code, category) == (1, "schedule_not_found")
    assert "'weekly'" in message
    assert refused("schedule", "list", "day", *place.arguments)[:2] == (1, "session_not_found")
    assert refused("schedule", "list", "night", *place.arguments, "--tenant", "acme")[1] == "session_not_found"
