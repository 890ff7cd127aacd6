"""The rules of pruning: old runs, and ids that were never saved and have no run left."""

from dataclasses import dataclass

from tenuto.model.run import RunStatus
from tenuto.model.session import SessionStatus
from tenuto.store.rules.lane_row import is_live
from tenuto.store.rules.plan import Found, Plan, Script, Write
from tenuto.store.rules.rows import RunRow, first_row


@dataclass(slots=True)
class OldRun:
    """A run that may be pruned, how the last run of its invocation stands, and what would go with it."""

    run: RunRow | None
    last: str
    checkpoints: int
    waits: int
    effects: int


def gather_run(run_id: str) -> Script[OldRun]:
    """Read a run and count what hangs on it."""
    run = first_row(RunRow, (yield "bare_run", (run_id,)))
    chain = (yield "runs_by_invocation", (run.tenant, run.invocation_id)) if run else []
    last = max((RunRow(*row) for row in chain), key=lambda each: each.chain, default=run)
    ((checkpoints, waits, effects),) = yield "counts_of_run", (run_id,)
    return OldRun(run, last.status if last else "", checkpoints, waits, effects)


def decide_prune_run(old: OldRun) -> Plan[dict[str, int]]:
    """Remove an ended run with its checkpoints, waits and known effects, and the session's checkpoint from before it.

    One whose invocation may be resumed stays. What it left in doubt stays listed until somebody settles it.
    """
    run = old.run
    if run is None or run.status == RunStatus.RUNNING or old.last in {RunStatus.RUNNING, RunStatus.SUSPENDED}:
        return Plan({})
    writes = [
        Write("delete_run", [(run.run_id, run.status)], must=True),
        Write("delete_checkpoints_of_run", [(run.session, run.run_id)]),
        Write("delete_point", [(run.session, run.commit_no)]),
        Write("delete_waits_of_run", [(run.run_id,)]),
        Write("delete_effects_of_run", [(run.session, run.run_id)]),
    ]
    counts = {"runs": 1, "checkpoints": old.checkpoints, "waits": old.waits, "effects": old.effects}
    return Plan(counts, writes)


def decide_remove(found: Found) -> Plan[int]:
    """Remove the row of an id that was never saved and has nothing left.

    New ids then begin above its life and its stream, so that no copy or cursor from before can pass for one of theirs.
    """
    row = found.session
    if row is None or row.alive or row.status == SessionStatus.DELETED:
        return Plan(0)
    if found.kin or found.counts["runs"] or found.counts["checkpoints"] or is_live(row, found.lease):
        return Plan(0)
    owned = ("receipts", "inputs", "effects", "usage", "outgoing", "entries", "branches", "events", "holdings")
    writes = [
        Write("delete_session", [(row.sid, row.life, row.commit_no, row.generation)], must=True),
        Write("raise_floors", [(row.life + 1, row.event_seq + 1 if row.event_seq else 0)]),
        *(Write(f"delete_{table}_of", [(row.sid,)]) for table in owned),
    ]
    return Plan(1, writes)
