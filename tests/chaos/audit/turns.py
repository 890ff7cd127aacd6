"""Turns: each is one run record and one end in the stream; nothing is left under way that nobody owes."""

import json
from collections import Counter
from collections.abc import Iterator

from tests.chaos.audit.evidence import ROLLED_BACK, Evidence, twice
from tests.chaos.audit.violation import Violation
from tests.chaos.tables import Row

EXPECTED = frozenset({"run_aborted", "run_abandoned", "run_interrupted", "cancelled", "effect_failed"})
"""How a turn of these programs may fail."""


def judge_turns(evidence: Evidence, left: list[Row]) -> Iterator[Violation]:
    """Judge every run, and what the drain could not bring to an end."""
    for row in left:
        yield Violation("left open", str(row["session_id"]), f"{row['table']} {row['id']} ({row['what']})")
    for sid in evidence.heads:
        runs = evidence.rows("run", sid)
        for number in twice(run["number"] for run in runs):
            yield Violation("runs", evidence.name(sid), f"two runs have the number {number}")
        yield from _ends(evidence, sid, runs)
        yield from _stuck(evidence, sid, runs)
        for run in runs:
            error = json.loads(run["error"] or "{}")
            if run["status"] == "failed" and error.get("category") not in EXPECTED:
                yield Violation(
                    "failed", evidence.name(sid), f"run {run['run_id']}: {error.get('category')}", f"{error}"
                )


def _ends(evidence: Evidence, sid: int, runs: list[Row]) -> Iterator[Violation]:
    stream = evidence.streams.get(sid, [])
    ended = Counter(event.run for event in stream if event.name == "run_ended")
    told = {event.run: event.data["status"] for event in stream if event.name == "run_ended"}
    for run in runs:
        name = f"run {run['run_id']}"
        if run["status"] == "running":
            yield Violation("runs", evidence.name(sid), f"{name} is left running", f"{run}")
        elif ended[run["run_id"]] != 1:
            yield Violation("runs", evidence.name(sid), f"{name} has {ended[run['run_id']]} ends in the stream")
        elif told[run["run_id"]] != run["status"]:
            what = f"{name} is {run['status']} on record and {told[run['run_id']]} in the stream"
            yield Violation("runs", evidence.name(sid), what)


def _stuck(evidence: Evidence, sid: int, runs: list[Row]) -> Iterator[Violation]:
    """A suspended run has something it waits for, or was given up or taken back; else it should have gone on."""
    current = evidence.by_sid[sid]["current_run"]
    for run in runs:
        if run["run_id"] != current or run["status"] != "suspended" or run["holds"] & ROLLED_BACK:
            continue
        ways = [row["status"] for row in evidence.rows("wait", sid) if row["run_id"] == current]
        if not set(ways) & {"open", "abandoned", "cancelled"}:
            yield Violation("left open", evidence.name(sid), f"run {current} waits for nothing any more", f"{ways}")
