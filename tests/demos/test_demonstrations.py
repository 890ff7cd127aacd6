"""Each demonstration as its command runs it: Tenuto does what is claimed, and the other side's figures are there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from demos.customers import CUSTOMERS, PAUSED, expected

pytestmark = [pytest.mark.wide, pytest.mark.long("it is the command itself that runs")]

ROOT = Path(__file__).parent.parent.parent


def run(name: str, *arguments: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", f"demos.{name}", "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout, ended.stderr
    shown: dict[str, Any] = json.loads(ended.stdout)
    broken = [claim["text"] for claim in shown["claims"] if not claim["holds"]]
    assert not broken, shown["tenuto"]
    assert ended.returncode == 0
    assert shown["claims"]
    assert shown["versions"]["langgraph"].startswith("1.2.")
    assert all(row["tenuto"] and row["langgraph"] for row in shown["rows"])
    return shown


def test_race_keeps_all_five_replies_in_order() -> None:
    shown = run("race")
    assert shown["tenuto"]["exclusive"] == {"kept": 5, "told": 0, "paired": True, "in_order": True}
    assert shown["tenuto"]["optimistic_tried_again"]["kept"] == 5
    assert 1 <= shown["langgraph"]["plain"]["kept"] <= 5
    assert shown["langgraph"]["own_lock"]["kept"] == 5


def test_kill_leaves_a_valid_history_and_a_pause_that_any_process_answers() -> None:
    shown = run("kill")
    node, pause = shown["tenuto"]["in_node"], shown["tenuto"]["between"]
    assert [node["flaws"], node["next_flaws"], node["resumed_after_next_flaws"]] == [[], [], []]
    assert (node["thoughts"], node["refunds"]) == (3, 2)
    assert (pause["mails"], pause["refunds"]) == (1, 1)
    theirs = shown["langgraph"]
    assert theirs["in_node"]["refunds"] >= 1
    assert theirs["between"]["paused"]
    assert {"next", "next_flaws", "resumed"} <= theirs["in_node"].keys()
    assert {"mails", "refunds", "again"} <= theirs["between_task"].keys()


def test_growth_follows_what_is_said_and_not_how_long_the_conversation_is() -> None:
    shown = run("growth", "--turns", "40")
    for side in (*shown["tenuto"].values(), *shown["langgraph"].values()):
        assert side["messages"] == 80
        assert side["bytes"] > 80 * 480
        assert side["early_ms"] > 0
        assert side["late_ms"] > 0
    assert shown["langgraph"].keys() == {"plain", "exit", "delta"}


def test_deploy_brings_sessions_and_a_pause_of_version_1_to_version_3() -> None:
    shown = run("deploy")
    deployed = shown["tenuto"]["deployed"]
    found = {name: outcome["fields"] for name, outcome in deployed["sessions"].items()}
    assert found == {name: expected(fields) for name, fields in CUSTOMERS.items()}
    assert deployed["paused"]["fields"] == expected(PAUSED[1])
    for style in ("TypedDict", "Pydantic", "add-then-remove"):
        theirs = shown["langgraph"][style]
        assert theirs["deployed"]["sessions"].keys() == CUSTOMERS.keys()
        assert {"error", "history", "fields"} <= theirs["deployed"]["paused"].keys()
        assert theirs["taken_back"]["back"].keys() == CUSTOMERS.keys()


@pytest.mark.parametrize("name", ["race", "kill", "growth", "deploy"])
def test_every_demonstration_is_one_make_target(name: str) -> None:
    planned = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", f"demo-{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert planned.stdout.splitlines()[-1] == f".venv/bin/python -m demos.{name}"
