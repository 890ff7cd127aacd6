"""The run's row: how a commit begins it, changes it and ends it."""

from typing import Any

from tenuto.clock import to_duration
from tenuto.codec import encode
from tenuto.model.commit import BeginRun, Commit, EndRun, TakeRun
from tenuto.model.input import Consume, NewInput
from tenuto.model.run import RunStatus
from tenuto.store.rules.commit.commit_text import PackedCommit
from tenuto.store.rules.commit.log_rows import LogWriter, Stand, check_point, encode_ends
from tenuto.store.rules.parts.effect_rules import HOLDS_EFFECTS
from tenuto.store.rules.parts.input_rules import HOLDS_INPUT
from tenuto.store.rules.parts.stop_mark import seen
from tenuto.store.rules.plan import Found
from tenuto.store.rules.rows import RunRow, SessionRow


def begin_stand(begin: BeginRun | TakeRun, row: SessionRow, found: Found) -> Stand:
    """Return where a run begins, or continues: at the head, or where the caller says, if that is there."""
    if begin.ends is None and begin.base_ends is None:
        return Stand()
    base = None if begin.base_ends is None else dict(begin.base_ends)
    ends = base if begin.ends is None else dict(begin.ends)
    for stand in (base, ends):
        for name, end in (stand or {}).items():
            check_point(name, end, row, found)
    return Stand(dict(ends) if ends is not None else None, base)


def begun_run(packed: PackedCommit, begin: BeginRun, row: SessionRow, log: LogWriter, found: Found) -> RunRow:
    """Return the row of a run this commit begins."""
    commit, end = packed.commit, packed.commit.end
    base_version = row.version if commit.save or begin.base_version is None else begin.base_version
    stand = _stand_texts(log, end, row)
    start = row.event_seq - len(commit.events)
    ended = None if end is None else (str(end.status), int(end.partial), packed.error, packed.outcome)
    run = new_run(
        begin, row, found, commit.generation, start, base_version, stand, _holds(commit), commit.steps or 0, ended
    )
    return run._replace(additions=packed.additions) if packed.additions else run


def new_run(
    begin: BeginRun,
    row: SessionRow,
    found: Found,
    generation: int | None,
    start_seq: int,
    base_version: int,
    stand: tuple[str | None, str | None, str | None],
    holds: int = 0,
    steps: int = 0,
    ended: tuple[str, int, str | None, str | None] | None = None,
) -> RunRow:
    """Return the row of a run that begins: the stream stood at `start_seq`, and the run where `stand` says.

    One that is over at once has `ended`: its status, whether it is partial, error and outcome.
    """
    base, ends, own = stand
    status, partial, error, outcome = ended or ("running", 0, None, None)
    return RunRow(
        run_id=begin.run_id,
        session=row.sid,
        life=row.life,
        tenant=row.tenant,
        invocation_id=begin.invocation_id,
        chain=1 + max(run.chain for run in found.chain) if found.chain else 1,
        number=row.run_seq,
        origin_id=begin.origin_id,
        correlation_id=None if begin.correlation_id == begin.invocation_id else begin.correlation_id,
        attempt=1,
        status=status,
        generation=generation,
        steps=steps,
        partial=partial,
        start_seq=start_seq,
        base_version=None if base is None else base_version,
        base_ends=base,
        ends=ends,
        own_logs=own,
        worker=begin.worker,
        error=error,
        outcome=outcome,
        started_at=found.now,
        ended_at=found.now if ended else None,
        expires_at=None if ended or generation is not None else found.lease + to_duration(begin.ttl),
        holds=holds,
        stop=None,
        commit_no=row.commit_no,
        budget=begin.budget,
    )


def run_after(packed: PackedCommit, run: RunRow | None, row: SessionRow, log: LogWriter, found: Found) -> RunRow | None:
    """Return a run's row as the commit leaves it."""
    commit, now = packed.commit, found.now
    if run is None:
        return None
    base, ends, own = _stand_texts(log, commit.end, row)
    changes: dict[str, Any] = {"base_ends": base, "ends": ends, "own_logs": own}
    if base is None:
        changes["base_version"] = None
    elif commit.save:
        changes["base_version"] = row.version
    if holds := _holds(commit):
        changes["holds"] = run.holds | holds
    if commit.sees_stop and run.stop is not None:
        changes["stop"] = seen(run.stop, now)
    if commit.steps is not None:
        changes["steps"] = commit.steps
    if commit.additions is not None:
        changes["additions"] = packed.additions
    if isinstance(commit.run, TakeRun):
        laned = commit.generation is not None
        changes |= {"attempt": run.attempt + 1, "generation": commit.generation, "worker": commit.run.worker}
        changes["expires_at"] = None if laned else found.lease + to_duration(commit.run.ttl)
        if commit.run.base_version is not None and not commit.save:
            changes["base_version"] = commit.run.base_version
    if commit.end:
        if commit.end.status == RunStatus.COMPLETED:
            changes["additions"] = None
        changes |= {
            "status": str(commit.end.status),
            "partial": int(commit.end.partial),
            "error": packed.error,
            "outcome": packed.outcome,
            "ended_at": now,
            "expires_at": None,
        }
    return run._replace(**changes)


def _stand_texts(log: LogWriter, end: EndRun | None, row: SessionRow) -> tuple[str | None, str | None, str | None]:
    """Return base, ends and own logs as a run's row keeps them; a completed run is never resumed and has none."""
    if end is not None and end.status == RunStatus.COMPLETED:
        return None, None, None
    base = row.heads if log.base is log.heads else encode_ends(log.base)
    return base, base if log.ends == log.base else encode_ends(log.ends), encode(sorted(log.own)) if log.own else None


def _holds(commit: Commit) -> int:
    """Return the marks that this commit leaves on its run."""
    claims: tuple[NewInput | Consume, ...] = (*(each for each in commit.inputs if not each.leads), *commit.consume)
    holds = HOLDS_INPUT if claims and not all(each.spent for each in claims) else 0
    return holds | HOLDS_EFFECTS if commit.effects else holds
