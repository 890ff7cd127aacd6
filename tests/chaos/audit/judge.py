"""The audit: reads everything by itself, through none of the code that wrote it, and names what is wrong."""

from tests.chaos.audit.calls import judge_calls
from tests.chaos.audit.evidence import Evidence
from tests.chaos.audit.families import judge_families
from tests.chaos.audit.histories import judge_histories
from tests.chaos.audit.messages import judge_messages
from tests.chaos.audit.streams import judge_streams
from tests.chaos.audit.turns import judge_turns
from tests.chaos.audit.usage import judge_usage
from tests.chaos.audit.violation import Violation
from tests.chaos.ledger import UNTYPED
from tests.chaos.tables import Row, Tables

_STAYS = ("session",)
"""What deleting everything leaves: tombstones."""


def judge(evidence: Evidence, left: list[Row]) -> list[Violation]:
    """Judge a run that was drained; `left` is what the drain could not bring to an end."""
    return [
        *judge_messages(evidence),
        *judge_calls(evidence),
        *judge_histories(evidence),
        *judge_turns(evidence, left),
        *judge_usage(evidence),
        *judge_streams(evidence),
        *judge_families(evidence),
        *(
            Violation("untyped", str(note.get("where")), str(note["error"]), f"{note['who']} {note.get('trace', '')}")
            for note in evidence.notes
            if note["note"] == UNTYPED
        ),
    ]


def judge_kept(before: Evidence, after: Evidence) -> list[Violation]:
    """Judge what upkeep left: every history as it was, and valid."""
    changed = [
        Violation("upkeep", before.name(sid), "its history is another one after prune and gc")
        for sid, entries in before.heads.items()
        if [entry.body for entry in entries] != [entry.body for entry in after.heads.get(sid, [])]
    ]
    return changed + list(judge_histories(after))


def judge_remains(tables: Tables) -> list[Violation]:
    """Judge what deleting everything and collecting left: tombstones, and nothing else."""
    remains = [
        Violation("remains", name, f"{len(rows)} rows are left after everything was deleted", f"{rows[0]}")
        for name, rows in tables.items()
        if rows and name not in _STAYS
    ]
    alive = [row["session_id"] for row in tables["session"] if row["alive"]]
    return remains + [Violation("remains", each, "it is still alive") for each in alive]
