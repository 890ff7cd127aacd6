"""Notices as lines of JSON in a file."""

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto import Turn, program
from tenuto.errors import InvalidInput
from tenuto.model.session import SessionKey
from tenuto.observe.json_lines import JsonLines
from tenuto.runtime.stream.notices import HookFailed, Notice
from tenuto.testing import memory_runtime


@program
async def greets(turn: Turn) -> str:
    turn.emit("hel")
    turn.append("hello")
    return "done"


@program
async def fails(turn: Turn) -> None:
    raise LookupError("a secret place: " + str(Path(__file__)))


def read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().decode("ascii").split("\n")
    assert lines.pop() == "", "the last line is whole"
    return [json.loads(line) for line in lines if line]


def notice(number: int, size: int = 0) -> Notice:
    return HookFailed(key=SessionKey("s", tenant="t"), stage="after_save", error=f"{number} " + "x" * size)


async def test_every_notice_is_a_line_with_what_is_known_of_it(tmp_path: Path) -> None:
    path, told = tmp_path / "events.jsonl", list[Notice]()
    began = datetime.now(UTC)
    with JsonLines(path) as lines:
        async with memory_runtime([greets], listeners=[lines, told.append]) as runtime:
            sessions = runtime.for_tenant("acme")
            await sessions.create(greets, session_id="s-1")
            outcome = await sessions.send("s-1", "hi")
            assert len(read(path)) == len(told), "each is written when its listener returns"
    found = read(path)
    assert [each["type"] for each in found] == [each.type for each in told]
    assert {(each["tenant"], each["session_id"]) for each in found} == {("acme", "s-1")}
    (started,) = [each for each in found if each["type"] == "run_started"]
    (ended,) = [each for each in found if each["type"] == "run_ended"]
    assert started["run_id"] == ended["run_id"] == outcome.run_id
    assert ended["data"] == {"status": "completed", "steps": 0}
    assert started["data"]["attempt"] == 1
    times = [datetime.fromisoformat(each["at"]) for each in found]
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] <= began + timedelta(minutes=1)


async def test_items_of_a_stream_are_lines_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    async with memory_runtime(greets) as runtime:
        session = await runtime.create(greets, session_id="s")
        await session.send("hi")
        items = [item async for item in session.events(live=False)]
    lines = JsonLines(path)
    for item in items:
        lines.write(item, "s", tenant="t")
    found = read(path)
    assert [each["seq"] for each in found] == [item.seq for item in items]
    (chunk,) = [each for each in found if each["type"] == "chunk"]
    assert (chunk["data"], chunk["step"], chunk["tenant"]) == ("hel", 1, "t")
    assert chunk["at"] == next(item.at for item in items if item.name == "chunk").isoformat()  # type: ignore[union-attr]


async def test_a_failed_turns_line_shows_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    async with memory_runtime(fails, listeners=[JsonLines(path)]) as runtime:
        await (await runtime.create(fails, session_id="s")).send("hi")
    (ended,) = [each for each in read(path) if each["type"] == "run_ended"]
    assert set(ended["data"]["error"]) == {"category", "message"}


def test_a_file_that_is_moved_away_or_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = JsonLines(path)
    lines(notice(1))
    path.rename(tmp_path / "events.jsonl.1")
    lines(notice(2))
    lines(notice(3))
    path.unlink()
    lines(notice(4))
    os.truncate(path, 0)
    lines(notice(5))
    lines.close()
    lines.close()
    lines(notice(6))
    assert [each["data"]["error"] for each in read(tmp_path / "events.jsonl.1")] == ["1 "]
    assert [each["data"]["error"] for each in read(path)] == ["5 ", "6 "]


async def test_a_disk_that_fails_fails_no_turn_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    path.symlink_to("/dev/full")
    caplog.set_level(logging.DEBUG, "tenuto.observe")
    told: list[Notice] = []
    async with memory_runtime(greets, listeners=[JsonLines(path), told.append]) as runtime:
        session = await runtime.create(greets, session_id="s")
        for _ in range(3):
            assert (await session.send("hi")).completed
        lost = len(told)
        path.unlink()
        assert (await session.send("hi")).completed
        assert (await session.send("hi")).completed
    assert "listener_failed" not in {each.type for each in told}
    reports = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "tenuto.observe"]
    assert [level for level, _ in reports] == ["ERROR", "WARNING"]
    assert "No space left on device" in reports[0][1]
    found = read(path)
    assert len(found) == len(told) - lost + 1
    assert (found[1]["type"], found[1]["data"]) == ("json_lines_lost", {"lines": lost})


def test_a_line_that_was_torn_spoils_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"type":"run_st')
    JsonLines(path)(notice(1))
    torn, whole, rest = path.read_bytes().split(b"\n")
    assert (torn, rest) == (b'{"type":"run_st', b"")
    assert json.loads(whole)["data"]["error"] == "1 "


WRITER = r"""
import sys
from tenuto.model.session import SessionKey
from tenuto.observe.json_lines import JsonLines
from tenuto.runtime.stream.notices import HookFailed
lines, padding = JsonLines(sys.argv[1]), "x" * 20_000
for number in range(300):
    lines(HookFailed(key=SessionKey("s"), stage="after_save", error=f"{number} \u2028\n\ud83d {padding}"))
"""


async def test_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writers = [await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(path)) for _ in range(2)]
    async with asyncio.timeout(60):
        assert [await each.wait() for each in writers] == [0, 0]
    numbers = [int(each["data"]["error"].split()[0]) for each in read(path)]
    assert sorted(numbers) == sorted([*range(300)] * 2)


@pytest.mark.parametrize("path", [None, 3, "/nowhere/to/be/found.jsonl", "/"])
def test_a_path_that_cannot_be_a_file_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput):
        JsonLines(path)
