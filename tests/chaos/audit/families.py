"""Families: a cascade is finished once it is said to be, and nothing of a former life is left."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.audit.evidence import Evidence, Try, seconds
from tests.chaos.audit.violation import Violation
from tests.chaos.tables import Row

_OF_A_LIFE = ("run", "wait", "input", "effect", "usage")


def judge_families(evidence: Evidence) -> Iterator[Violation]:
    """Judge what deletes left."""
    profiles = {row["session"]: row for row in evidence.tables["profile"]}
    for session, at, kept in _promises(evidence):
        for row in evidence.alive.values():
            profile, born = profiles.get(row["sid"], {}), seconds(row["created_at"])
            if _is_below(evidence, session, profile) and kept < born < at:
                what = f"it outlived the cascade that deleted {session} at {at:.3f}"
                yield Violation("cascade", row["session_id"], what, f"born {born:.3f}")
    for table in _OF_A_LIFE:
        for row in evidence.tables[table]:
            owner = evidence.by_sid.get(row["session"])
            if owner is None or (owner["alive"] and owner["life"] != row["life"]) or not owner["alive"]:
                yield Violation("lives", evidence.name(row["session"]), f"a {table} of a former life is left", f"{row}")


def _is_below(evidence: Evidence, session: str, profile: Row) -> bool:
    """Tell whether a session was within reach of a cascade: a delete that keeps children cuts a tree in two."""
    parent = profile.get("parent")
    if parent == session or profile.get("root") != session:
        return parent == session
    plain = {each.intent["session"] for each in evidence.done("delete") if not each.intent["cascade"]}
    return parent not in evidence.alive and parent not in plain


def _promises(evidence: Evidence) -> Iterator[tuple[str, float, float]]:
    """Yield which sessions' children had to go: those from before a moment, and after the last delete that kept them.

    A cascade promises that when it is acknowledged, or when it was cut off and its repeat finds nothing to delete.
    """
    tries: dict[str, list[Try]] = defaultdict(list)
    for each in evidence.done("delete"):
        tries[each.intent["session"]].append(each)
    for session, deletes in tries.items():
        kept, cut = 0.0, None
        for each in sorted(deletes, key=lambda each: float(each.intent["at"])):
            at = float(each.intent["at"])
            if not each.intent["cascade"]:
                kept, cut = max(kept, float(each.told["at"]) if each.told else at + 1), None
            elif each.acked or (each.refused and cut is not None):
                yield session, at if cut is None else cut, kept
                cut = None
            elif not each.refused and cut is None:
                cut = at
