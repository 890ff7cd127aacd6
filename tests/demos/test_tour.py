"""The tour of `make run`: its scenes end as they say, in the processes they say, and a wrong end is an error."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from demos.tour.stage import check

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the tour prints, once for all tests of it."""
    begun, folder = processor_time(), tmp_path_factory.mktemp("tour")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "demos.tour"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert processor_time() - begun < 15, "a tour is short"
    return ended.stdout


def processor_time() -> float:
    """Return what processes that have ended used, which other work on the machine does not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def scene(told: str, number: int) -> list[str]:
    """Return the lines of one scene."""
    (part,) = re.findall(rf"^{number}\. .*\n((?:   .*\n)+)", told, re.MULTILINE)
    return [line.strip() for line in part.splitlines()]


def test_five_messages_are_accepted_at_once_and_answered_in_order(told: str) -> None:
    lines = scene(told, 1)
    assert re.fullmatch(r"all five are stored; [1-4] wait in the inbox while the first is answered", lines[0])
    assert lines[1:] == [
        *(f"You asked: {word}" for word in ("one", "two", "three", "four", "five")),
        "five turns, in order, nothing interleaved",
        "the second message, sent again, is the same turn",
    ]


def test_an_approval_is_asked_for_by_one_process_and_answered_in_another(told: str) -> None:
    asked, ended, _, approved, _, done = scene(told, 2)
    first, second = [re.findall(r"process (\d+): ", line)[0] for line in (asked, approved)]
    assert first != second
    assert "suspended" in asked
    assert ended == f"process {first}: ended"
    assert approved == f"process {second}: approved; the turn is completed: Your refund is on its way."
    assert done == "refunded once, after the approval"


def test_a_killed_turn_is_finished_by_another_process(told: str) -> None:
    dying, killed, found, _, done = scene(told, 3)
    first, second = [re.findall(r"process (\d+): ", line)[0] for line in (dying, found)]
    assert first != second
    assert killed == f"process {first}: killed (exit -9)"
    assert found.endswith("found the orphaned turn and finished it (attempt 2): The lamp is packed.")
    assert done.startswith("reserved once")


def test_the_tour_ends_with_an_error_where_something_is_not_as_it_says() -> None:
    with pytest.raises(SystemExit, match=r"two: expected \[2\], found \[3\]"):
        check("two", [3], [2])


def test_make_run_runs_the_tour() -> None:
    root = Path(__file__).parent.parent.parent
    planned = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "run"], cwd=root, capture_output=True, text=True, check=True
    )
    assert planned.stdout.splitlines()[-1] == ".venv/bin/python -m demos.tour"


def test_what_it_says_to_look_at_is_there(told: str) -> None:
    commands = [line.split() for line in scene(told, 8) if " session " in line]
    assert len(commands) == 2
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
