"""The rule of the one write: check every guard in the order of law 2, then say which rows change.

life -> receipt -> generation -> run and attempt -> status -> version -> claims and waits. A later part of a commit
joins as a guard in `guards` and a function here that adds its writes.
"""

from typing import Any

from tenuto.clock import to_duration
from tenuto.codec import encode, loads_map
from tenuto.errors import CommitRefused
from tenuto.model.commit import Append, BeginRun, Commit, Receipt, TakeRun
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile, SessionStatus
from tenuto.store.rules.commit.commit_text import PackedCommit, PackedDocument
from tenuto.store.rules.commit.guards import check_guards
from tenuto.store.rules.commit.log_rows import LogWriter, Stand, encode_ends, is_run_log, stand_of
from tenuto.store.rules.commit.next_run import Following, follow
from tenuto.store.rules.commit.run_row import begin_stand, begun_run, run_after
from tenuto.store.rules.lane_row import sealed
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.effect_rules import effect_writes, end_effects, is_settlement, places_of
from tenuto.store.rules.parts.input_rules import end_inputs, input_writes
from tenuto.store.rules.parts.outgoing_rules import outgoing_writes
from tenuto.store.rules.parts.profile_rules import changed_profile, merged_metadata, new_profile, profile_write
from tenuto.store.rules.parts.usage_rules import usage_writes
from tenuto.store.rules.parts.wait_rules import wait_writes
from tenuto.store.rules.plan import Ask, Draft, Found, Plan, Write, found_after
from tenuto.store.rules.rows import CheckpointRow, EventRow, RunRow, SessionRow
from tenuto.store.rules.session_row import blank_row, check_life, new_receipt, receipt_row, replay, session_write


def ask_commit(packed: PackedCommit) -> Ask:
    """Say what the rule needs to see for this commit."""
    commit = packed.commit
    points = [w.base if isinstance(w, Append) else w.keep for w in commit.logs.values()]
    following = commit.next_run
    begin = following.begin if following else commit.run if isinstance(commit.run, BeginRun) else None
    if isinstance(commit.run, BeginRun | TakeRun):
        points += [*(commit.run.base_ends or {}).values(), *(commit.run.ends or {}).values()]
    return Ask(
        key=commit.key,
        operation_id=commit.operation_id,
        run_id=commit.run.run_id if commit.run else "",
        profile=bool(packed.profile) or commit.metadata is not None,
        lineage=not is_plain(commit),
        saves=commit.save,
        points=tuple({point for point in points if point is not None}),
        waits=(*(settled.wait_id for settled in commit.settle_waits), *commit.keep_waits),
        hashes=_known_hashes(packed),
        invocation_id=begin.invocation_id if begin else None,
        next_run=following.begin.run_id if following else None,
        inputs=(*(claim.input_id for claim in commit.consume), *((following.input_id,) if following else ())),
        input_keys=tuple(each.key for each in commit.inputs if each.key is not None),
        effects=places_of(commit) if commit.effects else (),
    )


def is_plain(commit: Commit) -> bool:
    """Return whether no branch row is needed: nothing moves, or the head is plainly appended to.

    A run that is under way may stand elsewhere than the head; whoever looks at its row has to see to that.
    """
    if not (commit.logs or commit.save):
        return True
    run = commit.run
    begins_elsewhere = isinstance(run, BeginRun) and not (run.fresh and run.ends is None and run.base_ends is None)
    if not commit.save or begins_elsewhere or isinstance(run, TakeRun):
        return False
    return all(isinstance(w, Append) and w.base is None and not is_run_log(name) for name, w in commit.logs.items())


def is_warm(packed: PackedCommit) -> bool:
    """Return whether the session's row and the run's are all there is to see, and others are not likely to have come
    between: under a lane, or if the caller has just seen the version it names.
    """
    commit = packed.commit
    waits = commit.settle_waits or commit.keep_waits
    parts = packed.profile or commit.metadata or waits or packed.holders or any(map(is_settlement, commit.effects))
    alone = commit.generation is not None or commit.expected_version is not None
    return alone and not parts and is_plain(commit)


def _known_hashes(packed: PackedCommit) -> tuple[str, ...]:
    holders = packed.holders
    return tuple(sorted({content for document in holders for content in document.known})) if holders else ()


def decide_commit(packed: PackedCommit, found: Found) -> Plan[Receipt]:
    """Refuse the commit, return its first receipt, or say what it writes."""
    commit = packed.commit
    row = found.session or blank_row(commit.key, found)
    check_life(commit.key, commit.life, row)
    if found.receipt:
        return Plan(replay(found.receipt, packed.intent))
    return write_commit(packed, found, row, check_guards(packed, row, found))


def write_commit(packed: PackedCommit, found: Found, old: SessionRow, run: RunRow | None) -> Plan[Receipt]:
    """Say which rows a commit changes whose guards all hold."""
    commit, now = packed.commit, found.now
    number = next_count(old.commit_no, "the commit number")
    begin = commit.run if isinstance(commit.run, BeginRun) else None
    stand = stand_of(run) if run else Stand()
    if isinstance(commit.run, BeginRun) or (isinstance(commit.run, TakeRun) and commit.run.ends is not None):
        stand = begin_stand(commit.run, old, found)
    log = LogWriter(old, stand, found, number, _entry_schema(commit, old))
    changes: dict[str, Any] = {
        "commit_no": number,
        "event_seq": next_count(old.event_seq, "the event number", len(commit.events)),
        "updated_at": max(old.updated_at, now),
    }
    _check_kinds(commit, old, log)
    if commit.save:
        log.save(commit.logs, packed.items, commit.removed)
        changes |= _head_changes(packed, old, log, now)
    else:
        log.checkpoint(commit.logs, packed.items)
    changes["branch_seq"] = log.branch_seq
    if packed.shown:
        changes |= packed.shown
    if commit.status is not None:
        changes["status"] = str(commit.status)
    if commit.count_resume:
        changes["resume_count"] = next_count(old.resume_count, "the resume count")
    if commit.rearm:
        expires_at = found.lease + to_duration(commit.rearm.ttl)
        changes |= {"armed": 1, "nonce": sealed(commit.rearm.nonce), "lane_expires_at": expires_at}
    if commit.disarm:
        changes["armed"] = 0
    if begin:
        changes["run_seq"] = next_count(old.run_seq, "the run number")
    if commit.generation is not None and isinstance(commit.run, BeginRun | TakeRun):
        changes["current_run"] = commit.run.run_id
    row = old._replace(**changes)
    after = begun_run(packed, begin, row, log, found) if begin else run_after(packed, run, row, log, found)
    draft = Draft(commit, found, old, row, after, log.ends)
    following = follow(draft, log, commit.next_run, packed.next_run) if commit.next_run and packed.next_run else None
    if following:
        row = following.row
    writes = [session_write(found, row, free_lane=commit.save and commit.generation is None)]
    minted = _add_parts(packed, draft, log, writes, following)
    if commit.carries:
        writes.append(Write("carry_runs", [(row.version, row.sid, row.life, old.version)]))
    if begin and after:
        writes.append(Write("insert_runs", [after]))
    elif run and after:
        if after != run:  # whatever changes a run moves its session's row too, which is guarded
            writes.append(Write("update_runs", [(*after.changes, run.run_id, run.attempt)], must=True))
        if commit.end:
            writes += end_inputs(run, commit)
    if after and commit.end and commit.end.status == RunStatus.COMPLETED:
        writes += end_effects(run, after)
    if following:
        writes += following.writes
        draft.row, after = following.row, following.run
    ends = log.heads if commit.save or after is None else log.ends
    text = row.heads if commit.save else encode_ends(ends)
    receipt = receipt_row(draft.row, commit.operation_id, packed.intent, text, now, minted)
    writes.append(Write("insert_receipts", [receipt]))
    if commit.heard is not None:
        writes.append(Write("forget_receipts", [(row.sid, row.life, commit.heard)]))
    return Plan(new_receipt(receipt, ends, minted), writes, found_after(found, row, after))


def _add_parts(
    packed: PackedCommit, draft: Draft, log: LogWriter, writes: list[Write], following: Following | None
) -> dict[str, list[str]]:
    """Add the writes of every part the commit has; return the ids it mints, by part."""
    commit = draft.commit
    if packed.holders:
        writes += content_writes(draft.row, packed.holders)
    writes += log.writes()
    if packed.profile or commit.metadata or not draft.old.alive:
        writes += _profile_writes(packed, draft)
    if commit.checkpoint:
        writes.append(Write("insert_checkpoints", [_checkpoint_row(packed, draft, log)]))
    told = []
    if packed.events:
        run_id, last = draft.run.run_id if draft.run else None, draft.row.event_seq
        told.append(EventRow(draft.row.sid, draft.old.event_seq + 1, last, run_id, draft.found.now, packed.events))
    if following and following.told:
        told.append(following.told)
    if told:
        writes.append(Write("insert_events", told))
    minted: dict[str, list[str]] = {}
    if commit.open_waits or commit.settle_waits or commit.keep_waits:
        minted["waits"] = wait_writes(draft, packed.waits, packed.answers, writes)
    if commit.inputs or commit.consume or commit.rolls_back is not None:
        minted["inputs"] = input_writes(draft, packed.inputs, writes)
    if commit.effects:
        effect_writes(draft, packed.effects, writes)
    if commit.usage:
        usage_writes(draft, writes)
    if commit.outgoing:
        minted["outgoing"] = outgoing_writes(draft, packed.outgoing, writes)
    return {part: ids for part, ids in minted.items() if ids} if minted else minted


def _entry_schema(commit: Commit, old: SessionRow) -> str:
    """Return the schema version the commit's entries are written under."""
    if commit.checkpoint and not commit.save:
        return commit.checkpoint.schema_version
    return old.schema_version if commit.schema_version is None else commit.schema_version


def _check_kinds(commit: Commit, row: SessionRow, log: LogWriter) -> None:
    """Refuse a field that would change between document and log; that needs a migration, which removes it first.

    A run under another schema version than the head's may write ahead what its migration makes a log; its save, with
    all the run wrote, is checked like any other.
    """
    point = commit.checkpoint
    if not commit.save and (point is None or point.schema_version != row.schema_version):
        return
    heads = log.heads
    clash = commit.document.keys() & heads.keys()
    written = commit.logs.keys() | log.own if commit.save else commit.logs.keys()
    if commit.next_run:
        written = written | {commit.next_run.log}
    new_logs = written - heads.keys()
    if new_logs and row.alive:
        fields = loads_map(row.document, "document").keys() | loads_map(row.held or "{}", "held fields").keys()
        clash |= {name for name in new_logs & fields if not is_run_log(name)}
    clash -= commit.removed
    if clash:
        raise CommitRefused(
            f"{commit.key}: {', '.join(sorted(clash))} would change between document and log; that needs a migration.",
            fields=sorted(clash),
        )


def _head_changes(packed: PackedCommit, row: SessionRow, log: LogWriter, now: int) -> dict[str, Any]:
    document, removed = packed.document, packed.commit.removed
    inline, held = row.document, row.held
    if document.inline or document.held or (removed and (inline != "{}" or held)):
        values = loads_map(inline, "document")
        names = loads_map(held, "held fields") if held else {}
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


def content_writes(row: SessionRow, documents: list[PackedDocument]) -> list[Write]:
    """Return the writes that keep documents' big values and say which session holds them."""
    bodies = {content: text for document in documents for content, text in document.bodies.items()}
    known = {content for document in documents for content in document.known} - bodies.keys()
    kept = [(row.tenant, content, "json", text) for content, text in sorted(bodies.items())]
    touched = [(row.tenant, content) for content in sorted(known)]
    holdings = [(row.sid, row.tenant, content) for content in sorted(bodies.keys() | known)]
    writes = [Write("hold_contents", kept), Write("touch_contents", touched, must=True)]
    return [*(write for write in writes if write.rows), Write("insert_holdings", holdings)]


def _profile_writes(packed: PackedCommit, draft: Draft) -> list[Write]:
    changes, born = packed.profile, draft.row.alive and not draft.old.alive
    if not (changes or born or draft.commit.metadata):
        return []
    row = None if born else draft.found.profile
    row = row or new_profile(draft.row.sid, packed.birth or Profile(), parent=draft.found.parent)
    if draft.commit.metadata:
        found = changes.get("metadata", row.metadata)
        changes = {**changes, "metadata": merged_metadata(found, draft.commit.metadata)}
    return [profile_write(changed_profile(row, changes))]


def _checkpoint_row(packed: PackedCommit, draft: Draft, log: LogWriter) -> CheckpointRow:
    checkpoint, document = draft.commit.checkpoint, packed.checkpoint
    assert checkpoint is not None
    assert document is not None
    if checkpoint.before and not checkpoint.document:
        inline, held, schema = draft.old.document, draft.old.held, draft.old.schema_version
    else:
        inline, held = encode(document.inline), encode(document.held) if document.held else None
        schema = checkpoint.schema_version
    if checkpoint.before:
        ends = before.ends if (before := draft.found.run) and before.ends is not None else draft.old.heads
    else:
        ends = encode_ends(log.ends if draft.run else log.heads)
    return CheckpointRow(
        session=draft.row.sid,
        commit_no=draft.row.commit_no,
        life=draft.row.life,
        run_id=draft.run.run_id if draft.run and not checkpoint.before else None,
        step=checkpoint.step,
        cursor=packed.cursor,
        document=inline,
        held=held,
        ends=ends,
        schema_version=schema,
        created_at=draft.found.now,
    )
