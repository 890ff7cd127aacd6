"""Rows as a backend would find them: a live session with a run, each column with a value of its own."""

from typing import Any

from tenuto.model.commit import Budget, Commit
from tenuto.model.session import SessionKey
from tenuto.store.rules.commit.commit_text import PackedCommit
from tenuto.store.rules.commit.pack import pack
from tenuto.store.rules.plan import Found, Plan
from tenuto.store.rules.rows import BranchRow, InputRow, ReceiptRow, RunRow, SessionRow, WaitRow
from tenuto.store.rules.session_row import blank_row

KEY = SessionKey("ada")
NOW = 1_000_000_000
SID, LIFE, GENERATION, COMMIT, VERSION, EVENTS = 7, 2, 5, 11, 4, 23
HOLDER = '{"claimed_at":3,"host":null,"incarnation":"i","owner_id":"o"}'


def nothing(**more: Any) -> Found:
    """Return what is found of an id that nobody has used."""
    return Found(
        **{"now": NOW, "lease": NOW, "life_floor": LIFE, "event_floor": 0, "next_sid": SID, "session": None, **more}
    )


def session(**changes: Any) -> SessionRow:
    """Return the row of a live session with one log of three entries; its lane is free."""
    return blank_row(KEY, nothing())._replace(
        **{
            "alive": 1,
            "version": VERSION,
            "commit_no": COMMIT,
            "generation": GENERATION,
            "event_seq": EVENTS,
            "branch_seq": 1,
            "run_seq": 3,
            "heads": f'{{"log":[{SID},1,3]}}',
            "document": '{"mood":"calm"}',
            **changes,
        }
    )


def held(**changes: Any) -> SessionRow:
    """Return the row of a live session whose lane is held."""
    return session(**{"armed": 1, "nonce": "n", "holder": HOLDER, "lane_expires_at": NOW + 1, **changes})


def run(**changes: Any) -> RunRow:
    """Return the row of the session's run, under way under its lane."""
    row = RunRow(
        run_id="run-1",
        session=SID,
        life=LIFE,
        tenant="",
        invocation_id="inv-1",
        chain=1,
        number=3,
        origin_id=None,
        correlation_id=None,
        attempt=2,
        status="running",
        generation=GENERATION,
        steps=0,
        partial=0,
        start_seq=20,
        base_version=VERSION,
        base_ends=f'{{"log":[{SID},1,3]}}',
        ends=f'{{"log":[{SID},1,3]}}',
        own_logs=None,
        worker="w",
        error=None,
        outcome=None,
        started_at=NOW - 9,
        ended_at=None,
        expires_at=None,
    )
    return row._replace(**changes)


def branch(number: int = 1, start: int = 0, lineage: str = "[]", **changes: Any) -> BranchRow:
    """Return the row of a branch of the session's log."""
    row = BranchRow(SID, number, LIFE, "log", start, lineage, 0, None, None)
    return row._replace(**changes)


def wait(**changes: Any) -> WaitRow:
    """Return the row of an open wait of the run."""
    row = WaitRow(
        wait_id="wait-1",
        session=SID,
        life=LIFE,
        run_id="run-1",
        kind="signal",
        signal_id=None,
        status="open",
        deadline=None,
        schema=None,
        metadata=None,
        answer=None,
        commit_no=9,
        created_at=NOW - 8,
        settled_at=None,
        tenant="",
        graph=None,
    )
    return row._replace(**changes)


def queued(**changes: Any) -> InputRow:
    """Return the row of an open input of the session."""
    row = InputRow(
        input_id="input-1",
        session=SID,
        life=LIFE,
        seq=22,
        kind="message",
        key=None,
        digest="d",
        body='"hi"',
        boundary=None,
        due_at=None,
        status="open",
        run_id=None,
        log=None,
        position=None,
        rolled_back=0,
        created_at=NOW - 7,
        settled_at=None,
    )
    return row._replace(**changes)


def receipt(intent: str, **changes: Any) -> ReceiptRow:
    """Return the row of a receipt."""
    row = ReceiptRow(SID, LIFE, "op", intent, 10, 3, GENERATION, 21, "{}", None, NOW - 6)
    return row._replace(**changes)


def commit(**parts: Any) -> Commit:
    """Return a commit to the session's present life."""
    return Commit(**{"key": KEY, "operation_id": "op", "life": LIFE, **parts})


def packed(**parts: Any) -> PackedCommit:
    """Return a packed commit."""
    return pack(commit(**parts), Budget())


def rows_of(plan: Plan[Any], name: str) -> list[Any]:
    """Return the rows of a plan's write of a name, or none."""
    return [row for write in plan.writes if write.name == name for row in write.rows]
