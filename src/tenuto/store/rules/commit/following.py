"""The run that follows on the one its commit ends: it begins with an open input, where that one leaves the session."""

from typing import NamedTuple

from tenuto.clock import to_duration
from tenuto.store.rules.commit.draft import Draft
from tenuto.store.rules.commit.log_rows import encode_ends
from tenuto.store.rules.commit.run_row import new_run
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.plan import Write
from tenuto.store.rules.rows import CheckpointRow, EventRow, RunRow, SessionRow


class Following(NamedTuple):
    """What a next run makes of a commit: the session's row as it will stand, the run's, its events, and the writes."""

    row: SessionRow
    run: RunRow
    told: EventRow | None
    writes: list[Write]


def follow(draft: Draft) -> Following:
    """Begin the next run where the commit leaves the session, and say what else that writes."""
    following, packed = draft.commit.next_run, draft.packed.next_run
    assert following is not None
    assert packed is not None
    before, now = draft.row, draft.found.now
    draft.log.add_to_head(following.log, packed.item)
    heads = encode_ends(draft.log.heads)
    row = before._replace(
        heads=heads,
        branch_seq=draft.log.branch_seq,
        run_seq=next_count(before.run_seq, "the run number"),
        event_seq=next_count(before.event_seq, "the event number", len(following.events)),
        current_run=following.begin.run_id,
        lane_expires_at=max(before.lane_expires_at or 0, draft.found.lease + to_duration(following.begin.ttl)),
    )
    stand = (heads, heads, None)
    run = new_run(following.begin, row, draft.found, row.generation, before.event_seq, row.version, stand)
    place = draft.log.heads[following.log].position - 1
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
