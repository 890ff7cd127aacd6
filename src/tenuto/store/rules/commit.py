"""The rule of the one write: check every guard in the order of law 2, then say which rows change.

life -> receipt -> generation -> run and attempt -> status -> version -> claims and waits. A later part of a commit
joins as a guard in `guards` and a function here that adds its writes.
"""

from dataclasses import dataclass
from typing import Any

from tenuto.clock import to_duration
from tenuto.codec import encode, loads
from tenuto.errors import CommitRefused
from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Commit, Receipt, TakeRun
from tenuto.model.run import RunRef, RunStatus, WaitStatus
from tenuto.model.session import Ends, LogEnd, Profile, SessionStatus
from tenuto.store.rules.found import Ask, Found, Plan, Write
from tenuto.store.rules.guards import check_guards
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.logs import LogWriter, encode_ends, is_run_log
from tenuto.store.rules.pack import PackedCommit, PackedDocument
from tenuto.store.rules.profile import changed_profile, new_profile
from tenuto.store.rules.rows import CheckpointRow, EventRow, ReceiptRow, RunRow, SessionRow, WaitRow, ends_of
from tenuto.store.rules.session_row import blank_row, check_life, receipt_of, replay, session_write


def ask_commit(packed: PackedCommit) -> Ask:
    """Say what the rule needs to see for this commit."""
    commit = packed.commit
    points = [w.base if isinstance(w, Append) else w.keep for w in commit.logs.values()]
    begin = commit.run if isinstance(commit.run, BeginRun) else None
    if begin:
        points += [*(begin.base_ends or {}).values(), *(begin.ends or {}).values()]
    known = packed.document.known | (packed.checkpoint.known if packed.checkpoint else set())
    # A plain append to the head needs no branch row; everything that may branch or fold does.
    fresh = commit.run is None or (begin is not None and begin.fresh)
    plain = (
        commit.save
        and fresh
        and all(isinstance(w, Append) and w.base is None and not is_run_log(name) for name, w in commit.logs.items())
    )
    return Ask(
        key=commit.key,
        operation_id=commit.operation_id,
        run_id=commit.run.run_id if commit.run else "",
        profile=bool(packed.profile),
        lineage=bool(commit.logs or commit.save) and not plain,
        points=tuple({point for point in points if point is not None}),
        waits=tuple(settled.wait_id for settled in commit.settle_waits),
        hashes=tuple(sorted(known)),
        invocation_id=begin.invocation_id if begin else None,
    )


def decide_commit(packed: PackedCommit, found: Found) -> Plan[Receipt]:
    """Refuse the commit, return its first receipt, or say what it writes."""
    commit = packed.commit
    row = found.session or blank_row(commit.key, found)
    check_life(commit.key, commit.life, row)
    if found.receipt:
        return Plan(replay(found.receipt, packed.intent))
    return write_commit(packed, found, row, check_guards(packed, row, found))


@dataclass(slots=True)
class _Draft:
    """The rows of a commit as they come together: the session's and the run's as they will be."""

    packed: PackedCommit
    found: Found
    old: SessionRow
    row: SessionRow
    run: RunRow | None
    log: LogWriter

    @property
    def commit(self) -> Commit:
        return self.packed.commit


def write_commit(packed: PackedCommit, found: Found, old: SessionRow, run: RunRow | None) -> Plan[Receipt]:
    """Say which rows a commit changes whose guards all hold."""
    commit = packed.commit
    number = next_count(old.commit_no, "the commit number")
    begun = _begin_run(commit, old, found) if isinstance(commit.run, BeginRun) else run
    log = LogWriter(old, begun, found, number, _entry_schema(commit, old))
    if commit.save:
        _check_kinds(commit, old, log.heads)
        log.save(commit.logs, packed.items, commit.removed)
    else:
        log.checkpoint(commit.logs, packed.items)
    changes: dict[str, Any] = {
        "commit_no": number,
        "branch_seq": log.branch_seq,
        "event_seq": next_count(old.event_seq, "the event number", len(commit.events)),
        "resume_count": old.resume_count + commit.count_resume,
        "updated_at": max(old.updated_at, found.now),
    }
    if commit.save:
        changes |= _head_changes(packed, old, log, found.now)
    if commit.status is not None:
        changes["status"] = str(commit.status)
    changes |= _lane_changes(commit, found.now)
    changes |= _run_numbers(commit, begun)
    row = old._replace(**changes)
    draft = _Draft(packed, found, old, row, _run_after(packed, begun, log, row.version, found.now), log)
    writes = [session_write(found, row, free_lane=commit.save and commit.generation is None)]
    writes += _content_writes(draft) + log.writes() + _run_writes(draft, begun) + _profile_writes(draft)
    if commit.checkpoint:
        writes.append(Write("insert_checkpoints", [_checkpoint_row(draft)]))
    wait_ids = _wait_writes(draft, writes)
    if packed.events:
        writes.append(Write("insert_events", [_event_row(draft)]))
    receipt = _receipt_row(draft, wait_ids)
    writes.append(Write("insert_receipts", [receipt]))
    after = Found(now=found.now, life_floor=found.life_floor, next_sid=found.next_sid, session=row, run=draft.run)
    return Plan(receipt_of(receipt, replayed=False), writes, after)


def _entry_schema(commit: Commit, old: SessionRow) -> str:
    """Return the schema version the commit's entries are written under."""
    if commit.checkpoint and not commit.save:
        return commit.checkpoint.schema_version
    return old.schema_version if commit.schema_version is None else commit.schema_version


def _check_kinds(commit: Commit, row: SessionRow, heads: Ends) -> None:
    """Refuse a field that would change between document and log; that needs a migration, which removes it first."""
    clash = (commit.document.keys() & heads.keys()) - commit.removed
    new_logs = {name for name in commit.logs if not is_run_log(name)} - heads.keys()
    if new_logs and row.alive:
        known = loads(row.document, "document").keys() | loads(row.held or "{}", "held fields").keys()
        clash |= (new_logs & known) - commit.removed
    if clash:
        raise CommitRefused(
            f"{commit.key}: {', '.join(sorted(clash))} would change between document and log; that needs a migration.",
            fields=sorted(clash),
        )


def _begin_run(commit: Commit, row: SessionRow, found: Found) -> RunRow:
    begin = commit.run
    assert isinstance(begin, BeginRun)
    base = ends_of(row.heads, "heads") if begin.base_ends is None else dict(begin.base_ends)
    ends = base if begin.ends is None else dict(begin.ends)
    for end in {*(begin.base_ends or {}).values(), *(begin.ends or {}).values()}:
        _check_own(commit, end, row, found)
    laned = commit.generation is not None
    return RunRow(
        run_id=begin.run_id,
        session=row.sid,
        life=row.life,
        tenant=row.tenant,
        invocation_id=begin.invocation_id,
        chain=1 + max((run.chain for run in found.chain), default=0),
        number=row.run_seq + 1,
        origin_id=begin.origin_id,
        correlation_id=begin.correlation_id,
        attempt=1,
        status=str(RunStatus.RUNNING),
        generation=commit.generation,
        steps=0,
        partial=0,
        start_seq=row.event_seq,
        base_version=row.version if begin.base_version is None else begin.base_version,
        base_ends=encode_ends(base),
        ends=encode_ends(ends),
        own_logs=None,
        worker=begin.worker,
        error=None,
        outcome=None,
        started_at=found.now,
        ended_at=None,
        expires_at=None if laned else found.now + to_duration(begin.ttl),
    )


def _check_own(commit: Commit, end: LogEnd, row: SessionRow, found: Found) -> None:
    branch = found.branches.get((end.session, end.branch))
    if end.session != row.sid or branch is None or not (end.position <= branch.start or end in found.points):
        raise CommitRefused(f"{commit.key} has nothing at {end}; a run cannot begin there.", end=end)


def _head_changes(packed: PackedCommit, row: SessionRow, log: LogWriter, now: int) -> dict[str, Any]:
    document, removed = packed.document, packed.commit.removed
    inline, held = row.document, row.held
    if document.inline or document.held or (removed and (inline != "{}" or held)):
        values = loads(inline, "document")
        names = loads(held, "held fields") if held else {}
        for name in removed | document.held.keys():
            values.pop(name, None)
        for name in removed | document.inline.keys():
            names.pop(name, None)
        inline = encode(values | document.inline)
        names |= document.held
        held = encode(names) if names else None
    changes: dict[str, Any] = {
        "version": next_count(row.version, "the version"),
        "heads": encode_ends(log.heads),
        "document": inline,
        "held": held,
    }
    if packed.commit.schema_version is not None:
        changes["schema_version"] = packed.commit.schema_version
    if not row.alive:
        changes |= {"alive": 1, "status": str(SessionStatus.ACTIVE), "created_at": now}
    return changes


def _lane_changes(commit: Commit, now: int) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if commit.rearm:
        expires_at = now + to_duration(commit.rearm.ttl)
        changes = {"armed": 1, "nonce": commit.rearm.nonce, "lane_expires_at": expires_at}
    if commit.disarm:
        changes["armed"] = 0
    return changes


def _run_numbers(commit: Commit, run: RunRow | None) -> dict[str, Any]:
    """Return what a run that begins or is taken over changes on its session's row."""
    if run is None or isinstance(commit.run, RunRef):
        return {}
    changes: dict[str, Any] = {"run_seq": run.number} if isinstance(commit.run, BeginRun) else {}
    if commit.generation is not None:
        changes["current_run"] = run.run_id
    return changes


def _content_writes(draft: _Draft) -> list[Write]:
    packed = draft.packed
    documents = [packed.document] + ([packed.checkpoint] if packed.checkpoint else [])
    return content_writes(draft.row.sid, documents)


def content_writes(sid: int, documents: list[PackedDocument]) -> list[Write]:
    """Return the writes that keep documents' big values and say which session holds them."""
    bodies = {content: text for document in documents for content, text in document.bodies.items()}
    known = {content for document in documents for content in document.known} - bodies.keys()
    held = sorted(bodies.keys() | known)
    writes = []
    if bodies:
        writes.append(Write("hold_contents", [(content, "json", text) for content, text in sorted(bodies.items())]))
    if known:
        writes.append(Write("touch_contents", [(content,) for content in sorted(known)], must=True))
    if held:
        writes.append(Write("insert_holdings", [(sid, content) for content in held]))
    return writes


def _run_after(packed: PackedCommit, run: RunRow | None, log: LogWriter, version: int, now: int) -> RunRow | None:
    commit = packed.commit
    if run is None:
        return None
    changes: dict[str, Any] = {} if commit.steps is None else {"steps": commit.steps}
    if isinstance(commit.run, TakeRun):
        laned = commit.generation is not None
        changes |= {"attempt": run.attempt + 1, "generation": commit.generation, "worker": commit.run.worker}
        changes["expires_at"] = None if laned else now + to_duration(commit.run.ttl)
    if commit.end:
        changes |= {
            "status": str(commit.end.status),
            "partial": int(commit.end.partial),
            "error": packed.error,
            "outcome": packed.outcome,
            "ended_at": now,
            "expires_at": None,
        }
    if commit.end and commit.end.status == RunStatus.COMPLETED:
        # A completed run is never gone on with, so nothing needs to find its branches again.
        changes |= {"base_version": None, "base_ends": None, "ends": None, "own_logs": None}
    else:
        changes |= {"ends": encode_ends(log.ends), "own_logs": encode(sorted(log.own)) if log.own else None}
        if commit.save:
            changes |= {"base_version": version, "base_ends": encode_ends(log.heads)}
    return run._replace(**changes)


def _run_writes(draft: _Draft, before: RunRow | None) -> list[Write]:
    run = draft.run
    if run is None or before is None:
        return []
    if isinstance(draft.commit.run, BeginRun):
        return [Write("insert_runs", [run])]
    return [Write("update_runs", [(*run[9:], before.run_id, before.attempt)], must=True)]


def _profile_writes(draft: _Draft) -> list[Write]:
    changes, born = draft.packed.profile, draft.row.alive and not draft.old.alive
    if not changes and not born:
        return []
    row = None if born else draft.found.profile
    profile = changed_profile(row or new_profile(draft.row.sid, draft.packed.birth or Profile()), changes)
    return [Write("put_profile", [profile])]


def _checkpoint_row(draft: _Draft) -> CheckpointRow:
    checkpoint, document = draft.commit.checkpoint, draft.packed.checkpoint
    assert checkpoint is not None
    assert document is not None
    return CheckpointRow(
        session=draft.row.sid,
        commit_no=draft.row.commit_no,
        life=draft.row.life,
        run_id=draft.run.run_id if draft.run else None,
        step=checkpoint.step,
        cursor=draft.packed.cursor,
        document=encode(document.inline),
        held=encode(document.held) if document.held else None,
        ends=encode_ends(draft.log.ends if draft.run else draft.log.heads),
        schema_version=checkpoint.schema_version,
        created_at=draft.found.now,
    )


def _wait_writes(draft: _Draft, writes: list[Write]) -> list[str]:
    commit, row, now = draft.commit, draft.row, draft.found.now
    waits = [
        WaitRow(
            wait_id=new_id(),
            session=row.sid,
            life=row.life,
            run_id=commit.run.run_id if commit.run else "",
            kind=wait.kind,
            signal_id=wait.signal_id,
            status=str(WaitStatus.OPEN),
            deadline=deadline,
            schema=schema,
            metadata=metadata,
            answer=None,
            commit_no=row.commit_no,
            created_at=now,
            settled_at=None,
        )
        for wait, deadline, schema, metadata in draft.packed.waits
    ]
    if waits:
        writes.append(Write("insert_waits", waits))
    settled = [
        (str(settle.status), answer, now, settle.wait_id)
        for settle, answer in zip(commit.settle_waits, draft.packed.answers, strict=True)
    ]
    if settled:
        writes.append(Write("settle_waits", settled, must=True))
    return [wait.wait_id for wait in waits]


def _event_row(draft: _Draft) -> EventRow:
    assert draft.packed.events is not None
    return EventRow(
        session=draft.row.sid,
        first_seq=draft.old.event_seq + 1,
        last_seq=draft.row.event_seq,
        run_id=draft.run.run_id if draft.run else None,
        at=draft.found.now,
        body=draft.packed.events,
    )


def _receipt_row(draft: _Draft, wait_ids: list[str]) -> ReceiptRow:
    row = draft.row
    ends = draft.log.heads if draft.run is None or draft.commit.save else draft.log.ends
    return ReceiptRow(
        session=row.sid,
        life=row.life,
        operation_id=draft.commit.operation_id,
        intent=draft.packed.intent,
        commit_no=row.commit_no,
        version=row.version,
        generation=row.generation,
        event_seq=row.event_seq,
        ends=encode_ends(ends),
        wait_ids=encode(wait_ids) if wait_ids else None,
        at=draft.found.now,
    )
