"""A demonstration must not take a process that ended by itself for one that was killed."""

from pathlib import Path

import pytest
from demos.processes import Broken, call, call_and_kill, call_until_it_dies, die_now, say_and_wait_to_be_killed

HERE = "tests.demos.test_processes"


async def say_where() -> str:
    return str(Path.cwd())


async def die() -> None:
    die_now()


async def wait(said: str) -> None:
    await say_and_wait_to_be_killed({"said": said})


async def end_silently() -> None:
    raise SystemExit(0)


async def fail() -> None:
    raise ValueError("the reason")


def test_a_call_runs_in_the_folder_it_is_given(tmp_path: Path) -> None:
    assert call(f"{HERE}:say_where", cwd=tmp_path) == str(tmp_path.resolve())


def test_a_failed_call_tells_why() -> None:
    with pytest.raises(Broken, match="the reason"):
        call(f"{HERE}:fail")


def test_one_that_kills_itself_is_known_by_its_signal() -> None:
    call_until_it_dies(f"{HERE}:die")


def test_one_that_ends_by_itself_was_not_killed() -> None:
    with pytest.raises(Broken, match="was to be killed but ended with 0"):
        call_until_it_dies(f"{HERE}:say_where")


def test_one_that_has_spoken_is_killed() -> None:
    assert call_and_kill(f"{HERE}:wait", said="paused") == {"said": "paused"}


def test_one_that_ends_without_a_word_was_not_killed() -> None:
    with pytest.raises(Broken, match="before it could be killed"):
        call_and_kill(f"{HERE}:end_silently")
