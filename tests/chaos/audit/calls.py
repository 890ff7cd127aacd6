"""Calls: what must not be called twice is not, and every execution is on record, in doubt or settled."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.audit.evidence import Evidence, seconds
from tests.chaos.audit.violation import Violation
from tests.chaos.ledger import Note
from tests.chaos.programs import ONCE


def judge_calls(evidence: Evidence) -> Iterator[Violation]:
    """Judge every execution of a tool, by the tools' own log."""
    retries = Counter(
        each.intent["call"]
        for each in evidence.done("answer")
        if each.intent["kind"] == "in_doubt" and each.intent["value"].get("outcome") == "retry"
    )
    executions: dict[str, list[Note]] = defaultdict(list)
    for act in evidence.acts:
        executions[act["call"]].append(act)
    for call, acts in executions.items():
        if acts[0]["tool"] in ONCE and len(acts) > 1 + retries[call]:
            what = f"{call} ({acts[0]['tool']}) was executed {len(acts)} times with {retries[call]} retries"
            yield Violation("effects", acts[0]["session"], what, f"{acts}")
    yield from _unrecorded(evidence)
    yield from _denied(evidence, executions)
    yield from _unfinished(evidence)


def _unrecorded(evidence: Evidence) -> Iterator[Violation]:
    known = {
        (row["session"], word) for row in evidence.tables["effect"] for word in (row["key"], row["call_id"]) if word
    }
    for act in evidence.acts:
        row = evidence.alive.get(act["session"])
        if row is not None and act["at"] > seconds(row["created_at"]) and (row["sid"], act["call"]) not in known:
            yield Violation("effects", act["session"], f"the execution of {act['call']} is not on record", f"{act}")


def _denied(evidence: Evidence, executions: dict[str, list[Note]]) -> Iterator[Violation]:
    for sid, entries in evidence.heads.items():
        for entry in entries:
            call = entry.body.get("tool_call_id")
            if call in executions and "not_executed" in (entry.body.get("metadata") or {}):
                what = f"{call} is said not to have been executed, and was"
                yield Violation("effects", evidence.name(sid), what, f"{executions[call]}")


def _unfinished(evidence: Evidence) -> Iterator[Violation]:
    """A child's answer is the one to its own question."""
    for row in evidence.tables["wait"]:
        if row["kind"] != "child" or row["status"] != "answered":
            continue
        call = json.loads(row["metadata"] or "{}").get("call_id")
        answer = json.loads(row["answer"] or "{}")
        if "text" in answer and call is not None and answer["text"] != f"kid: {call}":
            what = f"the child asked by {call} answered something else"
            yield Violation("children", evidence.name(row["session"]), what, f"{answer}")
