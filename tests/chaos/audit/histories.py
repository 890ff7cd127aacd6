"""Histories: in every conversation each call has a result, or something stands for it, and nothing passes it."""

import json
from collections.abc import Iterator

from tests.chaos.audit.evidence import Evidence
from tests.chaos.audit.violation import Violation


def judge_histories(evidence: Evidence) -> Iterator[Violation]:
    """Judge the head of every session, forks and children included."""
    for sid, entries in evidence.heads.items():
        opened: list[str] = []
        used: set[str] = set()
        for at, entry in enumerate(entries):
            fault = _judge(entry.body, opened, used)
            if fault is not None:
                yield Violation("history", evidence.name(sid), f"message {at} {fault}", f"{entry}")
        standing = _standing(evidence, sid)
        for call in opened:
            if call not in standing:
                yield Violation("history", evidence.name(sid), f"the call {call} is open and nothing stands for it")


def _judge(body: dict[str, object], opened: list[str], used: set[str]) -> str | None:
    role = body["role"]
    if role == "missing":
        return "is missing"
    if role == "tool":
        call = str(body["tool_call_id"])
        if call not in opened:
            return f"is a result of {call}, which is not open"
        opened.remove(call)
        return None
    if opened and role in ("user", "assistant"):
        return f"of the {role} passes the open call {opened[0]}"
    for made in body.get("tool_calls") or ():  # type: ignore[attr-defined]
        if made["id"] in used:
            return f"makes the call {made['id']} again"
        used.add(made["id"])
        opened.append(made["id"])
    return None


def _standing(evidence: Evidence, sid: int) -> set[str]:
    waits = [json.loads(row["metadata"] or "{}") for row in evidence.rows("wait", sid) if row["status"] == "open"]
    begun = {row["call_id"] for row in evidence.rows("effect", sid) if row["status"] == "started"}
    return begun | {str(wait.get("call_id")) for wait in waits}
