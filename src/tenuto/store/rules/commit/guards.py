"""The guards of a commit, in the order of law 2; each raises what it found, and nothing has been written."""

from tenuto.errors import CommitRefused, InvocationExists, RunNotLive, StatusRefused, StreamMoved, VersionConflict
from tenuto.model.commit import BeginRun, Commit, TakeRun
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.rules.commit.commit_text import PackedCommit
from tenuto.store.rules.commit.next_run import check_next_claim
from tenuto.store.rules.lane_row import busy, is_live, lane_lost
from tenuto.store.rules.parts.effect_rules import check_effects
from tenuto.store.rules.parts.input_rules import check_claims
from tenuto.store.rules.parts.stop_mark import check_stop
from tenuto.store.rules.parts.wait_rules import check_waits
from tenuto.store.rules.plan import Found
from tenuto.store.rules.rows import RunRow, SessionRow
from tenuto.store.rules.session_row import check_commit, check_version


def check_guards(packed: PackedCommit, row: SessionRow, found: Found) -> RunRow | None:
    """Check everything after life and receipt; return the run the commit continues."""
    commit = packed.commit
    _check_lane(commit, row, found.lease)
    run = _check_run(commit, row, found)
    if commit.next_run:
        _check_new(commit.next_run.begin, found.next_run, found)
    check_stop(commit, run)
    _check_status(commit, row)
    _check_version(commit, row)
    if packed.inputs or commit.consume:
        check_claims(packed.inputs, commit, row, found)
    if commit.next_run:
        check_next_claim(commit.next_run, commit, row, found)
    if commit.settle_waits or commit.keep_waits:
        check_waits(commit, row, found)
    if packed.effects:
        check_effects(packed.effects, commit, run, found)
    if packed.holders:
        _check_content(packed, found)
    return run


def _check_lane(commit: Commit, row: SessionRow, now: int) -> None:
    if commit.generation is None:
        if commit.save and is_live(row, now):
            raise busy(commit.key, row)
        return
    fits = not row.armed and row.commit_no == commit.expected_commit if commit.rearm else row.armed
    if row.generation != commit.generation or not fits:
        raise lane_lost(commit.key, commit.generation, row.generation)


def _check_run(commit: Commit, row: SessionRow, found: Found) -> RunRow | None:
    wanted, run = commit.run, found.run
    match wanted:
        case None:
            return None
        case BeginRun():
            _check_new(wanted, run, found)
            return None
        case RunRef() | TakeRun():
            check_run_live(commit.key, wanted, row, run, laned=commit.generation is not None)
            renewed = run is not None and (run.expires_at or 0) > found.lease
            if isinstance(wanted, TakeRun) and run and renewed and (wanted.gone is None or wanted.gone != run.worker):
                raise RunNotLive(
                    f"Run {run.run_id} of {commit.key} is still renewed by its runner; it cannot be taken over.",
                    key=commit.key,
                    run_id=run.run_id,
                    found="alive",
                )
            return run


def _check_new(begin: BeginRun, known: RunRow | None, found: Found) -> None:
    if known is not None:
        raise CommitRefused(f"Run {begin.run_id} exists already.", run_id=begin.run_id)
    if begin.fresh and found.chain:
        raise InvocationExists(
            f"Invocation {begin.invocation_id!r} was used before; mint a new id, or resume it.",
            invocation_id=begin.invocation_id,
        )


def check_run_live(
    key: SessionKey, wanted: RunRef | TakeRun, row: SessionRow, run: RunRow | None, *, laned: bool
) -> None:
    """Refuse a write of a run that is not this session's, not running at this attempt, or not the lane's.

    A run begun under a lane is written under a lane: leaving the generation out does not get round it.
    """
    if run is None or (run.session, run.life) != (row.sid, row.life):
        state = "unknown in this session"
    elif run.status != RunStatus.RUNNING:
        state = run.status
    elif run.attempt != wanted.attempt:
        state = f"at attempt {run.attempt}"
    elif not laned and run.generation is not None:
        raise lane_lost(key, run.generation, row.generation)
    elif not laned or row.current_run == wanted.run_id:
        return
    elif isinstance(wanted, TakeRun) and run.generation != row.generation:
        return  # it has lost its lane, or never had one, so that nobody runs it
    else:
        state = "not the session's current run"
    raise RunNotLive(
        f"Run {wanted.run_id} of {key} is {state}, not running at attempt {wanted.attempt}; stop this runner.",
        key=key,
        run_id=wanted.run_id,
        found=state,
    )


def _check_status(commit: Commit, row: SessionRow) -> None:
    if commit.statuses is not None and (not row.alive or row.status not in commit.statuses):
        status = row.status if row.alive else "absent"
        raise StatusRefused(
            f"{commit.key} is {status}; this needs {' or '.join(sorted(commit.statuses))}.",
            key=commit.key,
            found=status,
        )


def _check_version(commit: Commit, row: SessionRow) -> None:
    if commit.expected_version is not None:
        check_version(commit.key, commit.expected_version, row)
    if commit.expected_commit is not None:
        check_commit(commit.key, commit.expected_commit, row)
    if commit.expected_events is not None and commit.expected_events != row.event_seq:
        raise StreamMoved(
            f"The stream of {commit.key} is at {row.event_seq}, not {commit.expected_events}; read the new events.",
            key=commit.key,
            expected=commit.expected_events,
            found=row.event_seq,
            counted="events",
        )
    if not row.alive and not commit.save and (commit.profile or commit.metadata or commit.status):
        raise StatusRefused(f"There is no {commit.key}; create it first.", key=commit.key, found="absent")


def _check_content(packed: PackedCommit, found: Found) -> None:
    gone = sorted({content for document in packed.holders for content in document.known} - found.hashes)
    if gone:
        raise VersionConflict(
            f"{packed.commit.key}: the store no longer holds the value {gone[0]}; load the session again.",
            key=packed.commit.key,
            expected=None,
            found=None,
            hashes=gone,
        )
