"""The run that follows on the one its commit ends: it begins with an open input, where that one leaves the session."""

from typing import Any, NamedTuple

from tenuto.clock import to_duration
from tenuto.errors import InvalidInput
from tenuto.model.commit import Commit, NextRun
from tenuto.model.run import RunRef, RunStatus
from tenuto.store.rules.commit.commit_text import PackedNext
from tenuto.store.rules.commit.log_rows import LogWriter, encode_ends
from tenuto.store.rules.commit.run_row import new_run
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.input_rules import check_claim
from tenuto.store.rules.plan import Draft, Found, Write
from tenuto.store.rules.rows import CheckpointRow, EventRow, RunRow, SessionRow


class Following(NamedTuple):
    """What a next run makes of a commit: the session's row as it will stand, the run's, its events, and the writes."""

    row: SessionRow
    run: RunRow
    told: EventRow | None
    writes: list[Write]


def check_next(commit: Commit, following: NextRun) -> None:
    """Refuse a next run that does not go with the commit that ends the one before it."""
    begin = following.begin
    if not isinstance(commit.run, RunRef) or commit.end is None or commit.end.status == RunStatus.SUSPENDED:
        raise InvalidInput("A next run follows on one that this commit ends: name that one, and its end.")
    if commit.generation is None or commit.disarm or not commit.save or commit.checkpoint:
        raise InvalidInput(
            "A next run continues under the lane, from the head: it needs the generation and save=True, and goes with "
            "neither disarm nor a checkpoint."
        )
    if not begin.fresh or begin.ends is not None or begin.base_ends is not None or begin.run_id == commit.run.run_id:
        raise InvalidInput("A next run is a new one and begins at the head.")
    if "/" in following.log or following.log in commit.document or following.log in commit.removed:
        raise InvalidInput(f"{following.log!r} is not a log of the session, so a next run cannot begin in it.")
    if any(claim.input_id == following.input_id for claim in commit.consume):
        raise InvalidInput(f"The input {following.input_id!r} is consumed by the run that ends.")


def next_meaning(following: NextRun, packed: PackedNext) -> list[Any]:
    """Return what counts for the intent hash."""
    begin = following.begin
    ids = [begin.run_id, begin.invocation_id, begin.origin_id, begin.correlation_id]
    return ["next_run", ids, following.input_id, following.log, *packed]


def check_next_claim(following: NextRun, commit: Commit, row: SessionRow, found: Found) -> None:
    """Refuse input that is not open to any run."""
    if found.inputs is not None:
        check_claim(commit.key, following.input_id, following.begin.run_id, row, found.inputs)


def follow(draft: Draft, log: LogWriter, following: NextRun, packed: PackedNext) -> Following:
    """Begin the next run where the commit leaves the session, and say what else that writes."""
    before, now = draft.row, draft.found.now
    log.add_to_head(following.log, packed.item)
    heads = encode_ends(log.heads)
    row = before._replace(
        heads=heads,
        branch_seq=log.branch_seq,
        run_seq=next_count(before.run_seq, "the run number"),
        event_seq=next_count(before.event_seq, "the event number", len(following.events)),
        current_run=following.begin.run_id,
        lane_expires_at=max(before.lane_expires_at or 0, draft.found.lease + to_duration(following.begin.ttl)),
    )
    stand = (heads, heads, None)
    run = new_run(following.begin, row, draft.found, row.generation, before.event_seq, row.version, stand)
    place = log.heads[following.log].position - 1
    claim = (run.run_id, following.log, place, now, 1, following.input_id, row.sid, row.life)
    point = CheckpointRow(
        session=row.sid,
        commit_no=row.commit_no,
        life=row.life,
        run_id=None,
        step=0,
        cursor=packed.cursor,
        document=before.document,
        held=before.held,
        ends=before.heads,
        schema_version=before.schema_version,
        created_at=now,
    )
    writes = [
        Write("insert_checkpoints", [point]),
        Write("consume_inputs", [claim], must=True),
        Write("insert_runs", [run]),
    ]
    told = None
    if packed.events:
        told = EventRow(row.sid, before.event_seq + 1, row.event_seq, run.run_id, now, packed.events)
    return Following(row, run, told, writes)
