"""How a session begins, and how it is forked."""

from dataclasses import dataclass, fields, replace

from tenuto.codec import encode, loads_map
from tenuto.errors import ForkPointNotRetained, SessionExists, SessionNotFound
from tenuto.model.commit import Receipt
from tenuto.model.event import EventType
from tenuto.model.session import ForkPoint, LogEnd, Profile, SessionKey, SessionStatus
from tenuto.store.rules.commit.commit_text import PackedCommit
from tenuto.store.rules.commit.lineage import new_branch, segments
from tenuto.store.rules.commit.log_rows import encode_ends, is_run_log
from tenuto.store.rules.commit.pack import intent_of
from tenuto.store.rules.commit.write import write_commit
from tenuto.store.rules.lane_row import busy, is_live
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.input_rules import PackedInput
from tenuto.store.rules.parts.profile_rules import new_profile, profile_meaning, profile_write
from tenuto.store.rules.plan import Found, Plan, Write
from tenuto.store.rules.records import ends_of, profile_of
from tenuto.store.rules.rows import BranchRow, SessionRow
from tenuto.store.rules.session_row import blank_row, check_commit, receipt_of, receipt_row, replay, session_write
from tenuto.store.rules.verbs.inbox_rules import event_row, queued_row, told_of


def decide_create(packed: PackedCommit, parent_life: int | None, found: Found) -> Plan[Receipt]:
    """Begin a session, return the receipt of its first create, or refuse a live id."""
    key = packed.commit.key
    row = _vacant(key, packed.intent, found)
    if isinstance(row, Receipt):
        return Plan(row)
    parent = found.parent if found.parent and found.parent.alive else None
    if parent_life is not None and (parent is None or parent.life != parent_life):
        raise SessionNotFound(f"The parent of {key} was deleted.", key=key)
    plan = write_commit(packed, found, row, None)
    if parent is not None:  # a delete of the parent that lands first is not missed, one that lands later finds it
        plan.writes.append(Write("pin_session", [(parent.sid, parent.life)], must=True))
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Forking:
    """A fork that is asked for; see `Store.fork`."""

    source: SessionKey
    target: SessionKey
    at: int | None
    profile: Profile | None
    expected_commit: int | None
    first: PackedInput | None
    operation_id: str

    def intent(self) -> str:
        """Hash what the fork means; what it expects of its source is a guard, and not part of that."""
        names = [[key.tenant, key.kind, key.session_id] for key in (self.target, self.source)]
        profile = profile_meaning(self.profile) if self.profile else None
        first = [] if self.first is None else [[self.first.given.key, self.first.digest, self.first.given.input_id]]
        return intent_of(["fork", *names, self.at, profile, *first])


def decide_fork(asked: Forking, found: Found) -> Plan[Receipt]:
    """Begin a session whose head is the source's, now or at a checkpoint, without copying an entry."""
    source, at, intent = asked.source, asked.at, asked.intent()
    row = _vacant(asked.target, intent, found)
    if isinstance(row, Receipt):
        return Plan(row)
    origin = found.source
    if origin is None or not (origin.alive or found.checkpoint):
        raise SessionNotFound(f"There is no {source} to fork.", key=source)
    check_commit(source, asked.expected_commit, origin)
    if at is not None and found.checkpoint is None:
        near = ", ".join(map(str, found.nearest)) or "none"
        raise ForkPointNotRetained(
            f"{source} keeps nothing of commit {at}; the nearest points that can be forked are: {near}.",
            key=source,
            nearest=found.nearest,
        )
    point = found.checkpoint or origin
    ends = found.checkpoint.ends if found.checkpoint else origin.heads
    heads, branches, parents = _fork_logs(row, ends_of(ends, "ends"), found)
    inline = {k: v for k, v in loads_map(point.document, "document").items() if not is_run_log(k)}
    held = {k: v for k, v in loads_map(point.held or "{}", "held fields").items() if not is_run_log(k)}
    profile = _fork_profile(found, origin, source, point.commit_no, asked.profile)
    shown = new_profile(row.sid, profile, origin.sid, found.parent)
    new = row._replace(
        family=origin.family,
        alive=1,
        status=str(SessionStatus.ACTIVE),
        version=next_count(row.version, "the version"),
        commit_no=next_count(row.commit_no, "the commit number"),
        schema_version=point.schema_version,
        branch_seq=row.branch_seq + len(branches),
        heads=encode_ends(heads),
        document=encode(inline),
        held=encode(held) if held else None,
        created_at=found.now,
        updated_at=max(row.updated_at, found.now),
        preview=shown.preview,
    )
    first: list[Write] = []
    minted: dict[str, list[str]] = {}
    if asked.first is not None:
        queued = queued_row(asked.first, new, found.now)
        event = event_row(new, found.now, EventType.INPUT_QUEUED, told_of(queued), None)
        first = [Write("insert_events", [event]), Write("insert_inputs", [queued])]
        minted = {"inputs": [queued.input_id]}
        new = new._replace(event_seq=event.last_seq)
    receipt = receipt_row(new, asked.operation_id, intent, new.heads, found.now, minted)
    writes = [
        session_write(found, new, free_lane=True),
        *first,
        Write("pin_session", [(origin.sid, origin.life)], must=True),
    ]
    if held:
        hashes = sorted(set(held.values()))
        writes.append(Write("touch_contents", [(new.tenant, content) for content in hashes], must=True))
        writes.append(Write("insert_holdings", [(new.sid, new.tenant, content) for content in hashes]))
    if found.parent is not None and found.parent.alive:
        writes.append(Write("pin_session", [(found.parent.sid, found.parent.life)], must=True))
    if parents:
        writes.append(Write("share_branches", sorted(parents), must=True))
    if branches:
        writes.append(Write("insert_branches", branches))
    writes.append(profile_write(shown))
    writes.append(Write("insert_receipts", [receipt]))
    return Plan(receipt_of(receipt, replayed=False), writes)


def _vacant(key: SessionKey, intent: str, found: Found) -> SessionRow | Receipt:
    row = found.session or blank_row(key, found)
    if found.receipt:
        return replay(found.receipt, intent)
    if row.alive:
        raise SessionExists(
            f"There is a {key} already, at version {row.version}; load it, or choose another id.",
            key=key,
            found_version=row.version,
        )
    if is_live(row, found.lease):
        raise busy(key, row)
    return row


def _fork_logs(
    row: SessionRow, ends: dict[str, LogEnd], found: Found
) -> tuple[dict[str, LogEnd], list[BranchRow], set[tuple[int, int]]]:
    heads: dict[str, LogEnd] = {}
    branches: list[BranchRow] = []
    parents: set[tuple[int, int]] = set()
    for name, end in ends.items():
        if is_run_log(name):
            continue
        parts = segments(found.branches.get((end.session, end.branch)), end)
        if parts:
            parents.add((parts[-1].session, parts[-1].branch))
        branch = new_branch(row.sid, row.branch_seq + len(branches) + 1, row.life, name, parts)
        branches.append(branch)
        heads[name] = LogEnd(row.sid, branch.branch, branch.start)
    return heads, branches, parents


def _fork_profile(
    found: Found, origin: SessionRow, source: SessionKey, commit: int, changes: Profile | None
) -> Profile:
    inherited = profile_of(found.source_profile, source, origin.preview) if found.source_profile else Profile()
    point = ForkPoint(session_id=source.session_id, commit_number=commit, version=origin.version)
    base = replace(inherited, parent=None, root=None, expires_at=None, failure_reason=None, forked_from=point)
    if found.checkpoint:
        base = replace(base, preview=None)  # it shows what was said later
    if changes is None:
        return base
    default = Profile()
    given = {f.name: getattr(changes, f.name) for f in fields(changes)}
    return replace(base, **{k: v for k, v in given.items() if v != getattr(default, k) and k != "forked_from"})
