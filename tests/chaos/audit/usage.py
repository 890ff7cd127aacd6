"""Usage: each model call that left a message is counted once."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.audit.evidence import Evidence, twice
from tests.chaos.audit.violation import Violation


def judge_usage(evidence: Evidence) -> Iterator[Violation]:
    """Judge the count of every model call; each has a number of its own, in its message and in its usage row."""
    for nonce in twice(row["input"] for row in evidence.tables["usage"]):
        rows = [row for row in evidence.tables["usage"] if row["input"] == nonce]
        yield Violation("usage", evidence.name(rows[0]["session"]), f"{nonce} is counted {len(rows)} times", f"{rows}")
    for sid, entries in evidence.heads.items():
        counted = Counter(row["input"] for row in evidence.rows("usage", sid))
        for entry in entries:
            nonce = (entry.body.get("metadata") or {}).get("nonce")
            if nonce is not None and entry.session == sid and not counted[nonce]:
                yield Violation("usage", evidence.name(sid), f"the model call {nonce} is not counted", f"{entry}")
