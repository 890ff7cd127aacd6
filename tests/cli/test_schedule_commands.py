"""`tenuto schedule`: list, pause, resume and remove, on a real file and a real server."""

import asyncio
import shlex
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
    assert columns.split() == ["schedule", "when", "message", "next", "last", "sent", "paused"]
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
    assert reported("schedule", "list", "night", *named) == {"schedules": [], "next": None}


def test_what_is_not_there_is_an_error_in_words(place: Place) -> None:
    asyncio.run(scheduled(place, ""))
    code, category, message = refused("schedule", "pause", "night", "weekly", *place.arguments)
    assert (code, category) == (1, "schedule_not_found")
    assert "'weekly'" in message
    assert refused("schedule", "list", "day", *place.arguments)[:2] == (1, "session_not_found")
    assert refused("schedule", "list", "night", *place.arguments, "--tenant", "acme")[1] == "session_not_found"


async def in_two_tenants(place: Place) -> None:
    """Leave schedules of three sessions, one of them of another tenant and paused."""
    async with SessionRuntime(place.open(), desk) as runtime:
        for view, session_id, name in (
            (runtime, "day", "b c"),
            (runtime.for_tenant("acme"), "day", "nightly"),
            (runtime, "day", "a"),
            (runtime, "week", "weekly"),
        ):
            session = await view.create(desk, session_id=session_id, exists_ok=True)
            await session.schedule(name, f"Report\nwhat happened in {name}, and do not leave out anything.", every=600)
        await runtime.for_tenant("acme").session("day").pause_schedule("nightly", "holidays")


def test_the_schedules_of_all_sessions_are_listed_page_by_page(place: Place) -> None:
    asyncio.run(in_two_tenants(place))

    def named(*options: str) -> list[tuple[str, str, str]]:
        found = reported("schedule", "list", *place.arguments, *options)
        assert found["next"] is None
        return [(each["tenant"], each["session_id"], each["name"]) for each in found["schedules"]]

    mine = [("", "day", "a"), ("", "day", "b c")]
    foreign, last = ("acme", "day", "nightly"), ("", "week", "weekly")
    assert named() == [*mine, foreign, last]
    assert named("--tenant", "") == [*mine, last]
    assert named("--tenant", "acme") == named("--paused") == [foreign]
    assert named("--not-paused") == [*mine, last]
    assert named("--tenant", "", "--paused") == []
    first = reported("schedule", "list", *place.arguments, "--limit", "2")
    assert len(first["schedules"]) == 2
    assert named("--after", first["next"]) == [foreign, last]


def test_a_list_of_all_sessions_is_readable_and_names_the_tenant_if_there_are_several(place: Place) -> None:
    asyncio.run(in_two_tenants(place))
    columns, *lines = tenuto("schedule", "list", *place.arguments)[1].splitlines()
    assert columns.split() == ["session", "tenant", "schedule", "when", "message", "next", "last", "sent", "paused"]
    assert lines[2].split()[:6] == ["day", "acme", "nightly", "every", "600", "s"]
    assert "Report what happened in nightly, and ..." in lines[2]
    assert lines[2].endswith("holidays")
    columns, *lines = tenuto("schedule", "list", *place.arguments, "--tenant", "", "--limit", "2")[1].splitlines()
    assert columns.split()[:3] == ["session", "schedule", "when"]
    assert [line.split()[:2] for line in lines[:-1]] == [["day", "a"], ["day", "b"]]
    *_, after = shlex.split(lines[-1])
    assert lines[-1] == f"There are more: repeat this with --after '{after}'"
    assert reported("schedule", "list", *place.arguments, "--tenant", "", "--after", after)["schedules"][0]["name"] == (
        "weekly"
    )


def test_what_selects_among_all_sessions_is_refused_for_one(place: Place) -> None:
    asyncio.run(in_two_tenants(place))
    for options in (("--paused",), ("--not-paused",), ("--after", "1:1:a")):
        code, _, err = tenuto("schedule", "list", "day", *place.arguments, *options)
        assert (code, "leave out the session's id" in err) == (2, True)
    assert refused("schedule", "list", *place.arguments, "--after", "nowhere")[1] == "invalid_input"
